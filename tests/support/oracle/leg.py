"""The Oracle that system tests unload from: a wire-level test server, or a real database.

    UNLOADER_TEST_ORACLE_DSN             host:port/service of a real database; without it only the
                                         test server is used
    UNLOADER_TEST_ORACLE_USER            a user with CREATE TABLE, CREATE VIEW, CREATE SYNONYM and
    UNLOADER_TEST_ORACLE_PASSWORD        quota, whose schema the tests may fill
    UNLOADER_TEST_ORACLE_ADMIN_USER      optional: who may create users and grant rights on SYS
    UNLOADER_TEST_ORACLE_ADMIN_PASSWORD

Tests speak SQL to either, through the driver. Every table and user they make is dropped at the end.
A table that somebody else made is never touched: ours carry a comment.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import oracledb
import pytest
from oracle_server import OracleServer
from oracle_server.model import Column, Moment
from oracle_server.writable import WritableDatabase

from oracle import sql as oracle_sql

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
    """One database to unload from, and what the tests made in it."""

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
        """Whether this is no test server."""
        return self.server is None

    @property
    def database(self) -> WritableDatabase:
        """The database behind the test server; skips the test on a real one."""
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
        self.run(oracle_sql.create_table(name, columns, key=key, tail=tail), account=owner)
        self._tables.append((owner, name))
        self.run(f"COMMENT ON TABLE {oracle_sql.quoted(name)} IS '{MARK}'", account=owner)
        self.insert(name, columns, rows, account=owner)

    def insert(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        account: Account | None = None,
    ) -> None:
        """Insert rows by literals, and commit; what is too long for them is bound."""
        connection = self._session(account or self.account)
        with connection.cursor() as cursor:
            for row in rows:
                sql, binds = oracle_sql.insert(name, columns, row)
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
                cursor.executemany(
                    f"INSERT INTO {oracle_sql.quoted(name)} VALUES ({places})", batch
                )
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
        self.run(f"CREATE OR REPLACE VIEW {oracle_sql.quoted(name)} AS {query}")
        self._views.append((self.account, f"VIEW {oracle_sql.quoted(name)}"))

    def synonym(self, name: str, target: str) -> None:
        """Create a private synonym for what the text names."""
        self.run(f"CREATE OR REPLACE SYNONYM {oracle_sql.quoted(name)} FOR {target}")
        self._views.append((self.account, f"SYNONYM {oracle_sql.quoted(name)}"))

    def gather(self, name: str, account: Account | None = None) -> None:
        """Gather statistics of a table."""
        owner = account or self.account
        self.run(
            "BEGIN DBMS_STATS.GATHER_TABLE_STATS("
            f"'{oracle_sql.quoted(owner.name)}', '{oracle_sql.quoted(name)}'); END;",
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
        name = oracle_sql.quoted(account.name)
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
        """Drop everything the tests made, whatever goes wrong on the way."""
        with ExitStack() as stack:
            stack.callback(self._close_sessions)
            if not self.is_real:
                return
            for user in self._users:
                statement = f"DROP USER {oracle_sql.quoted(user.name)} CASCADE"
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
            self.run(f"DROP TABLE {oracle_sql.quoted(name)} PURGE", account=owner)
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
    # What the documentation asks a DBA to grant for the fastest and most exact unload.
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
