"""Which worker is on which unit when, where workers are not equally fast.

`simulate` answers for workers that are alike and do not disturb each other. Here the caller gives
the speed of the workers that are busy together. So shared cores, slower nodes or a disk at its
limit can be played through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from partition_planner.costs import unit_costs
from partition_planner.model import Plan

Speeds = Callable[[tuple[int, ...]], Sequence[float]]
"""From the workers that are busy, ascending, to the cost that each gets done in a unit of time, all
above 0 and in the same order. Asked again whenever a worker begins or ends a unit."""


class Turn(Struct, frozen=True, kw_only=True):
    """One unit's reading by one worker."""

    worker: int
    unit: str
    """Id of the unit."""
    start: float
    end: float
    """Both since the start of the first unit, in the speeds' unit of time."""


def timeline(plan: Plan, parallelism: int, speeds: Speeds) -> tuple[Turn, ...]:
    """Return who reads what when, if idle workers take the plan's units in their order.

    Of workers that become idle together, the one with the fewest units so far is served first, then
    the one with the lowest number. Takes O(units * parallelism).

    Returns:
        A turn for each unit, in the order in which they are taken.
    """
    costs, each = unit_costs(plan.table, plan.units)
    clock = _Clock(parallelism, speeds)
    # Where neither bytes nor rows are known, 1.0 is the cost of a unit of average size.
    scale = len(each) / costs.total if costs.unit == "units" else 1.0
    for unit, cost in zip(plan.units, each, strict=True):
        clock.begin(unit.id, cost * scale)
    clock.finish()
    return tuple(sorted(clock.turns, key=lambda turn: clock.taken[turn.unit]))


class _Clock:
    """The state of the workers over time."""

    def __init__(self, parallelism: int, speeds: Speeds) -> None:
        self.now = 0.0
        self.turns: list[Turn] = []
        self.taken: dict[str, int] = {}
        """Unit to its place in the order in which they are taken."""
        self._speeds = speeds
        self._counts = [0] * parallelism
        self._idle = list(range(parallelism))
        self._left: dict[int, float] = {}
        self._current: dict[int, tuple[str, float]] = {}

    def begin(self, unit: str, cost: float) -> None:
        """Give a unit to a worker as soon as one is idle."""
        while not self._idle:
            self._pass()
        worker = min(self._idle, key=lambda worker: (self._counts[worker], worker))
        self._idle.remove(worker)
        self._counts[worker] += 1
        self._left[worker] = cost
        self._current[worker] = (unit, self.now)
        self.taken[unit] = len(self.taken)

    def finish(self) -> None:
        """Let time pass until all are idle."""
        while self._left:
            self._pass()

    def _pass(self) -> None:
        """Let time pass until a worker is done."""
        busy = tuple(sorted(self._left))
        speeds = self._asked(busy)
        needs = {worker: self._left[worker] / speeds[worker] for worker in busy}
        step = min(needs.values())
        self.now += step
        for worker in busy:
            if needs[worker] == step:
                unit, start = self._current.pop(worker)
                self.turns.append(Turn(worker=worker, unit=unit, start=start, end=self.now))
                self._idle.append(worker)
                del self._left[worker]
            else:
                self._left[worker] -= step * speeds[worker]

    def _asked(self, busy: tuple[int, ...]) -> dict[int, float]:
        return dict(zip(busy, self._speeds(busy), strict=True))
