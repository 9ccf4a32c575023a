"""Ranges of addresses and of keys: exact inside, open outside."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import (
    KeyRange,
    KeySample,
    PartitionInfo,
    PlanLimits,
    RowExtent,
    RowRange,
    TableInfo,
)
from partition_planner.planner import plan


def cut(
    pieces: int,
    *,
    rows: int,
    extents: tuple[tuple[int, int], ...] = (),
    keys: tuple[str, ...] | None = None,
) -> tuple[list[RowRange | KeyRange], list[int]]:
    """Return the ranges of a table that is cut into pieces, in order, with the rows of each."""
    table = TableInfo(
        schema=None,
        name="t",
        columns=(),
        rows=rows,
        bytes=pieces,
        extents=tuple(RowExtent(first=first, last=last) for first, last in extents),
        keys=None if keys is None else KeySample(column="K", keys=keys),
        named_partitions=True,
        row_ranges=True,
    )
    units = plan(table, PlanLimits(parallelism=1, split="range", unit_bytes=1)).units
    in_order = sorted(units, key=lambda unit: unit.id)
    ranges = [unit.selectors[0] for unit in in_order]
    return (
        [each for each in ranges if isinstance(each, (RowRange, KeyRange))],
        [unit.rows or 0 for unit in in_order],
    )


@given(st.integers(-100, 100), st.integers(2, 500), st.data())
def test_pieces_are_of_equal_address_count(first: int, length: int, data: st.DataObject) -> None:
    """Pieces adjoin, differ by at most one address, and share the rows out without remainder."""
    pieces = data.draw(st.integers(2, length))
    ranges, rows = cut(pieces, rows=12_345, extents=((first, first + length),))
    assert len(ranges) == pieces
    assert all(low.last == high.first for low, high in pairwise(ranges))
    ends = [first, *(each.first for each in ranges[1:]), first + length]
    widths = {high - low for low, high in pairwise(ends) if isinstance(high, int)}
    assert max(widths) - min(widths) <= 1
    assert min(widths) >= 1
    assert sum(rows) == 12_345


@pytest.mark.parametrize(
    ("extents", "pieces", "boundaries"),
    [
        # Where a piece ends with an extent the next begins with one: the gap goes below.
        (((0, 10), (1000, 1010)), 2, [1000]),
        (((0, 10), (1000, 1010)), 4, [5, 1000, 1005]),
        (((0, 30), (1000, 1010)), 4, [10, 20, 1000]),
        # A sample of single blocks: boundaries fall at blocks of the sample.
        (((3, 4), (70, 71), (500, 501), (501, 502)), 2, [500]),
        (((3, 4), (70, 71), (500, 501)), 3, [70, 500]),
        (((1 << 32, (1 << 32) + 8), (7 << 32, (7 << 32) + 8)), 2, [7 << 32]),
    ],
)
def test_scattered_extents_are_cut_by_their_weight(
    extents: tuple[tuple[int, int], ...], pieces: int, boundaries: list[int]
) -> None:
    """Boundaries divide the known addresses evenly and lie at or inside an extent."""
    ranges, rows = cut(pieces, rows=pieces * 10, extents=extents)
    assert [each.first for each in ranges] == [None, *boundaries]
    assert [each.last for each in ranges] == [*boundaries, None]
    assert rows == [10] * pieces


@pytest.mark.parametrize(
    ("extents", "ranges"),
    [
        # Ends are open by address, in any order of the partitions, and never at empty ones.
        ([(20, 30), (30, 30), (0, 10), (10, 20)], [(20, None), (30, 30), (None, 10), (10, 20)]),
        # A table thought empty has one unit for the rows that it may have by now.
        ([(5, 5), (9, 2)], [(None, None), (9, 9)]),
    ],
)
def test_open_ends_go_to_the_lowest_and_highest_addresses(
    extents: list[tuple[int, int]], ranges: list[tuple[int | None, int | None]]
) -> None:
    """Partitions known by their extents alone are read with every address in exactly one."""
    table = TableInfo(
        schema=None,
        name="t",
        columns=(),
        partitions=tuple(
            PartitionInfo(name=f"p{at}", position=at, extents=(RowExtent(first=first, last=last),))
            for at, (first, last) in enumerate(extents)
        ),
        named_partitions=False,
        row_ranges=True,
    )
    units = plan(table, PlanLimits(parallelism=1, split="partition")).units
    made = [unit.selectors[0] for unit in sorted(units, key=lambda unit: unit.id)]
    assert [(each.first, each.last) for each in made if isinstance(each, RowRange)] == ranges


@pytest.mark.parametrize(
    ("keys", "pieces", "boundaries", "rows"),
    [
        # Not in the order of their text: 9 comes before 10.
        (("9", "10", "11"), 2, ["10"], [60, 60]),
        (("9", "10", "11"), 4, ["9", "10", "11"], [30, 30, 30, 30]),
        (("7",), 2, ["7"], [60, 60]),
        # Rows of one key cannot be parted, so the pieces are uneven, or fewer.
        (("a", "b", "b", "b", "c"), 2, ["b"], [40, 80]),
        (("a", "b", "b", "b", "c"), 3, ["b", "c"], [40, 60, 20]),
        (("b", "b", "b"), 4, ["b"], [30, 90]),
    ],
)
def test_a_part_is_cut_at_keys_of_the_sample(
    keys: tuple[str, ...], pieces: int, boundaries: list[str], rows: list[int]
) -> None:
    """Pieces meet at the keys that divide the sample evenly; the ends are open."""
    ranges, found = cut(pieces, rows=120, keys=keys)
    assert [each.first for each in ranges] == [None, *boundaries]
    assert [each.last for each in ranges] == [*boundaries, None]
    assert found == rows
    assert {each.column for each in ranges if isinstance(each, KeyRange)} == {"K"}


@given(st.lists(st.text(max_size=3), min_size=1, max_size=60, unique=True), st.data())
def test_pieces_of_different_keys_are_even(keys: list[str], data: st.DataObject) -> None:
    """For any keys there are as many pieces as asked for, and they adjoin evenly."""
    pieces = data.draw(st.integers(2, len(keys) + 1))
    ranges, rows = cut(pieces, rows=len(keys) + 1, keys=tuple(keys))
    assert len(ranges) == pieces
    assert all(low.last == high.first for low, high in pairwise(ranges))
    assert max(rows) - min(rows) <= 1
    assert sum(rows) == len(keys) + 1
