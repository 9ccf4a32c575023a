"""Real workers are observed, and moved workers cause warnings."""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from processes.engine_runs import ENTRY, RecordedWork, engine_of, run_over, seating_of

from numa.model import Ready, Seat, WorkerEvent
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect
from unloader.engine.executor import LocalExecutor
from unloader.placement.evidence import Watch, WorkerEvidence

needs_linux = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not Path("/proc/self/numa_maps").exists(),
    reason="this system has no CPU binding or no numa_maps",
)


def seats(count: int, bind: str = "node") -> tuple[Seat, ...]:
    """Seats on the real machine."""
    return place(detect(), count, bind=bind)


@dataclass
class Watched:
    """An engine over units of `engine_tasks` with a watch on its workers."""

    places: tuple[Seat, ...]
    looks: bool = True
    notes: list[str] = field(default_factory=list)

    def run(self, *ids: str) -> tuple[WorkerEvidence, ...]:
        """Run the units; return the evidence about each worker."""
        work = RecordedWork(notes=self.notes)
        seating = replace(seating_of(*self.places), memory_policy="preferred")
        with closing(LocalExecutor(seating, ENTRY, looks=self.looks)) as executor:
            run_over(engine_of(work, *ids), executor, len(self.places))
            self.evidence = executor.evidence()
        return self.evidence.workers

    def told(self) -> list[str]:
        """Return the notes that are not about the binding itself."""
        return [text for text in self.notes if "worker" in text and "Next:" in text]


def ready_in(pool: Pool) -> Ready:
    """Wait until a worker is up."""
    while True:
        events: tuple[WorkerEvent, ...] = pool.wait(180.0)
        assert events, "the worker never came up"
        for event in events:
            if isinstance(event, Ready):
                return event


@needs_linux
def test_every_worker_of_a_short_run_is_looked_at() -> None:
    """However short the run, each worker that did a unit has its CPUs and memory on record."""
    case = Watched(seats(2))
    workers = case.run(*(f"ok-{number}" for number in range(40)))
    for each in workers:
        assert each.bound is not None
        if each.residence is None:
            continue  # the other one was faster and did all
        assert set(each.residence.cpus) <= set(each.seat.cpus)
        if each.residence.memory:
            assert each.local_share is not None
            assert each.local_share > 0.9
    assert any(each.residence and each.residence.memory for each in workers)
    assert [each.restarts for each in workers] == [0, 0]
    assert case.told() == []
    assert set(case.evidence.machine_pages) >= {each.seat.node for each in workers}


@needs_linux
@pytest.mark.skipif(len(detect().nodes) != 1, reason="with several nodes pages are looked at again")
def test_on_one_node_the_pages_of_a_process_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The figures of the first look stay, however much the process takes afterwards."""
    monkeypatch.setattr(
        "unloader.placement.evidence.COST_SHARE", 1e9
    )  # Any look may be had at any time.
    pids = {0: os.getpid()}
    watch = Watch(seats(1), [].append)
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        # This process replaces the worker, because it can grow in between.
        watch.ready(replace(ready_in(pool), pid=os.getpid()), pids)
    watch.unit_done(0, pids)
    watch.tick(pids)
    before = watch.evidence().workers[0].residence
    grown = b"x" * (32 * 2**20)
    watch.unit_done(0, pids)
    watch.tick(pids)
    after = watch.evidence().workers[0].residence
    assert len(grown) == 32 * 2**20
    assert before is not None
    assert after is not None
    assert before.memory
    assert after.memory == before.memory
    assert after.page_looks == before.page_looks == 1


@needs_linux
def test_looks_at_pages_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one look at a worker's pages, the next one waits for as long as its cost asks."""
    pids = {0: os.getpid(), 1: os.getpid()}
    watch = Watch(seats(2), [].append)
    with Pool(seats(2), ENTRY) as pool:
        pool.start(0)
        ready = replace(ready_in(pool), pid=os.getpid())
    for worker in pids:
        watch.ready(replace(ready, worker=worker), pids)
        watch.unit_done(worker, pids)

    def looks() -> list[int]:
        watch.tick(pids)
        return [each.residence.page_looks for each in watch.evidence().workers if each.residence]

    monkeypatch.setattr("unloader.placement.evidence.COST_SHARE", 1e-9)
    assert looks() == [1, 0]
    assert looks() == [1, 0]


