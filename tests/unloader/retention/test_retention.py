"""Directories with fields, how many earlier runs stay in them, and the link to the newest."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking, command
from processes.breaking import held_behind, staged_units

from unloader.manifest.model import Manifest
from unloader.retention import EarlierRun, finish_removals, found_at

HOSTILE = "../../up"


@pytest.fixture(scope="module")
def killing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that ends processes just before a system call."""
    return breaking.killing_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with the tables `t`, `u` and one with a hostile name."""
    import duckdb

    path = tmp_path_factory.mktemp("source") / "s.db"
    with duckdb.connect(str(path)) as connection:
        for name in ("t", "u", HOSTILE):
            connection.execute(f'CREATE TABLE "{name}" AS SELECT i AS id FROM range(50) t(i)')
    return f"duckdb://{path}"


def unload(source: str, to: str, *more: str, table: str = "t", status: int = 0) -> list[str]:
    """Unload a table; return the lines of the log without their times."""
    done = command.ended(
        *("run", source, "--table", table, "--to", to, "--parallelism", "1", "--null", "-"),
        *("--progress", "none", *more),
    )
    assert done.returncode == status, done.stderr
    return [line.partition(" ")[2] for line in done.stderr.splitlines()]


def only(parent: Path) -> Path:
    """Return the one directory of runs below another."""
    (found,) = (each for each in parent.iterdir() if each.is_dir() and not each.is_symlink())
    return found


def test_the_fields_of_a_directory(source: str, tmp_path: Path) -> None:
    """They are filled in once: schema, table, day of the snapshot and id of the run."""
    unload(source, f"{tmp_path}/{{schema}}-{{table}}/{{date}}_{{run_id}}")
    directory = only(tmp_path / "main-t")
    manifest = json.loads((directory / "_manifest.json").read_text())
    day = manifest["snapshot"]["taken_at"][:10].replace("-", "")
    assert directory.name == f"{day}_{manifest['run_id']}"
    assert manifest["options"]["to"] == str(directory)
    shown = command.run("verify", str(directory))
    assert "t" in shown


@pytest.mark.long(OTHER_ROUTES)
def test_a_hostile_name_leads_nowhere(source: str, tmp_path: Path) -> None:
    """A table's name is one name of a directory, without a slash and not hidden."""
    unload(source, f"{tmp_path}/in/{{table}}/x", table=f'"{HOSTILE}"')
    assert [each.name for each in tmp_path.iterdir()] == ["in"]
    assert [each.name for each in (tmp_path / "in").iterdir()] == ["%2E.%2F..%2Fup"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to", "x/{tabel}"), "unknown field {tabel}"),
        (("--to", "x/{unit}"), "unknown field {unit}"),
        (("--to", "x/{table"), "brace that is not closed"),
        (("--to", "x/{table}", "--keep", "3"), "--keep needs a separate directory for each run"),
        (
            ("--to", "{date}/{table}", "--keep", "3"),
            "--keep needs a separate directory for each run",
        ),
        (("--to", "x/{date}", "--keep", "0"), "--keep"),
        (
            ("--to", "x/{date}", "--keep", "3", "--verify", "none"),
            "--keep does not apply to --verify none",
        ),
        (("--to", "x/{table}", "--latest-link", "new"), "--latest-link needs a separate directory"),
        (("--to", "x/{date}", "--latest-link", "../new"), "not a plain file name"),
        (
            ("--to", "x/{date},y/{date}", "--latest-link", "new"),
            "does not apply to several directories",
        ),
        (("--to", "-", "--keep", "3"), "--keep does not apply to standard output"),
    ],
)
def test_what_is_refused(source: str, arguments: tuple[str, ...], text: str) -> None:
    """Before anything is read: fields no one knows, and options without such a directory."""
    assert text in command.error_of("run", source, "--table", "t", *arguments, status=2)


