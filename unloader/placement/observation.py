"""Measures where the workers of a run really are, and notes where that differs from the plan.

The parent looks; the workers do nothing for it. A pass over their CPUs comes every second; the
pages of a worker every few seconds and when one of its units ends. Either takes at most 0.5 % of
the time that passes. At the end the workers not measured yet are measured: all are idle by then.

On a machine with one node all pages are on it, so the pages of a process are read only once. The
worker waits for its memory meanwhile, and a second look would show nothing new.

The load of the CPUs of each node is the kernel's count for the whole machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from numa.model import BindReport, Ready, Seat, Topology
from numa.residence import (
    MachinePages,
    Pace,
    Residences,
    machine_pages,
    machine_pages_since,
)
from unloader.placement.evidence import Evidence, WorkerEvidence

_OFF = "the CPUs and nodes of the workers were not observed (--numa off)"

STAT = Path("/proc/stat")

_IDLE = (3, 4)
"""Fields of a CPU's line in which it did nothing: idle, and idle with I/O under way."""
_COUNTED = 8
"""user, nice, system, idle, iowait, irq, softirq, steal. Guests are counted in user already."""

CPU_SECONDS = 1.0
PAGE_SECONDS = 5.0
"""Least time between two looks at the pages of one worker."""


class Watch:
    """The observed place of each worker. Used by the executor, from its thread."""

    def __init__(
        self, seats: tuple[Seat, ...], note: Callable[[str], None], *, looks: bool = True
    ) -> None:
        """Take the seats; look at nothing yet.

        Args:
            seats: Of all workers.
            note: Takes a line on the first worker that is not where planned, once for each way.
            looks: False records bindings alone and looks at no process.
        """
        self._seats = seats
        self._note = note
        self._looks = looks
        self.bound: dict[int, BindReport] = {}
        """Result of each worker's binding, by worker."""
        self._residences = Residences()
        self._machine_before: MachinePages = machine_pages() if looks else {}
        self._machine_grown: MachinePages = {}
        self._cpu_pace = Pace(CPU_SECONDS)
        self._page_pace = Pace()
        self._page_paces: dict[int, Pace] = {}
        self._noted: set[str] = set()
        self._unseen: dict[str, None] = {} if looks else {_OFF: None}

    def ready(self, event: Ready, pids: Mapping[int, int]) -> None:
        """Record how a worker's process was bound, and start its page timer.

        Args:
            event: Of the process, which may have ended since: its number is another's by then.
            pids: As for `tick`.
        """
        self.bound[event.worker] = event.bound
        if self._looks and pids.get(event.worker) == event.pid:
            pace = self._page_paces[event.worker] = Pace(PAGE_SECONDS)
            # Its memory right after its start shows little.
            pace.done(0.0)

    def unit_done(self, worker: int, pids: Mapping[int, int]) -> None:
        """Look at a worker that has done a unit, unless the last look was just before.

        Args:
            worker: Its number.
            pids: As for `tick`.
        """
        pace = self._page_paces.get(worker)
        if pace is None or worker not in pids or self._seen_enough(worker, pids[worker]):
            return
        if pace.affordable() and self._page_pace.affordable():
            self._look(worker, pids[worker])

    def tick(self, pids: Mapping[int, int]) -> None:
        """Make the looks that are due.

        Args:
            pids: The process of each worker that has one; none of them is reaped before we return.
        """
        if not self._looks:
            return
        if self._page_pace.due():
            here = self._page_paces.keys() & pids.keys()
            due = [
                worker
                for worker in here
                if self._page_paces[worker].due() and not self._seen_enough(worker, pids[worker])
            ]
            # The worker that has waited longest, or the first few would take every turn.
            for worker in sorted(due, key=lambda each: self._page_paces[each].due_at)[:1]:
                self._look(worker, pids[worker])
        if self._cpu_pace.due():
            started = time.perf_counter()
            for worker in pids.keys() & self.bound.keys():
                self._residences.glance(worker, pids[worker])
            self._note_deviations()
            self._cpu_pace.done(time.perf_counter() - started)

    def finish(self, pids: Mapping[int, int], bindings: Mapping[int, BindReport]) -> None:
        """Take the last look, when all units are done and the processes are still there.

        Args:
            pids: As for `tick`.
            bindings: Of the same workers; some may not be up even now, if there was little to do.
        """
        for worker, bound in bindings.items():
            self.bound.setdefault(worker, bound)
        if not self._looks:
            return
        for worker, pid in pids.items():
            self._residences.glance(worker, pid)
            if not self._residences.page_looks(worker, pid):
                self._residences.look(worker, pid)
        self._machine_grown = machine_pages_since(self._machine_before, machine_pages())
        self._note_deviations()

    def evidence(self, restarts: Mapping[int, int] | None = None) -> Evidence:
        """Return the evidence up to now.

        Args:
            restarts: Processes that each worker had after its first, where there were any.
        """
        return Evidence(
            workers=tuple(self.worker(seat, restarts or {}) for seat in self._seats),
            machine_pages=self._machine_grown,
            not_measured=tuple(self._unseen),
        )

    def worker(self, seat: Seat, restarts: Mapping[int, int]) -> WorkerEvidence:
        """Return the evidence about one worker; `restarts` as for `evidence`."""
        return WorkerEvidence(
            seat=seat,
            bound=self.bound.get(seat.worker),
            residence=self._residences.seen(seat.worker),
            restarts=restarts.get(seat.worker, 0),
        )

    def _seen_enough(self, worker: int, pid: int) -> bool:
        """Return whether another look at the pages of a process can tell nothing new."""
        return len(self._machine_before) == 1 and self._residences.page_looks(worker, pid) > 0

    def _look(self, worker: int, pid: int) -> None:
        started = time.perf_counter()
        self._residences.look(worker, pid)
        took = time.perf_counter() - started
        self._page_pace.done(took)
        self._page_paces[worker].done(took)

    def _note_deviations(self) -> None:
        seen = (self._residences.seen(seat.worker) for seat in self._seats)
        notes = {each.note for each in seen if each and each.note}
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


