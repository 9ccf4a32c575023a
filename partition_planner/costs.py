"""What a part of a table costs to unload, in the best measure that its source knows.

One measure serves the whole table, for costs are only good to compare: bytes, else rows, else row
addresses, else sampled keys, else every part alike. Bytes come first because reading, encoding and
writing all follow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from partition_planner.parts import Part, parts_of, share
from partition_planner.spreads import Addresses, Keys, Spread
from partition_planner.table import TableInfo
from partition_planner.work import KeyRange, RowRange, Selector, WorkUnit

CostUnit = Literal["bytes", "rows", "units"]

ASSUMED_ROW_BYTES = 128
"""Guess, used only where a source knows rows or addresses but no bytes at all."""

ASSUMED_KEY_BYTES = 8 << 20
"""Guess, used only where a source knows nothing except a sample of keys. Tables too small to cut
are not sampled, so each key is worth a unit."""


class Costs(Struct, frozen=True, kw_only=True):
    unit: CostUnit
    """"units" where neither bytes nor rows are known."""
    of_part: tuple[int, ...]
    """In the order of `parts_of`."""
    total: int
    bytes_each: int
    """How many bytes a cost of 1 is taken for, at least 1."""

    def reported(self, cost: float, units: int) -> float:
        """Return a cost in `unit`, for a plan of this number of units.

        Where neither bytes nor rows are known, 1.0 is the cost of a unit of average size.
        """
        return float(cost) if self.unit != "units" else cost * units / self.total


def measure(table: TableInfo, parts: Sequence[Part]) -> Costs:
    """Return the costs of a table's parts in the best measure known.

    A measure known for every part is preferred to one known for some; then a part without it is
    taken for an average one. A measure that is 0 for every part says nothing and is passed over.
    """
    row_bytes = ASSUMED_ROW_BYTES
    if table.bytes and table.rows:
        row_bytes = max(1, table.bytes // table.rows)
    candidates: list[tuple[CostUnit, list[int | None], int]] = [
        ("bytes", [part.bytes for part in parts], 1),
        ("rows", [part.rows for part in parts], row_bytes),
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
    whole: tuple[Spread | None, int] = (None, costs.total)
    each = (
        sum(_cost(selector, *known.get(selector.partition, whole)) for selector in unit.selectors)
        for unit in units
    )
    return costs, list(each)


def _cost(selector: Selector, spread: Spread | None, cost: int) -> int:
    if isinstance(selector, RowRange) and isinstance(spread, Addresses) and spread.weight:
        return share(cost, spread.span(selector.first, selector.last), spread.weight)
    if isinstance(selector, KeyRange) and isinstance(spread, Keys):
        return share(cost, spread.span(selector.first, selector.last), spread.weight)
    return cost
