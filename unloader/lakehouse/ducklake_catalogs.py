"""The place of a DuckLake table, and its catalog as DuckDB opens it; refusals as errors.

A catalog is a database: a file of DuckDB, which one process opens at a time, or SQLite, PostgreSQL
or MySQL. It is never made here, nor brought to another version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection
from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.redaction import redact
from unloader.request.locations import holds_password

MARK = "ducklake:"
CATALOG = "lake"
"""The name that a catalog has within a connection."""
RECORDS = f"__ducklake_metadata_{CATALOG}"
"""The name that its own tables have there."""

_EXTENSIONS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner", "mysql": "mysql_scanner"}
"""What DuckDB needs for catalogs in other databases, by what their names begin with."""
_BUSY = ("could not set lock", "conflicting lock", "already attached by", "database is locked")
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


class Address(Struct, frozen=True, kw_only=True):
    """A table in a catalog."""

    catalog: str
    """As DuckDB attaches it, without its mark."""
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return what a text of `--to` means."""
        rest = text.removeprefix(MARK)
        if holds_password(rest):
            raise UsageError(
                "--to ducklake: contains a password, which every user of this machine could see",
                "leave the password out: the catalog's client reads it from PGPASSWORD, "
                "~/.pgpass or MYSQL_PWD",
            )
        catalog, _, named = rest.rpartition("/")
        schema, dot, table = named.partition(".")
        if not dot:
            schema, table = "main", named
        if not catalog or not schema or not table:
            raise UsageError(
                f"--to {text} does not name a table",
                "write ducklake:CATALOG/SCHEMA.TABLE, such as "
                "ducklake:/lake/catalog.ducklake/main.orders",
            )
        return cls(catalog=_absolute(catalog), schema=schema, table=table)

    @property
    def name(self) -> str:
        """The table as `--to` has it, so that it means the same from any directory."""
        return f"{MARK}{self.catalog}/{self.schema}.{self.table}"


def _absolute(catalog: str) -> str:
    kind, mark, path = catalog.partition(":")
    if not mark or kind not in _EXTENSIONS:
        return os.path.abspath(catalog)
    return f"{kind}:{os.path.abspath(path)}" if kind == "sqlite" else catalog


@contextmanager
def attached(address: Address, *, to_write: bool = False) -> Iterator[DuckDBPyConnection]:
    """Open the catalog of a table for the context, with errors for the user.

    If another process has it open, wait for it.

    Raises:
        ConfigError: DuckDB or an extension of it is not installed.
        OutputFailed: The catalog does not answer; `Busy` where it is too busy.
    """
    connection = _connection(address)
    try:
        with answering(address):
            _attach(connection, address, to_write=to_write)
            yield connection
    finally:
        connection.close()


class Busy(OutputFailed):
    """Another process has the catalog, or was faster. Nothing was changed."""


@contextmanager
def answering(address: Address) -> Iterator[None]:
    """Turn what DuckDB says into the error for the user."""
    try:
        yield
    except duckdb.Error as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        kind = Busy if _is_busy(error) else OutputFailed
        raise kind(
            f"the DuckLake catalog {redact(address.catalog)} refused: {redact(text)}",
            "check its name and its permissions, and close other programs that keep it open",
        ) from error


def _is_busy(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, duckdb.TransactionException) or any(each in text for each in _BUSY)


def _attach(connection: DuckDBPyConnection, address: Address, *, to_write: bool) -> None:
    where = f"ducklake:{address.catalog}".replace("'", "''")
    options = "CREATE_IF_NOT_EXISTS false" + ("" if to_write else ", READ_ONLY")
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute(f"ATTACH '{where}' AS {CATALOG} ({options})")
            return
        except duckdb.InvalidInputException as error:
            if "does not exist" not in str(error):
                raise
            raise OutputFailed(
                f"the DuckLake catalog {redact(address.catalog)} does not exist",
                "check its name, or create it in DuckDB: ATTACH 'ducklake:CATALOG' AS lake "
                "(DATA_PATH 'DIRECTORY')",
            ) from error
        except duckdb.Error as error:
            if not _is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_LOOK_SECONDS)


def _connection(address: Address) -> DuckDBPyConnection:
    # DuckDB must not download extensions unasked.
    connection = duckdb.connect(
        ":memory:", config={"threads": 1, "autoinstall_known_extensions": False}
    )
    try:
        extensions(connection, address.catalog)
        # Repeated by DuckDB, a commit would not look again for the run.
        connection.execute("SET ducklake_max_retry_count = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def extensions(connection: DuckDBPyConnection, catalog: str) -> None:
    """Load what a connection needs for a catalog."""
    other = _EXTENSIONS.get(catalog.partition(":")[0])
    for extension in filter(None, ("ducklake", other)):
        _load(connection, extension)


def _load(connection: DuckDBPyConnection, extension: str) -> None:
    """Load an extension that DuckDB has installed, or that pip has."""
    package = f"duckdb_extension_{extension}"
    found = find_spec(package)
    file = None
    if found is not None and found.origin is not None:
        base = Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}"
        file = base / f"{extension}.duckdb_extension"
    name = extension if file is None or not file.exists() else str(file).replace("'", "''")
    try:
        connection.execute(f"LOAD '{name}'")
    except duckdb.Error as error:
        raise ConfigError(
            f"DuckDB {duckdb.__version__} has no extension {extension!r}, which this table needs",
            f"install it once with: python -c \"import duckdb; duckdb.sql('INSTALL {extension}')\","
            f" or pip install {package.replace('_', '-')}=={duckdb.__version__}",
        ) from error
