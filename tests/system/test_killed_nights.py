"""Runs over several tables that are killed in the middle, and the nightly command that resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import breaking, command
from several_tables import made

SIZES = {"large": 3000, "middle": 1000, "small": 10, "empty": 0}
KIND = "killed runs over several tables"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that ends processes just before a system call."""
    return breaking.killing_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file of four tables."""
    return f"duckdb://{made(tmp_path_factory.mktemp('source') / 's.db', SIZES).location}"


@pytest.fixture(scope="module")
def expected(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    home = tmp_path_factory.mktemp("undisturbed")
    command.run(*job(url, home))
    return files_of(home)


def job(url: str, home: Path, *more: str) -> tuple[str, ...]:
    """Return the command of a night."""
    return (
        *("run", url, "--table", "*", "--to", f"{home}/{{schema}}.{{table}}"),
        *("--unit-bytes", "16kB", "--parallelism", "1", "--quiet", *more),
    )


def files_of(home: Path) -> dict[str, bytes]:
    """Return the data files of a home."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.csv")}


def published(home: Path) -> dict[str, int]:
    """Return the tables that are published, with what reports whether they were replaced.

    A hidden directory is one that is to take the place of another.
    """
    found = (path for path in home.glob("*.*/_manifest.json") if path.parent.name[0] != ".")
    return {path.parent.name: path.stat().st_ino for path in found}


