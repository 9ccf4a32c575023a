"""Where the workers of a run really ran: by worker, by node, and where that left the plan.

The parent looks; the workers do nothing for it. A pass over their CPUs comes every second; the
pages of a worker every few seconds, and soon after its first unit. Either takes at most 0.5 % of
the time that passes. At the end the workers not measured yet are measured: all are idle by then.

On a machine with one node all pages are on it, so the pages of a process are read only once. The
worker waits for its memory meanwhile, and a second look would show nothing new.

From seats, bindings and observations come the manifest's `workers`, `nodes` and `warnings`. The
load of the CPUs of each node is the kernel's count for the whole machine.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from numa.kernel_files import cpu_list_text
from numa.model import BindReport, Ready, Residence, Seat
from numa.residence import COST_SHARE, MachinePages, look, machine_pages
from unloader.model import BoundSeat, FinishedUnit

_OFF = "the CPUs and nodes of the workers were not observed (--numa off)"

STAT = Path("/proc/stat")

_IDLE = (3, 4)
"""Fields of a CPU's line in which it did nothing: idle, and idle with I/O under way."""
_COUNTED = 8
"""user, nice, system, idle, iowait, irq, softirq, steal. Guests are counted in user already."""

CPU_SECONDS = 1.0
PAGE_SECONDS = 5.0
"""Least time between two looks at the pages of one worker."""

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
        is_bound = self.seat.cpus and self.bound is not None and self.bound.cpus is not None
        if self.residence is None or self.seat.memory_node is None or not is_bound:
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
        found: dict[str, list[tuple[int, str]]] = {}

        def cpus(numbers: Sequence[int]) -> str:
            return f"CPU{'s' * (len(numbers) > 1)} {cpu_list_text(numbers)}"

        for worker in self.workers:
            seat, bound, seen = worker.seat, worker.bound, worker.residence
            differences: dict[str, str] = {}
            if bound is not None and bound.note:
                key = f"bound: {without_numbers(bound.note)}"
                differences[key] = f"is not placed as planned: {bound.note}"
            if bound is not None and seen is not None and seat.cpus and bound.cpus is not None:
                if seen.allowed_cpus and seen.allowed_cpus != bound.cpus:
                    differences["affinity"] = (
                        f"may use {cpus(seen.allowed_cpus)} now, but its seat is {cpus(seat.cpus)}"
                    )
                if strange := sorted(set(seen.cpus) - set(seat.cpus)):
                    differences["ran on"] = (
                        f"ran on {cpus(strange)}, outside its seat of {cpus(seat.cpus)}"
                    )
                share = worker.local_share
                interleaved = bound.memory_policy == "interleave"
                if share is not None and share < LOCAL_SHARE and not interleaved:
                    differences["memory"] = (
                        f"has only {share:.0%} of its memory on its node {seat.memory_node}"
                    )
            for key, text in differences.items():
                found.setdefault(key, []).append((seat.worker, text))
        lines = {}
        for key, cases in found.items():
            (number, text), *more = cases
            plural = "s" * (len(more) > 1)
            others = f"; this is also true for {len(more)} more worker{plural}" if more else ""
            lines[key] = f"worker {number} {text}{others}. {_NEXT.get(key, _NEXT_BOUND)}"
        return lines


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
    done: dict[int | None, list[FinishedUnit]] = {}
    for unit in units:
        done.setdefault(unit.worker, []).append(unit)
    found = []
    for worker in evidence.workers:
        seen, share = worker.residence, worker.local_share
        mine = done.get(worker.seat.worker, ())
        memory, files = (seen.memory, seen.file_memory) if seen else ((), ())
        found.append(
            WorkerRecord(
                worker=worker.seat.worker,
                seat=BoundSeat.of(worker.seat, worker.bound),
                host=worker.host or None,
                ran_on=seen.cpus if seen else (),
                local_share=None if share is None else round(share, 4),
                memory_bytes_by_node={str(node): size for node, size in memory} or None,
                file_bytes_by_node={str(node): size for node, size in files} or None,
                units=len(mine),
                rows=sum(unit.rows for unit in mine),
                bytes=_size(mine),
                seconds=round(sum((unit.seconds for unit in mine), 0.0), 4),
                restarts=worker.restarts,
                note=worker.note,
            )
        )
    return tuple(found)


