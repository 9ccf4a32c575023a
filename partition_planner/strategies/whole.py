"""The table in one go."""

from __future__ import annotations

from collections.abc import Sequence

from partition_planner.parts import Draft, Part
from partition_planner.table import TableInfo
from partition_planner.work import WholeTable


def whole_table(table: TableInfo, parts: Sequence[Part]) -> Draft:
    """Return the one unit that reads everything.

    Its estimates are the table's own, or else the sum of the parts' where every part has one.
    """
    rows, size = table.rows, table.bytes
    return Draft(
        partition=None,
        selector=WholeTable(),
        rows=_sum([part.rows for part in parts]) if rows is None else rows,
        bytes=_sum([part.bytes for part in parts]) if size is None else size,
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
