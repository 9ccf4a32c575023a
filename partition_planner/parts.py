"""The table as the parts that a plan starts from, in the order of the table."""

from __future__ import annotations

from typing import NamedTuple

from partition_planner.table import RowExtent, TableInfo
from partition_planner.work import Selector


class Part(NamedTuple):
    """A partition, or the whole of a table that has none."""

    name: str | None
    """None for the whole table."""
    relation: tuple[str, str] | None
    rows: int | None
    bytes: int | None
    extent: RowExtent | None

    @property
    def addresses(self) -> int:
        """Number of addresses that can be told apart; 0 if no extent is known."""
        return 0 if self.extent is None else self.extent.addresses


class Draft(NamedTuple):
    """A work unit that has no id yet: ids need the number of all units."""

    partition: str | None
    selector: Selector
    rows: int | None
    bytes: int | None


def parts_of(table: TableInfo) -> tuple[Part, ...]:
    """Return the partitions by position (then name), or the table itself as the only part."""
    if not table.partitions:
        return (
            Part(
                name=None,
                relation=None,
                rows=table.rows,
                bytes=table.bytes,
                extent=table.extent,
            ),
        )
    ordered = sorted(table.partitions, key=lambda partition: (partition.position, partition.name))
    return tuple(
        Part(
            name=partition.name,
            relation=partition.relation,
            rows=partition.rows,
            bytes=partition.bytes,
            extent=partition.extent,
        )
        for partition in ordered
    )


def share(total: int, offsets: tuple[int, int], length: int) -> int:
    """Return the share of [start, stop) in a total spread evenly over `length` addresses.

    The shares of adjoining ranges sum exactly to the share of the range they make up.
    """
    start, stop = offsets
    return total * stop // length - total * start // length
