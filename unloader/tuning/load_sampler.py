"""Watches the machine during a point, in a thread that reads the counters once a second.

The figures of the whole point come from the first reading and the last. The readings between are
for figures without a counter (memory, the clock) and for the curve over time.

The sessions of our workers lead to the processes of a database on this machine: the other end of a
connection is one of them. All processes that the same server has started count, also for our
sessions: parallel servers and writers. In-process databases have no separate processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from unloader.tuning.machine_load import (
    Machine,
    MachineLoad,
    NodeLoad,
    Reading,
    load_between,
    nodes_between,
    psutil_or_none,
    read_machine,
)

INTERVAL_SECONDS = 1.0
_FIRST_SECONDS = 0.2
_LOOKS_FOR_DATABASE = 5
"""Sessions are open within the first seconds, and looking for them takes tenths of one."""


class Moment(Struct, frozen=True, kw_only=True):
    """One second of a point."""

    at_seconds: float
    """Since its beginning, at the end of this second."""
    busy: float | None
    iowait: float | None
    nodes: tuple[NodeLoad, ...]
    clock_mhz: float | None
    memory_bytes: int | None


class Sampler:
    """Watches the machine from `start` to `stop`."""

    def __init__(
        self,
        machine: Machine,
        source_kind: str,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        read: Callable[[tuple[int, ...] | None], Reading] = read_machine,
    ) -> None:
        """Prepare to watch the machine.

        Args:
            machine: Its fixed properties.
            source_kind: Kind of the database whose processes are looked for.
            interval_seconds: Between two looks.
            read: Looks at the machine.
        """
        self._machine = machine
        self._kind = source_kind
        self._interval = interval_seconds
        self._read = read
        self._readings: list[Reading] = []
        self._roots: tuple[int, ...] | None = None
        self._looks = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin with a first look."""
        self._readings.append(self._read(None))
        self._thread.start()

    def stop(self) -> None:
        """End with a last look; may be called again, and without a start."""
        if self._end.is_set() or not self._readings:
            return
        self._end.set()
        self._thread.join()
        self._readings.append(self._read(self._roots))

    def load(self) -> MachineLoad | None:
        """Return the load of the machine; None without two readings."""
        if len(self._readings) < 2:
            return None
        clocks = [each.clock_mhz for each in self._readings if each.clock_mhz is not None]
        memories = [each for each in map(_memory, self._readings) if each is not None]
        first, last = self._of_database()
        return load_between(
            first,
            last,
            self._machine,
            clock_mhz=sum(clocks) / len(clocks) if clocks else None,
            peak=max(memories, default=None),
        )

    def moments(self) -> tuple[Moment, ...]:
        """Return the seconds one by one."""
        first = self._readings[0].at if self._readings else 0.0
        found = []
        for before, after in zip(self._readings, self._readings[1:], strict=False):
            cpu = load_between(before, after, self._machine, clock_mhz=None, peak=None).cpu
            found.append(
                Moment(
                    at_seconds=after.at - first,
                    busy=None if cpu is None else cpu.user + cpu.system,
                    iowait=None if cpu is None else cpu.iowait,
                    nodes=nodes_between(before, after, self._machine),
                    clock_mhz=after.clock_mhz,
                    memory_bytes=_memory(after),
                )
            )
        return tuple(found)

    def _of_database(self) -> tuple[Reading, Reading]:
        """Return the first and the last look. The first has the database processes' use when they
        were first seen. Their use is empty if only one look has seen them."""

        first, last = self._readings[0], self._readings[-1]
        seen = next((each.database for each in self._readings[:-1] if each.database), None)
        if seen is None:
            return first, replace(last, database=None)
        return replace(first, database=seen), last

    def _run(self) -> None:
        # Sessions are open by then; a short point would be over before the first second is.
        wait = min(_FIRST_SECONDS, self._interval)
        while not self._end.wait(wait):
            wait = self._interval
            if self._roots is None and self._looks < _LOOKS_FOR_DATABASE:
                self._looks += 1
                self._roots = database_roots(self._kind)
            self._readings.append(self._read(self._roots))


def _memory(reading: Reading) -> int | None:
    return None if reading.workers is None else reading.workers.memory_bytes


_IN_PROCESS = ("duckdb", "sqlite")
"""Kinds whose database is a library of the workers."""

_NAMES = {"postgresql": ("postgres", "postmaster"), "oracle": ("oracle", "ora_")}
"""First letters of the names of a server's processes, by kind of source: for processes whose owner
is unknown, and for connections without addresses."""


def database_roots(kind: str) -> tuple[int, ...] | None:
    """Return the ids of the root processes of the database.

    Args:
        kind: Of the source. Its sessions must be open.

    Returns:
        None if the database is not on this machine, or cannot be found.
    """
    psutil = psutil_or_none()
    if psutil is None or kind in _IN_PROCESS:
        return None
    try:
        own = psutil.Process()
        ours = {own.pid, *(each.pid for each in own.children(recursive=True))}
        # The programs that started us are not a database, even if our connections lead to them;
        # their connections are not sessions.
        known = ours.union(each.pid for each in own.parents())
    except (psutil.Error, OSError):
        return None
    connections = _connections(psutil)
    sessions = [(each.laddr, each.raddr) for each in connections if each.pid in ours and each.raddr]
    ends = {
        each.pid
        for each in connections
        if (each.raddr, each.laddr) in sessions and each.pid not in known
    }
    found = {pid for pid in ends if pid is not None}
    by_name = None in ends or (not sessions and kind == "postgresql")
    if not found and by_name:
        found = _named(psutil, _NAMES.get(kind, ()))
    roots = {root for pid in found for root in _roots(psutil, pid, kind, known)}
    return tuple(sorted(roots - known)) or None


def _connections(psutil: Any) -> list[Any]:
    """Return all connections of the machine; none where they cannot be read, now or ever.

    psutil raises RuntimeError and ValueError for tables of the kernel that change while it reads.
    """
    try:
        return list(psutil.net_connections(kind="inet"))
    except (psutil.Error, OSError, RuntimeError, ValueError):
        return []


def _roots(psutil: Any, pid: int, kind: str, known: set[int]) -> Iterable[int]:
    """Return the ancestor of a process that still runs the same program. It is never a known
    process: this program's processes, and the processes that started this program.

    Of Oracle all processes of that name: each is a child of the system.
    """
    if kind == "oracle" and (named := _named(psutil, _NAMES[kind])):
        return {pid, *named}
    try:
        process = psutil.Process(pid)
        name = process.name()
        while (parent := process.parent()) is not None and parent.pid not in known:
            if parent.name() != name:
                break
            process = parent
    except psutil.Error:
        return ()
    return (process.pid,)


def _named(psutil: Any, names: tuple[str, ...]) -> set[int]:
    found = psutil.process_iter(["name"]) if names else ()
    return {each.pid for each in found if (each.info["name"] or "").startswith(names)}
