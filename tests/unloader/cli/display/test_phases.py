"""The phases of a run as they happen: the display moves while a database is slow to answer."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from long_tests import OTHER_ROUTES
from processes.program import Program

if TYPE_CHECKING:
    from conftest import PostgresServer

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WAITS = r"planning: (?:listing the partitions|locking and checking the tables) \.\.\."


@pytest.fixture
def server(postgres: PostgresServer) -> tuple[str, str]:
    """The URL of a database with a table `t`, and the psql that goes with it."""
    url = postgres.database("phases")
    postgres.run("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i", url=url)
    return url, postgres.psql


@contextmanager
def locked(server: tuple[str, str]) -> Iterator[None]:
    """Keep everybody else from the table inside the block."""
    url, psql = server
    with Program(
        [psql, "-X", "-q", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE;\n\\echo locked\n")
        session.stdin.flush()
        assert session.stdout.readline() == "locked\n"
        yield
        session.stdin.close()


def test_a_log_in_json_tells_every_phase(unloader: Run, server: tuple[str, str]) -> None:
    """Each phase is an event, in the order of the run, however short it was."""
    done = unloader("run", server[0], "--table", "t", "--to", "out", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    phases = [each["phase"] for each in events if each["event"] == "phase_started"]
    assert [each for each in phases if each != "extents"] == [
        *("connecting", "snapshot", "table", "columns", "partitions", "planning", "locking"),
        *("unloading", "counting", "publishing"),
    ]


def test_measuring_codecs_is_a_phase_of_its_own(unloader: Run, database: str) -> None:
    """`plan` tells its phases, too, measuring among them."""
    done = unloader(
        *("plan", database, "--table", "orders", "--compression", "balanced"),
        *("--log-format", "json", "--log-interval", "0.1"),
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    phases = [each["phase"] for each in events if each["event"] == "phase_started"]
    assert phases[0] == "connecting"
    assert phases[-1] == "measuring"


@pytest.mark.long(OTHER_ROUTES)
def test_a_log_of_text_tells_a_phase_that_takes_long(
    server: tuple[str, str], environment: dict[str, str], program: tuple[str, ...], tmp_path: Path
) -> None:
    """While another session holds a lock, the log names it once as the reason for the wait."""
    arguments = [*program, "run", server[0], "--table", "t", "--to", "out"]
    with (
        locked(server),
        Program(
            arguments,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stderr is not None
        lines = [process.stderr.readline().decode()]
        while not re.search(WAITS, lines[-1]):
            assert lines[-1], lines
            lines.append(process.stderr.readline().decode())
        process.terminate()
        lines += process.stderr.read().decode().splitlines()
    assert sum(bool(re.search(WAITS, line)) for line in lines) == 1
    assert process.returncode == 130


@pytest.mark.long(OTHER_ROUTES)
def test_the_seconds_of_a_phase_run_on_a_terminal(
    server: tuple[str, str], environment: dict[str, str], program: tuple[str, ...], tmp_path: Path
) -> None:
    """The picture changes although the database sends nothing; then the run continues."""
    arguments = [*program, "run", server[0], "--table", "t", "--to", "out"]
    leader, follower = pty.openpty()
    shown = b""
    with locked(server):
        process = Program(
            arguments,
            env={**environment, "TERM": "xterm"},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=follower,
        )
        os.close(follower)
        while len(set(re.findall(WAITS + r" [\d.]+ s", shown.decode(errors="replace")))) < 3:
            shown += os.read(leader, 65536)
    with process:
        while True:
            try:
                shown += os.read(leader, 65536)
            except OSError:
                break
    os.close(leader)
    assert process.returncode == 0, shown.decode()
    assert "done: 1/1 units, 1,000 rows" in shown.decode()
