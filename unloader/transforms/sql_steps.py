"""Steps of SQL: checked expressions over batches, together in DuckDB where they can be.

DuckDB itself parses the expression into a tree. The tree may hold columns, constants, operators,
casts, CASE and functions that give one result for the same arguments; everything else is refused:
subqueries, aggregates and windows, which would depend on how rows fall into batches, and what tells
the time or the state of the session. Columns get the names c0, c1, ..., since DuckDB takes `a` and
`"A"` for one name even in quotes, and tables may have both. What runs is made from that tree, never
from the text that was typed; and the tree of what runs is compared with it.

An expression of a job file is not trusted: another person may have written it. So the session opens
no file, no network connection and no extension, cannot be set otherwise, has one thread and little
memory, and writes no temporary file, in which clear values would stay.

Only the columns that expressions need go into DuckDB, and only results come out; every other column
stays the Arrow array that it was. Rows keep their order: there is one thread, and a filter is a
column of truth values that Arrow filters by.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, UsageError
from unloader.sources.registry import duckdb_driver
from unloader.transforms.column_steps import (
    Arrays,
    Column,
    Columns,
    Work,
    found,
    moment_ticks,
    names_of,
    plain_array,
    schema_of,
    target,
    with_column,
)
from unloader.transforms.model import Masked, Step
from writers.schema import INFINITE, has_infinities, pc

if TYPE_CHECKING:
    import duckdb

MEMORY = "256MB"
"""Of all sessions of a process; a batch is a few MB."""

_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": MEMORY,
    "temp_directory": "",
    "threads": "1",
}

_FOLLOWS_THE_ZONE = (
    "stability = 'CONSISTENT_WITHIN_QUERY' AND (function_name IN ('timezone', 'make_timestamptz')"
    " OR list_has_any(parameter_types, ['TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ_NS']))"
)

Tree: TypeAlias = Any
"""What `json.loads` makes of DuckDB's JSON."""

_ALLOWED = frozenset({
    "COLUMN_REF", "CONSTANT", "FUNCTION", "CAST", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE",
    "BETWEEN", "COLLATE", "TYPE",
})  # fmt: skip
_WORDS = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "* instead of a column",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its number",
    "LAMBDA": "a lambda function",
}
_MACROS = frozenset({
    "nullif", "if", "split_part", "fmod", "fdiv", "days_in_month", "date_add", "list_append",
    "list_prepend", "list_reverse", "array_append", "array_prepend", "array_to_string",
})  # fmt: skip
"""Macros that are made of functions that may be called."""
_REFUSED = frozenset(
    ("version", "current_localtime", "current_localtimestamp", "in_search_path", "error", "age1")
)
"""Functions that DuckDB does not mark, though they tell the time or the state of the session; `age`
of one argument is up to the present day."""
_REFUSED_BEGINNINGS = (
    "json_serialize", "json_deserialize", "json_execute", "pg_", "current_", "get_current", "txid",
    "__", "add_parquet", "duckdb_", "pragma_", "getvariable", "getenv", "nextval", "currval",
)  # fmt: skip

_EXACT = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "TIME", "DATE", "TIMESTAMP", "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
})  # fmt: skip
"""Types that Arrow holds exactly."""
_DECIMAL = re.compile(r"DECIMAL\(\d+, ?\d+\)")
_MOMENTS = ("TIMESTAMP_S", "TIMESTAMP_MS")
_NESTED = re.compile(r".*\]|(STRUCT|MAP|UNION)\(.*", re.DOTALL)

_SERIALIZE = "SELECT json_serialize_sql(?::VARCHAR)"
_HINT = "give an expression of DuckDB's SQL over the columns of one row"
_ONE_ROW = "the result must depend on one row only; expressions over several rows belong in --query"


class Expression(Struct, frozen=True, kw_only=True):
    sql: str
    """Over columns c0, c1, ...; of a column it is cast to what Arrow holds exactly."""
    columns: tuple[int, ...]
    """Which columns it needs, by their places, ascending."""
    field: pa.Field = None
    """Of the result, with the name of the column that it sets; None for a condition."""


def checked(
    connection: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str], what: str
) -> Expression:
    """Return an expression as it may run, or raise UsageError; `what` is its name in errors."""
    document = _parsed(connection, sql, what)
    statement = document["statements"][0]
    items = statement["node"].pop("select_list", [])
    if statement.get("named_param_map"):
        raise UsageError(f"{what} has a parameter without a value", _HINT)
    if len(document["statements"]) != 1 or len(items) != 1 or _plain(statement) != _bare():
        raise UsageError(f"{what} is more than one expression", _HINT)
    if items[0].get("alias"):
        raise UsageError(
            f"{what} gives its result a name", "leave AS out: the column already has a name"
        )
    used: set[int] = set()
    _rewrite(items[0], names, what, used)
    statement["node"]["select_list"] = items
    text = _written(connection, document, what)
    return Expression(sql=text, columns=tuple(sorted(used)))


