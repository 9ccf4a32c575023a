"""The table as the parts that a plan starts from, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from partition_planner.spreads import Spread, spread_of
from partition_planner.table import PartitionInfo, PartitionKind, TableInfo
from partition_planner.work import Selector


class Part(NamedTuple):
    """A partition, or the whole of a table without partitions."""

    name: str | None
    """None for the whole table."""
    kind: PartitionKind
    relation: tuple[str, str] | None
    object_id: int | None
    rows: int | None
    bytes: int | None
    spread: Spread | None
    """Where it can be cut; None if neither extents nor keys are known."""


class Draft(NamedTuple):
    """A work unit that has no id yet: ids need the number of all units."""

    selectors: tuple[Selector, ...]
    rows: int | None
    bytes: int | None


def parts_of(table: TableInfo) -> tuple[Part, ...]:
    """Return the partitions by position (then name), or the table itself as the only part."""
    leaves = sorted(table.partitions, key=lambda leaf: (leaf.position, leaf.name))
    known: list[tuple[PartitionInfo | None, PartitionInfo | TableInfo]]
    known = [(leaf, leaf) for leaf in leaves] or [(None, table)]
    return tuple(
        Part(
            name=leaf.name if leaf else None,
            kind=leaf.kind if leaf else "partition",
            relation=leaf.relation if leaf else None,
            object_id=each.object_id,
            rows=each.rows,
            bytes=each.bytes,
            spread=spread_of(each.extents, each.keys),
        )
        for leaf, each in known
    )


def total(values: Iterable[int | None]) -> int | None:
    """Return the sum of estimates, None if one of them is not known."""
    known = list(values)
    found = [value for value in known if value is not None]
    return sum(found) if len(found) == len(known) else None


def share(total: int, offsets: tuple[int, int], weight: int) -> int:
    """Return the share of [start, stop) in a total spread evenly over a weight.

    The shares of adjoining ranges sum exactly to the share of the range they make up.
    """
    start, stop = offsets
    return total * stop // weight - total * start // weight


def estimate(total: int | None, offsets: tuple[int, int], weight: int) -> int | None:
    """Return the share of what may be unknown; all of it where the weight is 0."""
    return total if total is None or weight == 0 else share(total, offsets, weight)
