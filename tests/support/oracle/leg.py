"""The Oracle that system tests unload from: a wire-level test server, or a real database.

    UNLOADER_TEST_ORACLE_DSN             host:port/service of a real database; without it only the
                                         test server is used
    UNLOADER_TEST_ORACLE_USER            a user with CREATE TABLE, CREATE VIEW, CREATE SYNONYM and
    UNLOADER_TEST_ORACLE_PASSWORD        quota, whose schema the tests may fill
    UNLOADER_TEST_ORACLE_ADMIN_USER      optional: who may create users and grant rights on SYS
    UNLOADER_TEST_ORACLE_ADMIN_PASSWORD

Tests speak SQL to either, through the driver. Every table and user they make is dropped at the end.
A table that another user made is never touched: ours carry a comment."""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import oracledb
import pytest
from oracle_server import OracleServer
from oracle_server.database import Database
from oracle_server.model import Column, DaySecond, Moment, Type, YearMonth
from oracle_server.sql.conversions import json_text
from oracle_server.wire.oracle_values import encode_number
from oracle_server.writable import WritableDatabase

from unloader.model import SecretReference, SessionOptions, SourceSpec

PASSWORD = "Tiger#1 ü"
NUMBER = Type(name="NUMBER", precision=9, scale=0)
TEXT = Type(name="VARCHAR2", length=20, in_chars=True)
ID_AND_NAME = (Column(name="ID", type=NUMBER, nullable=False), Column(name="NAME", type=TEXT))


def database(*, dba: bool = False, **options: Any) -> Database:
    """Return a database with the users SCOTT and HR and no tables."""
    made = Database(**options)
    made.add_user("SCOTT", PASSWORD, dba=dba)
    made.add_user("HR", PASSWORD)
    return made


def rows(count: int, start: int = 0) -> list[tuple[int, str]]:
    """Return rows of ID_AND_NAME."""
    return [(number, f"name {number}") for number in range(start, start + count)]


def source(
    server: OracleServer,
    directory: Path,
    *,
    url: str = "",
    password: str = PASSWORD,
    session: SessionOptions | None = None,
) -> SourceSpec:
    """Return a source with its password in a file of the directory."""
    file = directory / "password"
    file.write_text(password, encoding="utf-8")
    return SourceSpec(
        kind="oracle",
        location=url or server.url("scott"),
        secret=SecretReference(kind="file", name=str(file)),
        session=session or SessionOptions(),
    )


_LITERAL_CHARACTERS = 1000
"""Of one text literal: 4000 bytes at most, and a character has up to four."""
_RAW_BYTES = 2000
_TEXT_BYTES = 4000
_MASK = "SYYYY-MM-DD HH24:MI:SS"


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return f'"{name}"'


def column_type(kind: Type) -> str:
    """Return a type as CREATE TABLE names it."""
    name, scale = kind.name, kind.scale
    if name == "NUMBER":
        if kind.precision is None:
            return name if scale is None else f"NUMBER(*,{scale})"
        return f"NUMBER({kind.precision},{scale or 0})"
    if name == "FLOAT":
        return f"FLOAT({kind.precision})"
    if name.startswith("TIMESTAMP"):
        return name.replace("TIMESTAMP", f"TIMESTAMP({6 if scale is None else scale})", 1)
    if name == "INTERVAL YEAR TO MONTH":
        return f"INTERVAL YEAR({kind.precision}) TO MONTH"
    if name == "INTERVAL DAY TO SECOND":
        return f"INTERVAL DAY({kind.precision}) TO SECOND({scale})"
    if name == "VECTOR":
        return f"VECTOR({kind.length},{kind.element})"
    if name in ("VARCHAR2", "CHAR"):
        return f"{name}({kind.length} {'CHAR' if kind.in_chars else 'BYTE'})"
    if kind.length is not None:
        return f"{name}({kind.length})"
    return name