def _parsed(connection: duckdb.DuckDBPyConnection, sql: str, what: str) -> Tree:
    # To the end: an unfinished answer would keep the session busy.
    document = json.loads(connection.execute(_SERIALIZE, [f"SELECT {sql}\n"]).fetchall()[0][0])
    if document["error"]:
        # The message of the parser has words of the expression, and no value of any row.
        message = str(document.get("error_message", "")).partition("\n")[0]
        raise UsageError(f"{what} is not an SQL expression: {message}", _HINT)
    if not document["statements"]:
        raise UsageError(f"{what} is empty", _HINT)
    return document


@lru_cache(maxsize=1)
def _bare() -> Tree:
    """Return the tree of a SELECT of one expression, without the expression."""
    session = open_session()
    try:
        statement = _plain(_parsed(session, "1", "1")["statements"][0])
    finally:
        session.close()
    statement["node"].pop("select_list")
    return statement


def _written(connection: duckdb.DuckDBPyConnection, document: Tree, what: str) -> str:
    """Return the text of a tree, which DuckDB makes, and reads again as the same tree."""
    answer = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(document)])
    text = str(answer.fetchall()[0][0])
    head, _, expression = text.partition(" ")
    if head != "SELECT" or _plain(_parsed(connection, expression, what)) != _plain(document):
        raise UsageError(f"{what} can be understood in two ways", "write it in another way")
    return expression


def _plain(node: Tree) -> Tree:
    if isinstance(node, dict):
        return {
            key: _plain(value)
            for key, value in node.items()
            if not key.startswith("query_location")
        }
    return [_plain(each) for each in node] if isinstance(node, list) else node


def _rewrite(node: Tree, names: Sequence[str], what: str, used: set[int]) -> None:
    """Check a tree, and put the names of columns in order."""
    if isinstance(node, list):
        for each in node:
            _rewrite(each, names, what, used)
        return
    if not isinstance(node, dict):
        return
    kind = node.get("class", "TYPE")
    if kind not in _ALLOWED:
        raise UsageError(f"{what} contains {_WORDS.get(kind, kind.lower())}", _ONE_ROW)
    if kind == "FUNCTION":
        _check_function(node, what)
    if kind == "COLUMN_REF":
        index = found(names, node["column_names"][0], what)
        used.add(index)
        node["column_names"][0] = f"c{index}"
        return
    for each in node.values():
        _rewrite(each, names, what, used)


def _check_function(node: Tree, what: str) -> None:
    name = str(node["function_name"]).lower()
    # DuckDB's parser puts `main` before some of its names.
    path = [*node.get("qualified_name", {}).get("path", [])[:-1], node.get("schema") or "main"]
    if node.get("catalog") or set(path) - {"main"}:
        raise UsageError(f"{what} calls {name} with a dot in the name", f"write {name}(...)")
    kinds = functions().get(name, frozenset())
    if kinds & {"aggregate", "window"}:
        raise UsageError(
            f"{what} calls the aggregate {name}, whose result would depend on the division of "
            "rows into batches",
            _ONE_ROW,
        )
    arity = f"{name}{len(node.get('arguments', node.get('children', [])))}"
    if "volatile" in kinds or {name, arity} & _REFUSED or name.startswith(_REFUSED_BEGINNINGS):
        raise UsageError(
            f"{what} calls {name}, whose result does not depend on the row alone",
            "use a constant instead; a resumed run must compute the same rows",
        )
    if "scalar" in kinds or ("macro" in kinds and name in _MACROS):
        return
    if kinds:
        raise UsageError(f"{what} calls {name}, which is not allowed here", _HINT)
    raise UsageError(f"{what} calls {name}, but this function does not exist", _HINT)


