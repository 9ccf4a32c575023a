"""Steps of SQL: checked expressions over batches, together in DuckDB where they can be.

Only the columns that expressions need go into DuckDB, and only results come out; every other column
stays the Arrow array that it was. Rows keep their order: there is one thread, and a filter is a
column of truth values that Arrow filters by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.column_steps import (
    Arrays,
    Column,
    Columns,
    names_of,
    plain_array,
    schema_of,
    target,
    with_column,
)
from unloader.transforms.model import ComputeColumn, FilterRows, Masked
from unloader.transforms.sql_expressions import Expression, checked, driver, open_session
from writers.schema import INFINITE, has_infinities, pc

if TYPE_CHECKING:
    import duckdb

_EXACT = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "TIME", "DATE", "TIMESTAMP", "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
})  # fmt: skip
"""Types that Arrow holds exactly."""
_DECIMAL = re.compile(r"DECIMAL\(\d+, ?\d+\)")
_MOMENTS = ("TIMESTAMP_S", "TIMESTAMP_MS")
_NESTED = re.compile(r".*\]|(STRUCT|MAP|UNION)\(.*", re.DOTALL)


class Computed(Struct, frozen=True, kw_only=True):
    """An expression with the type of its result."""

    sql: str
    """Over columns c0, c1, ...; cast to what Arrow holds exactly."""
    columns: tuple[int, ...]
    """Which columns it needs, by their places."""
    field: pa.Field
    """Of the result, with the name that it was given."""


def typed(
    connection: duckdb.DuckDBPyConnection, expression: Expression, schema: pa.Schema, name: str
) -> Computed:
    """Return an expression with the type of its result.

    Raises:
        UsageError: The expression does not suit the types of the columns, or its result has a type
            that is not written.
    """
    what = f"the SQL of column {name}"
    sql = f"({expression.sql})"
    bound = _bound(connection, sql, expression, schema, what)
    kind = str(bound.types[0])
    if _NESTED.fullmatch(kind):
        raise UsageError(f"{what} gives a {kind}", "cast it to VARCHAR, or take a part of it")
    if kind in _MOMENTS:
        sql = f"{sql}::TIMESTAMP"
    elif kind not in _EXACT and not _DECIMAL.fullmatch(kind):
        sql = f"{sql}::VARCHAR"
    if sql != f"({expression.sql})":
        bound = _bound(connection, sql, expression, schema, what)
    found = _plain_zone(bound.to_arrow_table().schema.field(0).type)
    infinite = _is_moment(found) and any(
        has_infinities(schema.field(index)) for index in expression.columns
    )
    field = pa.field(name, found, metadata=INFINITE if infinite else None)
    return Computed(sql=sql, columns=expression.columns, field=field)


def check_condition(
    connection: duckdb.DuckDBPyConnection,
    expression: Expression,
    schema: pa.Schema,
    what: str = "the filter",
) -> None:
    """Check that an expression is a condition; `what` names it in errors."""
    kind = str(_bound(connection, expression.sql, expression, schema, what).types[0])
    if kind not in ("BOOLEAN", '"NULL"'):
        raise UsageError(f"{what} gives a {kind} instead of true or false", "compare it: a > 0")


class SqlStage:
    """Expressions over the same columns and perhaps a condition, computed together.

    `what` names the condition in errors.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, what: str = "the filter") -> None:
        self._connection = connection
        self._what = what
        self._computed: list[Computed] = []
        self._targets: list[int] = []
        self._condition: Expression | None = None

    def takes(self, expression: Expression) -> bool:
        """Whether an expression needs nothing that this stage makes or leaves out."""
        return self._condition is None and not set(expression.columns) & set(self._targets)

    def compute(self, computed: Computed, index: int) -> None:
        self._computed.append(computed)
        self._targets.append(index)

    def filter(self, condition: Expression) -> None:
        self._condition = condition

    def run(self, arrays: Arrays, rows: int) -> tuple[Arrays, int]:
        """Return the columns, and how many rows are left; OutputFailed as `_results`."""
        results, kept = self._results(arrays, rows)
        arrays = list(arrays)
        # A later expression sets a column again if there are two of them.
        for index, array in zip(self._targets, results, strict=True):
            arrays[index : index + 1] = [array]
        if kept is None or kept.true_count == rows:
            return arrays, rows
        return [each.filter(kept) for each in arrays], kept.true_count

    def kept(
        self, batches: Sequence[pa.RecordBatch], columns: Sequence[int]
    ) -> list[pa.Array | None]:
        """Return which rows of each batch the condition keeps; None is all of one.

        `columns` are the places of the condition's columns; the batches are evaluated together.
        """
        given = [pa.chunked_array([each.column(at) for each in batches]) for at in columns]
        _, kept = self._results(given, sum(each.num_rows for each in batches))
        assert kept is not None
        found, at = [], 0
        for each in batches:
            own = kept.slice(at, each.num_rows)
            found.append(None if own.true_count == each.num_rows else own)
            at += each.num_rows
        return found

    def _results(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> tuple[list[pa.Array], pa.Array | None]:
        """Return the results for some rows, and which of the rows are kept: None is all.

        Raises:
            OutputFailed: An expression fails on a row; no value of it is shown.
        """
        duckdb, condition = driver(), self._condition
        if not rows:
            kept = None if condition is None else pa.array([], pa.bool_())
            return [pa.array([], each.field.type) for each in self._computed], kept
        items = [each.sql for each in self._computed]
        needed = {index for each in self._computed for index in each.columns}
        if condition is not None:
            items.append(f"coalesce(({condition.sql}), false)")
            needed.update(condition.columns)
        named = ", ".join(f"{item} AS o{number}" for number, item in enumerate(items))
        try:
            relation = self._connection.from_arrow(_given(columns, sorted(needed), rows))
            table = relation.project(named).to_arrow_table()
        except duckdb.Error as error:
            # Without its text and its cause, which hold values.
            raise self._failed(type(error).__name__) from None
        if table.num_rows != rows:
            raise self._failed(f"{table.num_rows} results for {rows} rows")
        found = [plain_array(each) for each in table.columns]
        kept = None if condition is None else found.pop()
        pairs = zip(found, self._computed, strict=True)
        return [_result(array, each.field) for array, each in pairs], kept

    def _failed(self, why: str) -> OutputFailed:
        names = [f"the SQL of column {each.field.name}" for each in self._computed]
        what = " or ".join([*names, *([self._what] if self._condition else [])])
        return OutputFailed(
            f"{what} fails on a row ({why}); its values are not shown",
            "use TRY_CAST or CASE for the rows that do not fit",
        )


def _given(
    columns: Sequence[pa.Array | pa.ChunkedArray], needed: Sequence[int], rows: int
) -> pa.Table:
    """Return what DuckDB is given: the columns that are needed, or one that only has rows."""
    arrays = {f"c{index}": plain_array(columns[index]) for index in needed}
    return pa.table(arrays or {"rows": pa.nulls(rows, pa.int8())})


def _bound(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    expression: Expression,
    schema: pa.Schema,
    what: str,
) -> Any:
    """Return an expression bound to the columns, without rows."""
    duckdb = driver()
    empty = [pa.array([], field.type) for field in schema]
    try:
        return connection.from_arrow(_given(empty, expression.columns, 0)).project(f"{sql} AS o0")
    except duckdb.Error as error:
        # Without rows the message has only words of the expression and names.
        message = str(error).partition("\n")[0]
        names = {f"c{index}": schema.field(index).name for index in expression.columns}
        message = re.sub(r"\bc\d+\b", lambda match: names.get(match[0], match[0]), message)
        raise UsageError(f"{what} cannot be used: {message}", "correct the expression") from error


def _result(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type != field.type:
        array = array.view(field.type)  # A zone of another name.
    if _is_moment(field.type) and not has_infinities(field) and _holds_ends(array):
        raise OutputFailed(
            f"the SQL of column {field.name} gives an infinite date",
            "use CASE WHEN isfinite(...) for such rows",
        )
    return array


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _holds_ends(array: pa.Array) -> bool:
    greatest = 2 ** (array.type.bit_width - 1) - 1
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    ends = pc.min_max(array.view(width)).as_py()
    return ends["min"] is not None and (ends["max"] == greatest or ends["min"] == -greatest)


def _plain_zone(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


class SqlSteps:
    """The steps of SQL of one transform, and the session that they share."""

    def __init__(self) -> None:
        self._connection = open_session()
        self.inputs: set[str] = set()
        """The input columns that expressions look at."""

    def add(self, step: ComputeColumn | FilterRows, columns: Columns, stages: list[Any]) -> Columns:
        """Return the columns after a step, which is added to the last stage or to a new one."""
        if isinstance(step, FilterRows):
            condition = self._expression(step.filter, columns, "the filter")
            check_condition(self._connection, condition, schema_of(columns))
            self._stage(condition, stages).filter(condition)
            return columns
        index, name = target(columns, step.compute, "compute")
        expression = self._expression(step.sql, columns, f"the SQL of column {name}")
        computed = typed(self._connection, expression, schema_of(columns), name)
        self._stage(expression, stages).compute(computed, index)
        return with_column(columns, index, _column(computed, columns))

    def close(self) -> None:
        self._connection.close()

    def _expression(self, sql: str, columns: Columns, what: str) -> Expression:
        expression = checked(self._connection, sql, names_of(columns), what)
        for index in expression.columns:
            self.inputs.update(columns[index].inputs)
        return expression

    def _stage(self, expression: Expression, stages: list[Any]) -> SqlStage:
        last = stages[-1] if stages else None
        if isinstance(last, SqlStage) and last.takes(expression):
            return last
        stage = SqlStage(self._connection)
        stages.append(stage)
        return stage


def _column(computed: Computed, columns: Columns) -> Column:
    """Return a computed column with the inputs and masks of its input columns."""
    used = [columns[index] for index in computed.columns]
    inputs = dict.fromkeys(name for column in used for name in column.inputs)
    masked = [column.masked for column in used if column.masked is not None]
    return Column(
        field=computed.field,
        inputs=tuple(inputs),
        clear=frozenset().union(*(column.clear for column in used)),
        changes=("computed",),
        masked=Masked(method="derived", key_name=masked[0].key_name) if masked else None,
    )
