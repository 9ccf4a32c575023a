"""Which directory a unit goes to: fair by estimated bytes, and always the same."""

from __future__ import annotations

from collections.abc import Sequence

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from partition_planner.costs import shares
from partition_planner.model import ColumnInfo, PartitionInfo, Plan, PlanLimits, TableInfo
from partition_planner.planner import plan


def plan_of(sizes: Sequence[int]) -> Plan:
    """Return the plan of a table with a partition of each size."""
    partitions = tuple(
        PartitionInfo(name=f"p{at}", position=at, rows=size // 100, bytes=size)
        for at, size in enumerate(sizes)
    )
    table = TableInfo(
        schema=None,
        name="t",
        columns=(ColumnInfo(name="k", native_type="bigint"),),
        partitions=partitions,
        named_partitions=True,
        row_ranges=False,
    )
    return plan(table, PlanLimits(parallelism=4, split="partition"))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.integers(1, 5))
def test_every_directory_gets_its_share_of_bytes(sizes: list[int], directories: int) -> None:
    """No directory gets more than the least filled one has, plus one unit."""
    made = plan_of(sizes)
    striped = shares(made, directories)
    assert set(striped) == {unit.id for unit in made.units}
    filled = [
        sum(unit.bytes or 0 for unit in made.units if striped[unit.id] == number)
        for number in range(directories)
    ]
    if len(sizes) >= directories:
        assert max(filled) - min(filled) <= max(sizes)
    assert striped == shares(plan_of(sizes), directories)


def test_the_largest_unit_left_goes_where_least_is() -> None:
    """Largest first: 6 and 3 against 5 and 4, not the order of the table."""
    made = plan_of([300, 500, 600, 400])
    by_size = {unit.bytes: shares(made, 2)[unit.id] for unit in made.units}
    assert by_size == {600: 0, 500: 1, 400: 1, 300: 0}
