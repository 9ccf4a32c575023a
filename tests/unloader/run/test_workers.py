"""The processes of a run: started early, seated, and gone at the end whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from msgspec.structs import replace

import numa.topology
from numa.errors import PlacementError
from numa.model import Node, Topology
from unloader import api
from unloader.engine.executor import ExecutorEvent, PlaceReady
from unloader.engine.local import LocalExecutor
from unloader.events import Event, RunStarted, UnitFinished
from unloader.model import OutputOptions, PlanOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.placement.seating import seat_request
from unloader.request.names import parse_table
from unloader.run.workers import EARLY_WORKERS, early_workers
from writers.model import TextFormat


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of a DuckDB file with a table of three rows."""
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(3)")
    return f"duckdb://{tmp_path}/t.db"


def job_of(database: str, parallelism: int, to: str = "/nowhere", **seats: Any) -> Request:
    """Return a job for so many workers."""
    return Request(
        source=SourceSpec(kind=database.partition(":")[0], location=database),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=to, format=TextFormat()),
        limits=PlanOptions(parallelism=parallelism or None),
        seats=SeatOptions(**{"numa": "off", **seats}),
    )


@pytest.fixture(autouse=True)
def _no_child_left() -> Iterator[None]:
    """Fail a test that leaves a child process or a descriptor."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@contextmanager
def opened(job: Request) -> Iterator[LocalExecutor]:
    """Seat the job and start its first workers."""
    with early_workers(job, seat_request(job)) as executor:
        yield executor


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_a_few_workers_start_before_the_plan(database: str, parallelism: int) -> None:
    """As many as most tables have units for, never more than asked for; gone after the context."""
    with opened(job_of(database, parallelism)) as executor:
        pids = executor.pids()
        assert list(pids) == list(range(min(parallelism, EARLY_WORKERS)))
        assert all(psutil.pid_exists(pid) for pid in pids.values())
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


@pytest.mark.parametrize(("quota", "started"), [(1.9, 1), (2.0, 2)])
def test_a_quota_lowers_the_automatic_number(
    database: str, monkeypatch: pytest.MonkeyPatch, quota: float, started: int
) -> None:
    """Where the control group grants one CPU's worth of time no second worker starts early.

    The machine is one of two CPUs whose description is handed in: its quota is not ours to set.
    """
    node = Node(id=0, cpus=(0, 1), memory_bytes=1 << 30)
    shape = Topology(nodes=(node,), cpu_quota=quota, note=None)
    monkeypatch.setattr("unloader.placement.seating.detect", lambda: shape)
    with opened(job_of(database, 0)) as executor:
        assert len(executor.pids()) == started


@pytest.mark.parametrize("kind", ["duckdb", "nosuchdatabase"])
def test_an_early_worker_gets_ready_whatever_it_can_load(database: str, kind: str) -> None:
    """Its place is ready once it has loaded what it can; a missing source is not its affair."""
    job = job_of(database.replace("duckdb", kind, 1), 1)
    events: list[ExecutorEvent] = []
    with opened(job) as executor:
        while not events:
            events += executor.events(60.0)
        assert list(executor.places()) == [0]
    assert events == [PlaceReady(place=0)]


def test_an_error_in_the_context_ends_the_processes(database: str) -> None:
    """Whoever leaves by an exception leaves no worker, busy or not."""
    pids: dict[int, int] = {}

    def fail() -> None:
        with opened(job_of(database, 2)) as executor:
            pids.update(executor.pids())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_seats_that_cannot_be_had_start_nothing(database: str) -> None:
    """A node that is not there is refused before any process is started."""
    with (
        pytest.raises(PlacementError, match="node 99"),
        opened(job_of(database, 2, numa="auto", nodes=(99,))),
    ):
        pass


def test_a_worker_too_many_is_ended(database: str, tmp_path: Path) -> None:
    """A table of one unit is unloaded by one worker, although two were started for it."""
    processes: list[int] = []
    before = len(psutil.Process().children())

    def watch(event: Event) -> None:
        if isinstance(event, (RunStarted, UnitFinished)):
            processes.append(len(psutil.Process().children()) - before)

    manifest = api.unload(job_of(database, 5, str(tmp_path / "out")), observe=watch)
    assert processes == [EARLY_WORKERS, 1]
    assert manifest["totals"]["rows"] == 3


def test_the_machine_is_read_once(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topology, parallelism and seats are decided before the first worker starts, and carried."""
    read: list[Topology] = []

    def detect() -> Topology:
        read.append(numa.topology.detect())
        return read[-1]

    monkeypatch.setattr("unloader.placement.seating.detect", detect)
    job = job_of(database, 0, str(tmp_path / "out"))
    manifest = api.unload(replace(job, output=replace(job.output, compression="fastest")))
    assert len(read) == 1
    assert manifest["totals"]["rows"] == 3
