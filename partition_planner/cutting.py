"""Into how many pieces each part of a table is cut.

Cutting has a price: more statements, files and connections' round trips. So parts stay whole unless
the estimates show idle workers, and the planner's own target size is never below `MIN_UNIT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from partition_planner.balance import makespan
from partition_planner.costs import Costs, measure
from partition_planner.model import PlanLimits
from partition_planner.parts import Part, parts_of, share
from partition_planner.table import TableInfo

MIN_UNIT_BYTES = 8 << 20
"""Guess: below it the round trips of a unit weigh more than the time a finer cut can save."""

UNITS_PER_WORKER = 4
"""With four units each, the last one to finish is at most a quarter of a fair share late."""

THRESHOLDS = ((2, 1), (4, 3))
"""A part is cut only above this number of targets, as fractions; the second if the first did not
do.

LPT ends more than a third late only with a unit larger than 4/3 of the target, which is a third
of a fair share. Cutting all such units makes 4/3 of the lower bound a promise.
"""

WELL_BALANCED = (11, 10)
"""A schedule within 10 % of the lower bound is left alone."""

MAX_TRIED = 100_000
"""Pieces in all plans for fewer workers that are looked at: about a tenth of a second."""


def estimated_bytes(table: TableInfo) -> int:
    """Return the size of a table, by the best measure that its source knows."""
    costs = measure(table, parts_of(table))
    return costs.total * costs.bytes_each


def unit_bytes(sizes: Iterable[int], parallelism: int) -> int:
    """Return the size above which a part of any of several tables is cut.

    It is the size for one table as large as all of them together. So a table that is small among
    the others stays whole, and the last unit to end is late by a quarter of a worker's share at
    most.
    """
    return max(MIN_UNIT_BYTES, _ceil_div(sum(sizes), UNITS_PER_WORKER * parallelism))


def to_size(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the pieces that cut every part above the target size."""
    return _counts(parts, costs, target(costs, limits), (1, 1))


def to_balance(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the fewest pieces with which this number of workers finish together.

    Whole parts if they balance within 10 %, else with the largest cut at the first of `THRESHOLDS`
    that balances. If none does, that with the shortest makespan, and of equals the one that cuts
    least: where the largest part cannot be cut, cutting others gains nothing. An explicit unit
    size is obeyed as it is.

    More workers never finish later: pieces made for fewer are taken where they end sooner. (32 even
    parts cut for 25 workers are 128 pieces, six rounds; those cut for 24 are 96 larger ones, but
    four rounds.) Only beyond `MAX_TRIED` pieces that is not looked into.
    """
    if limits.unit_bytes is not None:
        return to_size(parts, costs, limits)
    uncut = [
        cost
        for part, cost in zip(parts, costs.of_part, strict=True)
        if part.spread is None or part.spread.most_pieces <= 1
    ]
    tried: list[tuple[int, list[int], float]] = []
    pieces = 0
    # The planner makes no more pieces than these, and workers beyond them would have none.
    smallest = max(1, MIN_UNIT_BYTES // costs.bytes_each)
    most = sum(_counts(parts, costs, smallest, (1, 1)))
    for parallelism in range(min(limits.parallelism, most), 0, -1):
        alike = replace(limits, parallelism=parallelism)
        counts, time = _balanced(parts, costs, alike)
        tried.append((parallelism, counts, time))
        pieces += sum(counts)
        # Fewer workers cannot do with less than a fair share, or the largest part that stays whole.
        least = max(_ceil_div(costs.total, max(1, parallelism - 1)), max(uncut, default=0))
        if time <= least or pieces > MAX_TRIED:
            break
    best = tried[-1][1]
    for parallelism, counts, time in reversed(tried[:-1]):
        if time <= _time(parts, costs, best, parallelism):
            best = counts
    return best


def _balanced(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> tuple[list[int], float]:
    """Return the pieces that suit just this parallelism, and their makespan."""
    if limits.parallelism > 1 and len(parts) == 1 and parts[0].name is None:
        counts = to_size(parts, costs, limits)
        return counts, _time(parts, costs, counts, limits.parallelism)
    best = [1] * len(parts)
    shortest = _time(parts, costs, best, limits.parallelism)
    size = target(costs, limits)
    for threshold in THRESHOLDS:
        if shortest * limits.parallelism * WELL_BALANCED[1] <= costs.total * WELL_BALANCED[0]:
            break
        counts = _counts(parts, costs, size, threshold)
        time = _time(parts, costs, counts, limits.parallelism)
        if time < shortest:
            best, shortest = counts, time
    return best, shortest


def _time(parts: Sequence[Part], costs: Costs, counts: Sequence[int], parallelism: int) -> float:
    each: list[int] = []
    for part, cost, pieces in zip(parts, costs.of_part, counts, strict=True):
        if pieces == 1 or part.spread is None:
            each.append(cost)
        else:
            cuts = pairwise(part.spread.cuts(pieces))
            each += [share(cost, offsets, part.spread.weight) for offsets in cuts]
    return makespan(each, parallelism)


def target(costs: Costs, limits: PlanLimits) -> int:
    """Return the cost that a piece should have: `unit_bytes`, or a share that feeds all workers."""
    if limits.unit_bytes is not None:
        return max(1, limits.unit_bytes // costs.bytes_each)
    share_of_all = _ceil_div(costs.total, UNITS_PER_WORKER * limits.parallelism)
    return max(1, MIN_UNIT_BYTES // costs.bytes_each, share_of_all)


def _counts(
    parts: Sequence[Part], costs: Costs, size: int, threshold: tuple[int, int]
) -> list[int]:
    above, below = threshold
    return [
        # A part with 0, 1 or unknown addresses stays one piece.
        max(1, min(_ceil_div(cost, size), part.spread.most_pieces))
        if part.spread is not None and cost * below > size * above
        else 1
        for part, cost in zip(parts, costs.of_part, strict=True)
    ]


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
