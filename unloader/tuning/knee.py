"""Finds the knee: beyond it another worker brings less than half of what the first one brings.

Where a law of scaling describes the levels, it is the knee of its curve, and the interval that of
the knees of all curves that the levels are compatible with. Else it is read off the levels: the
best concave curve through them bends at levels only. The interval is then that of the knees of
resampled levels, widened by one level on each side, as nothing is known between two levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.nouns import counted
from unloader.tuning.model import CONFIDENCE, Knee

if TYPE_CHECKING:
    from unloader.tuning.fitting import Fitted

DRAWS = 400
"""Resampled sets of levels; their tails of 2.5 % are ten each."""

NO_KNEE = "every worker added at least half as much as the first worker"


def of_law(fitted: Fitted, largest: int) -> Knee:
    """Return the knee of the fitted curve.

    Args:
        fitted: The fit, which describes the levels.
        largest: The largest level; a knee beyond it is not reached.
    """
    best, low, high = fitted.knee()
    if best <= largest:
        return Knee(parallelism=best, low=low, high=_finite(high), method="law")
    note = f"not reached at {counted(largest, 'worker')}: {NO_KNEE}"
    if math.isfinite(best):
        note += f"; the fitted curve has it near {best:,.0f}"
    return Knee(parallelism=None, low=low, high=_finite(high), method="law", note=note)


def of_levels(levels: Sequence[int], found: int | None, drawn: Sequence[int | None]) -> Knee:
    """Return the knee that was read off the levels.

    Args:
        levels: The levels, in ascending order.
        found: The knee of their concave curve.
        drawn: Those of resampled levels.
    """
    ranks = sorted(len(levels) if each is None else levels.index(each) for each in drawn)
    tail = (1 - CONFIDENCE) / 2 * len(ranks)
    lowest, highest = ranks[math.floor(tail)] - 1, ranks[math.ceil(len(ranks) - tail) - 1] + 1
    return Knee(
        parallelism=found,
        low=levels[min(max(0, lowest), len(levels) - 1)],
        high=levels[highest] if highest < len(levels) else None,
        method="levels",
        note=f"not reached at {counted(levels[-1], 'worker')}: {NO_KNEE}" if found is None else "",
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
