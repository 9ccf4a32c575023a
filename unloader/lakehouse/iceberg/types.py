"""From the columns of the files to those of an Iceberg table, and the comparison with a table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.lakehouse.refusals import no_exact_type, other_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema


def table_schema(schema: pa.Schema) -> Schema:
    """Return the schema of a table that holds such files, its fields numbered from 1.

    Raises:
        OutputFailed: Iceberg has no type that holds all values of a column exactly.
    """
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    fields = [
        NestedField(
            field_id=number, name=field.name, field_type=_type(field), required=not field.nullable
        )
        for number, field in enumerate(schema, start=1)
    ]
    return Schema(*fields)


def field_ids(schema: pa.Schema, table: Schema, name: str) -> tuple[int, ...]:
    """Return the numbers that a table has for the columns of files, in their order.

    Raises:
        OutputFailed: The table has other columns, or one of another type, or that may not be null.
    """
    wanted = {each.name: each for each in table_schema(schema).fields}
    has = {each.name: each for each in table.fields}
    wrong = [
        *(f"it has no column {each!r}{_alike(each, has)}" for each in wanted if each not in has),
        *(f"its column {each!r} is not in the files" for each in has if each not in wanted),
    ]
    for each in wanted.values():
        own = has.get(each.name)
        if own is None:
            continue
        if own.field_type != each.field_type:
            wrong.append(
                f"its column {each.name!r} is {own.field_type} instead of {each.field_type}"
            )
        elif own.required and not each.required:
            wrong.append(f"its column {each.name!r} may not be null, but the source's column may")
    if wrong:
        raise other_columns(name, wrong)
    return tuple(has[each.name].field_id for each in wanted.values())


def _alike(name: str, has: dict[str, Any]) -> str:
    alike = next((each for each in has if each.lower() == name.lower()), None)
    return "" if alike is None else f", but {alike!r}"


def _type(field: pa.Field) -> Any:
    import pyarrow as pa
    from pyiceberg import types

    arrow = field.type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    simple = {
        pa.bool_(): types.BooleanType(),
        pa.int8(): types.IntegerType(),
        pa.int16(): types.IntegerType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.date32(): types.DateType(),
        pa.time64("us"): types.TimeType(),
        pa.string(): types.StringType(),
        pa.large_string(): types.StringType(),
        pa.binary(): types.BinaryType(),
        pa.large_binary(): types.BinaryType(),
    }
    if (known := simple.get(arrow)) is not None:
        return known
    if pa.types.is_timestamp(arrow) and arrow.unit != "ns":
        return types.TimestamptzType() if arrow.tz else types.TimestampType()
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return types.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_fixed_size_binary(arrow):
        return types.FixedType(arrow.byte_width)
    raise no_exact_type(field, arrow, "Iceberg")
