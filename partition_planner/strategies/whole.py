"""Everything that is asked for in one go: the table, or the chosen of its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from partition_planner.parts import Draft, Part, total
from partition_planner.table import TableInfo
from partition_planner.work import WholeTable


def whole_table(table: TableInfo, parts: Sequence[Part]) -> Draft:
    """Return the one unit that reads every row of the table.

    Its estimates are the table's own, or else the sum of the parts' where every part has one.
    """
    rows, size = table.rows, table.bytes
    return Draft(
        selectors=(WholeTable(),),
        rows=total(part.rows for part in parts) if rows is None else rows,
        bytes=total(part.bytes for part in parts) if size is None else size,
    )


def together(drafts: Sequence[Draft]) -> Draft:
    """Return the one unit that reads what some units would have read, in their order."""
    return Draft(
        selectors=tuple(selector for draft in drafts for selector in draft.selectors),
        rows=total(draft.rows for draft in drafts),
        bytes=total(draft.bytes for draft in drafts),
    )
