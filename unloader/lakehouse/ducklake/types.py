"""From the columns of the files to those of a DuckLake table, and the comparison with a table's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unloader.lakehouse.columns import Column, check_alike
from unloader.lakehouse.refusals import no_exact_type

if TYPE_CHECKING:
    import pyarrow as pa


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table that holds such files.

    Raises:
        OutputFailed: DuckLake has no type that holds all values of a column exactly.
    """
    return [Column(name=each.name, kind=_kind(each), nullable=each.nullable) for each in schema]


def check_columns(schema: pa.Schema, table: Sequence[Column], name: str) -> None:
    """Check that files have the columns of a table.

    Args:
        schema: Of the files.
        table: Its columns.
        name: Of the table, for messages.

    Raises:
        OutputFailed: It has other columns, or one of another type, or that may not be null.
    """
    check_alike(columns_of(schema), table, name)


def _kind(field: pa.Field) -> str:
    import pyarrow as pa

    arrow = field.type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    plain: dict[Any, str] = {
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.uint8(): "UTINYINT",
        pa.uint16(): "USMALLINT",
        pa.uint32(): "UINTEGER",
        pa.uint64(): "UBIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.date32(): "DATE",
        pa.time64("us"): "TIME",
        pa.string(): "VARCHAR",
        pa.large_string(): "VARCHAR",
        pa.binary(): "BLOB",
        pa.large_binary(): "BLOB",
    }
    if arrow in plain:
        return plain[arrow]
    if pa.types.is_timestamp(arrow):
        if arrow.unit != "ns":
            return "TIMESTAMP WITH TIME ZONE" if arrow.tz else "TIMESTAMP"
        if arrow.tz is None:
            return "TIMESTAMP_NS"
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    raise no_exact_type(field, arrow, "DuckLake")
