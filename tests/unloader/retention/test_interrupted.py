"""Interrupted runs beside later ones: the place of a new run, and the removal of an old one.

What manifests, links and `runs` say is compared with the files that are there.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from processes import breaking, command
from several_tables import made

from unloader.manifest.read import with_digest
from unloader.retention import found_at

TABLES = ("first", "second")
ROWS = 4000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A DuckDB file with two tables of many small units."""
    path = tmp_path / "s.db"
    made(path, dict.fromkeys(TABLES, ROWS))
    return path


@pytest.fixture
def to(tmp_path: Path) -> Path:
    """Where the directories of the runs are."""
    return tmp_path / "out"


def job(source: Path, to: str, *more: str) -> tuple[str, ...]:
    """Return the command of every night."""
    return (
        *("run", f"duckdb://{source}", "--to", to, "--resume-or-start"),
        *("--unit-bytes", "16kB", "--parallelism", "1", *more),
    )


def change(source: Path) -> None:
    with duckdb.connect(str(source)) as connection:
        connection.execute("INSERT INTO first VALUES (-1, 'new')")


def kill(to: Path, *arguments: str, published: bool = False) -> Path:
    """Start a command and kill it in the middle; return the directory of its run.

    Args:
        to: Where directories of runs are.
        arguments: Of the command.
        published: Kill it once a table is published, and not once a unit is staged.
    """
    before = set(to.glob("2*"))
    env = {} if published else breaking.held_behind(2)
    running = command.Forked(*arguments, "--progress", "none", env=env)

    def reached() -> bool:
        new = set(to.glob("2*")) - before
        found = (path for each in new for path in (each, *each.iterdir()))
        if published:
            return any((path / "_manifest.json").exists() for path in found)
        return any(breaking.staged_units(path) for path in found)

    try:
        running.wait_until(reached, "a run that has begun")
    finally:
        workers = running.workers()
        running.process.kill()
        running.process.communicate()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    (new,) = set(to.glob("2*")) - before
    next_second()
    return new


def next_second() -> None:
    second = int(time.time())
    command.wait_for(lambda: time.time() >= second + 1, "the next second")


def shown(to: Path) -> dict[str, str]:
    """Return the state of each run as `runs` lists it, by the path below a directory."""
    listed = json.loads(command.run("runs", str(to), "--json"))["runs"]
    return {os.path.relpath(each["destination"], to): each["state"] for each in listed}


def check_agreement(home: Path, rows: int) -> None:
    """Check that all files that a manifest names are below it, and no others."""
    document: dict[str, Any] = json.loads((home / "_manifest.json").read_text())
    assert document["run_id"] == home.name
    assert document["totals"]["rows"] == rows
    places = [home / each["directory"] for each in document.get("tables", ())] or [home]
    expected = {home / "_manifest.json"}
    for place in places:
        table = json.loads((place / "_manifest.json").read_text())
        expected.add(place / "_manifest.json")
        expected |= {place / file["path"] for unit in table["units"] for file in unit["files"]}
    assert {path for path in home.rglob("*") if path.is_file()} == expected
    command.run("verify", str(home), "--strict", "--quiet")


@pytest.mark.parametrize(
    ("name", "tables", "rows"),
    [("{run_id}/{table}", "*", 2 * ROWS + 1), ("{run_id}", "first", ROWS + 1)],
)
def test_a_new_run_is_in_a_directory_of_its_own(
    source: Path, to: Path, name: str, tables: str, rows: int
) -> None:
    """Manifest, link and files are in it; `--keep` removes the interrupted one in its turn."""
    night = job(source, f"{to}/{name}", "--table", tables, "--keep", "2", "--latest-link", "latest")
    broken = kill(to, *night)
    change(source)
    command.run(*night, "--quiet")
    (new,) = set(to.glob("2*")) - {broken}
    check_agreement(new, rows)
    assert os.readlink(to / "latest") == new.name
    assert shown(to) == {broken.name: "interrupted", new.name: "finished"}
    next_second()
    change(source)
    command.run(*night, "--quiet")
    (third,) = set(to.glob("2*")) - {new}
    check_agreement(third, rows + 1)
    assert os.readlink(to / "latest") == third.name
    assert shown(to) == {new.name: "finished", third.name: "finished"}