def node_records(
    evidence: Evidence,
    units: Sequence[FinishedUnit],
    run_seconds: float,
    kept: Collection[str] = (),
) -> tuple[NodeRecord, ...]:
    """Return the work of each node, by node; empty if no worker has a node.

    Nodes without a worker are included if the kernel has counts of them. The rates are over the
    whole run, and count no unit in `kept`, which an earlier process has done.
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
            rates = [
                round(amount / run_seconds) if run_seconds else None
                for amount in (sum(unit.rows for unit in new), _size(new))
            ]
            found.append(
                NodeRecord(
                    node=node,
                    host=host or None,
                    workers=len(mine),
                    rows=sum(unit.rows for unit in done),
                    bytes=_size(done),
                    rows_per_second=rates[0],
                    bytes_per_second=rates[1],
                    numastat=machine_pages.get(node),
                )
            )
    return tuple(found)


def _size(units: Iterable[FinishedUnit]) -> int:
    return sum(file.bytes + file.value_bytes for unit in units for file in unit.files)


_MOVED = "Next: find out what moves processes here (taskset, a cpuset, CPUs going off line)"
_NEXT_BOUND = (
    "Next: in a container, allow set_mempolicy and sched_setaffinity (in Docker: the capability "
    "SYS_NICE), or see the allowed CPUs with: unloader topology"
)
_NEXT = {
    "affinity": _MOVED,
    "ran on": _MOVED,
    "memory": "Next: find out which node is full with: numastat -m; lower --parallelism or "
    "--fetch-memory, or choose other nodes with --numa-nodes",
}


def without_numbers(note: str) -> str:
    """Return a note without its numbers, as CPUs and nodes are others on each seat."""
    return re.sub(r"\d[\d,-]*", "#", note)


class Watch:
    """The observed place of each worker. Used by the executor, from its thread."""

    def __init__(
        self, seats: tuple[Seat, ...], note: Callable[[str], None], *, looks: bool = True
    ) -> None:
        """Take the seats of all workers; `looks` False records bindings and looks at no process."""
        self._seats = seats
        self._note = note
        self._looks = looks
        self.bound: dict[int, BindReport] = {}
        """Result of each worker's binding, by worker."""
        self._residences: dict[int, Residence] = {}
        """Where the last process of each worker was seen."""
        self._machine_before: MachinePages = machine_pages() if looks else {}
        self._once = len(self._machine_before) == 1
        """Whether a second look at the pages of a process would show nothing new."""
        self._machine_grown: MachinePages = {}
        self._cpus_due = self._affordable_at = -math.inf
        """The earliest times of the next look at all CPUs, and at the pages of any worker."""
        self._pages_due: dict[int, float] = {}
        """By worker: when its pages are looked at again."""
        self._noted: set[str] = set()
        self._unseen: dict[str, None] = {} if looks else {_OFF: None}

    def ready(self, event: Ready, pids: Mapping[int, int]) -> None:
        """Record how a worker's process was bound, and start its page timer."""
        self.bound[event.worker] = event.bound
        # The process may have ended since: its number is another's by then.
        if self._looks and pids.get(event.worker) == event.pid:
            # Its memory right after its start shows little.
            self._pages_due[event.worker] = time.monotonic() + PAGE_SECONDS

    def unit_done(self, worker: int, pids: Mapping[int, int]) -> None:
        """Have the pages of a process looked at soon after its first unit."""
        if worker in self._pages_due and not self._has_pages(worker, pids.get(worker, 0)):
            self._pages_due[worker] = -math.inf

    def tick(self, pids: Mapping[int, int]) -> None:
        """Make the looks that are due at the process of each worker that has one.

        None of them may be reaped before this returns.
        """
        if not self._looks:
            return
        now = time.monotonic()
        if now >= self._affordable_at:
            due = [
                (due_at, worker)
                for worker, due_at in self._pages_due.items()
                if now >= due_at
                and worker in pids
                and not (self._once and self._has_pages(worker, pids[worker]))
            ]
            # The worker that has waited longest, or the first few would take every turn.
            for _, worker in sorted(due)[:1]:
                started = time.perf_counter()
                self._residences[worker] = look(
                    pids[worker], self._residences.get(worker), pages=True
                )
                took, now = time.perf_counter() - started, time.monotonic()
                self._affordable_at = now + took / COST_SHARE
                self._pages_due[worker] = max(self._affordable_at, now + PAGE_SECONDS)
        if now >= self._cpus_due:
            started = time.perf_counter()
            for worker in pids.keys() & self.bound.keys():
                seen = self._residences.get(worker)
                self._residences[worker] = look(pids[worker], seen)
            self._note_deviations()
            took = time.perf_counter() - started
            self._cpus_due = time.monotonic() + max(CPU_SECONDS, took / COST_SHARE)

    def finish(self, pids: Mapping[int, int], bindings: Mapping[int, BindReport]) -> None:
        """Take the last look, when all units are done and the processes are still there.

        `pids` is as for `tick`; some of the bound workers may not be up even now.
        """
        self.bound = {**bindings, **self.bound}
        if not self._looks:
            return
        for worker, pid in pids.items():
            seen, pages = self._residences.get(worker), not self._has_pages(worker, pid)
            self._residences[worker] = look(pid, seen, pages=pages)
        self._machine_grown = machine_pages(before=self._machine_before)
        self._note_deviations()

    def evidence(self, restarts: Mapping[int, int] | None = None) -> Evidence:
        return Evidence(
            workers=tuple(self.worker(seat, restarts or {}) for seat in self._seats),
            machine_pages=self._machine_grown,
            not_measured=tuple(self._unseen),
        )

    def worker(self, seat: Seat, restarts: Mapping[int, int]) -> WorkerEvidence:
        return WorkerEvidence(
            seat=seat,
            bound=self.bound.get(seat.worker),
            residence=self._residences.get(seat.worker),
            restarts=restarts.get(seat.worker, 0),
        )

    def _has_pages(self, worker: int, pid: int) -> bool:
        seen = self._residences.get(worker)
        return seen is not None and seen.pid == pid and seen.page_looks > 0

    def _note_deviations(self) -> None:
        notes = {each.note for each in self._residences.values() if each.note}
        for note in sorted(notes - self._unseen.keys()):
            self._unseen[note] = None
            # With one node there is nothing to miss.
            if len(self._machine_before) > 1:
                self._note(f"the node of the memory cannot be measured: {note}")
        for key, text in self.evidence().warnings.items():
            # What a binding lacks is noted when the process comes up.
            if key not in self._noted and not key.startswith("bound"):
                self._noted.add(key)
                self._note(text)


