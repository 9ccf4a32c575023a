"""Opening a DuckDB file, and what DuckDB refuses in words of this program."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from unloader.errors import (
    ConfigError,
    OutputFailed,
    SourceError,
    TransientSourceError,
    UnloaderError,
)
from unloader.model import SourceSpec
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.registry import missing_driver


def path_of(spec: SourceSpec) -> Path:
    parts = urlsplit(spec.location)
    path = Path(unquote(parts.path))
    odd = parts.netloc or parts.query or parts.fragment
    if odd or not path.is_absolute() or path == Path("/"):
        raise ConfigError(
            f"{spec.location} does not name a file",
            "write duckdb:///absolute/path.db, with %3F for ? and %23 for #",
        )
    return path


def identity(path: Path) -> str:
    status = path.stat()
    return f"size={status.st_size} mtime_ns={status.st_mtime_ns}"


def connect(spec: SourceSpec, config: dict[str, str]) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error
    path = path_of(spec)
    if not path.is_file():
        raise SourceError(f"there is no file {path}", "check the path in the URL")
    if _is_sqlite(path):
        raise ConfigError(f"{path} is a SQLite file", f"write sqlite://{path}")
    # Nothing is to be fetched from the network, an extension for another kind of file included.
    config = {**config, "autoinstall_known_extensions": "false"}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise TransientSourceError(
                f"{path} is open for writing in another process: {first_line(error)}",
                "run again when that process has closed it",
            ) from error
        raise SourceError(f"{path} cannot be opened: {first_line(error)}") from error
    # Zones of TIMESTAMPTZ must not follow the environment of a worker.
    with suppress(duckdb.Error):
        connection.execute("SET TimeZone = 'UTC'")
    return connection


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False  # DuckDB has the words for what is wrong.


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def translated(error: Exception) -> UnloaderError:
    """Return the user's error for whatever DuckDB raised; our own pass unchanged."""
    if isinstance(error, UnloaderError):
        return error
    text = first_line(error)
    if duckdb_types.REFUSED in text:
        return OutputFailed(*duckdb_types.refusal(text))
    if is_out_of_memory(error):
        return SourceError(f"DuckDB ran out of memory: {text}", "lower --parallelism")
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
