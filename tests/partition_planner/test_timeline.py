"""Who reads what when, for workers that are alike and for workers that are not."""

from __future__ import annotations

import math
from collections import Counter

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from partition_planner.model import PartitionInfo, Plan, PlanLimits, TableInfo
from partition_planner.planner import plan
from partition_planner.simulate import simulate
from partition_planner.timeline import Speeds, timeline


def plan_of(sizes: list[int]) -> Plan:
    """Return a plan with a unit of each size in bytes."""
    parts = tuple(
        PartitionInfo(name=f"p{at}", relation=None, position=at, bytes=size)
        for at, size in enumerate(sizes)
    )
    table = TableInfo(
        schema=None,
        name="t",
        columns=(),
        partitions=parts,
        named_partitions=True,
        row_ranges=False,
    )
    return plan(table, PlanLimits(parallelism=1, split="partition"))


def fixed(*speeds: float) -> Speeds:
    """Return the speeds of workers that do not disturb each other."""
    return lambda busy: [speeds[worker] for worker in busy]


sizes = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40)


@given(sizes, st.integers(1, 12))
def test_workers_that_are_alike_end_as_simulated(sizes: list[int], parallelism: int) -> None:
    """With equal speeds each worker's last turn ends when the simulation says it finishes."""
    made = plan_of(sizes)
    ends = [0.0] * parallelism
    for turn in timeline(made, parallelism):
        ends[turn.worker] = max(ends[turn.worker], turn.end)
    assert tuple(ends) == simulate(made, parallelism).finish_times


@settings(max_examples=examples(60))
@given(sizes.filter(any), st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_each_unit_is_read_once_by_a_worker_that_is_idle(
    sizes: list[int], speeds: list[float]
) -> None:
    """Turns are the units in their order, none of a worker overlap, none begins before it must."""
    made = plan_of(sizes)
    turns = timeline(made, len(speeds), fixed(*speeds))
    assert [turn.unit for turn in turns] == [unit.id for unit in made.units]
    assert [turn.start for turn in turns] == sorted(turn.start for turn in turns)
    costs = {unit.id: unit.bytes or 0 for unit in made.units}
    ends = dict.fromkeys(range(len(speeds)), 0.0)
    for turn in turns:
        assert turn.start == ends[turn.worker] == min(ends.values())
        took = turn.end - turn.start
        assert math.isclose(took, costs[turn.unit] / speeds[turn.worker], abs_tol=1e-3)
        ends[turn.worker] = turn.end


def test_a_slow_worker_takes_fewer_units() -> None:
    """A worker of a third of the speed reads one unit in the time in which the other reads three."""
    turns = timeline(plan_of([6] * 8), 2, fixed(3, 1))
    assert Counter(turn.worker for turn in turns) == {0: 6, 1: 2}
    assert max(turn.end for turn in turns) == 12
