"""The run's sessions in the database: their names, settings, number, and every way to connect."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracledb
import psutil
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import runs
from oracle.leg import ID_AND_NAME, PASSWORD, database, rows
from oracle.runs import Outcome
from oracle_server import Fault, OracleServer
from oracle_server.database import Database
from oracle_server.model import SessionState
from processes import command

READING = '^SELECT "ID", "PAD"'
UNITS = ("--split", "partition", "--fetch-memory", runs.SMALL_FETCH)
SETTINGS = {
    "NLS_CALENDAR": "GREGORIAN",
    "NLS_DATE_LANGUAGE": "AMERICAN",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "NLS_COMP": "BINARY",
    "NLS_SORT": "BINARY",
    "NLS_NCHAR_CONV_EXCP": "TRUE",
    "TIME_ZONE": "+00:00",
    "PARALLEL QUERY": "DISABLE",
}
ADMIN_PASSWORD = "dba-secret"


def made(**options: Any) -> Database:
    """Return a database with PADDED, the small table T, a DBA, and HR as SCOTT's proxy."""
    found = database(**options)
    found.add_user("DBADMIN", ADMIN_PASSWORD, dba=True)
    found.users["SCOTT"].proxies.add("HR")
    found.create_table("SCOTT", "T", columns=ID_AND_NAME, rows=rows(300))
    return found


@pytest.fixture(scope="module")
def running() -> Iterator[OracleServer]:
    """A server with every table."""
    found = made()
    runs.padded_table(found)
    with OracleServer(found) as server:
        yield server


@pytest.fixture
def server(running: OracleServer) -> Iterator[OracleServer]:
    """The server without any fault or session of an earlier test; at the end without clients."""
    with runs.undisturbed(running):
        yield running


def assert_small_table(done: Outcome) -> None:
    """Check that T came out as it is."""
    assert done.status == 0, done.log
    content = b"".join(path.read_bytes() for path in sorted(done.destination.glob("*.csv")))
    lines = "".join(f"{number},{name}\n" for number, name in rows(300))
    assert content.decode() == "ID,NAME\n" + lines


def workers_of(server: OracleServer) -> list[SessionState]:
    """Return the sessions of workers."""
    return [session for session in server.sessions if session.action != "parent"]


def logged(started: command.Running, words: str) -> str:
    """Return the log of a run up to some words, which are waited for."""
    stream = started.process.stderr
    assert stream is not None
    found = b""
    # Past the stream's own buffer, which `communicate` does not read.
    while words.encode() not in found:
        piece = os.read(stream.fileno(), 1 << 16)
        assert piece, found.decode()
        found += piece
    return found.decode()


@pytest.mark.long(OTHER_ROUTES)
def test_sessions_say_whose_they_are(server: OracleServer, tmp_path: Path) -> None:
    """Module, client identifier and action name the program, the run, the table and the unit."""
    slow = server.faults.add(Fault(kind="stall", statement=READING, times=2))
    to = tmp_path / "out"
    started = command.Running(
        *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "2"), env=runs.ENVIRONMENT
    )
    started.wait_until(lambda: slow.count == 2, "two slow statements")
    seen = {(one.module, one.action, one.client_identifier) for one in server.sessions}
    slow.over.set()
    done = runs.ended(started, to)
    assert done.status == 0, done.log
    run = f"unloader:{done.manifest['run_id']}"
    assert seen == {
        ("unloader", "parent", run),
        ("unloader", "PADDED.0001", run),
        ("unloader", "PADDED.0002", run),
    }
    # A worker keeps its session from unit to unit, and the session's action shows it.
    assert len(server.sessions) == 3
    last = {session.action for session in workers_of(server)}
    assert last & {"PADDED.0003", "PADDED.0004"}
    assert runs.scns(server) == {done.manifest["snapshot"]["value"]}


