"""What `status` shows of a run in which a table failed, or its directory was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A DuckDB file with two tables, and a view that fails on a value."""
    path = tmp_path / "d.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE good AS SELECT range AS i FROM range(1000)")
        connection.execute("CREATE TABLE letters AS SELECT 'abc' AS s")
        connection.execute("CREATE VIEW numbers AS SELECT CAST(s AS INTEGER) AS n FROM letters")
    return path


def night(source: Path, home: Path) -> tuple[str, ...]:
    """Return the command of the run."""
    return (
        *("run", f"duckdb://{source}", "--table", "main.*", "--table-kinds", "view"),
        *("--to", f"{home}/{{table}}", "--on-table-failure", "continue", "--quiet"),
    )


def status_of(place: Path) -> dict[str, Any]:
    """Return the status of an interrupted run."""
    found: dict[str, Any] = json.loads(command.run("status", str(place), "--json", status=7))
    return found


def test_a_failed_table_is_counted_and_its_error_is_shown(source: Path, tmp_path: Path) -> None:
    """The directory of the table has the reason, too; a view without an estimate has no share."""
    home = tmp_path / "out"
    command.run(*night(source, home), status=7)
    for place in (home, home / "numbers"):
        shown = command.run("status", str(place), status=7)
        assert "interrupted: 1 of 3 tables is not complete: main.numbers: DuckDB: " in shown
        assert "was killed" not in shown
        assert "%" not in shown
        assert "Conversion Error" in status_of(place)["reason"]
    found = status_of(home)
    live = found["live"]
    assert found["tables"] == live["tables"]
    assert (found["tables"]["done"], found["tables"]["failed"]) == (2, 1)
    figures = ("fraction", "seconds_left", "rows_expected", "bytes_expected")
    assert [live[name] for name in figures] == [None] * 4


def test_the_advice_on_a_value_is_to_correct_it(source: Path, tmp_path: Path) -> None:
    """A file has no log of a server. Each command of the advice works."""
    home = tmp_path / "out"
    error = command.error_of(*night(source, home), status=7)
    assert "log" not in error
    assert "correct the value, or the view that converts it" in error
    assert f"unloader resume {home} --new-snapshot" in error
    excluded = ("--exclude-table", "numbers", "--overwrite")
    command.run(*night(source, home), *excluded)
    other = tmp_path / "other"
    command.run(*night(source, other), status=7)
    with duckdb.connect(str(source)) as connection:
        connection.execute("UPDATE letters SET s = '12'")
    command.run("resume", str(other), "--new-snapshot", "--quiet")
    command.run("verify", str(other), "--quiet")


def test_the_advice_on_a_query_names_the_query(source: Path, tmp_path: Path) -> None:
    """A query has no columns to leave out."""
    error = command.error_of(
        *("run", f"duckdb://{source}", "--query", "SELECT CAST(s AS INTEGER) FROM letters"),
        *("--query-name", "q", "--to", str(tmp_path / "out"), "--quiet"),
        status=4,
    )
    assert "correct the value, or the view or --query that converts it" in error


def test_a_table_whose_directory_was_refused_is_counted_once(source: Path, tmp_path: Path) -> None:
    """It is left out, so `resume` would not unload it."""
    home = tmp_path / "out"
    for name in ("good", "letters"):
        alone = ("run", f"duckdb://{source}", "--table", name, "--to", str(home / name))
        command.run(*alone, "--quiet")
    command.run(*night(source, home), status=7)
    shown = command.run("status", str(home), status=7)
    assert "0 of 3 complete" in shown
    assert "0 finished work units of 1 incomplete table," in shown
    counts = status_of(home)["tables"]
    assert (counts["total"], counts["failed"], counts["left_out"]) == (3, 3, 2)
