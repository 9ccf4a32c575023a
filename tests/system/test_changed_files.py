"""A database file that was changed is another one, also where its size and times are the same."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import plan_parts
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.breaking import held_behind, kill_after, staged_units

ROWS = 40_000
CHANGE = "UPDATE t SET s = 'new'"
KINDS = ("sqlite", "sqlite-wal-mode", "sqlite-wal", "duckdb", "duckdb-wal")
"""A rollback journal, WAL mode with and without a WAL beside the file, and DuckDB's log."""

KILLED = {
    "sqlite": """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("PRAGMA wal_checkpoint(RESTART)")
connection.execute(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
""",
    "duckdb": """
import duckdb, os, signal, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("SET checkpoint_threshold = '1GB'")
connection.execute(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
""",
}
"""Programs that leave committed rows in a log beside the file."""


def execute(kind: str, path: Path, *statements: str) -> None:
    """Run statements in the file; in a kind with a log the last one stays in the log."""
    *plain, last = statements
    logged = kind.endswith("-wal")
    if kind.startswith("duckdb"):
        with closing(duckdb.connect(str(path))) as connection:
            for each in plain if logged else statements:
                connection.execute(each)
    elif plain or not logged:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {'wal' if 'wal' in kind else 'delete'}")
            for each in plain if logged else statements:
                connection.execute(each)
    if logged:
        program = KILLED[kind.partition("-")[0]]
        subprocess.run([sys.executable, "-c", program, str(path), last], check=False)


def make(kind: str, path: Path) -> str:
    """Make a file whose table has the text 'old' in all rows; return its URL."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
    if kind.startswith("duckdb"):
        numbers = f"WITH n AS (SELECT range AS i FROM range({ROWS}))"
    execute(
        kind,
        path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)",
        f"INSERT INTO t {numbers} SELECT i, 'abc' FROM n",
        "UPDATE t SET s = 'old'",
    )
    return f"{kind.partition('-')[0]}://{path}"


def files_of(path: Path) -> list[Path]:
    """Return the file and its log; SQLite leaves an empty one where it was killed."""
    logs = [each for each in path.parent.glob(f"{path.name}[.-]wal") if each.stat().st_size]
    return [path, *logs]


def change(kind: str, path: Path) -> None:
    """Change all rows; the file and its log keep sizes and times."""
    before = {each: each.stat() for each in files_of(path)}
    if kind == "duckdb-wal":  # Its log grows with each commit, so another one takes its place.
        files_of(path)[1].unlink()
    execute(kind, path, CHANGE)
    for each in files_of(path):
        was = before[each]
        if kind == "duckdb":  # Each checkpoint makes the file longer or shorter.
            os.truncate(each, max(was.st_size, each.stat().st_size))
        os.utime(each, ns=(was.st_atime_ns, was.st_mtime_ns))


def job(source: str, dest: Path, *options: str) -> tuple[str, ...]:
    units = ("--unit-bytes", "32kB", "--parallelism", "1")
    return ("run", source, "--table", "t", "--to", str(dest), *units, *options)


def texts(dest: Path) -> set[str]:
    """Return the texts in the files of a run."""
    lines = [line for path in dest.glob("*.csv") for line in path.read_text().splitlines()[1:]]
    assert len(lines) == ROWS
    return {line.partition(",")[2] for line in lines}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """How the file is written."""
    found: str = request.param
    return found


def test_a_changed_file_is_another_snapshot(kind: str, tmp_path: Path) -> None:
    """`resume` refuses it, `--resume-or-start` reads all again, `verify SOURCE` reports it."""
    path, dest, whole = tmp_path / "data.db", tmp_path / "out", tmp_path / "whole"
    source = make(kind, path)
    command.run(*job(source, whole), "--quiet")
    shown = command.ended("verify", str(whole), source)
    assert (shown.returncode, "at the run's snapshot" in shown.stdout) == (0, True), shown.stderr
    kill_after(2, dest, *job(source, dest))
    change(kind, path)
    error = command.error_of("resume", str(dest), "--progress", "none", status=4)
    assert "snapshot" in error
    assert "cannot be read any more" in error
    shown = command.ended("verify", str(whole), source)
    assert "as the source is now" in shown.stdout, shown.stderr
    command.run(*job(source, dest), "--resume-or-start", "--quiet")
    assert texts(dest) == {"new"}


def test_an_unchanged_file_is_read_on(kind: str, tmp_path: Path) -> None:
    """A run that was killed continues where no one has written."""
    path, dest = tmp_path / "data.db", tmp_path / "out"
    source = make(kind, path)
    done = kill_after(2, dest, *job(source, dest))
    out = command.ended("resume", str(dest), "--progress", "log")
    assert out.returncode == 0, out.stderr
    assert texts(dest) == {"old"}
    assert len(done) >= 2


@pytest.mark.parametrize("kind", [KINDS[0], *also(OTHER_ROUTES, *KINDS[1:])], indirect=True)
def test_parts_of_a_plan_refuse_a_changed_file(kind: str, tmp_path: Path) -> None:
    """No part is read of another state than the one of the plan."""
    path, dest = tmp_path / "data.db", tmp_path / "out"
    plan = plan_parts.planned(make(kind, path), dest, "--unit-bytes", "32kB")
    plan_parts.run_part(plan, "1/2")
    change(kind, path)
    error = command.error_of("run", plan, "--part", "2/2", "--progress", "none", status=4)
    assert "the snapshot of the plan cannot be read any more" in error


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-wal-mode", "duckdb"], indirect=True)
def test_a_file_that_is_overwritten_during_the_run(kind: str, tmp_path: Path) -> None:
    """Another file that was copied over it ends the run, whether its rows are counted or not."""
    path, dest, gate = tmp_path / "data.db", tmp_path / "out", tmp_path / "gate"
    source = make(kind, path)
    other = tmp_path / "other.db"
    shutil.copy2(path, other)
    execute(kind, other, CHANGE)
    gate.touch()
    running = command.Forked(
        *job(source, dest, "--verify", "none"), "--progress", "none", env=held_behind(1, gate)
    )
    running.wait_until(lambda: len(staged_units(dest)) >= 1, "a finished unit")
    path.write_bytes(other.read_bytes())
    gate.unlink()
    status, _, error = running.finish()
    assert status == 4, error
    assert "was written while the run read it" in error
    assert command.final_names(dest) == []


@pytest.mark.parametrize(
    "kind", ["sqlite-wal-mode", *also(OTHER_ROUTES, "sqlite", "duckdb")], indirect=True
)
def test_a_file_that_is_replaced_during_the_run(kind: str, tmp_path: Path) -> None:
    """A worker that has the file open reads it to the end."""
    path, dest, gate = tmp_path / "data.db", tmp_path / "out", tmp_path / "gate"
    source = make(kind, path)
    other = tmp_path / "other.db"
    shutil.copy2(path, other)
    execute(kind, other, CHANGE)
    gate.touch()
    running = command.Forked(*job(source, dest), "--progress", "none", env=held_behind(1, gate))
    running.wait_until(lambda: len(staged_units(dest)) >= 1, "a finished unit")
    other.replace(path)
    gate.unlink()
    status, _, error = running.finish()
    assert status == 0, error
    assert texts(dest) == {"old"}