CpuTime: TypeAlias = tuple[int, int]
"""The kernel's counts of a set of CPUs, in its ticks since the machine started: busy, and all."""


def busy_share(before: CpuTime, now: CpuTime) -> float | None:
    """Return the busy part of the time between, 0 to 1; None if too little time passed."""
    passed = now[1] - before[1]
    return None if passed <= 0 else min(1.0, max(0.0, (now[0] - before[0]) / passed))


def node_times(cpus: Mapping[int, tuple[int, ...]], stat: Path = STAT) -> dict[int, CpuTime]:
    """Return the kernel's counts of the CPUs of each node, of all processes.

    A node none of whose CPUs is in `stat` (proc_stat(5)) is left out, and every node if the file
    cannot be read.
    """
    try:
        lines = re.findall(r"^cpu(\d+)((?: \d+)+)", stat.read_text("ascii"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return {}
    ticks = {int(number): [*map(int, fields.split()[:_COUNTED])] for number, fields in lines}
    found = {}
    for node, numbers in cpus.items():
        counts = [each for number in numbers if len(each := ticks.get(number, [])) > max(_IDLE)]
        if counts:
            every = sum(map(sum, counts))
            idle = sum(each[field] for each in counts for field in _IDLE)
            found[node] = (every - idle, every)
    return found
