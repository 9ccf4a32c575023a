"""The points of a sweep: what was measured at one parallelism, and levels of repeated points.

Nothing is computed from them here but medians. A figure that nobody measured is None, never 0.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Load(Struct, frozen=True, kw_only=True):
    """How busy the machine and the source were during a measurement; shares are from 0 to 1."""

    cpu: float | None = None
    """Of all CPUs of the machine."""
    node: float | None = None
    """Of the CPUs of the busiest NUMA node."""
    disk: float | None = None
    """Of the time in which the busiest disk of the output was busy."""
    output: float | None = None
    """Of the workers' time that passed in waiting for the disk, or whatever takes the files."""
    network: float | None = None
    """Of what the network connection can carry."""
    source: float | None = None
    """Of the workers' time that passed in waiting for rows."""
    delay: float | None = None
    """Of the workers' time in which they were ready to run and had no CPU."""
    throttled: float | None = None
    """Of the periods of the control group's CPU quota, those in which it was used up."""
    database: float | None = None
    """Of all CPUs of the machine, by the processes of a database on it."""
    queued: float | None = None
    """The longest time, in seconds, that a stage waited for want of a consumer."""


LOADS = Load.__struct_fields__
"""The names of those figures, in the order in which files have them."""


class Point(Struct, frozen=True, kw_only=True):
    """One measurement."""

    parallelism: int
    seconds: float
    bytes: float | None = None
    """What was written in these seconds."""
    rows: float | None = None
    load: Load = Load()


class Level(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism."""

    parallelism: int
    seconds: float
    """The median, for as much work as `Work.of` names."""
    repeats: int
    low: float
    high: float
    """The fastest and the slowest of them, in seconds."""
    deviation: float | None
    """Standard deviation of the logarithm of one measurement; None where none was repeated."""
    load: Load

    @property
    def spread(self) -> float:
        """By how much the speeds of the repeats differ, as a share of their median."""
        return (1 / self.low - 1 / self.high) * self.seconds


class Work(Struct, frozen=True, kw_only=True):
    """How much was done in the seconds of a level, so that rates can be told."""

    unit: str
    """bytes, rows, or table where neither is known of every point."""
    of: float
    """How much of it the seconds of all levels are for."""


def levels_of(points: Iterable[Point]) -> tuple[tuple[Level, ...], Work]:
    """Return the levels of points, lowest first, and the work that their seconds are for.

    Points that did less work than others, such as samples of a table, are brought to the same
    amount: that of the point that did most.
    """
    known = list(points)
    work, amounts = _work(known)
    grouped = defaultdict(list)
    for point, amount in zip(known, amounts, strict=True):
        grouped[point.parallelism].append((point.seconds * work.of / amount, point.load))
    return tuple(_level(each, *zip(*grouped[each], strict=True)) for each in sorted(grouped)), work


def _work(points: Sequence[Point]) -> tuple[Work, list[float]]:
    for unit in ("bytes", "rows"):
        amounts = [getattr(point, unit) for point in points]
        if amounts and all(amounts):
            return Work(unit=unit, of=max(amounts)), amounts
    return Work(unit="table", of=1.0), [1.0] * len(points)


def _level(parallelism: int, seconds: Sequence[float], loads: Sequence[Load]) -> Level:
    logs = [math.log(each) for each in seconds]
    return Level(
        parallelism=parallelism,
        seconds=statistics.median(seconds),
        repeats=len(seconds),
        low=min(seconds),
        high=max(seconds),
        deviation=statistics.stdev(logs) if len(logs) > 1 else None,
        load=Load(**{name: _median(getattr(each, name) for each in loads) for name in LOADS}),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def deviation_of_repeats(levels: Iterable[Level]) -> tuple[float, int] | None:
    """Return the pooled deviation of one repeated measurement, and its degrees of freedom.

    It is that of the logarithm, so 0.02 is about 2 %. None where no level was repeated.
    """
    repeated = [level for level in levels if level.deviation is not None]
    freedom = sum(level.repeats - 1 for level in repeated)
    if not freedom:
        return None
    squares = sum((level.repeats - 1) * (level.deviation or 0.0) ** 2 for level in repeated)
    return math.sqrt(squares / freedom), freedom
