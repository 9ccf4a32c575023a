"""Into how many pieces each part of a table is cut.

Cutting has a price: more statements, files and connections' round trips. So parts stay whole unless
the estimates show idle workers, and the planner's own target size is never below `MIN_UNIT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from partition_planner.costs import Costs, Part, makespan, measure, parts_of, share
from partition_planner.model import PlanLimits, TableInfo

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


def pieces_of(parts: Sequence[Part], costs: Costs, limits: PlanLimits) -> list[int]:
    """Return the number of pieces of each part.

    With `split` "range", or an explicit unit size, every part above the target size is cut.
    Otherwise these are the fewest pieces with which this number of workers finish together. Whole
    parts if they balance within 10 %, else with the largest cut at the first of `THRESHOLDS` that
    balances. If none does, that with the shortest makespan, and of equals the one that cuts least:
    where the largest part cannot be cut, cutting others gains nothing.

    More workers never finish later: pieces made for fewer are taken where they end sooner. (32 even
    parts cut for 25 workers are 128 pieces, six rounds; those cut for 24 are 96 larger ones, but
    four rounds.) Only beyond `MAX_TRIED` pieces that is not looked into.
    """
    smallest = max(1, MIN_UNIT_BYTES // costs.bytes_each)

    def cut(size: int, above: int = 1, below: int = 1) -> list[int]:
        """Cut parts larger than above/below sizes; those with unknown or no addresses stay."""
        return [
            max(1, min(_ceil_div(cost, size), part.spread.most_pieces))
            if part.spread is not None and cost * below > size * above
            else 1
            for part, cost in zip(parts, costs.of_part, strict=True)
        ]

    def time(counts: Sequence[int], parallelism: int) -> int:
        each: list[int] = []
        for part, cost, pieces in zip(parts, costs.of_part, counts, strict=True):
            if pieces == 1 or part.spread is None:
                each.append(cost)
            else:
                cuts = pairwise(part.spread.cuts(pieces))
                each += [share(cost, offsets, part.spread.weight) for offsets in cuts]
        return makespan(each, parallelism)

    def target(parallelism: int) -> int:
        return max(smallest, _ceil_div(costs.total, UNITS_PER_WORKER * parallelism))

    if limits.unit_bytes is not None:
        return cut(max(1, limits.unit_bytes // costs.bytes_each))
    if limits.split == "range":
        return cut(target(limits.parallelism))
    uncut = [
        cost
        for part, cost in zip(parts, costs.of_part, strict=True)
        if part.spread is None or part.spread.most_pieces <= 1
    ]
    is_table = len(parts) == 1 and parts[0].name is None
    tried: list[tuple[int, list[int], int]] = []
    amount = 0
    # The planner makes no more pieces than these, and workers beyond them would have none.
    for parallelism in range(min(limits.parallelism, sum(cut(smallest))), 0, -1):
        best = cut(target(parallelism)) if is_table and parallelism > 1 else [1] * len(parts)
        shortest = time(best, parallelism)
        for above, below in () if is_table and parallelism > 1 else THRESHOLDS:
            if shortest * parallelism * WELL_BALANCED[1] <= costs.total * WELL_BALANCED[0]:
                break
            counts = cut(target(parallelism), above, below)
            if (shorter := time(counts, parallelism)) < shortest:
                best, shortest = counts, shorter
        tried.append((parallelism, best, shortest))
        amount += sum(best)
        # Fewer workers cannot do with less than a fair share, or the largest part that stays whole.
        least = max(_ceil_div(costs.total, max(1, parallelism - 1)), max(uncut, default=0))
        if shortest <= least or amount > MAX_TRIED:
            break
    _, best, _ = tried.pop()
    for parallelism, counts, shortest in reversed(tried):
        if shortest <= time(best, parallelism):
            best = counts
    return best


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
