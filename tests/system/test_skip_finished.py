"""`--skip-finished`: the command of a night is started again after its run is finished."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from processes import command


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file with two tables."""
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as connection:
        for name in ("first", "second"):
            connection.execute(f"CREATE TABLE {name} (i INTEGER)")
            connection.execute(f"INSERT INTO {name} VALUES (1)")
    return f"sqlite://{path}"


@pytest.mark.parametrize(
    ("to", "table"),
    [
        ("night", "first"),
        ("{table}/{date}", "first"),
        ("night/{table}", "*"),
        ("{date}/{schema}.{table}", "*"),
    ],
)
def test_a_finished_run_of_the_job_is_left_alone(
    url: str, tmp_path: Path, to: str, table: str
) -> None:
    """The speed makes no difference; nothing is written, and no command runs at the end."""
    told = tmp_path / "told"
    job = (
        *("run", url, "--table", table, "--to", f"{tmp_path}/out/{to}", "--json"),
        *("--resume-or-start", "--skip-finished", "--on-success", f"echo x >> {told}"),
    )
    first = json.loads(command.run(*job))
    assert "skipped" not in first
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = json.loads(command.run(*job, "--parallelism", "2", "--retries", "7"))
    assert again.pop("skipped") is True
    assert {**again, "digest": ""} == {**first, "digest": ""}
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert told.read_text() == "x\n"


def test_a_finished_run_of_another_job_is_not(url: str, tmp_path: Path) -> None:
    """Its rows are others."""
    job = ("run", url, "--to", f"{tmp_path}/out", "--resume-or-start", "--skip-finished", "--quiet")
    command.run(*job, "--table", "first")
    for other in (("--table", "second"), ("--table", "first", "--where", "i > 0")):
        error = command.error_of(*job, *other, status=6)
        assert "it holds a finished run of another job: it has other values of --" in error
        assert other[-2] in error
        assert "leave --skip-finished out, and add --overwrite" in error
    # The advice works.
    replacing = [each for each in job if each != "--skip-finished"]
    command.run(*replacing, "--table", "second", "--overwrite")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--skip-finished",), "give --resume-or-start"),
        (("--resume-or-start", "--skip-finished", "--overwrite"), "leave one of the two out"),
        (("--resume-or-start", "--skip-finished", "--to", "x/{run_id}"), "use {date}"),
    ],
)
def test_what_makes_no_sense_with_it_is_refused(
    url: str, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    """Before anything is read."""
    job = ("run", url, "--table", "first", "--to", f"{tmp_path}/out")
    assert why in command.error_of(*job, *options, status=2)