@pytest.mark.long(OTHER_ROUTES)
def test_logged_statement_ends_exactly_this_run(server: OracleServer, tmp_path: Path) -> None:
    """The statement in the log finds the sessions of this run alone; killed, they end it."""
    slow = server.faults.add(Fault(kind="stall", statement=READING, times=4))
    options = (*UNITS, "--partition", "P1,P2", "--parallelism", "2")
    ours, other = (
        command.Running(
            *runs.arguments(server, "PADDED", tmp_path / name, *options), env=runs.ENVIRONMENT
        )
        for name in ("ours", "other")
    )
    log = logged(ours, "END LOOP; END;")
    for running in (ours, other):
        running.wait_until(lambda: slow.count == 4, "four slow statements")
    found = re.search(
        r"to end it in the database: BEGIN FOR s IN \((SELECT .*)\) LOOP BEGIN EXECUTE IMMEDIATE "
        r"'ALTER SYSTEM KILL SESSION .* END LOOP; END;",
        log,
    )
    assert found is not None, log
    admin = oracledb.connect(user="dbadmin", password=ADMIN_PASSWORD, dsn=server.dsn)
    with admin, admin.cursor() as cursor:
        cursor.execute(found[1])
        sessions = cursor.fetchall()
    assert len(sessions) == 3
    for sid, serial, _ in sessions:
        assert (sid, serial) in {(one.sid, one.serial) for one in server.sessions}
        server.kill(sid)
    done = runs.ended(ours, tmp_path / "ours")
    assert done.status == 4, done.log
    assert "ORA-00028" in done.error
    assert command.final_names(done.destination) == []
    slow.over.set()
    done = runs.ended(other, tmp_path / "other")
    assert done.status == 0, done.log
    assert done.attempts == {"P1": 1, "P2": 1}


def test_settings_and_own_statements(server: OracleServer, tmp_path: Path) -> None:
    """--session-sql runs first in every session, and cannot overrule what texts depend on."""
    own = ("ALTER SESSION SET NLS_SORT = 'GERMAN'", "ALTER SESSION SET OPTIMIZER_MODE = ALL_ROWS")
    options = [option for statement in own for option in ("--session-sql", statement)]
    done = runs.unload(
        server, "T", tmp_path / "out", *options,
        env={"NLS_LANG": "GERMAN_GERMANY.WE8ISO8859P1", "ORA_SDTZ": "Europe/Berlin"},
    )  # fmt: skip
    assert_small_table(done)
    assert len(server.sessions) == 2
    for session in server.sessions:
        assert {name: session.settings[name] for name in SETTINGS} == SETTINGS
        asked = [statement.startswith("SELECT") for statement in session.statements]
        before = session.statements[: asked.index(True)]
        assert tuple(before[-len(own) - 1 : -1]) == own
        assert all(statement.startswith("ALTER SESSION") for statement in before)
    (worker,) = workers_of(server)
    assert worker.settings["_SERIAL_DIRECT_READ"] == "ALWAYS"


def test_own_statement_that_is_refused(server: OracleServer, tmp_path: Path) -> None:
    """The error names the statement, without the password in it, and nothing is read."""
    wrong = "ALTER SESSION SET NO_SUCH_PARAMETER = 1"
    done = runs.unload(server, "T", tmp_path / "out", "--session-sql", wrong)
    assert done.status == 4, done.log
    assert wrong in done.error
    assert "ORA-02248" in done.error
    assert not done.destination.exists()
    server.faults.add(Fault(kind="ora-01979", statement="SET ROLE"))
    role = 'SET ROLE READER IDENTIFIED BY "Hush hush"'
    done = runs.unload(server, "T", tmp_path / "out", "--session-sql", role)
    assert done.status == 4, done.log
    assert 'SET ROLE READER IDENTIFIED BY "***" failed' in done.error
    assert "Hush" not in done.log


