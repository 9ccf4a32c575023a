"""The server as a whole: many clients, sessions that are killed, and its own end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import oracledb
import pytest
from oracle_server import Fault, OracleServer
from processes.command import wait_for
from processes.program import Program


def test_twenty_clients_at_once(server, connect) -> None:
    """Each of twenty connections gets its own rows and session."""

    def work(number: int) -> int:
        connection = connect()
        connection.module = f"client {number}"
        rows = connection.cursor().execute(f"select {1000 + number} rows").fetchall()
        return len(rows)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(20))) == [1000 + n for n in range(20)]
    assert {state.module for state in server.sessions} == {f"client {n}" for n in range(20)}
    assert len({(state.sid, state.serial) for state in server.sessions}) == 20


def test_pool(server) -> None:
    """The driver's pool works: connections are reused."""
    pool = oracledb.create_pool(user="scott", password="tiger", dsn=server.dsn, min=1, max=2)
    for _ in range(5):
        with pool.acquire() as connection:
            connection.cursor().execute("select 3 rows").fetchall()
    pool.close()
    assert len(server.sessions) == 1


@pytest.mark.parametrize("mode", ["19c", "23ai"])
def test_killed_session(serve, connect, mode) -> None:
    """The next call of a killed session fails with ORA-00028 and ends the connection."""
    server = serve(mode=mode)
    connection = connect(server)
    server.kill(server.sessions[0].sid)
    with pytest.raises(oracledb.DatabaseError, match=r"DPY-4011(.|\n)*ORA-00028"):
        connection.ping()
    assert not connection.is_healthy()


def test_session_killed_within_a_call(server, connect) -> None:
    """A session that is killed while a statement runs gets to know at once."""
    fault = server.faults.add(Fault(kind="stall", after_rows=500))
    connection = connect()

    def kill() -> None:
        fault.happened.wait(60)
        server.kill(server.sessions[0].sid)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(oracledb.DatabaseError, match="ORA-00028"):
        connection.cursor().execute("select 5000 rows").fetchall()
    killer.join()


def test_dropped_connection(server, connect) -> None:
    """A connection that is dropped fails with the driver's own error."""
    connection = connect()
    server.drop(server.sessions[0].sid)
    with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
        connection.ping()


def test_end_with_clients_in_every_state(database) -> None:
    """Leaving the server ends idle, stalled and silent clients, and every thread of it."""
    failed = []
    with OracleServer(database) as server:
        options = {"user": "scott", "password": "tiger", "dsn": server.dsn}
        idle = oracledb.connect(**options)
        silent = socket.create_connection((server.host, server.port))
        stalled = oracledb.connect(**options)
        fault = server.faults.add(Fault(kind="stall", deaf=True))

        def wait_for_ever() -> None:
            try:
                stalled.cursor().execute("select 5 rows")
            except oracledb.DatabaseError as error:
                failed.append(str(error))

        thread = threading.Thread(target=wait_for_ever)
        thread.start()
        assert fault.happened.wait(60)
    thread.join(60)
    silent.close()
    assert "DPY-4011" in failed[0]
    del idle
    assert server.open_connections == 0
    assert [thread.name for thread in threading.enumerate() if "oracle-" in thread.name] == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((server.host, server.port))


def test_port_of_a_server_that_is_gone(database) -> None:
    """A port where nobody listens is an error at once."""
    with OracleServer(database) as server:
        dsn = server.dsn
    with pytest.raises(oracledb.DatabaseError, match="DPY-6005"):
        oracledb.connect(user="scott", password="tiger", dsn=dsn)


def test_server_tells_of_its_own_failures(database) -> None:
    """A mistake within the server fails the test that uses it, not only the client."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("in the database")

    def use_it() -> None:
        with OracleServer(database) as server:
            connection = oracledb.connect(user="scott", password="tiger", dsn=server.dsn)
            database.execute = broken
            with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
                connection.cursor().execute("select 1 rows")

    with pytest.raises(AssertionError, match="ZeroDivisionError: in the database"):
        use_it()


def test_addresses(server) -> None:
    """A test gets a connect string and a source URL."""
    assert server.dsn == f"127.0.0.1:{server.port}/FREEPDB1"
    assert server.url("scott") == f"oracle://scott@127.0.0.1:{server.port}/FREEPDB1"


def test_sessions_are_seen_while_they_last(serve, connect, database) -> None:
    """A database that keeps a list of sessions has those that are open."""
    database.sessions = {}
    connection = connect(serve())
    assert [state.user for state in database.sessions.values()] == ["SCOTT"]
    connection.close()
    wait_for(lambda: database.sessions == {}, "the end of the session")


def test_command() -> None:
    """`python -m oracle_server` prints where it is, serves its tables, and ends with its input."""
    command = [sys.executable, "-m", "oracle_server", "--mode", "19c", "--fault", '{"kind": "cut"}']
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'tests' / 'support'}:{root}"}
    with Program(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        report = json.loads(process.stdout.readline())
        assert report["url"].startswith("oracle://scott@127.0.0.1:")
        options = {"user": "scott", "password": report["password"], "dsn": report["dsn"]}
        statement = "SELECT COUNT(*) FROM NUMBERS"
        with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
            oracledb.connect(**options).cursor().execute(statement)
        with oracledb.connect(**options) as connection:
            assert connection.cursor().execute(statement).fetchall() == [(1000,)]
        process.communicate()
        assert process.returncode == 0
