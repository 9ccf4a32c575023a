"""The processes of a run: started early, seated, and ended after the run in every case."""

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
from processes.program import below, reads_units

import numa.topology
from numa.model import Node, PlacementError, Ready, Topology
from unloader import api
from unloader.engine.executor import ExecutorEvent, LocalExecutor
from unloader.events import Event, UnitFinished
from unloader.model import OutputOptions, Request, SeatOptions, Selection, SourceSpec
from unloader.request.names import parse_table
from unloader.run.starting import workers_for
from writers.model import TextFormat


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of a DuckDB file with a table of three rows."""
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(3)")
    return f"duckdb://{tmp_path}/t.db"


def job_of(database: str, parallelism: int, to: str = "/nowhere", **seats: Any) -> Request:
    """Return a job with `parallelism` workers."""
    return Request(
        source=SourceSpec(kind=database.partition(":")[0], location=database),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=to, format=TextFormat()),
        parallelism=parallelism or None,
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
    """Seat the job and let its fork server begin."""
    with workers_for(job, stop=lambda: False) as (_, executor):
        assert isinstance(executor, LocalExecutor)
        yield executor


@pytest.mark.parametrize("parallelism", [1, 7])
def test_one_process_loads_before_the_plan(database: str, parallelism: int) -> None:
    """It is the fork server of the one node, however many workers are wanted."""
    before = psutil.Process().children()
    with opened(job_of(database, parallelism)) as executor:
        assert executor.pids() == {}
        (server,) = (each for each in psutil.Process().children() if each not in before)
        executor.use(parallelism, parallelism)
        events: list[ExecutorEvent] = []
        while len(events) < parallelism:
            events += executor.events(60.0)
        assert {each.pid for each in server.children()} == set(executor.pids().values())
        assert list(executor.pids()) == list(range(parallelism))
    assert not server.is_running()


@pytest.mark.parametrize(("quota", "workers"), [(1.9, 1), (2.0, 2)])
def test_a_quota_lowers_the_automatic_number(
    database: str, monkeypatch: pytest.MonkeyPatch, quota: float, workers: int
) -> None:
    """Where the control group grants one CPU's worth of time there is one seat.

    The machine is one of two CPUs whose description is handed in: its quota is not ours to set.
    """
    node = Node(id=0, cpus=(0, 1), memory_bytes=1 << 30)
    shape = Topology(nodes=(node,), cpu_quota=quota, note=None)
    monkeypatch.setattr("unloader.placement.seating.detect", lambda: shape)
    with workers_for(job_of(database, 0), stop=lambda: False) as (seats, _):
        assert seats.parallelism == workers


@pytest.mark.parametrize("kind", ["duckdb", "nosuchdatabase"])
def test_a_worker_gets_ready_whatever_can_be_loaded(database: str, kind: str) -> None:
    """Its place is ready once it has loaded the available modules, also if a source is missing."""
    job = job_of(database.replace("duckdb", kind, 1), 1)
    events: list[ExecutorEvent] = []
    with opened(job) as executor:
        executor.use(1, 1)
        while not events:
            events += executor.events(60.0)
        assert list(executor.places()) == [0]
    assert [type(event) for event in events] == [Ready]


def test_an_error_in_the_context_ends_the_processes(database: str) -> None:
    """After an exception no worker is left, busy or not."""
    pids: dict[int, int] = {}

    def fail() -> None:
        with opened(job_of(database, 2)) as executor:
            executor.use(2, 2)
            while len(executor.places()) < 2:
                executor.events(60.0)
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


def test_a_table_of_one_unit_has_one_worker(database: str, tmp_path: Path) -> None:
    """No worker is started for a seat that has no work."""
    workers: list[int] = []

    def watch(event: Event) -> None:
        if isinstance(event, UnitFinished):
            workers.append(sum(map(reads_units, below())))

    manifest = api.unload(job_of(database, 5, str(tmp_path / "out")), observe=watch)
    assert workers == [1]
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
