"""ODBC: any database with a driver for unixODBC, read through the library arrow-odbc.

ODBC drivers change values: they cut texts, round reals, report wrong lengths, and convert texts by
the locale. So a known database prints each value as ASCII text of a length that its driver
reports, and `dialects` makes the value of it. A driver is used in short calls by the parent, and
for rows by workers only: a driver that aborts ends a worker.

A driver fills buffers of fixed lengths. Texts of unknown length have a short buffer at first. A
longer value stops the unit, which is read again with longer buffers and fewer rows in each.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from partition_planner.model import Piece
from unloader.errors import (
    ConfigError,
    ConnectFailed,
    OutputFailed,
    SessionsRefused,
    SourceError,
    TransientSourceError,
    UsageError,
)
from unloader.model import Extract, Snapshot, SourceSpec, TableSummary
from unloader.sources.base import ReadAgain
from unloader.sources.dialects.catalog import DialectCatalog, DialectReader
from unloader.sources.dialects.databases import (
    DIALECTS,
    LENGTHS,
    REFUSED,
    Dialect,
    Session,
    TooLong,
)
from unloader.sources.dialects.dividing import conditions
from unloader.sources.registry import missing_driver, password_of
from unloader.sources.statement import row_conditions, select

_ROWS = 65_000
_BUFFERS, _GATHERED = 4, 16
"""Batches whose size the buffers of a driver have, and batches of a few rows that are joined: a
fetch of 200 columns takes milliseconds, and its Arrow arrays 200 KB for a row."""
_FETCHES = (2_000, 100, 10, 2)
"""Rows that PostgreSQL's driver fetches together, by the length of values."""
_CATALOG_BYTES = 64 * 1024
_CATALOG_ROWS = 64
_LOGIN_SECONDS = 30

_SETTINGS = {
    "postgresql": "UseDeclareFetch=1;Fetch={rows};MaxVarcharSize={length};"
    "MaxLongVarcharSize={length};UnknownSizes=0;LFConversion=0;Protocol=7.4-1;BI=0;"
    "ByteaAsLongVarBinary=1;TrueIsMinus1=0",
    "mariadb": "NO_CACHE=1;FORWARDONLY=1;CHARSET=utf8mb4;NO_PROMPT=1",
    "sqlite": "StepAPI=1;NoTXN=1",
    "generic": "",
}
"""Settings of a driver, unless the user gives another value: rows come in parts, and nothing is cut
or converted."""

_PROBES = (
    ("SELECT version()", re.compile(r"PostgreSQL 1\d\b(?!.*(?i:redshift|cockroach|-YB-|green))")),
    ("SELECT version()", re.compile(r".*MariaDB")),
    ("SELECT sqlite_version()", re.compile(r"3\.\d+")),
)
_PROBED = ("postgresql", "mariadb", "sqlite")

