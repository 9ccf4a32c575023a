"""Separate CPUs for a server and for its clients, so that a figure is of one of them.

If both share a CPU, the server takes the time that the client saves, and neither time means much.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cpus:
    """Numbers of CPUs, by who has them."""

    server: frozenset[int]
    clients: frozenset[int]

    @classmethod
    def shared(cls) -> Cpus:
        """Return all usable CPUs for both."""
        usable = frozenset(os.sched_getaffinity(0))
        return cls(server=usable, clients=usable)

    @property
    def are_apart(self) -> bool:
        """Whether no CPU is in both."""
        return not self.server & self.clients


def cpus(*, fewest: int = 2) -> Cpus:
    """Return the upper half of the usable CPUs for the server, the others for its clients.

    Args:
        fewest: With fewer CPUs than this, both have all of them.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < max(2, fewest):
        return Cpus.shared()
    half = len(usable) // 2
    return Cpus(server=frozenset(usable[half:]), clients=frozenset(usable[:half]))


@contextmanager
def kept_to(numbers: frozenset[int] | None) -> Iterator[None]:
    """Keep this thread, and its new children, to some CPUs; None changes nothing."""
    before = os.sched_getaffinity(0)
    if numbers:
        os.sched_setaffinity(0, numbers)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def moved(process: int, numbers: frozenset[int]) -> None:
    """Move all threads of a process to some CPUs; its later children run there too."""
    for thread in os.listdir(f"/proc/{process}/task"):
        os.sched_setaffinity(int(thread), numbers)
