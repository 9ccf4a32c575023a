"""Watches the machine during a point, in a thread that looks once a second.

What is told of the whole point comes from the first look and the last; those between are for what
has no counter (memory, the clock) and for the curve over time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from unloader.sweep.measuring.database import database_roots
from unloader.sweep.measuring.load import (
    Machine,
    MachineLoad,
    NodeLoad,
    load_between,
    nodes_between,
)
from unloader.sweep.measuring.readings import Reading, read_machine

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
        """Take what is watched.

        Args:
            machine: It.
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
        """Return what the machine did; None if it was not watched."""
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
        """Return the first look and the last, the first with what the database's processes had used
        when they were first seen; with none of it where one look alone has seen them."""

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
