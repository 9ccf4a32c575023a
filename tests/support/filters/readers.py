"""Readers of Parquet files and lakehouse tables that skip by statistics: how each counts with a filter."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from filters import Filter, Meaning, chosen, mistakes

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
IEEE = Meaning(in_finds_nan=True, in_differs_zeros=True, null_is_not_in=True)
"""pyarrow: NaN compares as the standard has it, and `is_in` goes by hashes."""
TOTAL = Meaning(nan_is_greatest=True)


def check_files(paths: Sequence[str], few: int) -> None:
    """Compare the counts by DuckDB, polars and pyarrow with the unfiltered rows.

    Args:
        paths: Of the files.
        few: How many filters are tried on each column.
    """
    filters = chosen(pa.concat_tables([pq.read_table(path) for path in paths]), few)
    assert not mistakes(filters, by_duckdb(paths, filters), TOTAL)
    assert not mistakes(filters, by_polars(paths, filters), TOTAL)
    check_arrow(ds.dataset(paths), filters)


def check_arrow(dataset: ds.Dataset, filters: Sequence[Filter]) -> None:
    """Compare the counts by pyarrow with the unfiltered rows."""
    filters = [each for each in filters if arrow_is_right(each)]
    assert not mistakes(filters, by_arrow(dataset, filters), IEEE)


def by_duckdb(paths: Sequence[str], filters: Sequence[Filter]) -> list[int | str]:
    """Count with DuckDB."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW t AS FROM read_parquet({list(paths)!r})")
        return [
            _tried(
                lambda each=each: connection.execute(
                    f"SELECT count(*) FROM t WHERE {_condition(each, duckdb_literal)}"
                ).fetchall()[0][0]
            )
            for each in filters
        ]


def _condition(each: Filter, literal: Callable[[Filter, Any], str]) -> str:
    """Return a filter in SQL."""
    first, *rest = each.column.path
    name = f'"{first}"' + "".join(f"['{field}']" for field in rest)
    values = [literal(each, value) for value in each.literals]
    text = {
        "between": lambda: f"{name} BETWEEN {values[0]} AND {values[1]}",
        "in": lambda: f"{name} IN ({', '.join(values)})",
        "is null": lambda: f"{name} IS NULL",
        "is nan": lambda: f"isnan({name})",
    }.get(each.operation, lambda: f"{name} {each.operation} {values[0]}")()
    return f"NOT ({text})" if each.negated else text


_UNITS = {"s": 10**6, "ms": 10**3, "us": 1}


def duckdb_literal(each: Filter, value: Any) -> str:
    """Return a value in DuckDB's SQL."""
    kind = each.column.type
    if pa.types.is_date(kind):
        return f"(DATE '1970-01-01' + ({value}))"
    if pa.types.is_time(kind):
        seconds, micros = divmod(value * _UNITS[kind.unit], 10**6)
        return f"TIME '{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}'"
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            return f"make_timestamp_ns(({value})::BIGINT)"
        function = "make_timestamptz" if kind.tz else "make_timestamp"
        return f"{function}(({value * _UNITS[kind.unit]})::BIGINT)"
    if isinstance(value, str):
        return f"decode(unhex('{value.encode().hex()}'))"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, float):
        return f"'{value!r}'::{'DOUBLE' if kind.bit_width == 64 else 'FLOAT'}"
    if isinstance(value, Decimal):
        return f"'{value:f}'::DECIMAL({kind.precision}, {kind.scale})"
    return str(value)


def by_arrow(dataset: ds.Dataset, filters: Sequence[Filter]) -> list[int | str]:
    """Count with pyarrow.dataset."""
    return [
        _tried(lambda each=each: dataset.count_rows(filter=arrow_expression(each)))
        for each in filters
    ]


def arrow_is_right(each: Filter) -> bool:
    """Return whether pyarrow counts right; it is wrong for `not (x < NaN)` and `x in (0.0)`.

    From the bounds 1.0 and 2.0 of a row group it concludes that `x < NaN` is true of all rows.
    Bounds of -0.0 and 0.0 are equal for it, so it takes one for all values, while `is_in`
    distinguishes the two.
    """
    if each.operation == "in":
        return not each.column.floating or 0.0 not in each.literals
    ordered = each.operation in ("<", "<=", ">", ">=", "between")
    return not (each.negated and ordered and any(value != value for value in each.literals))


def arrow_expression(each: Filter) -> pc.Expression:
    """Return a filter as pyarrow has it."""
    column = pc.field(*each.column.path)
    values = [_arrow_scalar(each, value) for value in each.literals]
    if each.operation == "between":
        found = (column >= values[0]) & (column <= values[1])
    elif each.operation == "in":
        found = column.isin(_arrow_array(each, each.literals))
    elif each.operation == "is null":
        found = column.is_null()
    elif each.operation == "is nan":
        found = pc.is_nan(column)
    else:
        found = _OPERATORS[each.operation](column, pc.scalar(values[0]))
    return ~found if each.negated else found


def _arrow_scalar(each: Filter, value: Any) -> pa.Scalar:
    return _arrow_array(each, [value])[0]


