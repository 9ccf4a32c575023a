"""Predicts the seconds at a parallelism, and says plainly where that cannot be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from unloader.tuning.model import Prediction

if TYPE_CHECKING:
    from unloader.tuning.fitting import Fitted

FARTHEST = 2.0
"""Times the largest level, or a part of the smallest: no law is known to hold beyond."""

WIDEST = 3.0
"""An interval whose ends differ by more than this factor is no prediction."""

VAGUEST = 1000.0
"""An interval wider than this is not told either."""

_TOO_FEW = "too few levels for a law of scaling"


def predict(
    wanted: Iterable[int], fitted: Fitted | None, levels: tuple[int, ...], *, described: bool
) -> tuple[Prediction, ...]:
    """Return the predictions for some parallelisms.

    Args:
        wanted: The parallelisms.
        fitted: The fit; None where there are too few levels for one.
        levels: Those that were fitted, in ascending order.
        described: Whether the fitted curve describes them.
    """
    return tuple(_prediction(each, fitted, levels, described) for each in wanted)


def _prediction(
    wanted: int, fitted: Fitted | None, levels: tuple[int, ...], described: bool
) -> Prediction:
    if fitted is None:
        return Prediction(parallelism=wanted, seconds=None, low=None, high=None, reason=_TOO_FEW)
    seconds, low, high = fitted.seconds(wanted)
    measured = levels[0] <= wanted <= levels[-1]
    reason = ""
    if not measured and not described:
        reason = (
            "no law of scaling describes the measured levels, so no prediction beyond them "
            "is possible"
        )
    elif not levels[0] / FARTHEST <= wanted <= levels[-1] * FARTHEST:
        reason = f"too far from the measured levels ({levels[0]} to {levels[-1]})"
    elif high > low * VAGUEST:
        reason = "the measured levels are too uncertain for a prediction"
    elif high > low * WIDEST:
        reason = (
            f"the measured levels allow only a wide prediction, from {low:,.3g} s to {high:,.3g} s"
        )
    vague = high > low * VAGUEST
    return Prediction(
        parallelism=wanted,
        seconds=None if reason else seconds,
        low=None if vague else low,
        high=None if vague else high,
        reason=reason,
    )