def test_an_interrupted_run_is_removed_with_the_tables_that_it_has_published(
    source: Path, to: Path
) -> None:
    """No one needs them beside a newer run that has all tables."""
    night = job(source, f"{to}/{{run_id}}/{{table}}", "--table", "*", "--keep", "1")
    broken = kill(to, *night, published=True)
    change(source)
    done = command.ended(*night)
    assert done.returncode == 0, done.stderr
    assert f"removed interrupted run {broken.name} in {broken}" in done.stderr
    assert list(shown(to).values()) == ["finished"]
    assert not list(to.glob(".removed*"))


@pytest.mark.parametrize("stranger", ["notes.txt", "_run/notes.txt"])
def test_an_interrupted_run_with_anything_else_in_it_stays(
    source: Path, to: Path, stranger: str
) -> None:
    """It can still be resumed."""
    night = job(source, f"{to}/{{run_id}}/{{table}}", "--table", "*", "--keep", "1")
    broken = kill(to, *night)
    (broken / stranger).write_text("x")
    change(source)
    done = command.ended(*night)
    assert done.returncode == 0, done.stderr
    assert f"{broken / stranger} is not a file of the run" in done.stderr
    assert shown(to)[broken.name] == "interrupted"
    command.run("resume", str(broken), "--new-snapshot", "--quiet")


def test_a_file_written_during_the_removal_of_an_interrupted_run_is_kept(
    source: Path, to: Path
) -> None:
    """The directory gets its name back, and the run can still be resumed."""
    broken = kill(to, *job(source, f"{to}/{{run_id}}/{{table}}", "--table", "*"))
    run = found_at(broken)
    assert run is not None
    (broken / "new").write_text("of another program")
    with pytest.raises(OSError, match="was changed during its removal"):
        run.remove()
    assert (broken / "new").exists()
    assert shown(to) == {broken.name: "interrupted"}


def test_another_job_and_a_run_that_goes_on_stay(source: Path, to: Path) -> None:
    """`--keep` does not apply to them."""
    other = job(source, f"{to}/{{run_id}}", "--table", "second")
    broken = kill(to, *other)
    running = command.Forked(
        *job(source, f"{to}/{{run_id}}", "--table", "first"), env=breaking.held_behind(2)
    )
    try:
        running.wait_until(lambda: len(list(to.glob("2*/_run/run.json"))) == 2, "a run")
        command.run(*job(source, f"{to}/{{run_id}}", "--table", "first", "--keep", "1"), "--quiet")
        assert sorted(shown(to).values()) == ["finished", "interrupted", "running"]
        assert shown(to)[broken.name] == "interrupted"
    finally:
        running.process.kill()
        running.process.communicate()


def test_a_removal_that_was_killed_is_finished(source: Path, to: Path) -> None:
    """It has a hidden name, and one of its tables is gone."""
    night = job(source, f"{to}/{{run_id}}/{{table}}", "--table", "*", "--keep", "1")
    broken = kill(to, *night)
    hidden = broken.rename(to / f".removed-{broken.name}-{broken.name}")
    command.run("clean", str(hidden / "first"), "--quiet")
    (hidden / "first").rmdir()
    command.run(*night, "--quiet")
    assert not hidden.exists()
    assert list(shown(to).values()) == ["finished"]


def test_tables_that_a_new_run_puts_elsewhere_are_cleared(source: Path, to: Path) -> None:
    """The directory of all tables is the same, and says nothing about the former run any more."""
    night = job(source, f"{to}/{{table}}/{{run_id}}", "--table", "*")
    env = breaking.held_behind(2)
    running = command.Forked(*night, "--progress", "none", env=env)
    try:
        running.wait_until(
            lambda: any(breaking.staged_units(path) for path in to.glob("*/2*")), "a unit"
        )
    finally:
        workers = running.workers()
        running.process.kill()
        running.process.communicate()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    change(source)
    command.run(*night, "--quiet")
    assert shown(to) == {".": "finished"}
    assert len(list(to.glob("*/2*"))) == len(TABLES)


def test_a_manifest_that_leads_to_another_directory_is_a_difference(source: Path, to: Path) -> None:
    """Anyone who follows a link to it finds no file of the run."""
    command.run(*job(source, f"{to}/{{run_id}}/{{table}}", "--table", "*"), "--quiet")
    (home,) = to.glob("2*")
    empty = to / "20200101T000000Z-0"
    empty.mkdir()
    text = (home / "_manifest.json").read_text()
    for name in TABLES:
        text = text.replace(f'"directory": "{name}"', f'"directory": "../{home.name}/{name}"')
    body = text[: text.rindex(',\n  "digest"')]
    (empty / "_manifest.json").write_bytes(with_digest((body + "\n}\n").encode()))
    error = command.error_of("verify", str(empty), status=8)
    assert f"instead of {empty}" in error
