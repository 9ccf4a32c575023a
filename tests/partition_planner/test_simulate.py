"""Plans at the size the tool is made for: 10 billion rows, 1.5 TB."""

from __future__ import annotations

import tracemalloc

import pytest

from partition_planner.errors import PlanError
from partition_planner.model import PartitionInfo, Plan, PlanLimits, RowExtent, TableInfo
from partition_planner.planner import plan
from partition_planner.simulate import simulate

ROWS = 10_000_000_000
BYTES = 1_500_000_000_000
BLOCK_BYTES = 8192


def weights_of(kind: str, partitions: int) -> list[int]:
    """Sizes of partitions against each other."""
    if kind == "even":
        return [1] * partitions
    if kind == "one huge":
        return [1000] + [1] * (partitions - 1)
    return [1_000_000_000 // (at + 1) for at in range(partitions)]


def large_table(kind: str, partitions: int) -> TableInfo:
    """The table over so many partitions; their rows and bytes sum to the table's."""
    weights = weights_of(kind, partitions)
    whole, before, made = sum(weights), 0, []
    for at, weight in enumerate(weights):
        after = before + weight
        size = BYTES * after // whole - BYTES * before // whole
        made.append(
            PartitionInfo(
                name=f"p{at}",
                relation=("s", f"t_p{at}"),
                position=at,
                rows=ROWS * after // whole - ROWS * before // whole,
                bytes=size,
                extent=RowExtent(first=0, last=-(-size // BLOCK_BYTES)),
            )
        )
        before = after
    return TableInfo(
        schema="s",
        name="t",
        columns=(),
        partitions=tuple(made),
        rows=ROWS,
        bytes=BYTES,
        named_partitions=True,
        row_ranges=True,
    )


def check(made: Plan, parallelism: int) -> None:
    """Assert that the plan loses nothing, stays small and keeps all workers busy."""
    assert sum(unit.rows or 0 for unit in made.units) == ROWS
    assert sum(unit.bytes or 0 for unit in made.units) == BYTES
    assert len(made.units) <= len(made.table.partitions) + 4 * parallelism
    run = simulate(made, parallelism)
    assert run.makespan == made.makespan
    assert run.makespan <= 4 / 3 * BYTES / parallelism
    assert run.idle_share <= 0.25


@pytest.mark.parametrize("kind", ["even", "one huge", "harmonic"])
@pytest.mark.parametrize(
    ("partitions", "levels"),
    [(32, range(1, 65)), (1_000, (1, 2, 3, 7, 12, 16, 31, 32, 48, 63, 64)), (100_000, (64,))],
)
def test_large_table_keeps_every_worker_busy(
    kind: str, partitions: int, levels: tuple[int, ...]
) -> None:
    """Even or skewed, at any parallelism the last worker ends within 4/3 of a fair share."""
    table = large_table(kind, partitions)
    for parallelism in levels:
        check(plan(table, PlanLimits(parallelism=parallelism)), parallelism)


@pytest.mark.parametrize("partitions", [1_000, 10_000])
def test_memory_of_a_plan_grows_with_its_units_only(partitions: int) -> None:
    """Planning takes a few KiB for each unit, whatever the table holds."""
    table = large_table("harmonic", partitions)
    tracemalloc.start()
    try:
        made = plan(table, PlanLimits(parallelism=64))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes / len(made.units) < 6 * 1024


def test_whole_partitions_wait_for_the_largest() -> None:
    """The simulation shows what cutting saves: uncut, one huge partition leaves seats idle."""
    table = large_table("one huge", 32)
    whole = simulate(plan(table, PlanLimits(parallelism=32, split="partition")), 32)
    cut = simulate(plan(table, PlanLimits(parallelism=32)), 32)
    assert whole.idle_share > 0.9
    assert cut.idle_share < 0.1
    assert whole.makespan > 25 * cut.makespan


def test_a_plan_can_be_simulated_at_any_parallelism() -> None:
    """Seats beyond the units finish at 0 and count as idle; none at all is refused."""
    made = plan(large_table("even", 32), PlanLimits(parallelism=16))
    run = simulate(made, 64)
    assert run.finish_times.count(0.0) == 32
    assert run.idle_share == 0.5
    with pytest.raises(PlanError, match="Parallelism 0"):
        simulate(made, 0)
