"""Opening a DuckDB file, and what DuckDB refuses in words of this program."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from unloader.errors import (
    ConfigError,
    SourceError,
    TransientSourceError,
    UnloaderError,
    ValueRefused,
)
from unloader.model import SourceSpec
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.file_state import database_path, header_of, state_of
from unloader.sources.registry import missing_driver

HEADER_BYTES = 3 * 4096
"""A DuckDB file begins with three header blocks. The first never changes. Each checkpoint writes
one of the other two, with a number that increases."""

OLDEST_VERSION = 2
"""The oldest major version of DuckDB whose processes can sort on disk in one directory. Tried with
1.4.0 and 1.5.0, where some of three processes failed, and 2.0.1."""

SQLITE = b"SQLite format 3\0"


class OpenFile(Struct, frozen=True, kw_only=True):
    """A DuckDB file that is open, so that other processes cannot write it."""

    connection: Any
    path: Path
    identity: str
    """Differs between any two states of the data."""


def connect(
    spec: SourceSpec,
    config: dict[str, str],
    read_header: Callable[[str, int], bytes] = header_of,
) -> OpenFile:
    """Open the file for reading.

    Args:
        config: Settings of DuckDB.
        read_header: `kept_header_of` in a worker.

    Raises:
        ConfigError: DuckDB is missing, or the file is another database's.
        SourceError: DuckDB refuses.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error
    if int(duckdb.__version__.partition(".")[0]) < OLDEST_VERSION:
        # Temporary files of its older versions have the same names in all processes, so that
        # workers overwrote each other's.
        raise ConfigError(
            f"DuckDB {duckdb.__version__} is installed, and at least {OLDEST_VERSION}.0 is needed",
            "pip install 'unloader[duckdb]'",
        )
    path = Path(database_path(spec))
    if os.fsencode(path).decode(errors="replace") != str(path):
        raise SourceError(
            f"the path in {spec.location} is not UTF-8, and DuckDB opens only UTF-8 paths",
            "rename the file",
        )
    header = read_header(str(path), HEADER_BYTES)
    if header.startswith(SQLITE):
        raise ConfigError(f"{path} is a SQLite file", f"write sqlite://{path}")
    # Nothing is to be fetched from the network, an extension for another kind of file included.
    config = {**config, "autoinstall_known_extensions": "false"}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise TransientSourceError(
                f"another process has {path} open for writing: {first_line(error)}",
                "run again when that process has closed it",
            ) from error
        raise SourceError(
            f"cannot open {path}: {first_line(error)}",
            "check the path in the URL, and check that this user may read the file",
        ) from error
    # Zones of TIMESTAMPTZ must not follow the environment of a worker.
    with suppress(duckdb.Error):
        connection.execute("SET TimeZone = 'UTC'")
    return OpenFile(connection=connection, path=path, identity=identity_of(path, header))


def identity_of(path: Path, header: bytes) -> str:
    """Return a text that differs for each state of the data.

    The last commits may be in a log beside the file, if a writer was killed or prevents the
    checkpoint.
    """
    return state_of(str(path), header, ".wal*")


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_OF_VALUES = ("Conversion Error: ", "Invalid Input Error: ", "Out of Range Error: ")
"""Errors of expressions on values. Among the rows the text alone has the kind of the error."""


def translated(error: Exception) -> UnloaderError:
    """Return the user's error for an error of DuckDB; an `UnloaderError` is returned unchanged."""
    if isinstance(error, UnloaderError):
        return error
    text = first_line(error)
    if name := duckdb_types.refused_column(text):
        return duckdb_types.refusal([name])
    if is_out_of_memory(error):
        return SourceError(f"DuckDB ran out of memory: {text}", "lower --parallelism")
    if any(kind in text for kind in _OF_VALUES):
        return ValueRefused(f"DuckDB: {text}")
    hint = ""
    if "max_temp_directory_size" in text or "No space left" in text:
        hint = "free space on the disk of the database file, where DuckDB keeps temporary files"
    return SourceError(f"DuckDB: {text}", hint)


def is_out_of_memory(error: Exception) -> bool:
    # Among the rows it comes through Arrow, as an OSError.
    return type(error).__name__ == "OutOfMemoryException" or "Out of Memory Error" in str(error)


def relation(connection: Any, sql: str) -> Any:
    try:
        return connection.sql(sql)
    except Exception as error:
        raise translated(error) from error