def create_table(
    name: str, columns: Sequence[Column], *, key: Sequence[str] = (), tail: str = ""
) -> str:
    """Return CREATE TABLE.

    Args:
        name: Of the table, without quotes.
        columns: In order.
        key: Columns of the primary key.
        tail: What follows the columns: organization, partitions.
    """
    parts = [
        f"{quoted(column.name)} {column_type(column.type)}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    ]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE {quoted(name)} ({', '.join(parts)}) {tail}".strip()


def insert(name: str, columns: Sequence[Column], row: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return an INSERT of one row, and the binds of the values that are too long for literals.

    The names of binds are `b` and the place of the column.
    """
    texts, binds = [], {}
    for place, (column, given) in enumerate(zip(columns, row, strict=True)):
        value = given.read(0, given.length) if hasattr(given, "read") else given
        text = literal(value, column.type)
        if text is None:
            binds[f"b{place}"] = value
            text = f":b{place}"
        texts.append(text)
    return f"INSERT INTO {quoted(name)} VALUES ({', '.join(texts)})", binds


def literal(value: Any, kind: Type) -> str | None:
    """Return an expression of exactly that value, None if it is too long for a statement."""
    name = kind.name
    if value is None:
        return "NULL"
    if name in ("NUMBER", "FLOAT"):
        return _number(value)
    if name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        code = ">f" if name == "BINARY_FLOAT" else ">d"
        return f"UTL_RAW.CAST_TO_{name}({_raw(struct.pack(code, value))})"
    if name == "BOOLEAN":
        return "TRUE" if value else "FALSE"
    if name == "DATE":
        return f"TO_DATE({text_literal(_fields(value))},'{_MASK}')"
    if name.startswith("TIMESTAMP"):
        return _timestamp(value, name)
    if isinstance(value, YearMonth):
        years, months = divmod(abs(value.months), 12)
        return f"TO_YMINTERVAL('{'-' if value.months < 0 else '+'}{years}-{months:02d}')"
    if isinstance(value, DaySecond):
        return f"TO_DSINTERVAL('{_day_second(value)}')"
    return _other(value, name)


def _other(value: Any, name: str) -> str | None:
    if name in ("RAW", "LONG RAW", "BLOB"):
        if not value:
            return "EMPTY_BLOB()" if name == "BLOB" else "NULL"
        if len(value) > _RAW_BYTES:
            return None
        return f"TO_BLOB({_raw(value)})" if name == "BLOB" else _raw(value)
    if name in ("ROWID", "UROWID"):
        text = text_literal(str(value))
        return f"CHARTOROWID({text})" if name == "ROWID" else text
    if name == "VECTOR":
        return f"TO_VECTOR('[{','.join(map(repr, value))}]')"
    if name == "JSON":
        return f"JSON({text_literal(json_text(value))})"
    if name == "XMLTYPE":
        return f"XMLTYPE({_pieces(value, 'TO_CLOB')})"
    if name in ("CLOB", "NCLOB"):
        # National literals even for CLOB: the database converts, and loses nothing in AL32UTF8.
        return _pieces(value, f"TO_{name}") if value else f"EMPTY_{name.removeprefix('N')}()"
    if name == "LONG" and len(value.encode()) > _TEXT_BYTES:
        return None
    return text_literal(value, national=name[0] == "N")


def text_literal(text: str, *, national: bool = False) -> str:
    """Return a text as literals of a length that Oracle takes, NUL as CHR(0)."""
    prefix = "N" if national else ""
    parts = []
    for number, piece in enumerate(text.split("\0")):
        parts += ["CHR(0)"] if number else []
        for start in range(0, len(piece), _LITERAL_CHARACTERS):
            part = piece[start : start + _LITERAL_CHARACTERS].replace("'", "''")
            parts.append(f"{prefix}'{part}'")
    return "||".join(parts) or "NULL"


def _pieces(text: str, function: str) -> str:
    starts = range(0, len(text), _LITERAL_CHARACTERS)
    return "||".join(
        f"{function}({text_literal(text[at : at + _LITERAL_CHARACTERS])})" for at in starts
    )


def _raw(data: bytes) -> str:
    return f"HEXTORAW('{data.hex().upper()}')"


def _number(value: int | Decimal) -> str:
    sign, digits, exponent = Decimal(value).as_tuple()
    if len(digits) > 38:
        # Numeric literals have no more digits, but the type has.
        return f"UTL_RAW.CAST_TO_NUMBER({_raw(encode_number(value))})"
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    return f"{'-' if sign else ''}{written}" + (f"E{exponent}" if exponent else "")


def _fields(moment: Moment) -> str:
    sign = "-" if moment.year < 0 else ""
    date = f"{sign}{abs(moment.year):04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{date} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"


def _timestamp(moment: Moment, name: str) -> str:
    text = f"{_fields(moment)}.{moment.nanos:09d}"
    if name == "TIMESTAMP":
        return f"TO_TIMESTAMP('{text}','{_MASK}.FF9')"
    # The fields of a local time zone's value are in UTC.
    zone = "+00:00" if "LOCAL" in name else moment.zone
    return f"TO_TIMESTAMP_TZ('{text} {zone}','{_MASK}.FF9 TZR')"


def _day_second(value: DaySecond) -> str:
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    sign = "-" if value.nanos < 0 else "+"
    return f"{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{nanos:09d}"


VARIABLE = "UNLOADER_TEST_ORACLE_"
MARK = "made by the tests of unloader"
"""Comment of our tables."""
REAL = "real"
WIRE_MODES = ("23ai", "21c", "19c")
SETTLED_SECONDS = 6
"""A real database takes a table's definition for newer than the SCN for up to three seconds."""
_LOAD_ROWS = 10_000
_TYPE_SINCE = {"BOOLEAN": 23, "VECTOR": 23, "JSON": 21}
_BIND_TYPES = {
    "CLOB": oracledb.DB_TYPE_CLOB,
    "NCLOB": oracledb.DB_TYPE_NCLOB,
    "BLOB": oracledb.DB_TYPE_BLOB,
    "LONG": oracledb.DB_TYPE_LONG,
    "LONG RAW": oracledb.DB_TYPE_LONG_RAW,
}
_NO_TABLE = 942


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of the database."""

    name: str
    password: str
    dsn: str

    @property
    def url(self) -> str:
        """The source URL of an unload as this user."""
        return f"oracle://{quote(self.name)}@{self.dsn}"

    @property
    def environment(self) -> dict[str, str]:
        """What a subprocess needs to log in."""
        return {"UNLOADER_PASSWORD": self.password}

    def connect(self) -> oracledb.Connection:
        """Open a session of this user."""
        return oracledb.connect(user=f'"{self.name}"', password=self.password, dsn=self.dsn)


class Writer:
    """A second session, whose changes are seen when it commits."""

    def __init__(self, connection: oracledb.Connection) -> None:
        """Speak through that connection."""
        self._connection = connection
        self._cursor = connection.cursor()

    def run(self, sql: str, *binds: Any) -> int:
        """Run one statement; return how many rows it changed."""
        self._cursor.execute(sql, list(binds))
        return int(self._cursor.rowcount)

    def commit(self) -> None:
        """Commit."""
        self._connection.commit()


class OracleLeg:
    """One database to unload from, and the objects of tests in it."""

    def __init__(
        self, account: Account, admin: Account | None, server: OracleServer | None
    ) -> None:
        """Take a user who owns the tests' tables, and a DBA if there is one."""
        self.account = account
        self.server = server
        self._admin = admin
        self._tables: list[tuple[Account, str]] = []
        self._users: list[Account] = []
        self._views: list[tuple[Account, str]] = []
        self._sessions: dict[str, oracledb.Connection] = {}
        self._changed = 0.0
        self.version = tuple(map(int, self._session(account).version.split(".")))

    @property
    def is_real(self) -> bool:
        """Whether this is a real database."""
        return self.server is None

    @property
    def database(self) -> WritableDatabase:
        """The database of the test server; skips the test on a real one."""
        if self.server is None:
            pytest.skip("only the test server can be told to do this")
        assert isinstance(self.server.database, WritableDatabase)
        return self.server.database

    @property
    def url(self) -> str:
        """Source URL."""
        return self.account.url

    @property
    def environment(self) -> dict[str, str]:
        """What a subprocess needs to log in; waits until new tables can be read at an SCN."""
        self.settle()
        return self.account.environment

    def settle(self) -> None:
        """Wait until a real database takes the last change for older than its present SCN."""
        if self.is_real:
            time.sleep(max(0.0, self._changed + SETTLED_SECONDS - time.monotonic()))

    @property
    def schema(self) -> str:
        """Name of the user."""
        return self.account.name

    def supports(self, kind: str) -> bool:
        """Return whether this version has a type."""
        return self.version[0] >= _TYPE_SINCE.get(kind, 0)

    def run(self, sql: str, *, account: Account | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and commit; return the rows of a query."""
        connection = self._session(account or self.account)
        with connection.cursor() as cursor:
            cursor.execute(sql)
            rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        if not rows:
            self._changed = time.monotonic()
        return rows

    def create(
        self,
        name: str,
        columns: Sequence[Column],
        *,
        rows: Iterable[Sequence[Any]] = (),
        key: Sequence[str] = (),
        tail: str = "",
        account: Account | None = None,
    ) -> None:
        """Create a table by SQL, with rows by literals; one that an earlier test left goes first."""
        owner = account or self.account
        if self.is_real:
            self._make_way(owner, name)
        self.run(create_table(name, columns, key=key, tail=tail), account=owner)
        self._tables.append((owner, name))
        self.run(f"COMMENT ON TABLE {quoted(name)} IS '{MARK}'", account=owner)
        self.insert(name, columns, rows, account=owner)

    def insert(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        account: Account | None = None,
    ) -> None:
        """Insert rows by literals, and commit; too long values are bound."""
        connection = self._session(account or self.account)
        with connection.cursor() as cursor:
            for row in rows:
                sql, binds = insert(name, columns, row)
                if binds:
                    kinds = {f"b{n}": _BIND_TYPES[c.type.name] for n, c in enumerate(columns)
                             if f"b{n}" in binds}  # fmt: skip
                    cursor.setinputsizes(**kinds)
                cursor.execute(sql, binds)
        connection.commit()
        self._changed = time.monotonic()

    def load(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        account: Account | None = None,
    ) -> None:
        """Insert many rows and commit: in arrays of binds, or straight into the test server.

        Moments must be what Python's datetime can hold, with no zone.
        """
        owner = account or self.account
        if not self.is_real:
            self.database.insert(owner.name, name, rows)
            return
        connection = self._session(owner)
        places = ", ".join(f":{number}" for number in range(1, len(columns) + 1))
        batch: list[list[Any]] = []
        with connection.cursor() as cursor:

            def flush() -> None:
                cursor.executemany(f"INSERT INTO {quoted(name)} VALUES ({places})", batch)
                connection.commit()
                batch.clear()

            for row in rows:
                batch.append([_bindable(value) for value in row])
                if len(batch) == _LOAD_ROWS:
                    flush()
            if batch:
                flush()
        self._changed = time.monotonic()

    def drop(self, name: str) -> None:
        """Drop a table of the user now, not at the end."""
        self._drop(self.account, name)

    def view(self, name: str, query: str) -> None:
        """Create a view."""
        self.run(f"CREATE OR REPLACE VIEW {quoted(name)} AS {query}")
        self._views.append((self.account, f"VIEW {quoted(name)}"))

    def synonym(self, name: str, target: str) -> None:
        """Create a private synonym for the named object."""
        self.run(f"CREATE OR REPLACE SYNONYM {quoted(name)} FOR {target}")
        self._views.append((self.account, f"SYNONYM {quoted(name)}"))

    def gather(self, name: str, account: Account | None = None) -> None:
        """Gather statistics of a table."""
        owner = account or self.account
        self.run(
            f"BEGIN DBMS_STATS.GATHER_TABLE_STATS('{quoted(owner.name)}', '{quoted(name)}'); END;",
            account=owner,
        )

    def user(self, *rights: str) -> Account:
        """Create a user with CREATE SESSION, CREATE TABLE and further rights (`SELECT ON ...`).

        Skips the test on a real database without an account that may do so.
        """
        admin = self.admin
        account = Account(
            name=f"UNLOADER_T_{secrets.token_hex(4).upper()}",
            password=f"Ux1_{secrets.token_hex(8)}",
            dsn=self.account.dsn,
        )
        name = quoted(account.name)
        self.run(f'CREATE USER {name} IDENTIFIED BY "{account.password}"', account=admin)
        self._users.append(account)
        for right in ("CREATE SESSION", "CREATE TABLE", "UNLIMITED TABLESPACE", *rights):
            self.run(f"GRANT {right} TO {name}", account=admin)
        return account

    @property
    def admin(self) -> Account:
        """A DBA; skips the test on a real database where none was given."""
        if self._admin is None:
            pytest.skip(f"{VARIABLE}ADMIN_USER is not set, and this test creates users")
        return self._admin

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """A second session of the same user."""
        with self.account.connect() as connection:
            yield Writer(connection)

    def close(self) -> None:
        """Drop all objects of the tests, also after errors."""
        with ExitStack() as stack:
            stack.callback(self._close_sessions)
            if not self.is_real:
                return
            for user in self._users:
                statement = f"DROP USER {quoted(user.name)} CASCADE"
                stack.callback(self.run, statement, account=self._admin)
            # A user with an open session cannot be dropped.
            stack.callback(self._close_sessions)
            for owner, name in self._tables:
                if owner not in self._users:
                    stack.callback(self._drop, owner, name)
            for owner, thing in self._views:
                stack.callback(self.run, f"DROP {thing}", account=owner)

    def _close_sessions(self) -> None:
        while self._sessions:
            _, connection = self._sessions.popitem()
            connection.close()

    def _drop(self, owner: Account, name: str) -> None:
        try:
            self.run(f"DROP TABLE {quoted(name)} PURGE", account=owner)
        except oracledb.DatabaseError as error:
            if error.args[0].code != _NO_TABLE:
                raise

    def _make_way(self, owner: Account, name: str) -> None:
        """Drop a table of ours that an interrupted test left; stop before anybody else's."""
        found = self.run(
            "SELECT T.TABLE_NAME, C.COMMENTS FROM USER_TABLES T LEFT JOIN USER_TAB_COMMENTS C "
            f"ON C.TABLE_NAME = T.TABLE_NAME WHERE T.TABLE_NAME = '{name}'",
            account=owner,
        )
        if found and found[0][1] != MARK:
            pytest.fail(f"schema {owner.name} has a table {name} that is not of the tests")
        if found:
            self._drop(owner, name)

    def _session(self, account: Account) -> oracledb.Connection:
        if account.name not in self._sessions:
            self._sessions[account.name] = account.connect()
        return self._sessions[account.name]


def _bindable(value: Any) -> Any:
    if isinstance(value, Moment):
        assert value.zone is None
        return datetime(*value[:6], value.nanos // 1000)
    return value


def legs(modes: Sequence[str] = ("23ai",)) -> list[str]:
    """Return the legs that a test runs on: the test server as those versions, and a real Oracle."""
    return [*modes, REAL] if os.environ.get(f"{VARIABLE}DSN") else list(modes)


@contextmanager
def opened(leg: str) -> Iterator[OracleLeg]:
    """Open a leg: a new test server, or the real database."""
    if leg == REAL:
        found = OracleLeg(_real_account(""), _real_account("ADMIN_"), None)
        try:
            yield found
        finally:
            found.close()
        return
    database = WritableDatabase(version=leg)
    database.add_user("SCOTT", "tiger")
    database.add_user("DBADMIN", "secret", dba=True)
    # The grants of the documentation for the fastest and most exact unload.
    for right in ("V$DATABASE", "DBA_EXTENTS"):
        database.privileges.grant("SCOTT", right)
    with OracleServer(database, mode=leg) as server:
        found = OracleLeg(
            Account(name="SCOTT", password="tiger", dsn=server.dsn),
            Account(name="DBADMIN", password="secret", dsn=server.dsn),
            server,
        )
        try:
            yield found
        finally:
            found.close()


def _real_account(prefix: str) -> Any:
    name = os.environ.get(f"{VARIABLE}{prefix}USER")
    password = os.environ.get(f"{VARIABLE}{prefix}PASSWORD")
    if not name or not password:
        if prefix:
            return None
        pytest.fail(f"{VARIABLE}DSN is set, but {VARIABLE}USER or {VARIABLE}PASSWORD is not")
    name = name[1:-1] if name.startswith('"') else name.upper()
    return Account(name=name, password=password, dsn=os.environ[f"{VARIABLE}DSN"])


def header() -> str:
    """Return which Oracle the tests use, for people to read."""
    text = "oracle: wire-level test server"
    if REAL not in legs():
        return f"{text} ({VARIABLE}DSN is not set)"
    try:
        with _real_account("").connect() as connection:
            return f"{text} and Oracle {connection.version} at {os.environ[f'{VARIABLE}DSN']}"
    except oracledb.Error as error:
        return f"{text}; {os.environ[f'{VARIABLE}DSN']} cannot be reached: {error}"
