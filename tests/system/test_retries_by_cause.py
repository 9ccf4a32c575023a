"""Databases that are away for a while or take few sessions: waited for, and worked with."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import runs
from oracle.leg import database
from oracle_server import Fault, OracleServer
from postgres import gates
from processes import command

LIMITED = """
CREATE ROLE few LOGIN CONNECTION LIMIT {limit};
CREATE TABLE t (id int NOT NULL, value text) PARTITION BY HASH (id);
DO $$ BEGIN FOR i IN 0..7 LOOP EXECUTE format(
  'CREATE TABLE t_%s PARTITION OF t FOR VALUES WITH (MODULUS 8, REMAINDER %s)', i, i);
END LOOP; END $$;
INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(1, 8000) g;
VACUUM ANALYZE t;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO few;
"""

SERVERS = "servers that stop"
"""The kind of the long tests."""

UNITS = ("--split", "partition", "--numa", "off", "--progress", "log")


@pytest.fixture
def few(postgres: Any) -> Iterator[Callable[[int], str]]:
    def made(limit: int) -> str:
        url: str = postgres.database("few sessions")
        postgres.run("DROP ROLE IF EXISTS few", url=url)
        postgres.run(LIMITED.format(limit=limit), url=url)
        return url.replace("postgres@", "few@")

    yield made
    postgres.run('DROP DATABASE "few sessions" WITH (FORCE)')
    postgres.run("DROP ROLE few")


def test_a_database_with_few_sessions_is_read_by_few_workers(
    few: Callable[[int], str], postgres: Any, tmp_path: Path
) -> None:
    """Workers that are refused leave their units to those with a session; no retry is needed."""
    to, url = tmp_path / "out", few(2)
    limited = "no more sessions: 1 of 3 workers can continue; another attempt follows"
    # One worker cannot do all before the others are up.
    with gates.closed(postgres, url.replace("few@", "postgres@")):
        running = command.Forked(
            "run", url, "--table", "t", "--to", str(to), "--parallelism", "3", "--retries", "0",
            *UNITS, "--where", f"{gates.PASSING} = ''", "--verify", "none",
        )  # fmt: skip
        seen = running.log_until(limited)
    status, _, err = running.finish()
    log = seen + err
    assert status == 0, log
    manifest = command.manifest_of(to)
    assert manifest["totals"]["rows"] == 8000
    assert manifest["totals"]["lowest_parallelism"] == 1
    assert "1 of 3 workers" in " ".join(manifest["warnings"])
    assert limited in log
    assert "no retry is used up" in log
    assert "53300" in log


def first_attempt(running: command.Running) -> str:
    """Return the log's first line on an attempt; a slow machine has one on the phase before."""
    assert running.process.stderr is not None
    lines = iter(running.process.stderr.readline, "")
    return next(line for line in lines if "attempt" in line)


