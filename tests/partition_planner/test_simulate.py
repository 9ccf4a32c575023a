"""Plans at full size: balance and idle workers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from partition_planner.costs import dealt, simulate, unit_costs
from partition_planner.model import (
    PartitionInfo,
    Plan,
    PlanError,
    PlanLimits,
    RowExtent,
    RowRange,
    TableInfo,
    coalesced,
)
from partition_planner.planner import plan


def optimum(costs: list[int], parallelism: int) -> int:
    """The shortest makespan of all assignments."""
    best = sum(costs)

    def place(at: int, loads: tuple[int, ...]) -> None:
        nonlocal best
        if max(loads) >= best:
            return
        if at == len(costs):
            best = max(loads)
            return
        # Workers are alike: of those with equal loads one is enough.
        for load in set(loads):
            rest = list(loads)
            rest.remove(load)
            place(at + 1, tuple(sorted((*rest, load + costs[at]))))

    place(0, (0,) * parallelism)
    return best


small_costs = st.lists(st.integers(0, 40), max_size=8)


@settings(max_examples=examples(150))
@given(small_costs, st.integers(1, 4))
def test_lpt_keeps_to_grahams_bound(costs: list[int], parallelism: int) -> None:
    """The makespan is at most 4/3 - 1/(3p) of the optimum."""
    best = optimum(costs, parallelism)
    found = max(dealt(sorted(costs, reverse=True), parallelism)[1])
    factor = Fraction(4, 3) - Fraction(1, 3 * parallelism)
    assert best <= found <= factor * best


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
                extents=(RowExtent(first=0, last=-(-size // BLOCK_BYTES)),),
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


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=12),
    st.integers(2, 24),
)
def test_more_workers_never_finish_later_on_any_table(
    parts: list[tuple[int, bool]], parallelism: int
) -> None:
    """This holds for partitions of any size, also if some cannot be cut."""
    table = TableInfo(
        schema=None,
        name="t",
        columns=(),
        partitions=tuple(
            PartitionInfo(
                name=f"p{at}",
                relation=None,
                position=at,
                bytes=size << 22,
                extents=(RowExtent(first=0, last=size * 512),) if cuttable else (),
            )
            for at, (size, cuttable) in enumerate(parts)
        ),
        named_partitions=True,
        row_ranges=True,
    )
    fewer, more = (
        simulate(plan(table, PlanLimits(parallelism=workers)), workers).makespan
        for workers in (parallelism - 1, parallelism)
    )
    assert more <= fewer


def heap(sample: int | None) -> TableInfo:
    """The table without partitions has its blocks in 5,000 extents of growing size over 12 files.

    Args:
        sample: Take each `sample`-th block for its own extent; None takes the extents.
    """
    sizes = [8 << min(7, at // 100) for at in range(5000)]
    extents, filled = [], [0] * 12
    for at, size in enumerate(sizes):
        first = (at % 12 << 32) + filled[at % 12]
        filled[at % 12] += 3 * size
        extents.append(RowExtent(first=first, last=first + size))
    if sample is not None:
        blocks = [block for each in extents for block in range(each.first, each.last)]
        extents = [RowExtent(first=block, last=block + 1) for block in blocks[::sample]]
    return TableInfo(
        schema="s",
        name="t",
        columns=(),
        rows=ROWS,
        bytes=BYTES,
        extents=coalesced(extents),
        object_id=73_196,
        ranges_from="SAMPLE BLOCK" if sample else "DBA_EXTENTS",
        named_partitions=True,
        row_ranges=True,
    )


@pytest.mark.parametrize("sample", [None, 1000])
def test_a_heap_without_partitions_keeps_every_worker_busy(sample: int | None) -> None:
    """Extents of all sizes over many files, or a thousandth of their blocks, are cut evenly."""
    table = heap(sample)
    for parallelism in (2, 7, 16, 64):
        check(plan(table, PlanLimits(parallelism=parallelism)), parallelism)
    true = heap(None)
    units = plan(table, PlanLimits(parallelism=16)).units
    # The real weights of the pieces, by all blocks and not the sampled ones.
    _, costs = unit_costs(true, units)
    assert max(dealt(sorted(costs, reverse=True), 16)[1]) <= 1.1 * BYTES / 16


@pytest.mark.parametrize("above_mean", [3, 8, 40])
def test_partitions_far_above_the_mean_are_cut(above_mean: int) -> None:
    """Of 32 partitions the ones of many times the mean are cut, and workers hardly idle."""
    table = large_table("even", 32)
    grown = [
        structs.replace(
            each,
            bytes=(each.bytes or 0) * above_mean,
            rows=(each.rows or 0) * above_mean,
            extents=tuple(
                RowExtent(first=at << 32, last=(at << 32) + 8 * above_mean * 1024)
                for at in range(70)
            ),
        )
        if each.position in (3, 17)
        else each
        for each in table.partitions
    ]
    table = structs.replace(table, partitions=tuple(grown))
    whole = simulate(plan(table, PlanLimits(parallelism=16, split="partition")), 16)
    made = plan(table, PlanLimits(parallelism=16))
    run = simulate(made, 16)
    cut = {unit.partition for unit in made.units if isinstance(unit.selectors[0], RowRange)}
    assert cut >= {"p3", "p17"}
    assert run.makespan < whole.makespan
    assert run.idle_share <= 0.1


def test_a_plan_can_be_simulated_at_any_parallelism() -> None:
    """Seats beyond the units finish at 0 and count as idle; none at all is refused."""
    made = plan(large_table("even", 32), PlanLimits(parallelism=16))
    run = simulate(made, 64)
    assert run.finish_times.count(0.0) == 32
    assert run.idle_share == 0.5
    with pytest.raises(PlanError, match="Parallelism 0"):
        simulate(made, 0)
