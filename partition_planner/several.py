"""Several tables that are read by the same workers: how large their units ought to be."""

from __future__ import annotations

from collections.abc import Iterable

from partition_planner.costs import measure
from partition_planner.cutting import MIN_UNIT_BYTES, UNITS_PER_WORKER
from partition_planner.parts import parts_of
from partition_planner.table import TableInfo


def estimated_bytes(table: TableInfo) -> int:
    """Return the size of a table, by the best measure that its source knows."""
    costs = measure(table, parts_of(table))
    return costs.total * costs.bytes_each


def unit_bytes(sizes: Iterable[int], parallelism: int) -> int:
    """Return the size above which a part of any of the tables is cut.

    It is the size for one table as large as all of them together. So a table that is small among
    the others stays whole, and the last unit to end is late by a quarter of a worker's share at
    most.

    Args:
        sizes: Of the tables, by `estimated_bytes`.
        parallelism: How many workers there are; 1 or more.
    """
    share = -(-sum(sizes) // (UNITS_PER_WORKER * parallelism))
    return max(MIN_UNIT_BYTES, share)