def test_the_newest_runs_stay(source: str, tmp_path: Path) -> None:
    """--keep 2 removes the oldest of three; the link leads to the newest at any time."""
    to = f"{tmp_path}/{{table}}/{{run_id}}"
    seen = []
    for _ in range(3):
        told = unload(source, to, "--keep", "2", "--latest-link", "latest")
        seen.append(os.readlink(tmp_path / "t" / "latest"))
    assert len(set(seen)) == 3
    assert {each.name for each in (tmp_path / "t").iterdir()} == {"latest", *sorted(seen)[1:]}
    assert told == [f"removed run {seen[0]} in {tmp_path}/t/{seen[0]}, because of --keep 2"]
    assert (tmp_path / "t" / "latest" / "_manifest.json").is_file()


def test_only_whole_runs_of_the_same_table_are_removed(source: str, tmp_path: Path) -> None:
    """A run with another file, a changed or a missing one, or in use, stays, with the reason."""
    to, run_id = f"{tmp_path}/{{run_id}}", "20200101T000000Z-00000"
    unload(source, to)
    old = only(tmp_path)
    copies = {}
    for number, what in enumerate(("added", "changed", "missing", "running", "unfinished")):
        copies[what] = tmp_path / f"{run_id}{number}"
        shutil.copytree(old, copies[what])
    (file,) = old.glob("*.csv")
    (copies["added"] / "notes.txt").write_text("of somebody")
    changed = copies["changed"] / file.name
    changed.write_bytes(changed.read_bytes()[::-1])
    (copies["missing"] / file.name).unlink()
    (copies["running"] / "_run").mkdir()
    (copies["unfinished"] / "_manifest.json").unlink()
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    shutil.copytree(old, elsewhere)
    (tmp_path / f"{run_id}a").symlink_to(elsewhere)
    shutil.copytree(old, tmp_path / "by-hand")
    unload(source, to, table="u")
    before = {each.name for each in tmp_path.iterdir()}

    told = unload(source, to, "--keep", "1")
    after = {each.name for each in tmp_path.iterdir()}
    assert before - after == {old.name}
    assert len(after - before) == 1
    kept = {line.partition(" is kept: ")[2] for line in told if " is kept: " in line}
    assert kept == {
        f"{copies['added']}/notes.txt is not a file of the run",
        f"{changed} was changed after the run",
        f"{copies['missing']}/{file.name} is missing",
        f"{copies['running']}/_run is not a file of the run",
    }
    assert sorted(each.name for each in elsewhere.iterdir()) == ["_manifest.json", file.name]


@pytest.mark.parametrize("by_cron", [False, *also(OTHER_ROUTES, True)])
def test_a_run_killed_before_its_link_is_switched(
    source: str, tmp_path: Path, killing: Path, by_cron: bool
) -> None:
    """It is published, and resume or the line for cron does the rest: the link, and --keep."""
    to, after = f"{tmp_path}/{{run_id}}", ("--keep", "1", "--latest-link", "latest")
    unload(source, to, *after)
    old = only(tmp_path)
    line = ("run", source, "--table", "t", "--to", to, *after, "--parallelism", "1")
    env = {"LD_PRELOAD": str(killing), "KILL_CALL": "rename", "KILL_PATH": "/latest"}
    died = command.Forked(*line, "--progress", "none", env=env)
    assert died.finish()[0] == -signal.SIGKILL
    (new,) = {each for each in tmp_path.glob("2*") if each.is_dir()} - {old}
    assert os.readlink(tmp_path / "latest") == old.name
    again = (*line, "--resume-or-start") if by_cron else ("resume", str(new))
    done = command.ended(*again, "--progress", "none")
    assert done.returncode == 0, done.stderr
    assert f"removed run {old.name}" in done.stderr
    assert os.readlink(tmp_path / "latest") == new.name
    assert only(tmp_path) == new


