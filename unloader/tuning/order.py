"""Finds levels that are out of order: slower than fewer workers, and than more workers, too.

Every law of scaling says that throughput rises with the workers, and may fall from some point on,
but does not rise again after a fall. The levels that have to be left out so that this holds are
out of order: something disturbed them. That needs no fit, so it holds for curves of any form.

Where either of two levels could be left out, it is the slower one. A disturbance makes a run slow;
nothing makes it faster than the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FEWEST_LEVELS = 4
"""Below that, one level out of order may as well be the only one that is right."""

LARGEST_SHARE = 1 / 3
"""Of the levels. Where more are out of order, the points scatter, and none of them stands out."""


def out_of_order(seconds: Sequence[float], spread: float) -> tuple[int, ...] | None:
    """Return the indexes of the fewest levels without which the others are in order.

    Args:
        seconds: Of each level, in ascending order of parallelism.
        spread: Levels that differ by no more than this share are equally fast.

    Returns:
        The indexes in ascending order; None if more levels than `LARGEST_SHARE` are out of order.
    """
    if len(seconds) < FEWEST_LEVELS:
        return ()
    rates = [-math.log(each) for each in seconds]
    tolerance = math.log1p(spread)
    rising = _best_until(rates, tolerance)
    falling = _best_until(rates[::-1], tolerance)[::-1]
    # Peaks with the most levels kept, then with the fastest ones: the peak itself is in both.
    _, peak = max(
        ((up[0][0] + down[0][0], up[0][1] + down[0][1] - rates[at]), at)
        for at, (up, down) in enumerate(zip(rising, falling, strict=True))
    )
    down = {len(rates) - 1 - at for at in falling[peak][1]}
    kept = {*rising[peak][1], *down}
    left_out = tuple(at for at in range(len(rates)) if at not in kept)
    return left_out if len(left_out) <= LARGEST_SHARE * len(rates) else None


_Chain = tuple[tuple[int, float], tuple[int, ...]]
"""How many levels are kept and the sum of their rates, and which levels these are."""


def _best_until(rates: Sequence[float], tolerance: float) -> list[_Chain]:
    """Return, for each level as the fastest of a rise that ends there, the best such rise."""
    found: list[_Chain] = []
    for at, rate in enumerate(rates):
        best: _Chain = ((1, rate), (at,))
        for before in range(at):
            if rates[before] <= rate:
                (count, total), kept = found[before]
                # Levels between them that are as fast as the first, within the tolerance.
                equal = [
                    each
                    for each in range(before + 1, at)
                    if rates[before] - tolerance <= rates[each] <= rates[before]
                ]
                value = (count + len(equal) + 1, total + sum(rates[e] for e in equal) + rate)
                if value > best[0]:
                    best = (value, (*kept, *equal, at))
        found.append(best)
    return found