def open_session() -> duckdb.DuckDBPyConnection:
    """Return a new session of the process's database in memory; ConfigError without DuckDB."""
    return _database(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the database of this process: opening one takes 30 ms of CPU, a session none."""
    duckdb = duckdb_driver()
    connection = duckdb.connect(":memory:", config=_CONFIG)
    # The texts and parts of zoned timestamps must not follow a worker's environment.
    for setting in ("TimeZone = 'UTC'", "lock_configuration = true"):
        connection.execute(f"SET GLOBAL {setting}")
    return connection


@lru_cache(maxsize=1)
def functions() -> dict[str, frozenset[str]]:
    """Return what DuckDB's functions are: scalar, aggregate, macro, ..., or volatile.

    A scalar function is volatile where any form of it may give two results for one argument. Since
    2.0.1 DuckDB also marks the forms whose result follows the time zone of the session, like `+` of
    a zoned timestamp and an interval. They are not volatile here: every session has the same zone.
    """
    connection = open_session()
    try:
        rows = connection.execute(
            "SELECT lower(function_name), list_distinct(list(CASE WHEN function_type <> 'scalar'"
            f" OR stability = 'CONSISTENT' OR {_FOLLOWS_THE_ZONE} THEN function_type"
            " ELSE 'volatile' END)) FROM duckdb_functions() GROUP BY 1"
        ).fetchall()
    finally:
        connection.close()
    return {name: frozenset(kinds) for name, kinds in rows}


def typed(
    connection: duckdb.DuckDBPyConnection, expression: Expression, schema: pa.Schema, name: str
) -> Expression:
    """Return an expression with the type of its result; UsageError if it is not a written type."""
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
    kept = bound.to_arrow_table().schema.field(0).type
    if pa.types.is_timestamp(kept) and kept.tz:
        kept = pa.timestamp(kept.unit, "UTC")
    infinite = _is_moment(kept) and any(
        has_infinities(schema.field(index)) for index in expression.columns
    )
    field = pa.field(name, kept, metadata=INFINITE if infinite else None)
    return replace(expression, sql=sql, field=field)


def check_condition(
    connection: duckdb.DuckDBPyConnection, expression: Expression, schema: pa.Schema, what: str
) -> None:
    """Check that an expression is a condition; `what` names it in errors."""
    kind = str(_bound(connection, expression.sql, expression, schema, what).types[0])
    if kind not in ("BOOLEAN", '"NULL"'):
        raise UsageError(f"{what} gives a {kind} instead of true or false", "compare it: a > 0")


def rows_kept(
    connection: duckdb.DuckDBPyConnection,
    condition: Expression,
    batches: Sequence[pa.RecordBatch],
    columns: Sequence[int],
    what: str,
) -> list[pa.Array | None]:
    """Return which rows a condition keeps (None: all); OutputFailed shows no value of a row."""
    given = [pa.chunked_array([each.column(at) for each in batches]) for at in columns]
    rows = sum(each.num_rows for each in batches)
    if not rows:
        return [None] * len(batches)
    wanted = f"coalesce(({condition.sql}), false)"
    (kept,) = _results(connection, [wanted], given, condition.columns, rows, what)
    found, at = [], 0
    for each in batches:
        own = kept.slice(at, each.num_rows)
        found.append(None if own.true_count == each.num_rows else own)
        at += each.num_rows
    return found


def _results(
    connection: duckdb.DuckDBPyConnection,
    items: Sequence[str],
    columns: Sequence[pa.Array | pa.ChunkedArray],
    needed: Sequence[int],
    rows: int,
    what: str,
) -> list[pa.Array]:
    duckdb = duckdb_driver()
    named = ", ".join(f"{item} AS o{number}" for number, item in enumerate(items))
    try:
        relation = connection.from_arrow(_given(columns, needed, rows))
        table = relation.project(named).to_arrow_table()
        why = f"{table.num_rows} results for {rows} rows" if table.num_rows != rows else ""
    except duckdb.Error as error:
        why = type(error).__name__
    if why:
        # Without the error's text and its cause, which hold values.
        raise OutputFailed(
            f"{what} fails on a row ({why}); its values are not shown",
            "use TRY_CAST or CASE for the rows that do not fit",
        ) from None
    return [plain_array(each) for each in table.columns]


class SqlStage:
    """Expressions over the same columns, computed together; a `Work`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.computed: list[tuple[Expression, int]] = []
        """With the places of their results."""

    def __call__(self, arrays: Arrays, rows: int) -> Arrays:
        """Return the columns; OutputFailed if an expression fails on a row."""
        items = [each.sql for each, _ in self.computed]
        needed = sorted({index for each, _ in self.computed for index in each.columns})
        what = " or ".join(f"the SQL of column {each.field.name}" for each, _ in self.computed)
        results = _results(self._connection, items, arrays, needed, rows, what)
        arrays = list(arrays)
        # A later expression sets a column again if there are two of them.
        for array, (computed, index) in zip(results, self.computed, strict=True):
            arrays[index : index + 1] = [_result(array, computed.field)]
        return arrays


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
    duckdb = duckdb_driver()
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
    if _is_moment(field.type) and not has_infinities(field):
        greatest = 2 ** (array.type.bit_width - 1) - 1
        ends = pc.min_max(moment_ticks(array)).as_py()
        if ends["max"] == greatest or ends["min"] == -greatest:
            raise OutputFailed(
                f"the SQL of column {field.name} gives an infinite date",
                "use CASE WHEN isfinite(...) for such rows",
            )
    return array


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def computed(
    connection: duckdb.DuckDBPyConnection, step: Step, columns: Columns, stages: list[Work]
) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns after a step, added to the last or a new stage, and its inputs."""
    index, name = target(columns, step.column, "compute")
    what = f"the SQL of column {name}"
    expression = checked(connection, step.sql, names_of(columns), what)
    expression = typed(connection, expression, schema_of(columns), name)
    last = stages[-1] if stages else None
    made = {place for _, place in last.computed} if isinstance(last, SqlStage) else set()
    if not isinstance(last, SqlStage) or made & set(expression.columns):
        last = SqlStage(connection)
        stages.append(last)
    last.computed.append((expression, index))
    used = [columns[at] for at in expression.columns]
    masked = [column.masked for column in used if column.masked is not None]
    column = Column(
        field=expression.field,
        inputs=tuple(dict.fromkeys(each for column in used for each in column.inputs)),
        clear=frozenset().union(*(column.clear for column in used)),
        changes=("computed",),
        masked=Masked(method="derived", key_name=masked[0].key_name) if masked else None,
    )
    return with_column(columns, index, column), column.inputs
