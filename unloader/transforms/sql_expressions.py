"""SQL expressions over the columns of a row: checked, with plain names, in a session of DuckDB.

DuckDB itself parses the expression into a tree. The tree may hold columns, constants, operators,
casts, CASE and functions that give one result for the same arguments; everything else is refused:
subqueries, aggregates and windows, which would depend on how rows fall into batches, and what tells
the time or the state of the session. Columns get the names c0, c1, ..., since DuckDB takes `a` and
`"A"` for one name even in quotes, and tables may have both. What runs is made from that tree, never
from the text that was typed; and the tree of what runs is compared with it.

An expression of a job file is not trusted: another person may have written it. So the session opens
no file, no network connection and no extension, cannot be set otherwise, has one thread and little
memory, and writes no temporary file, in which clear values would stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from unloader.errors import UsageError
from unloader.sources.registry import missing_driver
from unloader.transforms.column_steps import found

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

_SERIALIZE = "SELECT json_serialize_sql(?::VARCHAR)"
_HINT = "give an expression of DuckDB's SQL over the columns of one row"
_ONE_ROW = "the result must depend on one row only; expressions over several rows belong in --query"


class Expression(Struct, frozen=True, kw_only=True):
    """An expression that may run."""

    sql: str
    """Over columns c0, c1, ..."""
    columns: tuple[int, ...]
    """Which columns it needs, by their places, ascending."""


def checked(
    connection: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str], what: str
) -> Expression:
    """Return an expression as it may run; `what` is its name in errors.

    Raises:
        UsageError: It is not an expression, or contains something that is refused.
    """
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
    """Return a new session; the process has one database in memory for all of them.

    Raises:
        ConfigError: DuckDB is missing.
    """
    return _database(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the database of this process: opening one takes 30 ms of CPU, a session none."""
    duckdb = driver()
    connection = duckdb.connect(":memory:", config=_CONFIG)
    # The texts and parts of zoned timestamps must not follow a worker's environment.
    for setting in ("TimeZone = 'UTC'", "lock_configuration = true"):
        connection.execute(f"SET GLOBAL {setting}")
    return connection


def driver() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error
    return duckdb


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
