"""Into how many pieces each part of a table is cut.

Cutting has a price: more statements, files and connections' round trips. So parts stay whole
unless the estimates say that workers would idle, and the planner's own target size is never below
`MIN_UNIT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from partition_planner.balance import makespan
from partition_planner.costs import Costs
from partition_planner.model import PlanLimits
from partition_planner.parts import Part, share

MIN_UNIT_BYTES = 8 << 20
"""Guess: below it the round trips of a unit weigh more than the time a finer cut can save."""

UNITS_PER_WORKER = 4
"""With four units each, the last one to finish is at most a quarter of a fair share late."""

THRESHOLDS = ((2, 1), (4, 3))
"""A part is cut only above so many targets, as fractions; the second if the first did not do.

A unit larger than 4/3 of the target, that is a third of a fair share, is what it takes for LPT to
end more than a third late: cutting all of those makes 4/3 of the lower bound a promise.
"""

WELL_BALANCED = (11, 10)
"""A schedule within 10 % of the lower bound is left alone."""


def whole_parts(parts: Sequence[Part]) -> list[int]:
    """Return one piece for each part."""
    return [1] * len(parts)


def to_size(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the pieces that cut every part above the target size."""
    return _counts(parts, costs, target(costs, limits), (1, 1))


def to_balance(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the fewest pieces with which so many workers finish together.

    Whole parts if they balance within 10 %, else with the largest cut at the first of `THRESHOLDS`
    that balances. If none does, that with the shortest makespan, and of equals the one that cuts
    least: where the largest part cannot be cut, cutting others gains nothing. An explicit unit
    size is obeyed as it is.
    """
    if limits.unit_bytes is not None:
        return to_size(parts, costs, limits)
    if limits.parallelism == 1:
        return whole_parts(parts)
    if len(parts) == 1 and parts[0].name is None:
        return to_size(parts, costs, limits)
    best: list[int] = []
    shortest: float | None = None
    size = target(costs, limits)
    for threshold in (None, *THRESHOLDS):
        counts = whole_parts(parts) if threshold is None else _counts(parts, costs, size, threshold)
        time = makespan(_piece_costs(parts, costs, counts), limits.parallelism)
        if shortest is None or time < shortest:
            best, shortest = counts, time
        if time * limits.parallelism * WELL_BALANCED[1] <= costs.total * WELL_BALANCED[0]:
            break
    return best


def target(costs: Costs, limits: PlanLimits) -> int:
    """Return the cost that a piece should have: `unit_bytes`, or a share that feeds all workers."""
    if limits.unit_bytes is not None:
        return max(1, limits.unit_bytes // costs.bytes_each)
    least = max(1, MIN_UNIT_BYTES // costs.bytes_each)
    return max(least, _ceil_div(costs.total, UNITS_PER_WORKER * limits.parallelism))


def _counts(
    parts: Sequence[Part], costs: Costs, size: int, threshold: tuple[int, int]
) -> list[int]:
    above, below = threshold
    return [
        # What has 0 or 1 addresses, or none that is known, stays one piece.
        max(1, min(_ceil_div(cost, size), part.spread.most_pieces))
        if part.spread is not None and cost * below > size * above
        else 1
        for part, cost in zip(parts, costs.of_part, strict=True)
    ]


def _piece_costs(parts: Sequence[Part], costs: Costs, counts: Sequence[int]) -> Iterator[int]:
    for part, cost, pieces in zip(parts, costs.of_part, counts, strict=True):
        if pieces == 1 or part.spread is None:
            yield cost
            continue
        for offsets in pairwise(part.spread.cuts(pieces)):
            yield share(cost, offsets, part.spread.weight)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
