"""Which small tables are handed out together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import WholeTable, WorkUnit
from unloader.run.tables.bundles import MOST_BYTES, MOST_UNITS, bundled
from unloader.run.tables.counting import size_of
from unloader.run.tables.units import TableUnit, largest_first

SIZES = st.lists(st.none() | st.integers(0, MOST_BYTES), max_size=300)


@given(SIZES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_bundles_are_of_small_units_and_as_many_as_workers_need(
    sizes: list[int | None], workers: int, chance: st.random.Random
) -> None:
    """All units keep their order; what may be large, or not, stays alone; nobody is left idle."""
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
