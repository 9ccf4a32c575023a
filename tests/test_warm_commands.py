"""A call made as a fork of a warm program ends and writes as one made by a new Python."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from processes import command, warm

CALLS = [
    ("--version",),
    ("--help",),
    ("formats",),
    ("run",),
    ("run", "--no-such-option"),
    ("run", "duckdb:///none.db", "--table", "t", "--to", "out"),
    ("describe", "no-such-job.toml"),
]
LIMIT = 200_000


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The URL of a table of 20,000 rows."""
    with duckdb.connect(str(tmp_path / "t.db")) as database:
        database.execute(
            "CREATE TABLE t AS SELECT range AS i, 'row ' || range AS s FROM range(20000)"
        )
    return f"duckdb://{tmp_path}/t.db"


@pytest.fixture
def surroundings() -> Iterator[None]:
    """Another umask, one processor, and no room for large files."""
    limits, cpus = resource.getrlimit(resource.RLIMIT_FSIZE), os.sched_getaffinity(0)
    mask = os.umask(0o077)
    os.sched_setaffinity(0, {min(cpus)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    os.sched_setaffinity(0, cpus)
    os.umask(mask)


def _cold(arguments: tuple[str, ...], env: dict[str, str], cwd: Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [*command.UNLOADER, *arguments],
        env={**env, "PYTHONPATH": str(warm.ROOT)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_warm_call_is_as_any_other(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit status and both streams are the same, also with variables and its own directory."""
    env = {**os.environ, "UNLOADER_PARALLELISM": "nonsense"}
    assert warm.unsuited(env) == []
    done = warm.run(arguments, env=env, cwd=tmp_path, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == _cold(arguments, env, tmp_path)


def test_a_warm_call_has_the_limits_of_the_test(
    table: str, tmp_path: Path, surroundings: None
) -> None:
    """Umask, processors and resource limits of the moment apply to the call and its workers."""
    asked = ("run", table, "--table", "t", "--quiet", "--to")
    done = warm.run((*asked, "full"), env=os.environ, cwd=tmp_path, timeout=180)
    assert done.returncode == _cold((*asked, "cold"), dict(os.environ), tmp_path)[0] == 6, (
        done.stderr
    )
    small = (*asked, "small", "--where", "i < 10", "--json")
    done = warm.run(small, env=os.environ, cwd=tmp_path, timeout=180)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "small").stat().st_mode & 0o777 == 0o700
    topology = warm.run(("topology", "--json"), env=os.environ, cwd=tmp_path, timeout=180)
    assert topology.stdout == _cold(("topology", "--json"), dict(os.environ), tmp_path)[1]


def test_a_call_that_does_not_end_is_killed(table: str, tmp_path: Path) -> None:
    """The caller gets the error, and the next call works."""
    endless = ("run", table, "--table", "t", "--to", f"pipe:{tmp_path}/without_reader")
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(endless, env=os.environ, timeout=0.5)
    assert warm.run(("--version",), env=os.environ, timeout=180).returncode == 0


@pytest.mark.parametrize("name", ["LC_ALL", "LD_PRELOAD", "PYTHONPATH", "UNLOADER_NATIVE_LIBRARY"])
def test_what_python_reads_at_its_start_makes_no_warm_call(name: str) -> None:
    """A variable that a running Python has read already makes a new process."""
    assert warm.unsuited({**os.environ, name: "/nonsense"}) == [name]
