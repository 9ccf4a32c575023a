"""Several outputs with trouble in one of them: full, slow, stopped, cleaned."""

from __future__ import annotations

import errno
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command
from processes.breaking import FaultyCalls, held_behind, staged_units

ROWS, WIDE_ROWS = 20_000, 60_000
ALLOWANCE = 48 * 2**20
"""Of a worker that runs twice: its heap is never the same. All rows are 100 MB."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of some units, and of one with 100 MB of text."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name FROM range({ROWS}) t(i);"
            "CREATE TABLE wide AS SELECT i AS id, repeat('0123456789', 160) AS doc "
            f"FROM range({WIDE_ROWS}) t(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> FaultyCalls:
    """The library that makes calls fail."""
    return FaultyCalls.build(tmp_path_factory.mktemp("faults"))


def job(source: str, to: Path, *options: str) -> tuple[str, ...]:
    return (
        *("run", source, "--table", "orders", "--unit-bytes", "100kB", "--parallelism", "1"),
        *("--route", f"one:to={to}/one", "--route", f"full:to={to}/full,delimiter=;"),
        *("--route", f"two:to={to}/two,format=parquet,filter=id % 3 = 0", *options),
    )


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the data files of a directory."""
    return {path.name: path.read_bytes() for path in directory.glob("orders.*")}


@pytest.fixture(scope="module")
def whole(source: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of each route of an undisturbed run."""
    to = tmp_path_factory.mktemp("whole")
    command.run(*job(source, to))
    return {name: files_of(to / name) for name in ("one", "full", "two")}


@pytest.mark.long("faults of files")
@pytest.mark.parametrize("policy", ["stop", "drop"])
def test_a_full_disk_under_one_route(
    source: str,
    whole: dict[str, dict[str, bytes]],
    faults: FaultyCalls,
    tmp_path: Path,
    policy: str,
) -> None:
    """It ends the run, or that route alone; with room again resume brings all to their end."""
    env = faults.environment("write", errno.ENOSPC, files="/full/_run/staged/", after=200_000)
    line = job(source, tmp_path, "--on-route-failure", policy)
    said = command.error_of(*line, status=6 if policy == "stop" else 7, env=env)
    assert "route full: cannot write" in said
    for name in ("one", "two"):
        expected = whole[name] if policy == "drop" else {}
        assert files_of(tmp_path / name) == expected, name
    assert not files_of(tmp_path / "full")
    command.run("resume", str(tmp_path / "full"))
    assert {name: files_of(tmp_path / name) for name in whole} == whole


@pytest.mark.long("memory and large rows")
def test_the_slowest_route_bounds_memory(source: str, faults: FaultyCalls, tmp_path: Path) -> None:
    """The scan waits for it: rows that are read and not written do not pile up."""
    peaks = []
    for slow in (False, True):
        to = tmp_path / str(slow)
        line = (
            *("run", source, "--table", "wide", "--split", "none", "--overlap-buffer", "1MiB"),
            *("--route", f"fast:to={to}/fast,columns=id", "--route", f"slow:to={to}/slow"),
        )
        env = faults.environment("write", "slow", files="/slow/_run/staged/") if slow else {}
        command.run(*line, env=env)
        totals = command.manifest_of(to / "slow")["totals"]
        assert totals["bytes"] > 96_000_000
        peaks.append(totals["peak_worker_rss_bytes"])
    print(f"undisturbed {peaks[0]:,} bytes, with a slow route {peaks[1]:,}")
    assert peaks[1] < peaks[0] + ALLOWANCE


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_is_seen_and_ended_by_the_directory_of_any_route(
    source: str, whole: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """`clean` removes the staged units of the given directory; resume reads that again."""
    waits = tmp_path / "waits"
    waits.touch()
    env = held_behind(2, waits, files=3)
    if not env:
        pytest.skip("there is no C compiler to hold the run with")
    to = tmp_path / "out"
    running = command.Running(*job(source, to), "--progress", "none", env=env)
    running.wait_until(lambda: len(staged_units(to / "two")) >= 2, "two finished units")
    for name in ("one", "full", "two"):
        assert "running for" in command.run("status", str(to / name))
    assert "is writing to" in command.error_of("clean", str(to / "two"), status=6)
    assert "has applied the change" in command.run("set", str(to / "full"), "--parallelism", "1")
    command.run("stop", str(to / "two"))
    assert running.finish()[0] == 130
    units = {name: len(staged_units(to / name)) for name in ("one", "full", "two")}
    assert units["one"] >= 2
    assert "interrupted" in command.ended("status", str(to / "full")).stdout
    command.run("clean", str(to / "two"))
    assert not (to / "two" / "_run").exists()
    assert len(staged_units(to / "one")) == units["one"]
    command.run("resume", str(to / "one"))
    assert {name: files_of(to / name) for name in whole} == whole


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("policy", ["stop", "drop"])
def test_a_route_of_one_table_leads_to_the_run_over_all(tmp_path: Path, policy: str) -> None:
    """Its directory is outside the directory of the run, since it is not the first route."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE good AS SELECT 'x' AS v FROM range(10)")
        connection.execute("CREATE TABLE wrong AS SELECT chr(26085) AS v FROM range(10)")
    first, second = tmp_path / "first", tmp_path / "second"
    said = command.error_of(
        *("run", f"duckdb://{path}", "--table", "*", "--on-table-failure", "continue"),
        *("--route", f"a:to={first}/{{table}}", "--on-route-failure", policy),
        *("--route", f"b:to={second}/{{table}},encoding=latin-1"),
        status=7,
    )
    assert said.rstrip().endswith(f"continue with: unloader resume {first}")
    assert f"resume {second}" not in said
    assert f"unloader resume {first}" in command.error_of("resume", str(second / "wrong"), status=6)
    told = command.ended("status", str(second / "wrong"), "--json")
    assert (told.returncode, '"home": "' + str(first) + '"' in told.stdout) == (7, True)
    for place in (first, second):
        command.run("verify", str(place / "good"))
    command.error_of("resume", str(first), status=7)
