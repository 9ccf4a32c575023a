"""How busy the CPUs of this host are, and how much of that is the run itself. Linux.

From /proc/stat, so of the whole host: in a container of all that runs beside it, too. Time that a
hypervisor gave to others counts as busy, time that is waited for a disk does not.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

_LEAST_SECONDS = 0.9
"""Between two looks: the kernel counts in hundredths of a second."""

_IDLE, _IO_WAIT, _LAST = 3, 4, 8
"""Fields of the line: user nice system idle iowait irq softirq steal; what follows is in user."""


class CpuShares(Struct, frozen=True, kw_only=True):
    """Shares of all CPUs over about a second, 0 to 1."""

    busy: float
    own: float
    """Of the run's own processes."""


class HostCpu(Struct):
    """Looks at the counters of the kernel."""

    proc: Path = Path("/proc")
    _then: float | None = None
    _total: int = 0
    _idle: int = 0
    _own: dict[int, int] = field(default_factory=dict)

    def readable(self) -> bool:
        """Return whether this system has such counters."""
        return self._counters() is not None

    def look(self, pids: Collection[int], now: float) -> CpuShares | None:
        """Return the shares since the last look; None at the first one, or if it was just now.

        Args:
            pids: The processes of the workers; the one that calls is added.
            now: Any clock that only goes forward.
        """
        if self._then is not None and now - self._then < _LEAST_SECONDS:
            return None
        found = self._counters()
        if found is None:
            return None
        own = {pid: ticks for pid in (*pids, os.getpid()) if (ticks := self._ticks_of(pid))}
        total, idle = found
        passed = total - self._total
        known = self._then is not None and passed > 0
        shares = None
        if known:
            used = sum(max(0, ticks - self._own.get(pid, 0)) for pid, ticks in own.items())
            busy = 1 - (idle - self._idle) / passed
            shares = CpuShares(busy=min(1.0, max(0.0, busy)), own=min(1.0, used / passed))
        self._then, self._total, self._idle, self._own = now, total, idle, own
        return shares

    def _counters(self) -> tuple[int, int] | None:
        """Return all ticks and the idle ones of all CPUs since the start of the host."""
        with suppress(OSError, ValueError, IndexError):
            line = (self.proc / "stat").read_text(encoding="ascii").splitlines()[0].split()
            if line[0] == "cpu":
                ticks = [int(each) for each in line[1 : _LAST + 1]]
                return sum(ticks), ticks[_IDLE] + ticks[_IO_WAIT]
        return None

    def _ticks_of(self, pid: int) -> int:
        """Return the ticks of a process, its ended children left out; 0 where it is gone."""
        with suppress(OSError, ValueError, IndexError):
            text = (self.proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            # Its name is in parentheses and may hold anything.
            values = text.rpartition(")")[2].split()
            return int(values[11]) + int(values[12])
        return 0
