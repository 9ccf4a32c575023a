"""A server over a database that counts rows, and the real driver."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import oracledb
import pytest
from oracle_server import OracleServer
from oracle_server.data.definitions import User
from oracle_server.model import Answer, Column, OracleError, SessionState, Type
from oracle_server.wire.row_replies import RowSet

NUMBER = Type(name="NUMBER", precision=9, scale=0)
COLUMNS = (
    Column(name="ID", type=NUMBER),
    Column(name="NAME", type=Type(name="VARCHAR2", length=40)),
)
CLOB = Column(name="TEXT", type=Type(name="CLOB"))


class CountingDatabase:
    """`select ... N rows` has the rows (0, 'name 0'), (1, 'name 1'), ...; little else is known.

    With `clob` in the statement every row has a CLOB as well; with `binds` the rows are the binds.
    """

    scn = 0x22B1C4

    def __init__(self) -> None:
        """Start with three users: SCOTT, "lower" with a name in quotes, and a proxy of SCOTT's."""
        self.users = {
            "SCOTT": User(name="SCOTT", password="tiger", user_id=137, proxies={"GATE"}),
            "lower": User(name="lower", password="Größe ☃", user_id=138),
            "GATE": User(name="GATE", password="keeper", user_id=139),
        }
        self.runs: list[tuple[str, tuple[Any, ...]]] = []

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run a statement."""
        self.runs.append((sql, tuple(binds)))
        words = sql.lower().split()
        if words[0] == "select":
            columns, rows = self._query(sql)
            return Answer(kind="select", rows=RowSet(columns, rows))
        if words[0] in ("commit", "rollback"):
            return Answer(kind=words[0])
        if words[:2] == ["alter", "session"]:
            setting = re.search(r"set (\w+)\s*=\s*['\"]?([^'\"]*)", sql, re.IGNORECASE)
            assert setting is not None
            if setting[1].upper() == "CURRENT_SCHEMA":
                session.schema = setting[2]
            else:
                session.settings[setting[1].upper()] = setting[2]
            return Answer(kind="alter session")
        if words[0] == "insert":
            return Answer(kind="insert", count=1)
        if words[0] == "create":
            return Answer(kind="ddl")
        if words[0] == "begin":
            return Answer(kind="plsql")
        raise OracleError(942, 'table or view "SCOTT"."NOTHING" does not exist', 14)

    def describe(self, session: SessionState, sql: str) -> tuple[Column, ...] | None:
        """Return a query's columns."""
        return self._query(sql)[0] if sql.lower().startswith("select") else None

    def _query(self, sql: str) -> tuple[tuple[Column, ...], Iterator[tuple[Any, ...]]]:
        found = re.search(r"(\d+) rows", sql)
        if found is None:
            raise OracleError(942, 'table or view "SCOTT"."NOTHING" does not exist', 14)
        count = int(found[1])
        if "binds" in sql:
            values = self.runs[-1][1] if self.runs else ()
            columns = tuple(
                Column(name=f"B{n}", type=Type(name="VARCHAR2", length=4000))
                for n in range(len(values))
            )
            return columns, iter([tuple(str(value) for value in values)] * count)
        if "clob" in sql:
            rows = ((n, f"name {n}", f"text {n} " * 2000) for n in range(count))
            return (*COLUMNS, CLOB), rows
        return COLUMNS, ((n, f"name {n}") for n in range(count))


Serve = Callable[..., OracleServer]
Connect = Callable[..., oracledb.Connection]


@pytest.fixture
def database() -> CountingDatabase:
    """The database of the server."""
    return CountingDatabase()


@pytest.fixture
def serve(database: CountingDatabase) -> Iterator[Serve]:
    """Start servers; all of them end with the test, and leave no thread."""
    with ExitStack() as stack:
        servers = []

        def start(**options: Any) -> OracleServer:
            server = stack.enter_context(OracleServer(database, **options))
            servers.append(server)
            return server

        yield start
    assert [server.open_connections for server in servers] == [0] * len(servers)
    assert [thread.name for thread in threading.enumerate() if "oracle-" in thread.name] == []


@pytest.fixture
def server(serve: Serve) -> OracleServer:
    """A server with every default."""
    return serve()


@pytest.fixture
def connect(server: OracleServer) -> Iterator[Connect]:
    """Connect as SCOTT, to the `server` or another one; closed at the end."""
    opened = []

    def open_connection(to: OracleServer = server, **options: Any) -> oracledb.Connection:
        options = {"user": "scott", "password": "tiger", "dsn": to.dsn, **options}
        connection = oracledb.connect(**options)
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        if connection.is_healthy():
            connection.close()
