"""What parts of a table and work units cost to unload, and how workers share the costs.

One measure serves the whole table, because costs are only compared: bytes, else rows, else row
addresses, else sampled keys, else every part alike. Bytes come first because reading, encoding and
writing all follow them.

A part can be cut at offsets between 0 and the weight of its spread. Each kind of spread finds a
place by bisection over sums made once. So a hundred thousand extents cost no more than their
reading.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Struct

from partition_planner.model import (
    CostUnit,
    KeyRange,
    KeySample,
    PartitionInfo,
    Plan,
    PlanError,
    RowExtent,
    RowRange,
    TableInfo,
    WorkUnit,
)

ASSUMED_ROW_BYTES = 128
"""Guess, used only where a source knows rows or addresses but no bytes at all."""

ASSUMED_KEY_BYTES = 8 << 20
"""Guess, used only where a source knows nothing except a sample of keys. Tables too small to cut
are not sampled, so each key is worth a unit."""


class Addresses:
    """Rows at the addresses of extents: offsets count the addresses in order.

    Addresses between extents weigh nothing. They belong to the part that has the address below.
    """

    def __init__(self, extents: tuple[RowExtent, ...]) -> None:
        self.extents = extents
        self._filled = [extent for extent in extents if extent.addresses]
        *self._before, self.weight = accumulate(
            (extent.addresses for extent in self._filled), initial=0
        )
        self.most_pieces = self.weight
        """With more pieces, one would be empty; 0 if all are."""

    def cuts(self, pieces: int) -> list[int]:
        """Return the ascending offsets between even pieces, with 0 and the weight."""
        return [self.weight * piece // pieces for piece in range(pieces + 1)]

    def at(self, offset: int) -> int:
        """Return the address of a cut: within an extent, or the end of the last extent."""
        if self.weight == 0:
            return self.extents[0].first
        if offset == self.weight:
            return self._filled[-1].last
        found = bisect_right(self._before, offset) - 1
        return self._filled[found].first + offset - self._before[found]

    def below(self, address: int) -> int:
        """Return the offset at which a range from or up to an address starts or ends."""
        found = bisect_right(self._filled, address, key=lambda extent: extent.first) - 1
        if found < 0:
            return 0
        extent = self._filled[found]
        return self._before[found] + min(address - extent.first, extent.addresses)


class Keys:
    """Rows in the order of a key: offsets count the intervals of a sample, in order.

    n keys make n + 1 intervals of about equally many rows. A key that repeats has the first of its
    places: all rows with this key are above.
    """

    def __init__(self, sample: KeySample) -> None:
        self.column = sample.column
        self.weight = len(sample.keys) + 1
        self._sample = sample.keys
        self._offsets: dict[str, int] = {}
        """Each key with the offset where it first occurs, ascending."""
        for at, key in enumerate(sample.keys, start=1):
            self._offsets.setdefault(key, at)
        self.most_pieces = len(self._offsets) + 1

    def cuts(self, pieces: int) -> list[int]:
        """Return ascending offsets at which even pieces would meet, with 0 and the weight.

        Each is the nearest offset where a key occurs for the first time. Where keys repeat, two may
        fall together; they are then one, and there are fewer pieces.
        """
        firsts = list(self._offsets.values())
        inner: dict[int, None] = {}
        for piece in range(1, pieces):
            ideal = self.weight * piece // pieces
            above = bisect_right(firsts, ideal)
            near = firsts[max(0, above - 1) : above + 1]
            inner[min(near, key=lambda first: abs(first - ideal))] = None
        return [0, *inner, self.weight]

    def at(self, offset: int) -> str:
        """Return the key at one of the inner `cuts`."""
        return self._sample[offset - 1]

    def below(self, key: str) -> int:
        """Return the offset of a key; a key outside the sample gets the sample's start."""
        return self._offsets.get(key, 0)


class Part(NamedTuple):
    """A partition, or the whole of a table without partitions."""

    name: str | None
    """None for the whole table."""
    info: PartitionInfo | TableInfo
    spread: Addresses | Keys | None
    """Where it can be cut: by extents sooner than by keys; None if neither is known."""


def parts_of(table: TableInfo) -> tuple[Part, ...]:
    """Return the partitions by position (then name), or the table itself as the only part."""
    leaves = sorted(table.partitions, key=lambda leaf: (leaf.position, leaf.name))
    known: list[tuple[str | None, PartitionInfo | TableInfo]]
    known = [(leaf.name, leaf) for leaf in leaves] or [(None, table)]
    found = []
    for name, each in known:
        spread: Addresses | Keys | None = None
        if each.extents:
            spread = Addresses(each.extents)
        elif each.keys is not None and each.keys.keys:
            spread = Keys(each.keys)
        found.append(Part(name, each, spread))
    return tuple(found)


def share(total: int, offsets: tuple[int, int], weight: int) -> int:
    """Return the share of [start, stop) in a total spread evenly over a weight.

    The shares of adjoining ranges sum exactly to the share of the range they make up.
    """
    start, stop = offsets
    return total * stop // weight - total * start // weight


class Costs(Struct, frozen=True, kw_only=True):
    unit: CostUnit
    """"units" where neither bytes nor rows are known."""
    of_part: tuple[int, ...]
    """In the order of `parts_of`."""
    total: int
    bytes_each: int
    """How many bytes a cost of 1 is taken for, at least 1."""


