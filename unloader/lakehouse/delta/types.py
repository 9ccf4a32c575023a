"""From the columns of the files to those of a Delta table, and the comparison with a table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.lakehouse.refusals import no_exact_type, other_columns

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

    wanted = {each.name: each for each in Schema.from_arrow(table_schema(schema)).fields}
    has = {each.name: each for each in table.fields}
    wrong = [
        *(f"it has no column {each!r}" for each in wanted if each not in has),
        *(f"its column {each!r} is not in the files" for each in has if each not in wanted),
    ]
    for each in wanted.values():
        own = has.get(each.name)
        if own is None:
            continue
        if own.type != each.type:
            wrong.append(f"its column {each.name!r} is {_word(own)}, and not {_word(each)}")
        elif each.nullable and not own.nullable:
            wrong.append(f"its column {each.name!r} may not be null, and the source's may")
        elif own.metadata:
            wrong.append(
                f"its column {each.name!r} has rules of its own ({', '.join(own.metadata)})"
            )
    if wrong:
        raise other_columns(name, wrong)


def _word(field: Any) -> str:
    return str(getattr(field.type, "type", field.type))


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
