"""What `status`, `verify` and `resume` advise where a run over several tables cannot be resumed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from processes import breaking, command

TABLES = ("bad", "first", "second")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file with three tables, one of them unreadable."""
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as connection:
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} (i INTEGER)")
            connection.execute(f"INSERT INTO {name} VALUES (1)")
        connection.execute("INSERT INTO bad VALUES ('text')")
    return f"sqlite://{path}"


@pytest.fixture
def home(url: str, tmp_path: Path) -> Path:
    """The directory of a run that has published two of the tables."""
    home = tmp_path / "out"
    command.run(*night(url, home), "--table", "*", status=7)
    return home


def night(url: str, home: Path) -> tuple[str, ...]:
    """Return the command without its tables."""
    return ("run", url, "--to", f"{home}/{{table}}", "--on-table-failure", "continue", "--quiet")


def test_the_tables_that_are_published_are_verified(home: Path) -> None:
    """The others are named, with the command that unloads them."""
    error = command.error_of("verify", str(home), status=7)
    assert "2 are published" in error
    assert "not published: main.bad" in error
    assert f"unloader resume {home}" in error
    (file,) = (home / "first").glob("*.csv")
    file.write_text("i\n1\n2\n")
    error = command.error_of("verify", str(home), status=8)
    assert "1 of 3 tables is not as the run wrote it: main.first: " in error


def test_tables_that_were_left_out_need_the_command_again(url: str, tmp_path: Path) -> None:
    """`status` and `verify` advise --resume-or-start, which then unloads all tables."""
    home = tmp_path / "out"
    tables = ("--table", "first", "--table", "second", "--table", "missing")
    command.run(*night(url, home), *tables, status=7)
    shown = command.run("status", str(home), status=7)
    assert "2 of 3 complete" in shown
    assert "unloader resume" not in shown
    assert "start the command of the run with --resume-or-start" in shown
    assert "unloader clean" not in shown
    error = command.error_of("verify", str(home), status=7)
    assert "missing (left out)" in error
    assert "--resume-or-start" in error
    assert "unloader resume" not in error
    with sqlite3.connect(tmp_path / "s.sqlite") as connection:
        connection.execute("CREATE TABLE missing (i INTEGER)")
    command.run(*night(url, home), *tables, "--resume-or-start")
    assert "3 tables" in command.run("status", str(home))


@pytest.mark.parametrize("damage", [0, 30])
def test_a_run_with_a_damaged_record(home: Path, damage: int) -> None:
    """Each command reports that it cannot be resumed, and the remedy."""
    record = home / "_run" / "run.json"
    record.write_bytes(record.read_bytes()[:damage])
    for place in (home, home / "bad"):
        shown = command.run("status", str(place), status=7)
        assert "The run cannot be resumed: " in shown
        assert f"unloader clean {home}  # removes the staged files" in shown
        assert "unloader resume" not in shown
        assert json.loads(command.run("status", str(place), "--json", status=7))["problem"]
        error = command.error_of("resume", str(place), status=6)
        assert "start again with the command of the run" in error
    error = command.error_of("verify", str(home), status=6)
    assert f"unloader verify {home}/first" in error
    command.run("clean", str(home), "--quiet")
    command.run("verify", str(home / "first"), "--quiet")


def test_a_run_over_one_table_with_an_empty_record(url: str, tmp_path: Path) -> None:
    """It is the same."""
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as connection:
        rows = ((number,) for number in range(20000))
        connection.executemany("INSERT INTO first VALUES (?)", rows)
    home = tmp_path / "out"
    job = ("run", url, "--table", "first", "--to", str(home), "--parallelism", "1")
    breaking.kill_after(1, home, *job, "--unit-bytes", "16kB")
    (home / "_run" / "run.json").write_bytes(b"")
    shown = command.run("status", str(home), status=7)
    assert f"unloader clean {home}  # removes the staged files" in shown
    assert "left no record" in command.error_of("resume", str(home), status=6)
    assert f"unloader status {home}" in command.error_of("verify", str(home), status=6)
