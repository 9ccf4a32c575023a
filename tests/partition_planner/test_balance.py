"""LPT against the best that brute force can find."""

from __future__ import annotations

from fractions import Fraction

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from partition_planner.balance import assign, finish_times, lower_bound, makespan


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
    """The makespan is at most 4/3 - 1/(3p) of the optimum and no lower bound exceeds that."""
    best = optimum(costs, parallelism)
    found = makespan(costs, parallelism)
    factor = Fraction(4, 3) - Fraction(1, 3 * parallelism)
    assert best <= found <= factor * best
    assert lower_bound(costs, parallelism) <= best


@given(st.lists(st.integers(0, 1 << 50), max_size=60), st.integers(1, 80))
def test_every_unit_is_assigned_once(costs: list[int], parallelism: int) -> None:
    """The bins hold every index once, largest first, and the fullest is the makespan."""
    bins = assign(costs, parallelism)
    assert len(bins) == parallelism
    assert sorted(index for chosen in bins for index in chosen) == list(range(len(costs)))
    loads = [sum(costs[index] for index in chosen) for chosen in bins]
    assert max(loads) == makespan(costs, parallelism)
    for chosen in bins:
        taken = [costs[index] for index in chosen]
        assert taken == sorted(taken, reverse=True)


def test_grahams_worst_case_is_reproduced() -> None:
    """The published worst case for two workers, 3 3 2 2 2, ends at 7 where 6 is possible."""
    assert makespan([2, 3, 2, 3, 2], 2) == 7
    assert optimum([2, 3, 2, 3, 2], 2) == 6


def test_units_of_no_cost_are_spread_too() -> None:
    """Ten units thought empty go to ten workers, not to one."""
    assert [len(chosen) for chosen in assign([0] * 10, 10)] == [1] * 10


def test_idle_workers_take_the_next_unit_in_the_order_given() -> None:
    """Finish times follow the order of the list, not the sizes."""
    assert finish_times([1, 1, 4], 2) == (5, 1)
    assert finish_times([4, 1, 1], 2) == (4, 2)
    assert finish_times([], 3) == (0, 0, 0)
