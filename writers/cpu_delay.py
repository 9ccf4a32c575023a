"""How long a thread was ready to run while no CPU was free for it.

Linux counts that for each thread: other threads had the CPUs, or a control group had used up its
quota. Together with the thread's CPU time it tells a stage that waits for something outside, such
as a disk, from one that would go on if it had a CPU.
"""

from __future__ import annotations

import os
from functools import cache

_STATISTICS = "/proc/thread-self/schedstat"
"""Nanoseconds on a CPU, nanoseconds ready without one, and turns (kernel doc: sched-stats.rst)."""


def cpu_delay() -> float:
    """Return the seconds of this thread since it began; 0 where the system does not tell them."""
    try:
        # By calls of the system: this is asked for several times a unit, and most units are small.
        descriptor = os.open(_STATISTICS, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 100).split()[1]) / 1e9
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0.0


@cache
def is_known() -> bool:
    """Return whether this system tells them."""
    try:
        with open(_STATISTICS, encoding="ascii") as file:
            return len(file.read().split()) == 3
    except OSError:
        return False
