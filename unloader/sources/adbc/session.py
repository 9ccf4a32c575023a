"""ADBC: any database with a driver as a Python package or as a shared library.

`adbc://NAME?OPTION=VALUE&...` names the driver and its options. NAME is the end of the name of a
package, such as `snowflake` of `adbc-driver-snowflake`, the name of an installed driver manifest,
or the path of a library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import pyarrow as pa

from unloader.errors import (
    ConfigError,
    ConnectFailed,
    SessionsRefused,
    SourceError,
    TransientSourceError,
    UsageError,
)
from unloader.model import Snapshot, SourceSpec, TableSummary
from unloader.sources.dialects.catalog import DialectCatalog, DialectReader
from unloader.sources.dialects.databases import DIALECTS, REFUSED, Dialect, Session
from unloader.sources.registry import missing_driver, password_of

_USER = re.compile(r"((?:[\w+.-]+://)?[^/@:?#]+)@")
"""The user at the start of a URI."""
_BACKTICKS = ("bigquery", "mysql", "mariadb", "databricks", "spark")
"""Databases that quote names with backticks, by a part of the vendor's name."""
_DIALECT_OF = {"postgresql": "postgresql", "sqlite": "sqlite"}
"""Dialects that were tried with the ADBC driver of the vendor."""
_VENDOR_NAME, _VENDOR_VERSION = 0, 1
_BATCH_SIZES = {
    "sqlite": ("adbc.sqlite.query.batch_rows", 1024, 8192),
    "postgresql": ("adbc.postgresql.batch_size_hint_bytes", 1, 2**30),
}
"""Of each dialect: the driver's option for the size of a batch, bytes in its unit, and the most of
them."""
_NO_CONNECTION = ("08", "57P")
_AGAIN = ("40001", "40P01", "57014")
_FULL = "53300"
_LOST = ("terminating connection", "closed the connection", "no connection to the server")
"""Words of a lost connection, for errors of a stream, which have no code."""


def load() -> None:
    import adbc_driver_manager  # noqa: F401


def open_catalog(spec: SourceSpec) -> DialectCatalog:
    return DialectCatalog(spec, partial(_connected, spec))


def open_reader(spec: SourceSpec, snapshot: Snapshot | None) -> DialectReader:
    return DialectReader(partial(_connected, spec), snapshot)


def _connected(spec: SourceSpec) -> tuple[Session, Dialect]:
    session = AdbcSession(spec)
    return session, session.dialect()


def _driver_and_options(spec: SourceSpec) -> tuple[str, dict[str, str]]:
    """Return the driver and its options, with the password where the driver expects it."""
    name, _, rest = spec.location.partition(":")[2].removeprefix("//").partition("?")
    name = unquote(name)
    options = dict(parse_qsl(rest, keep_blank_values=True))
    if not name:
        raise UsageError(
            "the adbc: URL names no driver", "write adbc://DRIVER?uri=..., as in docs/adbc.md"
        )
    password = password_of(spec)
    if password is not None:
        uri = options.get("uri", "")
        if (user := _USER.match(uri)) is not None:
            options["uri"] = f"{user[1]}:{quote(password, safe='')}{uri[user.end(1) :]}"
        else:
            options["password"] = password
    if name == "postgresql" and "://" in options.get("uri", ""):
        # The driver reads names of the catalog when it connects. Later settings in the URI win.
        uri, _, settings = options["uri"].partition("?")
        options["uri"] = f"{uri}?client_encoding=UTF8{settings and '&'}{settings}"
    module = f"adbc_driver_{name}"
    if name.isidentifier() and find_spec(module) is not None:
        return import_module(module)._driver_path(), options
    return name, options


@contextmanager
def _errors(doing: str, *, connecting: bool = False) -> Iterator[None]:
    """Raise errors of the driver as the user's errors."""
    from adbc_driver_manager import Error
    from pyarrow import ArrowException

    try:
        yield
    except (Error, ArrowException, OSError) as error:
        state = getattr(error, "sqlstate", None) or ""
        status = getattr(getattr(error, "status_code", None), "name", "")
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = f"{doing}: {' '.join(each.strip() for each in lines[:3])}"
        if state == _FULL or "too many " in text:
            raise SessionsRefused(text) from error
        lost = (
            state.startswith(_NO_CONNECTION)
            or any(each in text for each in _LOST)
            or (not state and status in ("IO", "TIMEOUT", "CANCELLED") and not connecting)
        )
        refused = any(each in text for each in REFUSED)
        if connecting and not refused and (lost or status in ("IO", "TIMEOUT")):
            raise ConnectFailed(text, "check the URL, and that the server is running") from error
        if lost or state in _AGAIN or "database is locked" in text:
            raise TransientSourceError(text) from error
        raise SourceError(text) from error


