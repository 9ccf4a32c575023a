"""The server as a whole: many clients, sessions that are killed, and its own end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import oracledb
import psutil
import pytest
from oracle_server import Fault, OracleServer
from processes.program import Program


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
        assert fault.happened.wait(180)
    thread.join(180)
    silent.close()
    assert "DPY-4011" in failed[0]
    del idle
    assert server.open_connections == 0
    assert [thread.name for thread in threading.enumerate() if "oracle-" in thread.name] == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((server.host, server.port))


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


def begun(*arguments: str) -> Program:
    """Start `python -m oracle_server`."""
    root = Path(__file__).parents[2]
    return Program(
        [sys.executable, "-m", "oracle_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root / 'tests' / 'support'}:{root}"},
        text=True,
    )


def options_of(server: Program) -> dict[str, str]:
    """Return how to connect with a server that has started."""
    assert server.stdout is not None
    report = json.loads(server.stdout.readline())
    assert report["url"].startswith("oracle://scott@127.0.0.1:")
    return {"user": "scott", "password": report["password"], "dsn": report["dsn"]}


STATEMENT = "SELECT COUNT(*) FROM NUMBERS"


def test_command() -> None:
    """`python -m oracle_server` prints where it is, serves its tables, and ends with its input."""
    with begun("--mode", "19c", "--fault", '{"kind": "cut"}') as process:
        options = options_of(process)
        with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
            oracledb.connect(**options).cursor().execute(STATEMENT)
        with oracledb.connect(**options) as connection:
            assert connection.cursor().execute(STATEMENT).fetchall() == [(1000,)]
        process.communicate()
        assert process.returncode == 0


def test_several_processes() -> None:
    """Clients at one port reach several processes, which have the same rows and end together."""
    with begun("--processes", "3") as process:
        options = options_of(process)
        clients = [oracledb.connect(**options) for _ in range(12)]
        assert len({client.session_id for client in clients}) == 12
        assert len({client.session_id % 3 for client in clients}) > 1
        for client in clients:
            assert client.cursor().execute(STATEMENT).fetchall() == [(1000,)]
            client.close()
        others = psutil.Process(process.pid).children()
        assert len(others) == 2
        process.communicate()
        assert process.returncode == 0
        assert not any(each.is_running() for each in others)