def test_a_file_that_is_written_when_the_run_begins_is_waited_for(tmp_path: Path) -> None:
    """The parent's connection is tried again, which the log says; then the run continues."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as writer:
        writer.execute("CREATE TABLE t AS SELECT range AS i FROM range(10)")
        running = command.Forked(
            "run", f"duckdb://{path}", "--table", "t", "--to", str(tmp_path / "out"),
            "--retries", "1000", "--retry-delay", "0.2", "--retry-delay-max", "0.2",
            "--progress", "log",
        )  # fmt: skip
        first = first_attempt(running)
    status, _, log = running.finish()
    assert status == 0, log
    assert "connecting, attempt 1 failed: " in first
    assert "another process" in first
    assert "(next attempt in 0." in first


@pytest.fixture(scope="module")
def running() -> Iterator[OracleServer]:
    """A server with PADDED."""
    made = database()
    runs.padded_table(made)
    with OracleServer(made) as server:
        yield server


@pytest.fixture
def server(running: OracleServer) -> Iterator[OracleServer]:
    """The server without any fault or session of an earlier test; at the end without clients."""
    with runs.undisturbed(running):
        yield running


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("ora-12514", "connect"),
        *also(OTHER_ROUTES, ("ora-12528", "connect"), ("ora-01033", "login"), ("cut", "login")),
    ],
)
def test_a_database_that_starts_while_the_run_begins_is_waited_for(
    server: OracleServer, tmp_path: Path, kind: str, call: str
) -> None:
    """Two refusals of the parent are two retries; the log has each."""
    server.faults.add(Fault(kind=kind, call=call, times=2))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS[:2])
    assert done.status == 0, done.log
    assert re.search(r"connecting, attempt 1 failed: .*\(next attempt in", done.log)
    assert "connecting, attempt 2 failed: " in done.log
    assert "connecting, attempt 3 failed: " not in done.log
    assert set(done.attempts.values()) == {1}


@pytest.mark.parametrize("kind", ["cut", *also(OTHER_ROUTES, "ora-00028")])
def test_a_session_lost_while_the_run_plans_is_replaced(
    server: OracleServer, tmp_path: Path, kind: str
) -> None:
    """Columns and partitions are read again in a new session, at a snapshot taken in it."""
    server.faults.add(Fault(kind=kind, statement="_tab_col", times=2))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS[:2])
    assert done.status == 0, done.log
    assert re.search(r"planning, attempt 1 failed: .*\(next attempt in", done.log)
    assert "planning, attempt 2 failed: " in done.log
    assert "planning, attempt 3 failed: " not in done.log
    assert set(done.attempts.values()) == {1}


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("ora-12519", "connect"),
        *also(
            OTHER_ROUTES,
            ("ora-12516", "connect"),
            ("ora-12520", "connect"),
            ("ora-00018", "login"),
            ("ora-00020", "login"),
            ("ora-02391", "login"),
        ),
    ],
)
def test_a_listener_that_takes_no_more_sessions(
    server: OracleServer, tmp_path: Path, code: str, call: str
) -> None:
    """With one session for two workers, one of them reads all; no one uses up a retry."""
    refused = server.faults.add(Fault(kind=code, call=call, skip=2, times=None))
    # The other one is up before all is read.
    server.faults.add(Fault(kind="stall", statement='"PAD"', over=refused.happened))
    done = runs.unload(
        server, "PADDED", tmp_path / "out", "--split", "partition", "--parallelism", "2",
        "--retries", "0", "--numa", "off",
    )  # fmt: skip
    assert done.status == 0, done.log
    assert done.manifest["totals"]["lowest_parallelism"] == 1
    assert code.upper() in done.log
    assert len([session for session in server.sessions if session.action]) == 2


@pytest.mark.long(OTHER_ROUTES)
def test_an_outage_costs_few_units_their_retries(server: OracleServer, tmp_path: Path) -> None:
    """The unit that is lost and the one that meets the outage are retried; others are not begun."""
    slow = server.faults.add(Fault(kind="stall", statement='"PAD"'))
    to = tmp_path / "out"
    running = command.Forked(
        *runs.arguments(server, "PADDED", to, "--split", "partition", "--parallelism", "1",
                        "--numa", "off", "--retries", "12", "--retry-delay-max", "0.5"),
        env=runs.ENVIRONMENT,
    )  # fmt: skip
    running.wait_until(lambda: slow.count == 1, "a slow unit")
    server.faults.add(Fault(kind="ora-12528", call="connect", times=6))
    for session in list(server.sessions)[1:]:
        server.kill(session.sid)
    done = runs.ended(running, to)
    assert done.status == 0, done.log
    assert sum(attempts > 1 for attempts in done.attempts.values()) == 2
    assert done.log.count("ORA-12528") >= 6
    assert done.manifest["verified"]["result"] == "ok"


def test_a_count_that_fails_once_is_counted_again(server: OracleServer, tmp_path: Path) -> None:
    """A deadlock or a lost session while the rows are counted costs no run."""
    fault = server.faults.add(Fault(kind="ora-00060", statement=r"COUNT\(\*\)"))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS[:2])
    assert done.status == 0, done.log
    assert fault.count == 1
    assert re.search("counting, attempt 1 failed: .*ORA-00060", done.log)
    assert done.manifest["verified"]["result"] == "ok"


def test_a_signal_ends_the_wait_for_a_host_that_says_nothing(tmp_path: Path) -> None:
    """A connection that is taken and never answered is not waited for any longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        running = command.Forked(
            "run", f"postgresql://me@127.0.0.1:{port}/x", "--table", "t",
            "--to", str(tmp_path / "out"),
        )  # fmt: skip
        connection, _ = silent.accept()
        running.signal(signal.SIGINT)
        status, _, err = running.finish()
        connection.close()
    assert status == 130, err
    assert "while connecting" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.long(SERVERS)
def test_a_server_that_starts_again_while_the_run_begins_is_waited_for(
    start_postgres: Callable[[], Any], tmp_path: Path
) -> None:
    """PostgreSQL that is down, then starting up, is tried again until it takes the connection."""
    server = start_postgres()
    server.run("CREATE TABLE t AS SELECT generate_series(1, 100) AS id")
    data = re.search(r"host=([^&]+)", server.url)
    assert data is not None
    pg_ctl = [str(Path(server.psql).with_name("pg_ctl")), "-D", data[1], "-w", "-s"]
    owner = pwd.getpwuid(os.stat(data[1]).st_uid).pw_name
    as_owner = [] if owner == pwd.getpwuid(os.getuid()).pw_name else ["runuser", "-u", owner, "--"]
    options = (Path(data[1]) / "postmaster.opts").read_text().strip().partition(" ")[2]
    subprocess.run([*as_owner, *pg_ctl, "stop", "-m", "fast"], check=True)
    running = command.Forked(
        "run", server.url, "--table", "t", "--to", str(tmp_path / "out"), "--progress", "log",
        "--retries", "1000", "--retry-delay", "0.2", "--retry-delay-max", "0.2",
    )  # fmt: skip
    first = first_attempt(running)
    subprocess.run(
        [*as_owner, *pg_ctl, "start", "-l", "/dev/null", "-o", options.replace('"', "'")],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    status, _, err = running.finish()
    assert status == 0, err
    assert "connecting, attempt 1 failed" in first
    assert command.manifest_of(tmp_path / "out")["totals"]["rows"] == 100
