"""Which small tables are handed out together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import WholeTable, WorkUnit
from unloader.run.order import (
    MOST_BYTES,
    MOST_UNITS,
    TableUnit,
    bundled,
    largest_first,
    size_of,
    spread_out,
)

SIZES = st.lists(st.none() | st.integers(0, MOST_BYTES), max_size=300)


@given(SIZES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_bundles_are_of_small_units_and_as_many_as_workers_need(
    sizes: list[int | None], workers: int, chance: st.random.Random
) -> None:
    """All units keep their order; units of large or unknown size stay alone; no worker is idle."""
    units = largest_first(
        TableUnit(
            table=number, unit=WorkUnit(id="0001", selectors=(WholeTable(),), bytes=size, rows=None)
        )
        for number, size in enumerate(sizes)
    )
    able = {number for number in range(len(sizes)) if chance.random() < 0.9}
    found = list(bundled(units, able, workers))
    assert [part for each in found for part in each.parts or (each,)] == units
    assert len({each.id for each in found}) == len(found)
    bundles = [each for each in found if each.parts]
    for each in bundles:
        assert 2 <= len(each.parts) <= MOST_UNITS
        assert {part.table for part in each.parts} <= able
        assert all(part.unit.bytes is not None for part in each.parts)
        assert sum(size_of(part.unit) for part in each.parts) <= MOST_BYTES
    assert not bundles or len(found) >= 8 * workers


@given(
    st.lists(st.integers(MOST_BYTES, 20 * MOST_BYTES), max_size=12),
    st.lists(st.integers(0, MOST_BYTES // 2), max_size=120),
    st.integers(1, 6),
)
def test_small_tables_between_large_ones_leave_enough_to_the_end(
    large: list[int], small: list[int], workers: int
) -> None:
    """Each unit comes once, large ones in their order; what follows a large one keeps all others
    busy until it is done, as far as it did where the small tables were the last of all.
    """
    sizes = sorted(large, reverse=True) + sorted(small, reverse=True)
    orders = [
        TableUnit(table=number, unit=WorkUnit(id="0001", selectors=(WholeTable(),), bytes=size))
        for number, size in enumerate(sizes)
    ]
    able = range(len(large), len(sizes))
    found = spread_out(orders, able, workers)
    assert sorted(found, key=lambda each: each.table) == orders
    assert [each for each in found if each.table < len(large)] == orders[: len(large)]
    for number, each in enumerate(found):
        before = sum(size_of(one.unit) for one in orders[orders.index(each) + 1 :])
        behind = sum(size_of(one.unit) for one in found[number + 1 :])
        if each.table < len(large):
            assert behind >= min(before, (workers - 1) * size_of(each.unit))


def test_the_smallest_tables_are_not_the_last() -> None:
    """The last tables leave little to publish, and no worker alone for long."""
    sizes = [MOST_BYTES] * 3 + [1000 * number for number in range(300, 0, -1)]
    units = [
        TableUnit(table=number, unit=WorkUnit(id="0001", selectors=(WholeTable(),), bytes=size))
        for number, size in enumerate(sizes)
    ]
    able, workers = range(3, len(units)), 2
    found = spread_out(list(bundled(units, able, workers)), able, workers)
    in_order = [part for each in found for part in each.parts or (each,)]
    assert sorted(in_order, key=lambda each: each.table) == units
    assert in_order.index(units[-1]) < in_order.index(units[2])
    assert all(len(each.tables) <= MOST_UNITS // 4 for each in found[-2 * workers :])
