"""Curves of sweeps whose knees are known, and the analysis of a file of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from unloader.tuning.analysis import Rules, analyse
from unloader.tuning.points import points_of

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "examples" / "published_points.csv"


def answer(points: str | Path, **rules: float) -> dict[str, Any]:
    """Return what `--replay --json` prints of a file, or of the text of one.

    Args:
        points: The file or its text.
        rules: Fields of `Rules`.
    """
    text = points.read_text() if isinstance(points, Path) else points
    file = points_of(Path("points.csv"), text)
    found: dict[str, Any] = to_builtins(analyse(file.points, Rules(**rules)))
    return found


def rows(pairs: Iterable[tuple[int, float]]) -> str:
    """Return a file of points."""
    lines = (f"{parallelism},{seconds!r}" for parallelism, seconds in pairs)
    return "\n".join(("parallelism,seconds", *lines)) + "\n"


def curve(seconds: Callable[[int], float], levels: Sequence[int]) -> list[tuple[int, float]]:
    """Return the points of a curve."""
    return [(level, seconds(level)) for level in levels]


def scaled(contention: float, coherency: float = 0.0) -> Callable[[int], float]:
    """Return the seconds of 1,000 s of work by the universal scalability law."""

    def seconds(level: int) -> float:
        waits = contention * (level - 1) + coherency * level * (level - 1)
        return 1000 * (1 + waits) / level

    return seconds


def bent(bend: float, share: float) -> Callable[[int], float]:
    """Return the seconds of work that scales up to a bend, and by a share of that beyond it."""
    return lambda level: 1000 / (min(level, bend) + share * max(level - bend, 0))


def knee_of(contention: float) -> float:
    """Return the number at which, by Amdahl's law, one more worker brings half of the first one."""
    return 1 + (math.sqrt(2 * (1 - contention)) - 1) / contention
