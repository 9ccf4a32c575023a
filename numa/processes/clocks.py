"""What a supervisor judges a child by: for how long it is silent or busy, and its memory."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 60.0
"""A process that is not up yet has so long at least, whatever the limit of a silence: a busy
machine takes seconds to start one, and a task that lost its attempts that way never had any."""

MAX_IDLE_LOSSES = 3
"""A seat whose processes die so often in a row without a task cannot have one at all."""


@dataclass(slots=True, kw_only=True)
class Clocks:
    """The clocks of one child, kept by the pool as frames come and go."""

    heard: float = field(default_factory=time.monotonic)
    """When it last sent anything, was given its task, or was started."""
    given: float = 0.0
    """When it got its task, or the last part of it so far."""
    up: bool = False
    """Whether it has said that it is ready."""

    def hear(self) -> None:
        """Note that bytes have come from it."""
        self.heard = time.monotonic()

    def give(self) -> None:
        """Note that it is given a task."""
        self.heard = self.given = time.monotonic()

    def silent_seconds(self) -> float:
        """Return for how long nothing has come from it."""
        return time.monotonic() - self.heard

    def busy_seconds(self) -> float:
        """Return for how long it has had the task that it is busy with."""
        return time.monotonic() - self.given

    def overdue(self, silence_seconds: float, start_seconds: float = START_SECONDS) -> float | None:
        """Return the limit in seconds that its silence has passed, None if it has not.

        Args:
            silence_seconds: Longest silence of a process that is up; 0 is no limit.
            start_seconds: Longest start, where that is more.
        """
        limit = silence_seconds if self.up else max(silence_seconds, start_seconds)
        return limit if limit and self.silent_seconds() > limit else None


def resident_bytes(pid: int) -> int | None:
    """Return what a process holds in memory, None where the system does not tell or it is gone.

    From the second figure of /proc/PID/statm, which newer kernels keep to within some hundred KB.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    # A process on its way out holds nothing any more, and says 0.
    return pages * os.sysconf("SC_PAGE_SIZE") or None
