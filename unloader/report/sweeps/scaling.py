"""The laws of scaling as plain arithmetic, to draw a fitted curve between its levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Law = Callable[[float, Mapping[str, float]], float]


def _linear(workers: float, of: Mapping[str, float]) -> float:
    return 1 / workers


def _amdahl(workers: float, of: Mapping[str, float]) -> float:
    return (1 + of["contention"] * (workers - 1)) / workers


def _usl(workers: float, of: Mapping[str, float]) -> float:
    waits = of["contention"] * (workers - 1) + of["coherency"] * workers * (workers - 1)
    return (1 + waits) / workers


def _two_lines(workers: float, of: Mapping[str, float]) -> float:
    bend = of["bend"]
    return 1 / (min(workers, bend) + of["share"] * max(workers - bend, 0))


LAWS: Mapping[str, Law] = {
    "linear": _linear,
    "amdahl": _amdahl,
    "usl": _usl,
    "two-lines": _two_lines,
}
"""Seconds of so many workers, as a multiple of those of one."""


def curve(
    law: str, parameters: Mapping[str, float], one_worker_seconds: float, most: float, points: int
) -> list[tuple[float, float]]:
    """Return workers and seconds along a fitted curve, from one worker on.

    Args:
        law: Its name; there are no points of a law that is not known.
        parameters: As the fit names them.
        one_worker_seconds: The fit's.
        most: The last number of workers.
        points: How many.
    """
    seconds = LAWS.get(law)
    if seconds is None or most <= 1:
        return []
    try:
        return [
            (at, one_worker_seconds * seconds(at, parameters))
            for at in (1 + (most - 1) * step / (points - 1) for step in range(points))
        ]
    except (KeyError, ZeroDivisionError):
        return []