@pytest.mark.parametrize("kind", ["ora-03113", *also(OTHER_ROUTES, "ora-01555")])
def test_failed_attempt_costs_one_connection(
    server: OracleServer, tmp_path: Path, kind: str
) -> None:
    """Whether the session lives on or not, the next attempt begins with one new session."""
    server.faults.add(Fault(kind=kind, statement=READING, after_rows=2000))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "1")
    assert done.status == 0, done.log
    assert sum(done.attempts.values()) == len(runs.PARTITIONS) + 1
    assert len(server.connect_data) == len(server.sessions) == 3
    reads = [
        sum(statement.startswith('SELECT "ID"') for statement in session.statements)
        for session in workers_of(server)
    ]
    assert reads == [1, len(runs.PARTITIONS)]


@pytest.mark.parametrize("options", [(), ("--debug",)], ids=["plain", "debug"])
def test_wrong_password_is_tried_once(
    server: OracleServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Wrong passwords lock accounts: one login of the parent, no worker's, and no second one."""
    wrong = "Wr0ng-and-secret"
    done = command.ended(
        *options, *runs.arguments(server, "T", tmp_path / "out", "--parallelism", "2"),
        env={**os.environ, "UNLOADER_PASSWORD": wrong},
    )  # fmt: skip
    log = done.stderr
    assert (done.returncode, done.stdout) == (4, ""), log
    assert "ORA-01017" in log
    assert "UNLOADER_PASSWORD" in log
    assert wrong not in log
    assert len(server.connect_data) == 1
    assert server.sessions == []
    assert not (tmp_path / "out").exists()


def test_password_that_is_changed_meanwhile(server: OracleServer, tmp_path: Path) -> None:
    """When workers are not let in any more, each has tried once at most."""
    refused = server.faults.add(Fault(kind="ora-01017", call="login", skip=1, times=None))
    done = runs.unload(server, "PADDED", tmp_path / "out", *UNITS, "--parallelism", "2")
    assert done.status == 4, done.log
    assert "ORA-01017" in done.error
    assert 1 <= refused.count <= 2
    assert sum(bool(session.statements) for session in server.sessions) == 1
    assert not done.destination.exists()


def test_secrets_stay_secret(server: OracleServer, tmp_path: Path) -> None:
    """No command line, log, trace, plan or manifest has the password, also after errors."""
    wallet = "wallet-Secret#9"
    server.faults.add(Fault(kind="ora-03113", statement=READING, after_rows=2000))
    slow = server.faults.add(Fault(kind="stall", statement=READING, times=2))
    to = tmp_path / "out"
    url = server.url("hr[scott]")
    started = command.Running(
        "--debug", *runs.arguments(server, "PADDED", to, *UNITS, "--parallelism", "2", url=url),
        env={"UNLOADER_PASSWORD": PASSWORD, "UNLOADER_WALLET_PASSWORD": wallet},
    )  # fmt: skip
    started.wait_until(lambda: slow.count == 2, "two slow statements")
    lines = [
        " ".join(process.cmdline())
        for process in (psutil.Process(started.process.pid), *started.workers())
    ]
    assert len(lines) == 3
    slow.over.set()
    done = runs.ended(started, to)
    assert done.status == 0, done.log
    assert {session.user for session in server.sessions} == {"SCOTT"}
    assert "attempt 1 failed" in done.log
    manifest = (to / "_manifest.json").read_text()
    for text in (*lines, done.log, done.stdout, manifest):
        for secret in (PASSWORD, wallet):
            assert secret not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "19c", "redirect": True, "sdu": 2048, "vectors": False},
        *also(
            OTHER_ROUTES,
            {"mode": "19c", "verifier": "11g"},
            {"mode": "21c", "triple_lengths": True},
            {"mode": "23ai", "redirect": True, "verifier": "11g"},
        ),
    ],
    ids=["19c-redirect", "19c-11g", "21c", "23ai-redirect"],
)
def test_servers_of_every_kind(tmp_path: Path, options: dict[str, Any]) -> None:
    """Old password verifiers, old versions and listeners that send clients on serve whole runs."""
    with OracleServer(made(version=options["mode"]), **options) as server:
        done = runs.unload(server, "T", tmp_path / "out")
        assert_small_table(done)
        assert len(server.sessions) == 2
        runs.assert_no_connection_left(server)
