"""Partitions that the database selects by their name."""

from __future__ import annotations

from partition_planner.parts import Draft, Part
from partition_planner.work import NamedPartition


def whole_partition(part: Part) -> Draft:
    """Return the one unit that reads a partition, however many rows it holds by now.

    An empty partition is a unit like any other: the statistics that call it empty may be stale.
    """
    assert part.name is not None, "only a partition is selected by name"
    return Draft(
        selectors=(NamedPartition(partition=part.name, kind=part.kind, relation=part.relation),),
        rows=part.rows,
        bytes=part.bytes,
    )
