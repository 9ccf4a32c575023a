"""Names the levels that are left out of the fits, each with the reason in words.

First those that are out of order (`unloader.tuning.order`), then, where a law of scaling describes
the others, those that deviate from it more than chance would have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from unloader.nouns import counted
from unloader.tuning.model import Outlier
from unloader.tuning.order import out_of_order
from unloader.tuning.points import Level

IMPROBABLE = 0.01
"""A level that deviates from the law of all others with less probability is an outlier."""

DESCRIBES = 0.05
"""A curve that levels deviate from by more, typically, does not describe them (a guess): at twice
that, a prediction for another level would be off by a tenth."""

SCATTER = (
    "the points scatter: more than a third of the levels are out of order, so a knee and "
    "outliers cannot be found; repeat the measurements"
)


def disturbed(levels: Sequence[Level], spread: float) -> tuple[Outlier, ...] | None:
    """Return the levels that are out of order; None where too many are."""
    found = out_of_order([level.seconds for level in levels], spread)
    if found is None:
        return None
    kept = [at for at in range(len(levels)) if at not in found]
    return tuple(
        Outlier(parallelism=levels[at].parallelism, reason=_why(at, kept, levels)) for at in found
    )


def _why(at: int, kept: Sequence[int], levels: Sequence[Level]) -> str:
    level = levels[at]
    fewer = min((levels[e] for e in kept if e < at), key=lambda e: e.seconds, default=None)
    if fewer is None or fewer.seconds > level.seconds:
        return f"{level.seconds:,.6g} s is faster than levels with more workers that scale"
    return (
        f"{level.seconds:,.6g} s is slower than {counted(fewer.parallelism, 'worker')} "
        f"({fewer.seconds:,.6g} s), while more workers are faster again"
    )


def improbable(
    levels: Sequence[Level], spread: float, known: float, library: ModuleType
) -> tuple[Outlier, ...]:
    """Return the levels that do not follow the law that all others follow, worst first.

    Args:
        levels: Those that are in order.
        spread: A level that deviates by no more than this share is none.
        known: Deviation of a level as repeats tell it; 0 is unknown.
        library: `unloader.tuning.fitting`.
    """
    kept = list(levels)
    found: list[Outlier] = []
    while len(found) < len(levels) // 3:
        tested = library.deletions(
            [level.parallelism for level in kept], [level.seconds for level in kept]
        )
        candidates = [
            (each.probability, at)
            for at, each in enumerate(tested)
            if each.probability < IMPROBABLE
            and abs(each.deviation) > spread
            and each.rest <= max(DESCRIBES, 2 * known)
        ]
        if not candidates:
            break
        at = min(candidates)[1]
        off = tested[at].deviation
        what = f"{abs(off):.0%} {'more' if off > 0 else 'less'} time"
        found.append(
            Outlier(
                parallelism=kept[at].parallelism,
                reason=f"takes {what} than the law of all other levels predicts",
            )
        )
        del kept[at]
    return tuple(found)
