"""The load of the run's host and of its database, as far as limits need them.

`HostCpu` reads how busy the CPUs of this host are from /proc/stat, so in a container it counts all
that runs beside it, too. Time that a hypervisor gave to others counts as busy, time that is waited
for a disk does not. `LoadWatch` counts the active sessions of others about once a second, in a
thread with a separate session: a limit on the load may not wait for the run's own calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from unloader.errors import UnloaderError
from unloader.sources.base import LoadReader

_LEAST_SECONDS = 0.9
"""Between two looks: the kernel counts in hundredths of a second."""

_IDLE, _IO_WAIT, _LAST = 3, 4, 8
"""Fields of the line: user nice system idle iowait irq softirq steal; what follows is in user."""


class HostCpu(Struct):
    proc: Path = Path("/proc")
    _before: tuple[float, int, int, dict[int, int]] | None = None
    """The time of the last look; ticks of all CPUs, idle ticks, and ticks by process."""

    def readable(self) -> bool:
        return self._counters() is not None

    def look(self, pids: Collection[int], now: float) -> tuple[float, float] | None:
        """Return the busy part of all CPUs and the part of these processes, since the last look."""
        if self._before is not None and now - self._before[0] < _LEAST_SECONDS:
            return None
        found = self._counters()
        if found is None:
            return None
        own = {pid: ticks for pid in (*pids, os.getpid()) if (ticks := self._ticks_of(pid))}
        before, self._before = self._before, (now, *found, own)
        passed = 0 if before is None else found[0] - before[1]
        if before is None or passed <= 0:
            return None
        used = sum(max(0, ticks - before[3].get(pid, 0)) for pid, ticks in own.items())
        busy = 1 - (found[1] - before[2]) / passed
        return min(1.0, max(0.0, busy)), min(1.0, used / passed)

    def _counters(self) -> tuple[int, int] | None:
        with suppress(OSError, ValueError, IndexError):
            line = (self.proc / "stat").read_text(encoding="ascii").splitlines()[0].split()
            if line[0] == "cpu":
                ticks = [int(each) for each in line[1 : _LAST + 1]]
                return sum(ticks), ticks[_IDLE] + ticks[_IO_WAIT]
        return None

    def _ticks_of(self, pid: int) -> int:
        """Return the ticks of a process without its ended children; 0 if it is gone."""
        with suppress(OSError, ValueError, IndexError):
            text = (self.proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            # Its name is in parentheses and may hold anything.
            values = text.rpartition(")")[2].split()
            return int(values[11]) + int(values[12])
        return 0


EVERY_SECONDS = 1.0
_AGAIN_SECONDS = 5.0


class LoadWatch:
    def __init__(self, open_reader: Callable[[], LoadReader]) -> None:
        """Open a session that counts; the thread opens another one if that is lost."""
        self._open_reader = open_reader
        self._reader: LoadReader | None = open_reader()
        self._over = threading.Event()
        self._counts: list[int] = []
        self.heard = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="load", daemon=True)
        self._thread.start()

    def taken(self) -> list[int]:
        found, self._counts = self._counts, []
        return found

    def close(self) -> None:
        self._over.set()
        self._thread.join(_AGAIN_SECONDS)

    def _watch(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            wait = EVERY_SECONDS
            try:
                if self._reader is None:
                    self._reader = self._open_reader()
                count = self._reader.others()
            # If a driver raises any error in another thread, the count is not known.
            except (UnloaderError, OSError, RuntimeError):
                self._drop()
                wait = _AGAIN_SECONDS
            else:
                self.heard = time.monotonic()
                self._counts = [*self._counts[-10:], count]
        self._drop()

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
