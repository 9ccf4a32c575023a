"""Where the workers of a run really ran: by worker, by node, and where that left the plan.

Pure: seats, bindings and observations go in, the manifest's `workers`, `nodes` and `warnings` come
out. `unloader.placement.observation` makes the observations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from numa.model import BindReport, Residence, Seat
from numa.topology import cpu_list_text
from unloader.model import BoundSeat, FinishedUnit

if TYPE_CHECKING:
    from numa.residence import MachinePages

LOCAL_SHARE = 0.9
"""Below it a worker's memory counts as misplaced. On their own nodes workers were measured to have
99.5 %, with everything on another 0 to 0.5 %."""


class WorkerEvidence(Struct, frozen=True, kw_only=True):
    """One worker: its seat, and where it was seen."""

    seat: Seat
    bound: BindReport | None
    """Result of the binding; None if its process never started."""
    residence: Residence | None
    """Where its last process was seen; None if it was not measured."""
    restarts: int = 0
    """Processes that it had after the first."""
    host: str = ""
    """Its machine; empty is this one."""

    @property
    def local_share(self) -> float | None:
        """Part of its private memory on its seat's memory node; None if unknown or not bound."""
        if self.residence is None or self.seat.memory_node is None or not _is_bound(self):
            return None
        return self.residence.local_share(self.seat.memory_node)

    @property
    def note(self) -> str | None:
        """One line on refusals and failed measurements; None without any."""
        notes = [each.note for each in (self.bound, self.residence) if each is not None]
        return "; ".join(note for note in notes if note) or None


class Evidence(Struct, frozen=True, kw_only=True):
    """Of a whole run."""

    workers: tuple[WorkerEvidence, ...] = ()
    machine_pages: MachinePages = field(default_factory=dict)
    """The kernel's counts by node during the run, of all processes of the machine."""
    pages_of_hosts: Mapping[str, MachinePages] = field(default_factory=dict)
    """The same of other machines, by their names."""
    not_measured: tuple[str, ...] = ()
    """One line for each thing that could not be seen."""

    @property
    def warnings(self) -> dict[str, str]:
        """One line for each difference from the planned placement, by a separate key."""
        return _warnings(self.workers)