def _arrow_array(each: Filter, values: Sequence[Any]) -> pa.Array:
    """Return values of a column's type."""
    kind = each.column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def by_polars(paths: Sequence[str], filters: Sequence[Filter]) -> list[int | str]:
    """Count with polars."""
    scan = polars.scan_parquet(list(paths))
    return [
        _tried(
            lambda each=each: (
                scan.filter(polars_expression(each)).select(polars.len()).collect().item()
            )
        )
        for each in filters
    ]


def polars_expression(each: Filter) -> polars.Expr:
    """Return a filter as polars has it."""
    first, *rest = each.column.path
    column = polars.col(first)
    for field in rest:
        column = column.struct.field(field)
    values = [_polars_literal(each, value) for value in each.literals]
    if each.operation == "between":
        found = column.is_between(values[0], values[1])
    elif each.operation == "in":
        series = polars.Series(polars.from_arrow(_arrow_array(each, each.literals)))
        found = column.is_in(series.implode())
    elif each.operation == "is null":
        found = column.is_null()
    elif each.operation == "is nan":
        found = column.is_nan()
    else:
        found = _OPERATORS[each.operation](column, values[0])
    return ~found if each.negated else found


def _polars_literal(each: Filter, value: Any) -> polars.Expr:
    series = polars.Series(polars.from_arrow(_arrow_array(each, [value])))
    if pa.types.is_temporal(each.column.type):
        number = series.cast(polars.Int64).item()
        return polars.lit(number, dtype=polars.Int64).cast(series.dtype)
    return polars.lit(value, dtype=series.dtype)


def by_datafusion(table: Any, filters: Sequence[Filter]) -> list[int | str]:
    """Count with DataFusion, through deltalake; it skips pages, and goes by Bloom filters."""
    from deltalake import QueryBuilder

    builder = QueryBuilder().register("t", table)

    def counted(each: Filter) -> int:
        statement = f"SELECT count(*) FROM t WHERE {_condition(each, _datafusion_literal)}"
        return int(pa.table(builder.execute(statement).read_all()).column(0)[0].as_py())

    return [_tried(lambda each=each: counted(each)) for each in filters]


def _datafusion_literal(each: Filter, value: Any) -> str:
    kind = each.column.type
    if pa.types.is_date(kind):
        return f"arrow_cast(arrow_cast({value}, 'Int32'), 'Date32')"
    if pa.types.is_timestamp(kind):
        zone = 'Some("UTC")' if kind.tz else "None"
        return f"arrow_cast({value}, 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, str):
        return f"arrow_cast(X'{value.encode().hex()}', 'Utf8')"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        text = "NaN" if math.isnan(value) else repr(value)
        return f"arrow_cast('{text}', '{'Float64' if kind.bit_width == 64 else 'Float32'}')"
    if isinstance(value, Decimal):
        return f"arrow_cast('{value:f}', 'Decimal128({kind.precision}, {kind.scale})')"
    return str(value)


def by_pyiceberg(table: Any, filters: Sequence[Filter]) -> list[int | str]:
    """Count with pyiceberg, which skips files by the bounds in the table's own records."""
    return [
        _tried(lambda each=each: table.scan(row_filter=iceberg_expression(each)).count())
        for each in filters
    ]


def iceberg_is_right(each: Filter) -> bool:
    """Return whether pyiceberg counts as documented here, before it has looked at a file.

    It refuses NaN, and takes infinity for a number that no `float` can equal. An `in` of one value
    becomes `=`, which for NULL is neither true nor false.
    """
    floats = [value for value in each.literals if isinstance(value, float)]
    if any(value != value for value in floats):
        return False
    if each.column.type == pa.float32() and any(map(math.isinf, floats)):
        return False
    return each.operation != "in" or len(set(each.literals)) > 1


def iceberg_expression(each: Filter) -> Any:
    """Return a filter as pyiceberg has it."""
    from pyiceberg import expressions as of
    from pyiceberg.expressions import literals

    def literal(value: Any) -> Any:
        kind = each.column.type
        if pa.types.is_date(kind):
            return literals.DateLiteral(value)
        if pa.types.is_time(kind):
            return literals.TimeLiteral(value)
        if pa.types.is_timestamp(kind):
            return literals.TimestampLiteral(value)
        return literals.literal(value)

    (name,) = each.column.path
    values = [literal(value) for value in each.literals]
    if each.operation == "between":
        found = of.And(of.GreaterThanOrEqual(name, values[0]), of.LessThanOrEqual(name, values[1]))
    elif each.operation == "in":
        found = of.In(name, set(values))
    elif each.operation == "is null":
        found = of.IsNull(name)
    elif each.operation == "is nan":
        found = of.IsNaN(name)
    else:
        kinds = {
            "=": of.EqualTo,
            "<>": of.NotEqualTo,
            "<": of.LessThan,
            "<=": of.LessThanOrEqual,
            ">": of.GreaterThan,
            ">=": of.GreaterThanOrEqual,
        }
        found = kinds[each.operation](name, values[0])
    return of.Not(found) if each.negated else found


def _tried(counted: Callable[[], int]) -> int | str:
    """Return a count, or the error in place of it."""
    try:
        return counted()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
