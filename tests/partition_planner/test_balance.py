"""LPT against the best that brute force can find."""

from __future__ import annotations

from fractions import Fraction

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from partition_planner.balance import assign, lower_bound, makespan


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