class WorkerRecord(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One worker: its planned place, its real place and its work."""

    worker: int
    seat: BoundSeat
    host: str | None = None
    """The machine, in a run over several."""
    ran_on: tuple[int, ...]
    local_share: float | None
    memory_bytes_by_node: dict[str, int] | None
    file_bytes_by_node: dict[str, int] | None
    units: int
    rows: int
    bytes: int
    seconds: float
    restarts: int
    note: str | None


class NodeRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One NUMA node, and what its workers did."""

    node: int
    host: str | None = None
    """The machine, in a run over several."""
    workers: int
    rows: int
    bytes: int
    rows_per_second: int | None
    bytes_per_second: int | None
    numastat: dict[str, int] | None


def worker_records(evidence: Evidence, units: Iterable[FinishedUnit]) -> tuple[WorkerRecord, ...]:
    """Return what each worker did, by number, with where it was."""
    done: dict[int | None, list[FinishedUnit]] = {}
    for unit in units:
        done.setdefault(unit.worker, []).append(unit)
    return tuple(_worker_record(each, done.get(each.seat.worker, ())) for each in evidence.workers)


def node_records(
    evidence: Evidence,
    units: Sequence[FinishedUnit],
    run_seconds: float,
    kept: Collection[str] = (),
) -> tuple[NodeRecord, ...]:
    """Return the work of each node, by node; empty if no worker has a node.

    Nodes without a worker are included if the kernel has counts of them. The rates are over the
    whole run, so that the rates of the nodes add up to the rate of the run.

    Args:
        evidence: Of the run.
        units: The finished units of the run.
        run_seconds: What this process of the run took.
        kept: Units that an earlier process has done; no rate counts them.
    """
    pages = {"": evidence.machine_pages, **evidence.pages_of_hosts}
    found = []
    for host in dict.fromkeys(each.host for each in evidence.workers):
        seats = [each.seat for each in evidence.workers if each.host == host and each.seat.cpus]
        machine_pages = pages.get(host, {})
        for node in sorted({seat.node for seat in seats} | machine_pages.keys()) if seats else ():
            mine = {seat.worker for seat in seats if seat.node == node}
            done = [unit for unit in units if unit.worker in mine]
            new = [unit for unit in done if unit.unit not in kept]
            rows, size = sum(unit.rows for unit in new), _size(new)
            found.append(
                NodeRecord(
                    node=node,
                    host=host or None,
                    workers=len(mine),
                    rows=sum(unit.rows for unit in done),
                    bytes=_size(done),
                    rows_per_second=round(rows / run_seconds) if run_seconds else None,
                    bytes_per_second=round(size / run_seconds) if run_seconds else None,
                    numastat=machine_pages.get(node),
                )
            )
    return tuple(found)


def _worker_record(worker: WorkerEvidence, units: Sequence[FinishedUnit]) -> WorkerRecord:
    seen = worker.residence
    return WorkerRecord(
        worker=worker.seat.worker,
        seat=BoundSeat.of(worker.seat, worker.bound),
        host=worker.host or None,
        ran_on=seen.cpus if seen else (),
        local_share=_rounded(worker.local_share),
        memory_bytes_by_node=_by_node(seen.memory if seen else ()),
        file_bytes_by_node=_by_node(seen.file_memory if seen else ()),
        units=len(units),
        rows=sum(unit.rows for unit in units),
        bytes=_size(units),
        seconds=round(sum((unit.seconds for unit in units), 0.0), 4),
        restarts=worker.restarts,
        note=worker.note,
    )


def _size(units: Iterable[FinishedUnit]) -> int:
    return sum(file.bytes for unit in units for file in unit.files)


def _by_node(memory: Iterable[tuple[int, int]]) -> dict[str, int] | None:
    return {str(node): size for node, size in memory} or None


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _is_bound(worker: WorkerEvidence) -> bool:
    return bool(worker.seat.cpus) and worker.bound is not None and worker.bound.cpus is not None


def _warnings(workers: Iterable[WorkerEvidence]) -> dict[str, str]:
    found: dict[str, list[tuple[int, str]]] = {}
    for worker in workers:
        for key, text in _deviations(worker):
            found.setdefault(key, []).append((worker.seat.worker, text))
    return {
        key: f"worker {cases[0][0]} {cases[0][1]}{_others(cases)}. {_NEXT.get(key, _NEXT_BOUND)}"
        for key, cases in found.items()
    }


_NEXT_BOUND = (
    "Next: in a container, allow set_mempolicy and sched_setaffinity (in Docker: the capability "
    "SYS_NICE), or see the allowed CPUs with: unloader topology"
)
_NEXT = {
    "affinity": "Next: find out what moves processes here (taskset, a cpuset, CPUs going off line)",
    "ran on": "Next: find out what moves processes here (taskset, a cpuset, CPUs going off line)",
    "memory": "Next: find out which node is full with: numastat -m; lower --parallelism or "
    "--fetch-memory, or choose other nodes with --numa-nodes",
}


def _deviations(worker: WorkerEvidence) -> Iterator[tuple[str, str]]:
    """Yield each way in which one worker is not where it was to be, with its key."""
    seat, bound, seen = worker.seat, worker.bound, worker.residence
    if bound is None:
        return
    if bound.note:
        yield f"bound: {without_numbers(bound.note)}", f"is not placed as planned: {bound.note}"
    if seen is None or not _is_bound(worker):
        return
    if seen.allowed_cpus and seen.allowed_cpus != bound.cpus:
        allowed, planned = _cpus(seen.allowed_cpus), _cpus(seat.cpus)
        yield "affinity", f"may use {allowed} now, but its seat is {planned}"
    strange = tuple(sorted(set(seen.cpus) - set(seat.cpus)))
    if strange:
        yield "ran on", f"ran on {_cpus(strange)}, outside its seat of {_cpus(seat.cpus)}"
    share = worker.local_share
    if share is not None and share < LOCAL_SHARE and bound.memory_policy != "interleave":
        yield "memory", f"has only {share:.0%} of its memory on its node {seat.memory_node}"


def without_numbers(note: str) -> str:
    """Return a note without its numbers, as CPUs and nodes are others on each seat."""
    return re.sub(r"\d[\d,-]*", "#", note)


def _others(cases: list[tuple[int, str]]) -> str:
    """Return how many further workers a line is about."""
    more = len(cases) - 1
    return f"; this is also true for {more} more worker{'s' * (more > 1)}" if more else ""


def _cpus(cpus: tuple[int, ...]) -> str:
    return f"CPU{'s' * (len(cpus) > 1)} {cpu_list_text(cpus)}"
