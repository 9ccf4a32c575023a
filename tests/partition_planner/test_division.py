"""Parts of a plan: every unit in one of them, of about the same cost, found by each for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace

from partition_planner.costs import unit_costs
from partition_planner.division import plan_part
from partition_planner.errors import PlanError
from partition_planner.model import (
    ColumnInfo,
    PartitionInfo,
    Plan,
    PlanLimits,
    TableInfo,
)
from partition_planner.planner import plan

MIB = 1 << 20


def whole(sizes: list[int]) -> Plan:
    """Return a plan with a unit for each partition, of these sizes."""
    table = TableInfo(
        schema="s",
        name="t",
        columns=(ColumnInfo(name="id", native_type="BIGINT", nullable=False),),
        rows=sum(sizes) // 128,
        bytes=sum(sizes),
        named_partitions=True,
        row_ranges=False,
        partitions=tuple(
            PartitionInfo(name=f"p{at:04}", position=at, rows=size // 128, bytes=size)
            for at, size in enumerate(sizes)
        ),
    )
    return plan(table, PlanLimits(parallelism=4, split="partition"))


@given(st.lists(st.integers(0, 100 * MIB), min_size=1, max_size=60), st.integers(1, 80))
def test_the_parts_are_the_plan(sizes: list[int], of: int) -> None:
    """Each unit is in one part; the first parts have units; none has much more than its share."""
    made = whole(sizes)
    parts = [plan_part(made, number, of) for number in range(1, of + 1)]
    there = [part for part in parts if part is not None]
    assert parts == there + [None] * (of - len(there))
    assert len(there) == min(of, len(made.units))
    assert sorted(unit.id for part in there for unit in part.units) == sorted(
        unit.id for unit in made.units
    )
    _, costs = unit_costs(made.table, made.units)
    by_id = {unit.id: cost for unit, cost in zip(made.units, costs, strict=True)}
    totals = [sum(by_id[unit.id] for unit in part.units) for part in there]
    # The bound of handing out largest first: a share and one more unit.
    assert max(totals) <= sum(costs) / of + max(costs) + 1e-6
    for number, part in enumerate(there, start=1):
        assert part.part is not None
        assert (part.part.number, part.part.of, part.part.plan_digest) == (number, of, made.digest)
        assert part.part.of_units == len(made.units)
        assert not part.has_all_units
        assert decode(encode(part), type=Plan) == part
        part.check()


def test_parts_have_digests_of_their_own() -> None:
    """A part is not the plan, even where it has all units; an edited one is refused."""
    made = whole([MIB])
    part = plan_part(made, 1, 1)
    assert part is not None
    assert part.units == made.units
    assert part.digest != made.digest
    assert part.part is not None
    for other in (replace(part.part, number=2), None):
        with pytest.raises(PlanError, match="edited"):
            replace(part, part=other).check()


def test_a_part_reads_no_other_partitions() -> None:
    """Some are left out, none is added."""
    made = whole([MIB, MIB])
    part = plan_part(made, 1, 2)
    assert part is not None
    with pytest.raises(PlanError, match="which was not requested"):
        Plan.of(
            table=replace(made.table, partitions=made.table.partitions[:1]),
            partitions=("p0000",),
            units=made.units,
            limits=made.limits,
            part=part.part,
        )