@needs_linux
def test_a_worker_that_died_counts_its_restarts() -> None:
    """The figures belong to its last process."""
    (worker,) = Watched(seats(1)).run("mortal-1", "mortal-2", "ok-1")
    assert worker.restarts == 2
    assert worker.residence is not None
    assert worker.residence.memory


def test_without_looks_only_bindings_are_known() -> None:
    """Nothing is read of the processes, and the record has no looks."""
    case = Watched(seats(1, "none"), looks=False)
    (worker,) = case.run("ok-1")
    assert worker.residence is None
    assert worker.bound is not None
    assert case.evidence.machine_pages == {}
    assert any("--numa off" in line for line in case.evidence.not_measured)


@needs_linux
def test_a_worker_that_is_moved_is_told_once() -> None:
    """Its CPUs changed from outside in mid-run: one line, however often it is looked at."""
    if len(seats(1)[0].cpus) < 2:
        pytest.skip("to be moved, a worker needs a seat of two CPUs")
    told: list[str] = []
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        watch = Watch(seats(1), told.append)
        ready = ready_in(pool)
        watch.ready(ready, pool.pids())
        watch.finish(pool.pids(), pool.bindings())
        assert told == []
        cpu = seats(1)[0].cpus[-1]
        os.sched_setaffinity(ready.pid, [cpu])
        watch.tick(pool.pids())
        assert len(told) == 1
        watch.finish(pool.pids(), pool.bindings())
    (note,) = told
    assert f"worker 0 may use CPU {cpu} now" in note
    assert list(watch.evidence().warnings.values()) == [note]


@needs_linux
def test_a_worker_off_its_seat_is_told() -> None:
    """The warning about a process on other CPUs names both sets of CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("to leave its seat, a worker needs a second CPU")
    seat = Seat(worker=0, node=0, cpus=(cpus[0],), memory_node=None)
    told: list[str] = []
    with Pool((seat,), ENTRY) as pool:
        pool.start(0)
        watch = Watch((seat,), told.append)
        ready = ready_in(pool)
        watch.ready(ready, pool.pids())
        for thread in os.listdir(f"/proc/{ready.pid}/task"):
            os.sched_setaffinity(int(thread), [cpus[1]])
        # A thread that sleeps stays where it last ran.
        pool.assign(0, None)
        assert pool.wait(180.0)
        watch.finish(pool.pids(), pool.bindings())
    assert any(f"ran on CPU {cpus[1]}, outside its seat of CPU {cpus[0]}" in text for text in told)


@needs_linux
def test_a_process_that_is_gone_when_its_ready_is_read_is_left_alone() -> None:
    """Its number may be another's by then: nothing is attached to it, and nothing read of it."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        ready = ready_in(pool)
        pool.stop({0: None})
        watch = Watch(seats(1), [].append)
        # Another process may have the number: here this process.
        watch.ready(replace(ready, pid=os.getpid()), pool.pids())
        watch.unit_done(0, pool.pids())
        watch.tick(pool.pids())
        watch.finish(pool.pids(), pool.bindings())
    (worker,) = watch.evidence().workers
    assert worker.bound == ready.bound
    assert worker.residence is None


@needs_linux
def test_a_worker_that_is_not_up_at_the_end_is_told_of() -> None:
    """A run that ends before a process is up still tells its binding and where its memory is."""
    with Pool(seats(1), ENTRY) as pool:
        watch = Watch(seats(1), [].append)
        pool.start(0)
        watch.finish(pool.pids(), pool.bindings())
    (worker,) = watch.evidence().workers
    assert worker.bound is not None
    assert worker.bound.cpus == seats(1)[0].cpus
    assert worker.residence is not None
    assert worker.residence.page_looks


@needs_linux
@pytest.mark.usefixtures("new_interpreters")
def test_a_process_that_ends_meanwhile_is_no_fault() -> None:
    """A look at a killed process finds nothing and causes no note."""
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        watch = Watch(seats(1), [].append)
        ready = ready_in(pool)
        watch.ready(ready, pool.pids())
        process = psutil.Process(ready.pid)
        process.kill()
        with suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
        watch.unit_done(0, pool.pids())
        watch.tick(pool.pids())
        watch.finish(pool.pids(), pool.bindings())
    (worker,) = watch.evidence().workers
    assert worker.note is None
    assert watch.evidence().warnings == {}