@pytest.mark.long(OTHER_ROUTES)
def test_a_resumed_run_that_is_not_the_newest(tmp_path: Path) -> None:
    """The link stays with the newer run, and --keep removes none that is newer."""
    import duckdb

    path = tmp_path / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id FROM range(60000) t(i)")
    runs, after = tmp_path / "runs", ("--keep", "2", "--latest-link", "latest")
    job = ("--unit-bytes", "256kB", "--split", "range", *after)
    line = ("run", f"duckdb://{path}", "--table", "t", "--to", f"{runs}/{{run_id}}")
    one = ("--parallelism", "1", "--progress", "none")
    died = command.Forked(*line, *job, *one, env=held_behind(1))
    died.wait_until(
        lambda: any(staged_units(each) for each in runs.glob("*")), "a run with finished units"
    )
    died.signal(signal.SIGKILL)
    died.finish()
    old = only(runs)
    unload(f"duckdb://{path}", f"{runs}/{{run_id}}", *after)
    newest = os.readlink(runs / "latest")
    done = command.ended("resume", str(old), "--progress", "none")
    assert done.returncode == 0, done.stderr
    assert f"{runs}/latest still leads to run {newest}, which is newer" in done.stderr
    assert {each.name for each in runs.iterdir()} == {"latest", newest, old.name}
    assert os.readlink(runs / "latest") == newest


def test_a_link_that_cannot_be_switched(source: str, tmp_path: Path) -> None:
    """The run is complete, and reports that the link was not switched: status 10."""
    name = "l" * 240  # Its temporary name is too long for the file system.
    to = ("--to", f"{tmp_path}/{{run_id}}", "--latest-link", name)
    error = command.error_of("run", source, "--table", "t", *to, status=10)
    assert "the run is complete in " in error
    assert (only(tmp_path) / "_manifest.json").is_file()


@pytest.fixture
def finished(source: str, tmp_path: Path) -> EarlierRun:
    """A finished run in two directories."""
    to = f"{tmp_path}/a/{{run_id}},{tmp_path}/b/{{run_id}}"
    unload(source, to, "--split", "range", "--unit-bytes", "100")
    run = found_at(only(tmp_path / "a"))
    assert run is not None
    return run


def test_a_removal_that_is_killed_is_finished(
    finished: EarlierRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run that is half there has the name of one, and the next removal continues."""

    def kill(path: str, *, dir_fd: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", kill)
        with pytest.raises(KeyboardInterrupt):
            finished.remove()
    assert not any(each.exists() for each in finished.places)
    assert any((tmp_path / "a").iterdir())
    finish_removals(tmp_path / "a")
    assert [*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()] == []


def test_a_removal_that_nobody_began(finished: EarlierRun, tmp_path: Path) -> None:
    """A directory that looks like one, with names that lead out of it, removes nothing there."""
    victim = tmp_path / "victim"
    victim.write_text("of somebody")
    home, other = finished.places
    assert isinstance(finished.manifest, Manifest)
    name, run_id = next(iter(finished.manifest.files)), finished.run_id
    (home / "_manifest.json").write_text(
        (home / "_manifest.json").read_text().replace(name, "../../victim")
    )
    outside = tmp_path / "outside"
    other.rename(outside)
    (other.parent / f".removed-{run_id}-{other.name}").symlink_to(outside)
    home.rename(home.parent / f".removed-{run_id}-{home.name}")
    held = sorted(outside.iterdir())
    finish_removals(tmp_path / "a")
    assert victim.exists()
    assert sorted(outside.iterdir()) == held


@pytest.mark.long(OTHER_ROUTES)
def test_what_comes_at_the_last_moment_is_not_lost(finished: EarlierRun) -> None:
    """A directory that someone writes into while it is removed gets its name back, whole."""
    before = [sorted(each.iterdir()) for each in finished.places]
    new = finished.places[1] / "new"
    new.write_text("of somebody")
    with pytest.raises(OSError, match="was changed during its removal"):
        finished.remove()
    new.unlink()
    assert [sorted(each.iterdir()) for each in finished.places] == before