def killed(library: Path, path: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run a command that is killed just before a file gets a name with this in it."""
    variables = {"LD_PRELOAD": str(library), "KILL_CALL": "rename", "KILL_PATH": path}
    running = command.Forked(*arguments, env={**variables, **(env or {})})
    workers: list[psutil.Process] = []

    def has_ended() -> bool:
        workers[:] = running.workers() or workers
        return running.process.poll() is not None

    command.wait_for(has_ended, "its death")
    status, _, err = running.finish()
    assert status == -9, err
    # A worker that has lost its parent ends soon, and has the source open until then.
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)


@pytest.mark.long(KIND)
@pytest.mark.parametrize(
    ("path", "way"),
    [
        (".main.middle.unloader-", "resume"),
        (".main.large.unloader-", "run"),
        ("out/_run/run.json", "run"),
        ("out/_run/_manifest.json", "resume"),
        ("out/_manifest.json", "run"),
    ],
)
def test_a_killed_night_is_brought_to_its_end(
    library: Path, url: str, expected: dict[str, bytes], tmp_path: Path, path: str, way: str
) -> None:
    """Published tables stay, the others follow, and every byte equals an undisturbed run."""
    home = tmp_path / "out"
    killed(library, path, *job(url, home))
    found = published(home)
    # The manifest of the run comes after the manifests of all tables.
    assert not path.startswith(("out/_run/_manifest", "out/_manifest")) or len(found) == 4
    for name in found:
        command.run("verify", str(home / name), "--quiet")
    again = job(url, home, "--resume-or-start") if way == "run" else ("resume", str(home))
    done = command.ended(*again)
    assert done.returncode == 0, done.stderr
    assert files_of(home) == expected
    assert not list(home.rglob("_run"))
    now = published(home)
    assert {name: now[name] for name in found} == found
    command.run("verify", str(home), "--strict", "--quiet")


@pytest.mark.long(KIND)
def test_another_job_does_not_go_on_with_it(library: Path, url: str, tmp_path: Path) -> None:
    """Its rows would differ. Published tables are not replaced silently."""
    home = tmp_path / "out"
    killed(library, "out/_run/_manifest.json", *job(url, home))
    other = job(url, home, "--resume-or-start", "--exclude-table", "empty")
    error = command.error_of(*other, status=6)
    assert "main.large" in error


@pytest.mark.long(KIND)
def test_a_table_of_which_one_output_is_published(library: Path, url: str, tmp_path: Path) -> None:
    """It is not complete before all its outputs are; each has an entry in the end."""
    home = tmp_path / "out"
    file = tmp_path / "night.toml"
    file.write_text(
        f'source = "{url}"\nunit-bytes = "16kB"\nparallelism = 1\n'
        '[[table]]\ntable = "large"\n[[table]]\ntable = "small"\n'
        f'[[route]]\nname = "csv"\nto = "{home}/{{schema}}.{{table}}"\n'
        f'[[route]]\nname = "lake"\nto = "{home}/lake/{{table}}"\nformat = "parquet"\n'
    )
    killed(library, "lake/.large.unloader-", "run", str(file), "--quiet")
    assert {"main.large"} <= published(home).keys()
    assert json.loads(command.ended("status", str(home), "--json").stdout)["tables"]["done"] < 2
    done = command.ended("resume", str(home), "--json")
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)["tables"]
    assert [(each["table"]["name"], each["route"], each["rows"]) for each in entries] == [
        *(("large", "csv", 3000), ("large", "lake", 3000)),
        *(("small", "csv", 10), ("small", "lake", 10)),
    ]
    command.run("verify", str(home), "--strict", "--quiet")


@pytest.mark.long(KIND)
def test_a_night_of_postgres_that_is_killed(library: Path, postgres: Any, tmp_path: Path) -> None:
    """The kept snapshot is read again, without later commits."""
    url: str = postgres.database("night")
    for name, rows in SIZES.items():
        postgres.run(
            f"CREATE TABLE {name} AS SELECT g AS i, repeat('x', 100) AS v "
            f"FROM generate_series(1, {rows}) g; ANALYZE {name}",
            url=url,
        )
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    home = tmp_path / "out"
    night = job(url, home, "--keep-snapshot", "1h")
    killed(library, "public.small/_manifest.json", *night, env=env)
    for name in SIZES:
        postgres.run(f"INSERT INTO {name} VALUES (-1, 'later')", url=url)
    variables = {**os.environ, **env}
    status = json.loads(command.ended("status", str(home), "--json", env=variables).stdout)
    assert status["state"] == "interrupted"
    done = command.ended("resume", str(home), "--json", env=variables)
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert {each["table"]["name"]: each["rows"] for each in tables} == SIZES
    assert not any(b"later" in data for data in files_of(home).values())
    assert "no snapshot is kept" in command.ended("keepers", env=variables).stdout


@pytest.mark.long(KIND)
def test_a_night_can_be_seen_changed_and_stopped(url: str, tmp_path: Path) -> None:
    """By the directory of all tables; the directory of one table names it."""
    home = tmp_path / "out"
    # It waits for more room than there is.
    running = command.Forked(*job(url, home, "--min-free", "900TB", "--parallelism", "2"))
    running.wait_until((home / "_run" / "status.json").exists, "its record")
    running.wait_until(lambda: live(home).get("phase") == "unloading", "the first unit")
    found = live(home)
    assert (found["tables"]["total"], found["tables"]["largest_open"]) == (4, "main.large")
    assert [each["state"] for each in runs_in(tmp_path)] == ["running"]
    command.run("set", str(home), "--parallelism", "1")
    one = home / "main.large"
    for advised in ("stop", "resume", "clean"):
        assert f"unloader stop {home}" in command.error_of(advised, str(one), status=6)
    for place, status in ((one, 6), (home, 7)):
        error = command.error_of("verify", str(place), status=status)
        assert f"wait until the run ends; its progress: unloader status {place}" in error
    assert "tables" in command.run("stop", str(home))
    status, _, err = running.finish()
    assert (status, "stopped by `unloader stop`" in err) == (130, True)


def live(home: Path) -> dict[str, Any]:
    """Return what a run shows of itself."""
    found = json.loads(command.ended("status", str(home), "--json").stdout)
    return found["live"] or {}


def runs_in(directory: Path) -> list[dict[str, Any]]:
    """Return what `unloader runs` lists."""
    found: list[dict[str, Any]] = json.loads(command.run("runs", str(directory), "--json"))["runs"]
    return found
