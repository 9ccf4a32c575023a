"""Seats in the manifest, in the report, and in warnings when they are not as planned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

from numa.topology import detect

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not Path("/proc/self/numa_maps").exists(),
    reason="this system has no CPU binding or no numa_maps",
)

ROWS = 300_000

# Far beyond what anything here takes.
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of a few megabytes."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, hash(i)::VARCHAR AS s FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


def run(database: str, destination: Path, *options: str) -> dict[str, Any]:
    """Unload the table; return the manifest."""
    command.run(
        *("run", database, "--table", "t", "--to", str(destination), "--parallelism", "2"),
        *("--progress", "none", "--quiet", *options),
    )
    return command.manifest_of(destination)


def test_the_manifest_proves_the_seats(database: str, tmp_path: Path) -> None:
    """Each worker ran on its seat's CPUs with its memory on its node; the nodes add up."""
    manifest = run(database, tmp_path / "out", "--file-size", "0")
    totals, workers, nodes = manifest["totals"], manifest["workers"], manifest["nodes"]
    assert sum(each["rows"] for each in workers) == totals["rows"] == ROWS
    assert sum(each["rows"] for each in nodes) == ROWS
    assert sum(each["bytes"] for each in nodes) == totals["bytes"]
    assert sum(each["units"] for each in workers) == len(manifest["units"])
    for each in workers:
        assert set(each["ran_on"]) <= set(each["seat"]["cpus"])
        if each["units"]:
            assert each["ran_on"]
            assert each["local_share"] >= 0.95
            assert sum(each["memory_bytes_by_node"].values()) > 5_000_000
    assert {unit["seat"]["memory_node"] for unit in manifest["units"]} <= {
        each["seat"]["memory_node"] for each in workers
    }
    assert manifest["warnings"] == []
    # Nothing that was added is in the way of anyone who reads the manifest.
    command.run("verify", str(tmp_path / "out"), database)


def test_a_run_without_numa_looks_at_nothing(database: str, tmp_path: Path) -> None:
    """--numa off leaves workers where they are and reports that placement was off."""
    manifest = run(database, tmp_path / "out", "--numa", "off")
    assert [each["seat"]["cpus"] for each in manifest["workers"]] == [[], []]
    assert [each["local_share"] for each in manifest["workers"]] == [None, None]
    assert sum(each["rows"] for each in manifest["workers"]) == ROWS
    assert manifest["nodes"] == []
    assert any("--numa off" in line for line in manifest["not_measured"])
    command.run("verify", str(tmp_path / "out"))


def refused_run(
    database: str, destination: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Unload where memory policies are refused, as in many a container."""
    tests = Path(__file__).parents[1]
    code = (
        "import os, sys; sys.path.append(sys.argv[1])\n"
        "from refused_policy import deny\n"
        "deny({'x86_64': 238}.get(os.uname().machine, 237))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'unloader', *sys.argv[2:]])"
    )
    return subprocess.run(
        [
            *(sys.executable, "-c", code, str(tests / "numa")),
            *("run", database, "--table", "t", "--to", str(destination), "--parallelism", "2"),
            *options,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_refused_memory_policy_is_in_the_manifest(database: str, tmp_path: Path) -> None:
    """In a container that refuses policies the run is whole, and states which part was refused."""
    done = refused_run(database, tmp_path / "out", "--memory-policy", "bind")
    assert done.returncode == 0, done.stderr
    manifest = command.manifest_of(tmp_path / "out")
    (warning,) = manifest["warnings"]
    assert "EPERM" in warning
    assert "Next: " in warning
    for each in manifest["workers"]:
        assert each["seat"]["memory_policy"] is None
        assert set(each["ran_on"]) <= set(each["seat"]["cpus"])
        if each["units"]:
            assert "EPERM" in each["note"]
    # One line before the run has reported the notes of all workers.
    assert done.stderr.count("EPERM") == 1
    assert "memory policy bind cannot be set (EPERM" in done.stderr


@pytest.mark.long(OTHER_ROUTES)
def test_a_refusal_that_costs_nothing_is_no_news(database: str, tmp_path: Path) -> None:
    """With one node memory lies where it should without a policy: no line, and no warning."""
    if sum(node.has_memory for node in detect().nodes) > 1:
        pytest.skip("this machine has memory on several nodes: a refused policy is news here")
    done = refused_run(database, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    manifest = command.manifest_of(tmp_path / "out")
    assert "EPERM" not in done.stderr
    assert manifest["warnings"] == []
    assert {each["note"] for each in manifest["workers"]} == {None}


@dataclass
class HeldUp:
    running: command.Running
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def drain(self, pipe: Path) -> None:
        with pipe.open("rb") as reader:
            reader.read(1)
            self.begun.set()
            self.go_on.wait(PATIENCE_SECONDS)
            while reader.read(1 << 20):
                pass


@pytest.fixture
def held_up(database: str, tmp_path: Path) -> Iterator[HeldUp]:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = ("run", database, "--table", "t", "--to", f"pipe:{pipe}")
    case = HeldUp(command.Running(*arguments, "--progress", "log", "--json"))
    reader = threading.Thread(target=case.drain, args=(pipe,))
    reader.start()
    try:
        assert case.begun.wait(PATIENCE_SECONDS), "the worker never wrote"
        yield case
    finally:
        case.go_on.set()
        case.running.process.kill()
        # Where no one ever wrote, the reader still waits for someone to open the pipe.
        os.close(os.open(pipe, os.O_RDWR))
        reader.join(PATIENCE_SECONDS)


def test_a_worker_moved_in_mid_run_is_told(held_up: HeldUp) -> None:
    """Someone rebinds a worker while it works: one line, and a warning in the manifest."""
    cpu = max(os.sched_getaffinity(0))
    held_up.running.wait_until(lambda: len(held_up.running.workers()) == 1, "its only worker")
    (worker,) = held_up.running.workers()
    if os.sched_getaffinity(worker.pid) == {cpu}:
        pytest.skip(f"the worker's seat is CPU {cpu} alone: it cannot be moved within it")
    os.sched_setaffinity(worker.pid, [cpu])
    held_up.go_on.set()
    status, out, err = held_up.running.finish()
    assert status == 0, err
    expected = f"worker 0 may use CPU {cpu} now"
    (warning,) = json.loads(out)["warnings"]
    assert expected in warning
    assert err.count(expected) == 1
