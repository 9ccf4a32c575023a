"""Longest processing time first: the largest work to the worker that is free first.

LPT needs at most 4/3 - 1/(3p) of the best possible time (Graham, "Bounds on multiprocessing timing
anomalies", 1969), takes O(n log p), and is what really happens when idle seats take the next unit
of a list sorted by size.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence


def makespan(costs: Iterable[float], parallelism: int) -> float:
    """Return the cost at which the last worker finishes if idle ones take the largest cost."""
    return max(finish_times(sorted(costs, reverse=True), parallelism))


def finish_times(costs: Sequence[float], parallelism: int) -> tuple[float, ...]:
    """Return for each worker the cost at which it finishes if idle ones take costs in order."""
    loads = Loads(parallelism, len(costs))
    times: list[float] = [0] * parallelism
    for cost in costs:
        times[loads.take(cost)] += cost
    return tuple(times)


def lower_bound(costs: Sequence[float], parallelism: int) -> float:
    """Return the cost below which no schedule can finish: a fair share, or the largest unit."""
    return max(sum(costs) / parallelism, max(costs, default=0))


class Loads:
    def __init__(self, parallelism: int, units: int) -> None:
        """Start with everybody idle."""
        busy = max(1, min(parallelism, units))
        # The count breaks ties so that units of cost 0 spread out too.
        self._heap: list[tuple[float, int, int]] = [(0, 0, worker) for worker in range(busy)]

    def take(self, cost: float) -> int:
        """Give a unit to the worker that is free first and return that worker's number."""
        load, count, worker = self._heap[0]
        heapq.heapreplace(self._heap, (load + cost, count + 1, worker))
        return worker
