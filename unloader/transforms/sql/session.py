"""A session of DuckDB that has the columns of one batch and nothing else.

An expression of a job file is not trusted: it may be somebody else's. So the session opens no file,
no network connection and no extension, cannot be set otherwise, has one thread and little memory,
and writes no temporary file, in which clear values would stay. What an expression may call is
checked before, in `expressions`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unloader.sources.registry import missing_driver

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
    """Return the module `duckdb`.

    Raises:
        ConfigError: It is missing.
    """
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
    a zoned timestamp and an interval. Here they are none: every session has the same zone.
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
