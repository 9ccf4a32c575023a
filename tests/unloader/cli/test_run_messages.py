"""The messages of `run` if its argument is not a source, and its plurals."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from processes import command

TABLES = ("--table", "t", "--table", "u")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Work in an empty directory; return the source, whose tables have one row each."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("a.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS i; CREATE TABLE u AS SELECT 2 AS i")
    return f"duckdb://{tmp_path}/a.duckdb"


@pytest.mark.parametrize("to", ["out", "out/{table}"])
@pytest.mark.parametrize("name", ["run", "plan"])
def test_a_manifest_is_not_a_plan(here: str, name: str, to: str) -> None:
    """The error names the run, and its advice works."""
    tables = TABLES if "{" in to else TABLES[:2]
    command.run("run", here, *tables, "--to", to, "--quiet")
    error = command.error_of(name, "out/_manifest.json", status=2)
    assert "out/_manifest.json is the manifest of the run 2" in error
    assert "unloader verify out;" in error
    command.run("verify", "out")


def test_a_record_of_an_unfinished_run_is_not_a_plan(here: str) -> None:
    """The advice is to continue the run in the directory above `_run`."""
    Path("out/_run").mkdir(parents=True)
    Path("out/_run/run.json").write_text('{"format_version": 3, "run_id": "x"}')
    error = command.error_of("run", "out/_run/run.json", status=2)
    assert "a record of the run x, and not a plan. Next: continue the unfinished run" in error
    assert "unloader resume out;" in error


def test_a_directory_is_not_a_source(here: str) -> None:
    """The error comes before the one on options, and names the run in the directory."""
    for name in ("run", "plan", "preflight"):
        error = command.error_of(name, ".", status=2)
        assert ". is a directory, and not a source, a plan or a job file." in error
    command.run("run", here, *TABLES[:2], "--to", "out", "--quiet")
    assert "unloader verify out" in command.error_of("run", "out", status=2)
    Path("begun/_run").mkdir(parents=True)
    assert "unloader resume begun" in command.error_of("run", "begun", status=2)


def test_one_thing_has_a_singular(here: str) -> None:
    """No line of a run counts 1 of a plural."""
    done = command.ended("run", here, *TABLES, "--to", "out/{table}", "--parallelism", "1")
    assert "main.t is complete: 1 row, 4 B; 1 of 2 tables" in done.stderr
    alone = command.ended("run", here, *TABLES[:2], "--to", "alone", "--parallelism", "1")
    assert "about 1 row;" in alone.stderr
    assert "done: 1/1 units, 1 row, " in alone.stderr
    assert "ok (count, 1 row in the source)" in alone.stdout
    error = command.error_of(
        "run", here, "--table", "t", "--table", "v", "--to", "left/{table}",
        "--on-table-failure", "continue", status=7,
    )  # fmt: skip
    assert "1 of 2 tables is not complete: v:" in error


@pytest.mark.parametrize(
    ("to", "status"), [("x/{table}/../../y", 2), ("{date}/../y", 2), ("x/../y", 6)]
)
def test_a_way_back_makes_no_directory(here: str, to: str, status: int) -> None:
    """A `..` after a directory that is not there yet is refused; the advice works."""
    error = command.error_of("run", here, *TABLES[:2], "--to", to, status=status)
    assert error.rstrip().endswith("leave the .. out: --to y")
    assert [path.name for path in Path().iterdir()] == ["a.duckdb"]
    Path("there").mkdir()
    command.run("run", here, *TABLES[:2], "--to", "there/../y", "--quiet")
    assert Path("y/_manifest.json").exists()
