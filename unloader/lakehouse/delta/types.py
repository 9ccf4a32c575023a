"""From the columns of the files to those of a Delta table, and the comparison with a table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.lakehouse.columns import Column, check_alike
from unloader.lakehouse.refusals import no_exact_type

if TYPE_CHECKING:
    import pyarrow as pa


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table that holds such files, as Arrow has them.

    Raises:
        OutputFailed: Delta has no type that holds all values of a column exactly.
    """
    import pyarrow as pa

    return pa.schema([pa.field(each.name, _type(each), each.nullable) for each in schema])


def check_columns(schema: pa.Schema, table: Any, name: str) -> None:
    """Check that files have the columns of a table.

    Args:
        schema: Of the files.
        table: The schema of the table, as deltalake has it.
        name: Of the table, for messages.

    Raises:
        OutputFailed: It has other columns, or one of another type, or that may not be null.
    """
    from deltalake import Schema

    wanted = Schema.from_arrow(table_schema(schema)).fields
    check_alike(map(_column, wanted), map(_column, table.fields), name)


def _column(field: Any) -> Column:
    return Column(
        name=field.name,
        kind=str(getattr(field.type, "type", field.type)),
        nullable=field.nullable,
        rules=tuple(field.metadata or ()),
    )


def _type(field: pa.Field) -> Any:
    import pyarrow as pa

    arrow = field.type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    same = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    if arrow in (*same, pa.date32()):
        return arrow
    if arrow in (pa.string(), pa.large_string()):
        return pa.string()
    if arrow in (pa.binary(), pa.large_binary()):
        return pa.binary()
    if pa.types.is_timestamp(arrow) and arrow.unit != "ns":
        return pa.timestamp("us", "UTC" if arrow.tz else None)
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return pa.decimal128(arrow.precision, arrow.scale)
    raise no_exact_type(field, arrow, "Delta")
