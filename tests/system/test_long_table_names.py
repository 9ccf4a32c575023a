"""A table whose name is too long for the file system, alone and among others."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from processes import command

LONG = "n" * 300


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The URL of a database with that table between two others."""
    with duckdb.connect(str(tmp_path / "s.db")) as connection:
        for name in ("a", LONG, "z"):
            connection.execute(f'CREATE TABLE "{name}" AS SELECT 1 AS i')
    return f"duckdb://{tmp_path}/s.db"


@pytest.mark.parametrize("options", [(), ("--file-name", "{unit}.{ext}")])
def test_only_that_table_fails(source: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The others are complete, and the error states how long its name is and what to do."""
    to = ("--table", "*", "--to", str(tmp_path / "o" / "{table}"), *options)
    error = command.error_of("run", source, *to, "--on-table-failure", "continue", status=7)
    assert "has 300 bytes, and file systems take 255" in error
    assert "--exclude-table" in error
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"a", "z", "_run"}
    command.error_of("run", source, *to, "--overwrite", status=6)
    command.run("run", source, *to, "--exclude-table", "n*", "--overwrite")


def test_it_has_a_place_of_its_own_in_a_job_file(source: str, tmp_path: Path) -> None:
    """The advice of the error leads to all three tables."""
    (tmp_path / "job.toml").write_text(
        f'source = "{source}"\nto = "{tmp_path}/o/{{table}}"\n[[table]]\ntable = "main.*"\n'
        f'[[table]]\ntable = "main.{LONG}"\nto = "{tmp_path}/o/long"\nfile-name = "{{unit}}.csv"\n'
    )
    command.run("run", str(tmp_path / "job.toml"))
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        "a",
        "z",
        "long",
        "_manifest.json",
    }


def test_one_table_leaves_nothing_behind(source: str, tmp_path: Path) -> None:
    """The file's name is refused before the destination is made."""
    error = command.error_of("run", source, "--table", LONG, "--to", str(tmp_path / "o"), status=6)
    assert "has 309 bytes" in error
    assert not (tmp_path / "o").exists()


def test_describe_stays_readable(source: str) -> None:
    """A long name is shown without its middle, and whole with --json."""
    assert max(map(len, command.run("describe", source).splitlines())) < 140
    found = json.loads(command.run("describe", source, "--json"))
    assert LONG in json.dumps(found)