class AdbcSession:
    ascii_only = False

    def __init__(self, spec: SourceSpec) -> None:
        try:
            from adbc_driver_manager import AdbcConnection, AdbcDatabase
        except ImportError as error:
            raise missing_driver(error, "adbc") from error
        driver, options = _driver_and_options(spec)
        self._statement: Any = None
        self._kind = "generic"
        try:
            with _errors("the ADBC driver", connecting=True):
                self._database = AdbcDatabase(driver=driver, **options)
                self._connection = AdbcConnection(self._database)
        except SourceError as error:
            if "dlopen" in error.message or "Could not load" in error.message:
                raise ConfigError(
                    f"the ADBC driver {driver!r} cannot be loaded: {error.message}",
                    "install the driver's package, such as adbc-driver-snowflake, or name the "
                    "path of its library",
                ) from error
            raise
        self.vendor = self._vendor()

    def _vendor(self) -> str:
        """Return the name and version of the database, as far as the driver knows them."""
        with suppress(Exception), _errors("get_info"):
            stream = self._connection.get_info([_VENDOR_NAME, _VENDOR_VERSION])
            found = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
            values = {row["info_name"]: str(row["info_value"]) for row in found}
            named = (values.get(code) for code in (_VENDOR_NAME, _VENDOR_VERSION))
            return " ".join(filter(None, named)) or "unknown"
        return "unknown"

    def dialect(self) -> Dialect:
        first = self.vendor.lower().partition(" ")[0]
        self._kind = _DIALECT_OF.get(first, "generic")
        if self._kind != "generic":
            return DIALECTS[self._kind]()
        marked = any(each in self.vendor.lower() for each in _BACKTICKS)
        return Dialect("`" if marked else '"')

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with _errors("the database refused"), closing(self._executed(sql)) as reader:
            table = reader.read_all()
            found = list(zip(*(each.to_pylist() for each in table.columns), strict=True))
        if any(isinstance(value, bytes) for row in found for value in row):
            raise SourceError(
                "the ADBC driver does not know the types of the database: texts arrive as bytes",
                "for PostgreSQL, switch quote_all_identifiers off for the role or the database, or "
                "add options=-c%20quote_all_identifiers%3Doff to the uri",
            )
        return found

    def execute(self, sql: str) -> None:
        with _errors("the database refused"):
            self._end_statement()
            self._begin_statement(sql)
            self._statement.execute_update()
            self._end_statement()

    def schema(self, sql: str) -> pa.Schema:
        with _errors("the database refused"), closing(self._executed(sql)) as reader:
            return reader.schema

    def tables(self) -> tuple[TableSummary, ...]:
        from adbc_driver_manager import GetObjectsDepth

        with _errors("the list of tables"):
            catalog = self._current_catalog()
            stream = self._connection.get_objects(GetObjectsDepth.TABLES, catalog=catalog)
            found = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
        listed: dict[tuple[str, str], TableSummary] = {}
        for inside in found:
            for schema in inside["catalog_db_schemas"] or ():
                name = schema["db_schema_name"] or ""
                if name.lower() in ("information_schema", "pg_catalog"):
                    continue
                for table in schema["db_schema_tables"] or ():
                    kind = (table["table_type"] or "table").lower()
                    key = (name, table["table_name"])
                    if kind in ("table", "base table", "view", "materialized view"):
                        listed.setdefault(
                            key,
                            TableSummary(
                                schema=name or None,
                                name=key[1],
                                kind="table" if kind == "base table" else kind,
                                rows=None,
                                bytes=None,
                                partitions=0,
                            ),
                        )
        return tuple(listed[key] for key in sorted(listed))

    def _current_catalog(self) -> str | None:
        from adbc_driver_manager import ConnectionOptions, Error

        with suppress(Error):
            found: str = self._connection.get_option(ConnectionOptions.CURRENT_CATALOG.value)
            return found or None
        return None

    def columns(self, schema: str | None, name: str, relation: str) -> pa.Schema:
        with _errors(f"the columns of {relation}"):
            handle = self._connection.get_table_schema(None, schema, name)
            return pa.Schema._import_from_c(handle.address)

    def batches(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        options = {}
        if known := _BATCH_SIZES.get(self._kind):
            name, unit_bytes, most = known
            options[name] = str(max(1, min(batch_bytes // unit_bytes, most)))
        with _errors("reading rows"), closing(self._executed(sql, options)) as reader:
            yield from reader
        self._end_statement()

    def _executed(self, sql: str, options: dict[str, str] | None = None) -> pa.RecordBatchReader:
        self._end_statement()
        self._begin_statement(sql, options)
        stream, _ = self._statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream)

    def _begin_statement(self, sql: str, options: dict[str, str] | None = None) -> None:
        from adbc_driver_manager import AdbcStatement

        self._statement = AdbcStatement(self._connection)
        if options:
            self._statement.set_options(**options)
        self._statement.set_sql_query(sql)

    def _end_statement(self) -> None:
        statement, self._statement = self._statement, None
        if statement is not None:
            with suppress(Exception):
                statement.close()

    def cancel(self) -> None:
        statement = self._statement
        with suppress(Exception):
            if statement is not None:
                statement.cancel()
            self._connection.cancel()

    def close(self) -> None:
        self._end_statement()
        for each in (self._connection, self._database):
            with suppress(Exception):
                each.close()
