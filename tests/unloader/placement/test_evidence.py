"""What a run's placement came to, and where it left the plan; pure, so any machine will do."""

from __future__ import annotations

import pytest
from msgspec import json
from msgspec.structs import replace
from stages import stages

from numa.model import BindReport, Residence, Seat
from unloader.model import BoundSeat, FinishedUnit
from unloader.placement.evidence import Evidence, WorkerEvidence, node_records, worker_records
from writers.model import WrittenFile

MIB = 1 << 20
PAGES = {0: {"numa_hit": 10, "other_node": 0}, 1: {"numa_hit": 20, "other_node": 1}}


def worker(number: int, node: int = 1) -> WorkerEvidence:
    """Return a worker that is all on its seat: CPUs 4 to 7 of node 1, and so on."""
    cpus = tuple(range(node * 4, node * 4 + 4))
    return WorkerEvidence(
        seat=Seat(worker=number, node=node, cpus=cpus, memory_node=node),
        bound=BindReport(cpus=cpus, memory_policy="preferred", note=None),
        residence=Residence(
            cpus=cpus[:2],
            memory=((0, MIB), (1, 99 * MIB)) if node else ((0, 100 * MIB),),
            file_memory=((0, 5 * MIB),),
            allowed_cpus=cpus,
        ),
    )


def seen(good: WorkerEvidence, **changes: object) -> WorkerEvidence:
    """Return the worker seen otherwise."""
    assert good.residence is not None
    return replace(good, residence=replace(good.residence, **changes))  # type: ignore[arg-type]


def bound(good: WorkerEvidence, **changes: object) -> WorkerEvidence:
    """Return the worker bound otherwise."""
    assert good.bound is not None
    return replace(good, bound=replace(good.bound, **changes))  # type: ignore[arg-type]


def finished(worker: int, unit: str, rows: int) -> FinishedUnit:
    """Return a unit with rows of ten bytes."""
    return FinishedUnit(
        unit=unit,
        attempt=1,
        rows=rows,
        files=(WrittenFile(path=unit, rows=rows, bytes=rows * 10, checksum=""),),
        stages=stages(),
        seconds=0.5,
        cpu_seconds=0.4,
        peak_rss_bytes=1,
        partition=None,
        partitions=(),
        seat=BoundSeat(node=0, cpus=(), memory_node=None, memory_policy=None),
        worker=worker,
        started_s=0.0,
    )


UNITS = [finished(0, "1", 100), finished(1, "2", 50), finished(0, "3", 10)]


def warnings(*workers: WorkerEvidence) -> list[str]:
    """Return their warnings."""
    return list(Evidence(workers=workers).warnings.values())


def test_each_worker_is_told_of() -> None:
    """Seat, CPUs, memory and work of each, by number, as plain JSON."""
    evidence = Evidence(workers=(replace(worker(0), restarts=2),))
    assert json.decode(json.encode(worker_records(evidence, UNITS))) == [
        {
            "worker": 0,
            "seat": {
                "node": 1,
                "cpus": [4, 5, 6, 7],
                "memory_node": 1,
                "memory_policy": "preferred",
            },
            "ran_on": [4, 5],
            "local_share": 0.99,
            "memory_bytes_by_node": {"0": MIB, "1": 99 * MIB},
            "file_bytes_by_node": {"0": 5 * MIB},
            "units": 2,
            "rows": 110,
            "bytes": 1100,
            "seconds": 1.0,
            "restarts": 2,
            "note": None,
        }
    ]


def test_a_worker_that_never_came_up_is_told_of() -> None:
    """Unknown figures are null, and its work is 0."""
    lost = replace(worker(7), bound=None, residence=None)
    (told,) = worker_records(Evidence(workers=(lost,)), UNITS)
    assert (told.ran_on, told.local_share, told.memory_bytes_by_node) == ((), None, None)
    assert (told.units, told.seconds, told.seat.memory_policy) == (0, 0.0, None)
    assert warnings(lost) == []


