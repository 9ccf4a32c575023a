"""A run that was interrupted is continued: the same bytes, and no finished unit read again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking, command
from processes.breaking import FaultyCalls, comparable, held_behind, kill_after, staged_units

ROWS = 60000


def make(path: Path, rows: int = ROWS) -> str:
    """Make a DuckDB file with a table of many small units; return its URL."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, 'text ' || i AS v, i / 7 AS d FROM range({rows}) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that is unloaded again and again."""
    return make(tmp_path_factory.mktemp("duck") / "t.duckdb")


BROKEN_RUNS = "broken runs"
"""The kind of the long tests: further ways to break a run off."""


@pytest.fixture(scope="module")
def undisturbed(database: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    dest = tmp_path_factory.mktemp("whole") / "out"
    command.run(*job(database, dest), "--quiet")
    return comparable(dest)


def job(source: str, dest: Path, *options: str) -> tuple[str, ...]:
    """Return a run of some 30 units through one worker, one after the other."""
    units = ("--unit-bytes", "256kB", "--parallelism", "1")
    return ("run", source, "--table", "t", "--to", str(dest), *units, *options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(()),
        *also(
            OTHER_ROUTES,
            (("--file-per", "table", "--compression", "zstd"),),
            (("--format", "parquet", "--file-per", "table"),),
            (("--file-size", "4kB", "--compression", "gzip"),),
            (("--sample", "30%"),),
            (("--sample", "50%", "--sample-by", "i"),),
        ),
    ],
    ids=" ".join,
)
def test_a_killed_run_is_continued(database: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Files and manifest equal an undisturbed run; finished units are not read again."""
    whole, dest = tmp_path / "whole", tmp_path / "out"
    command.run(*job(database, whole, *options), "--quiet")
    files = 8 if "--file-size" in options else 1
    done = kill_after(3, dest, *job(database, dest, *options), files=files)
    staged = dest / "_run" / "staged"
    kept = {f["path"]: (staged / f["path"]).stat().st_ino for f in files_of(done)}
    assert f"units        {len(done)} of " in command.run("status", str(dest), status=7)
    # Which may be set for all jobs of a machine.
    others = {**os.environ, "UNLOADER_PARALLELISM": "2"}
    out = command.ended("resume", str(dest), "--progress", "log", env=others)
    assert out.returncode == 0, out.stderr
    assert f"resumed: {len(done)} units, " in out.stderr
    rows = command.manifest_of(whole)["totals"]["rows"]
    assert f" units ({len(done)} finished earlier), {rows:,} rows, " in out.stderr
    assert comparable(dest) == comparable(whole)
    manifest = command.manifest_of(dest)
    assert len(manifest["workers"]) == 1
    assert {unit["attempts"] for unit in manifest["units"] if unit["id"] in done} == {1}
    new = sum(unit["rows"] for unit in manifest["units"] if unit["id"] not in done)
    totals = manifest["totals"]
    assert totals["rows_per_second"] == pytest.approx(new / totals["seconds"], rel=0.01)
    if "table" not in options:
        final = {path.stat().st_ino for path in dest.iterdir()}
        assert set(kept.values()) <= final
    assert not (dest / "_run").exists()


def test_a_moved_run_is_continued_in_its_new_place(database: str, tmp_path: Path) -> None:
    """The result and the manifest name the directory as it is now."""
    begun, dest = tmp_path / "begun", tmp_path / "moved"
    kill_after(3, begun, *job(database, begun))
    begun.rename(dest)
    assert f"directory    {dest}\n" in command.run("resume", str(dest))
    assert command.manifest_of(dest)["options"]["to"] == str(dest)
    assert not begun.exists()


def files_of(lines: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the files of staged units."""
    return [file for line in lines.values() for file in line["finished"]["files"]]


@pytest.mark.long(BROKEN_RUNS)
def test_a_run_is_killed_again_and_again(
    database: str, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """Each resume continues after the last kill, also a very early one."""
    dest = tmp_path / "out"
    done = kill_after(0, dest, *job(database, dest))
    for more in (0, 4, 0, 8):
        before, done = done, kill_after(len(done) + more, dest, "resume", str(dest))
        assert {unit: line["finished"] for unit, line in before.items()}.items() <= {
            unit: line["finished"] for unit, line in done.items()
        }.items()
    command.run("resume", str(dest), "--quiet")
    assert comparable(dest) == undisturbed


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    "by_cron", [False, *also(BROKEN_RUNS, True)], ids=["resume", "the line for cron"]
)
def test_the_rest_of_a_run_by_more_workers(
    database: str, undisturbed: dict[str, Any], tmp_path: Path, by_cron: bool
) -> None:
    """--parallelism holds from then on; units and files stay as planned."""
    dest = tmp_path / "out"
    done = kill_after(3, dest, *job(database, dest))
    line = (*job(database, dest), "--resume-or-start") if by_cron else ("resume", str(dest))
    command.run(*line, "--parallelism", "3", "--quiet")
    found = command.manifest_of(dest)
    assert len(found["workers"]) == 3
    assert found["options"]["parallelism"] == 3
    setting = next(each for each in found["settings"] if each["name"] == "parallelism")
    origin = "command line" if by_cron else "resume"
    assert setting == {"name": "parallelism", "value": "3", "from": origin}
    attempts = {unit["id"]: unit["attempts"] for unit in found["units"]}
    assert {attempts[unit] for unit in done} == {1}
    same = {**undisturbed, "options": {**undisturbed["options"], "parallelism": 3}}
    assert comparable(dest) == same


@pytest.mark.parametrize("units", [0, *also(BROKEN_RUNS, 2)])
def test_an_interrupted_run_says_how_it_is_continued(
    database: str, tmp_path: Path, units: int
) -> None:
    """After Ctrl-C the error names the command, which works as it stands."""
    dest = tmp_path / "my out"
    held = held_behind(units)
    running = command.Forked(*job(database, dest), "--progress", "none", env=held)
    record = dest / "_run" / "run.json"
    running.wait_until(lambda: record.exists() and len(staged_units(dest)) >= units, "units")
    running.signal(signal.SIGINT)
    status, _, err = running.finish()
    assert status == 130, err
    assert f"Next: continue with: unloader resume '{dest}'" in err
    command.run("resume", str(dest), "--quiet")
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS


@pytest.mark.long(OTHER_ROUTES)
def test_what_is_not_confirmed_is_read_again(
    database: str, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """A file that is changed, cut or gone costs its unit, and what no one knows is removed."""
    dest = tmp_path / "out"
    done = kill_after(5, dest, *job(database, dest))
    staged = dest / "_run" / "staged"
    names = [file["path"] for file in files_of(done)]
    data = bytearray((staged / names[0]).read_bytes())
    data[len(data) // 2] ^= 1
    (staged / names[0]).write_bytes(data)
    (staged / names[1]).write_bytes((staged / names[1]).read_bytes()[:-1])
    (staged / names[2]).unlink()
    (staged / "stranger-a1.csv.part").write_text("1\n")
    out = command.ended("resume", str(dest), "--progress", "log")
    assert out.returncode == 0, out.stderr
    assert out.stderr.count("was finished but is read again") == 3, out.stderr
    assert f"resumed: {len(done) - 3} units" in out.stderr
    for name, what in zip(names, ("checksum", "size", "cannot read"), strict=False):
        assert any(name in line and what in line for line in out.stderr.splitlines()), out.stderr
    assert comparable(dest) == undisturbed


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    "damage",
    [
        b'{"event":"staged","unit":"00',
        *also(BROKEN_RUNS, b"\0" * 300 + b"\n" + b'{"event": "staged"}\n'),
    ],
    ids=["torn", "a line of zeros, and half a line"],
)
def test_a_torn_journal_costs_no_more_than_what_it_does_not_tell(
    database: str, tmp_path: Path, damage: bytes
) -> None:
    """After a power cut the last lines may be anything: those units are read again."""
    dest = tmp_path / "out"
    done = kill_after(3, dest, *job(database, dest))
    path = dest / "_run" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    last = max(place for place, line in enumerate(lines) if b'"staged"' in line)
    path.write_bytes(b"\n".join(lines[:last]) + b"\n" + damage)
    err = command.ended("resume", str(dest), "--progress", "log").stderr
    assert f"resumed: {len(done) - 1} units" in err
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS


@pytest.mark.long(OTHER_ROUTES)
def test_another_state_of_the_data_is_never_mixed_in(tmp_path: Path) -> None:
    """A file that was written to is refused, with the way out, which reads everything again."""
    source, dest = make(tmp_path / "t.duckdb"), tmp_path / "out"
    done = kill_after(3, dest, *job(source, dest))
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("UPDATE t SET v = 'new'")
    error = command.error_of("resume", str(dest), status=4)
    assert "cannot be read any more" in error
    assert (
        f"Next: read all rows again at a new snapshot: unloader resume {dest} --new-snap" in error
    )
    assert staged_units(dest).keys() == done.keys()
    command.run("resume", str(dest), "--new-snapshot", "--quiet")
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT count(*), count(DISTINCT v) FROM read_csv('{dest}/*.csv')"
        ).fetchall()
    assert found == [(ROWS, 1)]


def test_nothing_to_resume(database: str, tmp_path: Path) -> None:
    """An empty place is an error with the next step; a finished run is shown as it is."""
    error = command.error_of("resume", str(tmp_path), status=6)
    assert "has no interrupted run" in error
    dest = tmp_path / "out"
    command.run(*job(database, dest), "--quiet")
    before = (dest / "_manifest.json").read_bytes()
    done = command.ended("resume", str(dest))
    assert (done.returncode, "there is nothing left to do" in done.stderr) == (0, True)
    assert "60,000" in done.stdout
    assert (dest / "_manifest.json").read_bytes() == before


def test_a_run_that_goes_on_is_left_alone(database: str, tmp_path: Path) -> None:
    """It is not resumed by a second process, whether by resume or by run."""
    dest, held = tmp_path / "out", tmp_path / "held"
    held.touch()
    running = command.Forked(*job(database, dest), "--progress", "none", env=held_behind(1, held))
    running.wait_until((dest / "_run" / "run.json").exists, "the record of the run")
    running.signal(signal.SIGSTOP)
    assert "is writing to" in command.error_of("resume", str(dest), status=6)
    assert "is writing to" in command.error_of(*job(database, dest), "--resume-or-start", status=6)
    running.signal(signal.SIGCONT)
    held.unlink()
    assert running.finish()[0] == 0


def test_one_line_for_cron(database: str, tmp_path: Path) -> None:
    """--resume-or-start begins, continues the same job, and begins again where it was another."""
    dest = tmp_path / "out"
    line = (*job(database, dest), "--resume-or-start", "--overwrite")
    done = kill_after(3, dest, *line)
    other = (*job(database, dest, "--where", "i < 100"), "--resume-or-start", "--overwrite")
    again = command.ended(*line, "--progress", "log")
    assert again.returncode == 0, again.stderr
    assert f"resumed: {len(done)} units" in again.stderr
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS
    first = command.manifest_of(dest)["run_id"]
    running = command.Forked(*line, "--progress", "none", env=held_behind(2))
    running.wait_until(lambda: len(staged_units(dest)) >= 2, "two units")
    running.signal(signal.SIGKILL)
    running.finish()
    changed = command.ended(*other, "--progress", "log")
    assert changed.returncode == 0, changed.stderr
    assert "was a different job: this run starts from the beginning" in changed.stderr
    found = command.manifest_of(dest)
    assert (found["totals"]["rows"], found["run_id"] != first) == (100, True)


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_that_another_version_has_begun(database: str, tmp_path: Path) -> None:
    """resume refuses it with the found version; the line for cron starts again and reports it."""
    dest = tmp_path / "out"
    line = (*job(database, dest), "--resume-or-start")
    kill_after(0, dest, *line)
    record = dest / "_run" / "run.json"
    document = json.loads(record.read_text())
    record.write_text(json.dumps({**document, "format_version": 99, "later": {}}))
    error = command.error_of("resume", str(dest), status=6)
    assert "the plan has format version 99, but this version of unloader reads" in error
    assert "if another version of unloader began it, that version can resume it" in error
    done = command.ended(*line, "--progress", "log")
    assert done.returncode == 0, done.stderr
    assert "has format version 99" in done.stderr
    assert "this run starts from the beginning" in done.stderr
    assert command.manifest_of(dest)["totals"]["rows"] == ROWS


@pytest.mark.long(BROKEN_RUNS)
def test_the_line_for_cron_begins_anew_where_the_snapshot_is_gone(tmp_path: Path) -> None:
    """The log reports it, and the current state is read."""
    source, dest = make(tmp_path / "t.duckdb"), tmp_path / "out"
    line = (*job(source, dest), "--resume-or-start")
    kill_after(2, dest, *line)
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("DELETE FROM t WHERE i >= 1000")
    done = command.ended(*line, "--progress", "log")
    assert done.returncode == 0, done.stderr
    assert "all rows are read again at a new snapshot" in done.stderr
    assert command.manifest_of(dest)["totals"]["rows"] == 1000


@pytest.mark.long(OTHER_ROUTES)
def test_a_snapshot_that_ended_with_its_run_is_gone(postgres: Any, tmp_path: Path) -> None:
    """PostgreSQL's ends with the connection that holds it, so nothing promises a resume."""
    url = postgres.database("resume_gone")
    postgres.run("CREATE TABLE t AS SELECT g AS i FROM generate_series(1, 200000) g", url=url)
    dest = tmp_path / "out"
    done = kill_after(2, dest, *job(url, dest))
    assert done
    # The server sees the ends of the sessions a moment later.
    left = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'resume_gone'"
    command.wait_for(lambda: postgres.run(left) == "0", "the end of all sessions")
    error = command.error_of("resume", str(dest), status=4)
    assert "cannot be read any more" in error
    assert "--new-snapshot" in error
    command.run("resume", str(dest), "--new-snapshot", "--quiet")
    assert command.manifest_of(dest)["totals"]["rows"] == 200000


@pytest.mark.long(BROKEN_RUNS)
def test_the_line_for_cron_finds_the_directory_of_the_broken_run(
    database: str, tmp_path: Path
) -> None:
    """With a name for each run, the one that was interrupted is continued in its own directory."""
    to = tmp_path / "{table}" / "{run_id}"
    line = (*job(database, to), "--resume-or-start", "--quiet")
    command.run(*line)
    (first,) = (tmp_path / "t").iterdir()
    running = command.Forked(*line, env=held_behind(3))
    running.wait_until(
        lambda: any(len(staged_units(each)) > 2 for each in (tmp_path / "t").iterdir()), "units"
    )
    running.signal(signal.SIGKILL)
    running.finish()
    (broken,) = set((tmp_path / "t").iterdir()) - {first}
    done = staged_units(broken)
    command.run(*line)
    assert {each.name for each in (tmp_path / "t").iterdir()} == {first.name, broken.name}
    found = command.manifest_of(broken)
    assert (found["run_id"], found["totals"]["rows"]) == (broken.name, ROWS)
    assert {unit["attempts"] for unit in found["units"] if unit["id"] in done} == {1}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that ends processes just before a system call."""
    return breaking.killing_library(tmp_path_factory.mktemp("library"))


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_killed_while_it_is_published_is_complete(
    database: str, tmp_path: Path, library: Path
) -> None:
    """resume and the line for cron finish publishing, and read nothing again."""
    for name, again in (("a", ("resume", str(tmp_path / "a"))), ("b", ())):
        dest = tmp_path / name
        line = (*job(database, dest), "--resume-or-start")
        env = {"LD_PRELOAD": str(library), "KILL_CALL": "renameat2", "KILL_PATH": ".unloader-"}
        died = command.Forked(*line, "--progress", "none", env=env)
        assert died.finish()[0] == -signal.SIGKILL
        run_id = json.loads((dest / "_run" / "lock").read_text())["run_id"]
        done = command.ended(*(again or line), "--progress", "log")
        assert done.returncode == 0, done.stderr
        assert "was interrupted while it was published" in done.stderr
        assert "unloading main.t" not in done.stderr
        assert command.manifest_of(dest)["run_id"] == run_id


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize("call", ["write", *also(BROKEN_RUNS, "rename", "create")])
def test_a_resume_that_is_killed_as_it_begins_is_resumed(
    database: str, undisturbed: dict[str, Any], tmp_path: Path, call: str
) -> None:
    """Before its first write to the lock, which says whose the directory is, and its like."""
    library, dest = FaultyCalls.build(tmp_path), tmp_path / "out"
    done = kill_after(1, dest, *job(database, dest))
    killed = library.environment(call, "killed", files="/_run/", more={"who": "parent"})
    status, _, err = command.Forked("resume", str(dest), env=killed).finish()
    assert status == -signal.SIGKILL, err
    command.run("resume", str(dest), "--quiet")
    assert comparable(dest) == undisturbed
    assert len(done) >= 1