class CpuTime(Struct, frozen=True, kw_only=True):
    """The kernel's counts of a set of CPUs, in its ticks since the machine started."""

    busy: int
    all: int

    def share_since(self, earlier: CpuTime) -> float | None:
        """Return the busy part of the time since then, 0 to 1; None if too little time passed."""
        passed = self.all - earlier.all
        if passed <= 0:
            return None
        return min(1.0, max(0.0, (self.busy - earlier.busy) / passed))


def node_cpus(topology: Topology) -> dict[int, tuple[int, ...]]:
    """Return the usable CPUs of each node that has usable CPUs."""
    return {node.id: node.cpus for node in topology.nodes if node.cpus}


def node_times(cpus: Mapping[int, tuple[int, ...]], stat: Path = STAT) -> dict[int, CpuTime]:
    """Return the kernel's counts of the CPUs of each node, of all processes.

    Args:
        cpus: Of each node.
        stat: The kernel's file (proc_stat(5)); a node none of whose CPUs is in it is left out, and
            nothing is there where it cannot be read.
    """
    try:
        text = stat.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    known = dict(filter(None, map(_counted, text.splitlines())))
    found = {}
    for node, numbers in cpus.items():
        counts = [known[number] for number in numbers if number in known]
        if counts:
            found[node] = CpuTime(
                busy=sum(busy for busy, _ in counts), all=sum(passed for _, passed in counts)
            )
    return found


def _counted(line: str) -> tuple[int, tuple[int, int]] | None:
    """Return number, busy and all ticks of a line `cpuN ...`; None for any other line."""
    name, *fields = line.split()[: 1 + _COUNTED] or [""]
    number = name.removeprefix("cpu")
    if number == name or not number.isdigit() or len(fields) <= max(_IDLE):
        return None
    ticks = list(map(int, fields))
    return int(number), (sum(ticks) - sum(ticks[each] for each in _IDLE), sum(ticks))