def test_nodes_add_up_to_the_run() -> None:
    """Each node has the work of its workers; one without any is there if the kernel counts it."""
    evidence = Evidence(workers=(worker(0, 0), worker(1, 1)), machine_pages={**PAGES, 2: {}})
    first, second, idle = node_records(evidence, UNITS, 2.0)
    assert [first.node, second.node, idle.node] == [0, 1, 2]
    assert (first.workers, first.rows, first.rows_per_second) == (1, 110, 55)
    assert (second.rows, second.bytes, second.bytes_per_second) == (50, 500, 250)
    assert (idle.workers, idle.rows) == (0, 0)
    assert second.numastat == PAGES[1]
    assert node_records(evidence, UNITS, 0.0)[0].rows_per_second is None
    assert node_records(replace(evidence, machine_pages={}), [], 1.0)[1].numastat is None


def test_workers_without_a_binding_have_no_node() -> None:
    """What a node did is not known where nothing holds a worker there, and no share is local."""
    loose = replace(worker(0), seat=Seat(worker=0, node=1, cpus=(), memory_node=None))
    loose = bound(loose, cpus=None, memory_policy=None)
    evidence = Evidence(workers=(loose,), machine_pages=PAGES)
    assert node_records(evidence, UNITS, 1.0) == ()
    assert worker_records(evidence, UNITS)[0].local_share is None
    assert warnings(seen(loose, cpus=(0, 9), allowed_cpus=(0, 1))) == []


def test_a_run_as_planned_warns_of_nothing() -> None:
    """Workers on their seats and memory cause no warning."""
    assert warnings(worker(0, 0), worker(1, 1)) == []


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (seen(worker(3), cpus=(4, 9)), "worker 3 ran on CPU 9, outside its seat of CPUs 4-7"),
        (seen(worker(3), allowed_cpus=(4, 5)), "worker 3 may use CPUs 4-5 now"),
        (
            seen(worker(3), memory=((0, 20 * MIB), (1, 80 * MIB))),
            "worker 3 has only 80% of its memory on its node 1",
        ),
        (
            bound(
                worker(3), memory_policy=None, note="memory policy preferred cannot be set (EPERM)"
            ),
            "worker 3 is not placed as planned: memory policy preferred cannot be set (EPERM)",
        ),
        (
            bound(worker(3), cpus=(4,), note="of CPUs 4,5,6,7 only 4 could be bound"),
            "only 4 could be bound",
        ),
    ],
)
def test_what_is_not_as_planned(case: WorkerEvidence, said: str) -> None:
    """Each way has its line, with numbers and what to do; further workers only raise its count."""
    lines = warnings(case)
    assert any(said in line for line in lines), lines
    assert all("Next: " in line and "\n" not in line for line in lines)
    same = replace(case, seat=replace(case.seat, worker=4))
    grouped = warnings(worker(2), case, same, replace(same, seat=replace(case.seat, worker=5)))
    assert len(grouped) == len(lines)
    assert all("this is also true for 2 more workers" in line for line in grouped)


def test_refused_cpus_are_one_line_for_all_workers() -> None:
    """With a core each, refusals differ by their numbers alone: the first is reported."""
    notes = (f"CPUs {cpu},{cpu + 8} refused (EPERM): not bound" for cpu in range(4))
    refused = (bound(worker(at), cpus=None, note=note) for at, note in enumerate(notes))
    (line,) = warnings(*refused)
    assert line.startswith("worker 0 is not placed as planned: CPUs 0,8 refused (EPERM): not bound")
    assert "this is also true for 3 more workers" in line


def test_interleaved_memory_is_not_misplaced() -> None:
    """Pages of all nodes are what that policy means."""
    halves = seen(worker(0), memory=((0, 50 * MIB), (1, 50 * MIB)))
    assert warnings(bound(halves, memory_policy="interleave")) == []
    assert len(warnings(bound(halves, memory_policy="local"))) == 1