_SQLITE = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])|--[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
"""A literal or a quoted name, which is the group, or a comment."""

_STATE = re.compile(r"State: (\w{5}), Native error: (-?\d+), Message: (.*)", re.DOTALL)
_NO_CONNECTION = ("08", "57P", "HYT")
_AGAIN = ("40001", "40P01", "57014", "70100")
_FULL = ("53300", "1040", "1203")
_LOST = ("gone away", "terminating connection", "closed the connection", "Lost connection")
_REFUSED = ("28000", "28P01", "3D000", "42000", "IM002", "01000")
_TOO_LONG = "too large to be written into the allocated buffer"
_NARROW_BUFFER = "limited to a size of"


def load() -> None:
    _driver()


def open_catalog(spec: SourceSpec) -> DialectCatalog:
    return DialectCatalog(spec, partial(_connected, spec, 0))


def open_reader(spec: SourceSpec, snapshot: Snapshot | None) -> DialectReader:
    return OdbcReader(spec, snapshot)


def describe() -> None:
    """Describe a query of an unknown database for `OdbcSession.schema`, in another process."""
    spec, sql = pickle.loads(sys.stdin.buffer.read())
    found, refusal = b"", None
    try:
        with closing(OdbcSession(spec, "generic", 0)) as session:
            found = session.own_schema(sql).serialize().to_pybytes()
    except SourceError as error:
        refusal = (error.message, error.hint)
    sys.stdout.buffer.write(pickle.dumps((found, refusal)))


class OdbcReader(DialectReader):
    """A worker's session; its buffers grow when a value does not fit."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        self._level = 0
        """The length of the longest buffers; of all, where `LONG` does not mark long values."""
        self._level_of = dict[str, int]()
        """The length of the buffers of a column; not 0 where a value was longer."""
        self._levels = _lengths(spec)
        self._connect = partial(_connected, spec)
        super().__init__(partial(self._connected_at_level), snapshot)

    def _connected_at_level(self) -> tuple[Session, Dialect]:
        return self._connect(self._level)

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().batches(extract, piece, batch_bytes=batch_bytes)
        except TooLong as error:
            lengths = dict[str, int]()
            if self._dialect.marks_long:
                # Only the buffers of columns with long values grow.
                lengths = self._longest(extract, piece)
                for name, length in lengths.items():
                    level = sum(each < length for each in self._levels[:-1])
                    self._level_of[name] = max(level, self._level_of.get(name, 0))
                self._level = max(self._level_of.values())
                if max(lengths.values()) <= self._levels[-1]:
                    raise ReadAgain from error
            elif self._level + 1 < len(self._levels):
                self._level += 1
                raise ReadAgain from error
            lengths = lengths or self._longest(extract, piece)
            held = f"a column of {extract.table.label} holds a long value"
            if lengths:
                name = max(lengths, key=lambda each: lengths[each])
                where = f"column {name} of {extract.table.label}"
                held = f"{where} holds a value of {lengths[name]:,} bytes"
            raise OutputFailed(
                f"{held}, which is longer than --odbc-value-bytes {self._levels[-1]}",
                "raise --odbc-value-bytes, or leave the column out with --exclude",
            ) from error

    def _most(self, column: str) -> int:
        return self._levels[self._level_of.get(column, 0)]

    def _longest(self, extract: Extract, piece: Piece) -> dict[str, int]:
        """Return the bytes of the longest value of each column of variable length, in a unit."""
        self._session.close()
        self._session, dialect = self._open()
        known = [(each.name, dialect.length(each)) for each in extract.projection.columns]
        items = {name: sql for name, sql in known if sql}
        if not items:
            return {}
        found = select(
            ", ".join(f"max({sql})" for sql in items.values()),
            dialect.relation(extract),
            [*conditions(dialect.quoted, piece.selector), *row_conditions(extract)],
        )
        (row,) = self._session.rows(found)
        return {name: int(value or 0) for name, value in zip(items, row, strict=True)}


def _lengths(spec: SourceSpec) -> tuple[int, ...]:
    """Return the lengths of values in bytes, for the first reading and for each repetition."""
    most = spec.session.odbc_value_bytes
    return (*(each for each in LENGTHS if each < most), most)


def _driver() -> Any:
    try:
        import arrow_odbc
    except ImportError as error:
        raise missing_driver(error, "odbc") from error
    except OSError as error:
        raise ConfigError(
            f"the driver manager of ODBC cannot be loaded: {error}",
            "install unixODBC; Debian: apt-get install unixodbc",
        ) from error
    return arrow_odbc


def _connected(spec: SourceSpec, level: int) -> tuple[Session, Dialect]:
    name: str | None = spec.session.odbc_dialect
    if name is None:
        # A driver takes its settings when it connects, and only the server knows its kind.
        with closing(OdbcSession(spec, "generic", level)) as session:
            name = _probed(session)
    session = OdbcSession(spec, name, level)
    dialect = DIALECTS[name]()
    session.identify(dialect)
    return session, dialect


def _probed(session: OdbcSession) -> str:
    """Return the dialect of a database; `ConfigError` if it is not one of the tried ones."""
    for (sql, pattern), name in zip(_PROBES, _PROBED, strict=True):
        with suppress(SourceError):
            if pattern.match(str(session.rows(sql)[0][0])):
                return name
    raise ConfigError(
        "this database is not one that was tried through ODBC: its driver may change values",
        "give --odbc-dialect generic to read them as the driver returns them; columns are then "
        "marked as not proved",
    )


@contextmanager
def _errors(doing: str, *, connecting: bool = False) -> Iterator[None]:
    """Raise errors of the driver as the user's errors."""
    try:
        yield
    except _driver().Error as error:
        text = str(error).strip()
        match = _STATE.search(text)
        state, native, words = match.groups() if match else ("", "", text)
        message = f"{doing}: {' '.join(words.split())}{f' (SQLSTATE {state})' if state else ''}"
        if _TOO_LONG in text:
            raise TooLong(message) from error
        if state in _FULL or native in _FULL or "too many" in words.lower():
            raise SessionsRefused(message) from error
        lost = state.startswith(_NO_CONNECTION) or any(each in words for each in _LOST)
        if connecting:
            if state in _REFUSED or any(each in words for each in REFUSED):
                raise SourceError(
                    message, "check the URL, the driver in odbcinst.ini, and the password"
                ) from error
            hint = "check the URL, and that the server is running"
            raise ConnectFailed(message, hint) from error
        if lost or state in _AGAIN or "database is locked" in words:
            raise TransientSourceError(message) from error
        raise SourceError(message) from error


def _as_texts(schema: pa.Schema) -> pa.Schema:
    """Return columns of texts, for numbers too: a driver may report a type that is too short."""
    return pa.schema([pa.field(f"c{at}", pa.string()) for at in range(len(schema))])


class OdbcSession:
    ascii_only = True
    vendor = "a database behind ODBC"

    def __init__(self, spec: SourceSpec, dialect: str, level: int) -> None:
        arrow_odbc = _driver()
        text = spec.location.partition(":")[2].removeprefix("//")
        if not text:
            raise UsageError("the odbc: URL names no database", "write odbc:DSN=NAME;UID=USER")
        text = text if "=" in text else f"DSN={text}"
        lengths = _lengths(spec)
        level = min(level, len(lengths) - 1)
        # Texts are in hexadecimal, perhaps after a letter.
        self._spec, self._is_generic = spec, dialect == "generic"
        self._length = lengths[level] if dialect == "generic" else 2 * lengths[level] + 1
        settings = _SETTINGS[dialect].format(rows=_FETCHES[level], length=self._length)
        pairs = (item.partition("=") for item in text.split(";"))
        given = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._is_sqlite = dialect == "sqlite" or "sqlite" in given.get("driver", "").lower()
        path = given.get("database", "")
        if self._is_sqlite and path and not os.path.exists(path):
            # The driver would create it.
            raise SourceError(f"the database {path} does not exist", "check the path")
        ours = [each for each in settings.split(";") if each.partition("=")[0].lower() not in given]
        if (password := password_of(spec)) is not None:
            # In braces, or a driver decodes percent signs. The library writes no braces, and no
            # semicolon before the password.
            ours.append("PWD={" + password.replace("}", "}}") + "}")
        string = ";".join((text.rstrip(";"), *filter(None, ours)))
        self._open: Callable[[], Any] = partial(
            arrow_odbc.connect, string, login_timeout_sec=_LOGIN_SECONDS
        )
        with _errors("cannot connect", connecting=True):
            self._connection: Any = self._open()
        self._kill = ""

    def identify(self, dialect: Dialect) -> None:
        """Remember the statement with which another session ends a statement of this one."""
        if dialect.identity:
            self._kill = dialect.kill.format(self.rows(dialect.identity)[0][0])

    def _sent(self, sql: str) -> str:
        """Return SQL without comments for SQLite: newer drivers drop all after `--`."""
        return _SQLITE.sub(lambda found: found[1] or " ", sql) if self._is_sqlite else sql

    def _read(self, sql: str, doing: str, **more: Any) -> Iterator[pa.RecordBatch]:
        with _errors(doing):
            yield from self._connection.read_arrow_batches(
                self._sent(sql), fetch_concurrently=False, falliable_allocations=True, **more
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for batch in self._read(
            sql,
            "the database refused",
            batch_size=_CATALOG_ROWS,
            max_bytes_per_batch=None,
            max_text_size=_CATALOG_BYTES,
            map_schema=_as_texts,
        ):
            found += zip(*(each.to_pylist() for each in batch.columns), strict=True)
        return found

    def execute(self, sql: str) -> None:
        with _errors("the database refused"):
            self._connection.execute(self._sent(sql))

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query; for an unknown database, another process finds them.

        The library aborts its process on some types, such as numbers with a negative scale.
        """
        if not self._is_generic:
            return self.own_schema(sql)
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import describe; describe()"],
            input=pickle.dumps((self._spec, sql)),
            capture_output=True,
            check=False,
        )
        if done.returncode == 0 and done.stdout:
            found, refusal = pickle.loads(done.stdout)
            if refusal is not None:
                raise SourceError(*refusal)
            return pa.ipc.read_schema(pa.py_buffer(found))
        raise SourceError(
            f"the driver or its library aborted (status {done.returncode}) while it described the "
            "columns of a query",
            "leave out columns of unusual types by a --query that casts them to text",
        )

    def own_schema(self, sql: str) -> pa.Schema:
        found: list[pa.Schema] = []

        def noted(schema: pa.Schema) -> pa.Schema:
            found.append(schema)
            return _as_texts(schema)

        with _errors("the database refused"):
            self._connection.read_arrow_batches(
                self._sent(sql),
                batch_size=1,
                max_bytes_per_batch=None,
                max_text_size=_CATALOG_BYTES,
                max_binary_size=_CATALOG_BYTES,
                map_schema=noted,
                fetch_concurrently=False,
                falliable_allocations=True,
            )
        return found[0]

    def tables(self) -> tuple[TableSummary, ...]:
        refused: SourceError | None = None
        for sql in _LISTS:
            try:
                found = self.rows(sql)
            except SourceError as error:
                refused = error
                continue
            return tuple(
                TableSummary(
                    schema=(schema or "").strip() or None,
                    name=name.strip(),
                    kind="view" if "V" in kind.upper() else "table",
                    rows=None,
                    bytes=None,
                    partitions=0,
                )
                for schema, name, kind in found
            )
        raise SourceError(
            f"the database does not list its tables: {refused and refused.message}",
            "read a query instead: --query 'SELECT * FROM ...'",
        )

    def columns(self, schema: str | None, name: str, relation: str) -> pa.Schema:
        return self.schema(f"SELECT * FROM {relation} WHERE 1 = 0")

    def batches(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        sizes = {"max_text_size": self._length, "max_binary_size": self._length}
        try:
            found = self._read(
                sql,
                "reading rows",
                batch_size=_ROWS,
                max_bytes_per_batch=_BUFFERS * batch_bytes,
                **sizes,
            )
            yield from _gathered(found, batch_bytes)
        except SourceError as error:
            if _NARROW_BUFFER not in error.message:
                raise
            # No row was read yet: the buffer of a single row is longer than a batch may be.
            found = self._read(sql, "reading rows", batch_size=1, max_bytes_per_batch=None, **sizes)
            yield from _gathered(found, batch_bytes)

    def cancel(self) -> None:
        if self._kill:
            with suppress(_driver().Error):
                self._open().execute(self._kill)

    def close(self) -> None:
        # The library closes a connection that nothing refers to.
        self._connection = None


def _gathered(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join batches up to a number of bytes: buffers of wide tables have few rows, or one."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        del batch
        if len(held) >= _GATHERED or size >= most_bytes:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, size = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


_LISTS = (
    "SELECT table_schema, table_name, table_type FROM information_schema.tables "
    "WHERE lower(table_schema) <> 'information_schema' ORDER BY table_schema, table_name",
    "SELECT tabschema, tabname, type FROM syscat.tables WHERE type IN ('T', 'V') "
    "AND tabschema NOT LIKE 'SYS%' ORDER BY tabschema, tabname",
)
"""Lists of tables in the standard's catalog and in Db2's."""
