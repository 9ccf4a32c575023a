"""The order in which the units of several tables are handed out, and which go out together."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import WholeTable, WorkUnit
from unloader.engine.schedule import Schedule
from unloader.model import RetryOptions
from unloader.run.work import MOST_BYTES, MOST_UNITS, TableUnit, bundled, largest_first, size_of


def units(table: int, sizes: Iterable[int | None]) -> list[TableUnit]:
    """Return units of a table, with these sizes in bytes."""
    return [
        TableUnit(
            table=table, unit=WorkUnit(id=f"{number:04d}", selectors=(WholeTable(),), bytes=size)
        )
        for number, size in enumerate(sizes)
    ]


def of_tables(sizes: Iterable[int | None]) -> list[TableUnit]:
    """Return the only unit of each table, with these sizes in bytes."""
    return [unit for number, size in enumerate(sizes) for unit in units(number, [size])]


def run(order: list[TableUnit], workers: int) -> tuple[list[tuple[int, int, int]], int]:
    """Simulate: a unit takes as long as it is large; return begin, end and size of each, and the
    time at which the first worker found nothing more to do.
    """
    schedule: Schedule[TableUnit] = Schedule(units=order, retry=RetryOptions())
    idle = [(0, place) for place in range(workers)]
    heapq.heapify(idle)
    done, first_idle = [], None
    while idle:
        now, place = heapq.heappop(idle)
        if schedule.running(place) is not None:
            schedule.finished(place)
        attempt = schedule.take(place, now)
        if attempt is None:
            first_idle = now if first_idle is None else first_idle
            continue
        size = cast(Any, attempt.unit.unit.bytes)
        done.append((now, now + size, size))
        heapq.heappush(idle, (now + size, place))
    return done, cast(int, first_idle)


SIZES = st.lists(st.lists(st.integers(1, 1000), max_size=6), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 6))
def test_no_worker_idles_while_a_unit_is_left(tables: list[list[int]], workers: int) -> None:
    """Every unit is read once, and no unit is larger than one that began earlier.

    When the first worker ends, all remaining units are being read.
    """
    every = [unit for number, sizes in enumerate(tables) for unit in units(number, sizes)]
    done, first_idle = run(largest_first(every), workers)
    assert sorted(size for _, _, size in done) == sorted(size for sizes in tables for size in sizes)
    assert all(begin <= first_idle for begin, _, _ in done)
    assert [size for _, _, size in done] == sorted((size for _, _, size in done), reverse=True)


def test_units_of_equal_size_go_by_the_order_of_their_tables() -> None:
    """So that a table is done, and published, before the next is begun."""
    every = [unit for number in (0, 1, 2) for unit in units(number, [5, 5])]
    assert [unit.table for unit in largest_first(every)] == [0, 0, 1, 1, 2, 2]


def test_a_view_of_unknown_size_is_begun_first() -> None:
    """It may be the largest of all."""
    unknown = WorkUnit(id="0000", selectors=(WholeTable(),))
    every = [*units(0, [1000, 1]), TableUnit(table=1, unit=unknown), *units(2, [0])]
    assert [unit.table for unit in largest_first(every)] == [1, 0, 0, 2]


@given(
    st.lists(st.none() | st.integers(0, MOST_BYTES), max_size=300),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_bundles_are_of_small_units_and_as_many_as_workers_need(
    sizes: list[int | None], workers: int, chance: st.random.Random
) -> None:
    """All units keep their order; units of large or unknown size stay alone; no worker is idle."""
    every = largest_first(of_tables(sizes))
    able = {number for number in range(len(sizes)) if chance.random() < 0.9}
    found = list(bundled(every, able, workers))
    assert [part for each in found for part in each.parts or (each,)] == every
    assert len({each.id for each in found}) == len(found)
    bundles = [each for each in found if each.parts]
    for each in bundles:
        assert 2 <= len(each.parts) <= MOST_UNITS
        assert {part.table for part in each.parts} <= able
        assert all(part.unit.bytes is not None for part in each.parts)
        assert sum(size_of(part.unit) for part in each.parts) <= MOST_BYTES
    assert not bundles or len(found) >= 8 * workers
