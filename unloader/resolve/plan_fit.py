"""Whether a plan that was made earlier still fits the table."""

from __future__ import annotations

from partition_planner.model import (
    KeyRange,
    PartitionInfo,
    Plan,
    RowRange,
    TableInfo,
    WholeTable,
)
from unloader.errors import PlanFailed
from unloader.request.names import matching_partitions


def check_fits(plan: Plan, table: TableInfo, patterns: tuple[str, ...]) -> None:
    """Check that a plan made earlier still describes the table, and is for what is asked for now.

    Sizes may have changed, as units at the edges are open-ended; columns and partitions may not:
    a partition that no unit knows would be missing from the output.

    Raises:
        PlanFailed: It does not.
    """
    was, now = plan.table, table
    before = {part.name: _identity(was, part) for part in was.partitions}
    after = {part.name: _identity(now, part) for part in now.partitions}
    read = {name for name in before if _reads(plan, name)}
    wanted = matching_partitions(after, patterns or ("*",))
    in_parts = any(not isinstance(selector, WholeTable) for selector in plan.selectors)
    problem = None
    if (was.schema, was.name) != (now.schema, now.name):
        problem = f"it is for {was.label}, not for {now.label}"
    elif was.columns != now.columns:
        problem = "the columns have changed"
    elif (plan.partitions is None) != (not patterns):
        asked = f"--partition {', '.join(patterns)}" if patterns else "the whole table"
        problem = f"it is for other partitions than {asked}"
    elif read - after.keys():
        problem = f"partitions were dropped, such as {min(read - after.keys())}"
    elif moved := sorted(name for name in read if before[name] != after[name]):
        problem = f"partitions were replaced, such as {moved[0]}"
    elif in_parts and wanted - before.keys():
        problem = f"partitions were added, such as {min(wanted - before.keys())}"
    elif in_parts and wanted != read and (plan.has_all_units or not read <= wanted):
        problem = f"it is for other partitions, such as {min(wanted ^ read)}"
    elif not now.row_ranges and _has_ranges_of_the_table(plan):
        problem = "ranges of its rows can no longer be read separately"
    elif not _segments_of(plan) <= {now.object_id, *(part.object_id for part in now.partitions)}:
        problem = "rows were moved to other segments, so its ranges now mean other rows"
    if problem:
        raise PlanFailed(f"the plan no longer fits the table: {problem}", "make a new plan")


def _identity(table: TableInfo, part: PartitionInfo) -> tuple[object, ...]:
    """Return what makes a partition that one: its relation, or else where its rows begin."""
    first = tuple(extent.first for extent in part.extents)
    return (part.relation, () if table.named_partitions else first)


def _has_ranges_of_the_table(plan: Plan) -> bool:
    ranges = (each for each in plan.selectors if isinstance(each, (RowRange, KeyRange)))
    return any(each.partition is None for each in ranges)


def _reads(plan: Plan, partition: str) -> bool:
    return plan.partitions is None or partition in plan.partitions


def _segments_of(plan: Plan) -> set[int]:
    """Return the segments whose addresses the plan's ranges hold."""
    ids = {each.object_id for each in plan.selectors if isinstance(each, RowRange)}
    return {each for each in ids if each is not None}
