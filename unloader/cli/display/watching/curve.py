"""The curve of a sweep as it grows: speed by parallelism, with each measurement that ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise

from unloader.cli.display import render
from unloader.cli.display.watching.sparkline import plot
from unloader.events import PointMeasured
from unloader.nouns import counted

WIDEST, HIGHEST = 72, 12
LOWEST = 4
"""Lines; with less room there is no plot."""

_BETWEEN = 60
"""Dots of a line from one point to the next; more than a terminal can tell apart."""


class Curve:
    """The points of a sweep so far; repeats of a point are one, with the median speed."""

    def __init__(self) -> None:
        """Begin without a point."""
        self._speeds: dict[tuple[int, str], list[float]] = {}
        self._last: PointMeasured | None = None

    def add(self, point: PointMeasured) -> None:
        """Take a measurement."""
        self._speeds.setdefault((point.parallelism, point.settings), []).append(
            point.rows_per_second
        )
        self._last = point

    def lines(self, width: int, height: int, *, unicode: bool) -> list[str]:
        """Return the curve for a terminal; nothing before the first point, or without room.

        Args:
            width: Columns that there are.
            height: Lines that there are.
            unicode: Whether braille can be shown.
        """
        if self._last is None:
            return []
        medians = [
            (float(level), statistics.median_low(speeds))
            for (level, _), speeds in self._speeds.items()
        ]
        top = render.rows_per_second(max(speed for _, speed in medians))
        most = counted(round(max(level for level, _ in medians)), "worker")
        lines = [measured_text(self._last)]
        columns, rows = min(WIDEST, width - 3), min(HIGHEST, height - 4)
        if columns < len(most) + 2 or rows < LOWEST:
            return lines
        corner, side = ("└", "│") if unicode else ("+", "|")
        across = ("─" if unicode else "-") * columns
        drawn = plot(self._joined(), width=columns, height=rows, unicode=unicode)
        return [
            *lines,
            top,
            *(f"{side}{line}".rstrip() for line in drawn),
            f"{corner}{across}",
            f" 0{most:>{columns - 1}}",
        ]

    def _joined(self) -> Iterator[tuple[float, float]]:
        """Yield the medians, and what lies between two neighbours that differ in nothing else."""
        series: dict[str, list[tuple[float, float]]] = {}
        for (level, settings), speeds in sorted(self._speeds.items()):
            others = settings.replace(f"--parallelism {level}", "").strip()
            series.setdefault(others, []).append((float(level), statistics.median_low(speeds)))
        for points in series.values():
            yield points[0]
            for (x, y), (right, up) in pairwise(points):
                for step in range(1, _BETWEEN + 1):
                    share = step / _BETWEEN
                    yield x + share * (right - x), y + share * (up - y)


def measured_text(point: PointMeasured) -> str:
    """Return the line on a measurement."""
    speed = render.rows_per_second(point.rows_per_second)
    number = f"{point.number} of {point.of}"
    if point.number > point.of:
        number = f"{point.number} ({point.of} planned, repeated because speeds differ)"
    return f"measured {number}: {point.settings}: {speed}"