def measure(table: TableInfo, parts: Sequence[Part]) -> Costs:
    """Return the costs of a table's parts in the best measure known.

    A measure known for every part is preferred to one known for some; then a part without it is
    taken for an average one. A measure that is 0 for every part says nothing and is passed over.
    """
    row_bytes = ASSUMED_ROW_BYTES
    if table.bytes and table.rows:
        row_bytes = max(1, table.bytes // table.rows)
    candidates: list[tuple[CostUnit, list[int | None], int]] = [
        ("bytes", [part.info.bytes for part in parts], 1),
        ("rows", [part.info.rows for part in parts], row_bytes),
    ]
    # Where only addresses are known they address rows: sources that count blocks know bytes.
    for kind, size in ((Addresses, row_bytes), (Keys, ASSUMED_KEY_BYTES)):
        spreads = (part.spread for part in parts)
        weights = [each.weight if isinstance(each, kind) else None for each in spreads]
        candidates.append(("units", weights, size))
    for complete in (True, False):
        for unit, values, bytes_each in candidates:
            known = [value for value in values if value is not None]
            if sum(known) > 0 and (not complete or len(known) == len(values)):
                average = sum(known) // len(known)
                filled = tuple(average if value is None else value for value in values)
                return Costs(unit=unit, of_part=filled, total=sum(filled), bytes_each=bytes_each)
    ones = (1,) * len(parts)
    return Costs(unit="units", of_part=ones, total=len(parts), bytes_each=ASSUMED_ROW_BYTES)


def unit_costs(table: TableInfo, units: Iterable[WorkUnit]) -> tuple[Costs, list[int]]:
    """Return the costs of the units' data, and the cost of each unit in the order given.

    Partitions that no unit reads cost nothing. A unit that is a range costs its share of the
    addresses, or of the keys, of its part.
    """
    units = tuple(units)
    read = {selector.partition for unit in units for selector in unit.selectors}
    parts = tuple(part for part in parts_of(table) if None in read or part.name in read)
    costs = measure(table, parts)
    known = {
        part.name: (part.spread, cost) for part, cost in zip(parts, costs.of_part, strict=True)
    }
    kinds = {RowRange: Addresses, KeyRange: Keys}
    each = [0] * len(units)
    for at, selector in ((at, each) for at, unit in enumerate(units) for each in unit.selectors):
        spread, cost = known.get(selector.partition, (None, costs.total))
        if spread and spread.weight and kinds.get(type(selector)) is type(spread):
            assert isinstance(selector, (RowRange, KeyRange))
            below: Callable[[Any], int] = spread.below
            start = 0 if selector.first is None else below(selector.first)
            stop = spread.weight if selector.last is None else below(selector.last)
            cost = share(cost, (start, stop), spread.weight)
        each[at] += cost
    return costs, each


def dealt(costs: Sequence[int], workers: int) -> tuple[list[int], list[int]]:
    """Return for each cost the number of its worker, from 0, and the sum of each worker's costs.

    A cost goes to the worker with least to do so far; of equals to the one with the fewest units,
    and then the first. So units of cost 0 spread out, too. With the largest cost first it is LPT,
    which needs at most 4/3 - 1/(3p) of the best possible time (Graham, "Bounds on multiprocessing
    timing anomalies", 1969), takes O(n log p), and is what really happens when idle workers take
    the next unit of a list sorted by size.
    """
    heap: list[tuple[int, int, int]] = [
        (0, 0, worker) for worker in range(max(1, min(workers, len(costs))))
    ]
    found, sums = [], [0] * workers
    for cost in costs:
        load, units, worker = heap[0]
        heapq.heapreplace(heap, (load + cost, units + 1, worker))
        found.append(worker)
        sums[worker] += cost
    return found, sums


def shares(plan: Plan, among: int) -> dict[str, int]:
    """Return for each unit the number, from 0, of the worker, directory or machine it goes to."""
    if among == 1:
        return {unit.id: 0 for unit in plan.units}
    numbers, _ = dealt(unit_costs(plan.table, plan.units)[1], among)
    return {unit.id: at for unit, at in zip(plan.units, numbers, strict=True)}


class Simulation(Struct, frozen=True, kw_only=True):
    """Some units, read by a number of workers; all costs are in the unit of `Costs`."""

    makespan: float
    """Cost at which the last worker finishes."""
    lower_bound: float
    """Cost below which no assignment of these units finishes: a fair share, or the largest unit."""
    idle_share: float
    """Part of the workers' common time in which they have nothing to do, from 0 to below 1."""
    finish_times: tuple[float, ...]
    """Cost at which each worker finishes, by worker; 0 for one that gets no unit."""


def simulated(costs: Costs, each: Sequence[int], parallelism: int) -> Simulation:
    """Return how units of these costs, taken in their order, keep the workers busy.

    Where neither bytes nor rows are known, 1.0 is the cost of a unit of average size.
    """
    times = dealt(each, parallelism)[1]
    last = max(times)
    bound = max(sum(each) / parallelism, max(each, default=0))
    lower, *reported = (
        cost * len(each) / costs.total if costs.unit == "units" else float(cost)
        for cost in (bound, *times)
    )
    return Simulation(
        makespan=max(reported),
        # Rounded apart, the two may cross by the last bit.
        lower_bound=min(lower, max(reported)),
        idle_share=(last * parallelism - sum(each)) / (last * parallelism) if last else 0.0,
        finish_times=tuple(reported),
    )


def simulate(plan: Plan, parallelism: int) -> Simulation:
    """Return how the plan's units keep this number of workers busy; PlanError if it is below 1."""
    if parallelism < 1:
        raise PlanError(f"Parallelism {parallelism} is below 1.", "give --parallelism 1 or more.")
    return simulated(*unit_costs(plan.table, plan.units), parallelism)
