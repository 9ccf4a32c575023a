"""Ranges of addresses and of keys: exact inside, open outside."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import KeyRange, KeySample, RowExtent, RowRange
from partition_planner.parts import Draft, Part
from partition_planner.planner import BOTH_OPEN, OpenEnds, cut, cut_keys, open_ends
from partition_planner.spreads import spread_of


def part(name: str, first: int, last: int, rows: int | None = None) -> Part:
    """A part with an extent."""
    return scattered((first, last), name=name, rows=rows)


def scattered(*extents: tuple[int, int], name: str = "p", rows: int | None = None) -> Part:
    """A part with several extents."""
    known = tuple(RowExtent(first=first, last=last) for first, last in extents)
    return Part(
        name=name,
        kind="partition",
        relation=None,
        object_id=7,
        rows=rows,
        bytes=None,
        spread=spread_of(known, None),
    )


@given(st.integers(-100, 100), st.integers(1, 500), st.data())
def test_pieces_are_of_equal_address_count(first: int, length: int, data: st.DataObject) -> None:
    """Pieces adjoin, differ by at most one address, and share the rows out without remainder."""
    pieces = data.draw(st.integers(1, length))
    closed = OpenEnds(first=False, last=False)
    drafts = list(cut(part("p", first, first + length, rows=12_345), pieces, closed))
    ranges = [draft.selectors[0] for draft in drafts if isinstance(draft.selectors[0], RowRange)]
    bounds = [(piece.first or 0, piece.last or 0) for piece in ranges]
    assert len(bounds) == pieces
    assert (bounds[0][0], bounds[-1][1]) == (first, first + length)
    assert all(low[1] == high[0] for low, high in pairwise(bounds))
    widths = {last - start for start, last in bounds}
    assert max(widths) - min(widths) <= 1
    assert min(widths) >= 1
    assert sum(draft.rows or 0 for draft in drafts) == 12_345


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
    drafts = list(cut(scattered(*extents, rows=pieces * 10), pieces, BOTH_OPEN))
    ranges = [draft.selectors[0] for draft in drafts if isinstance(draft.selectors[0], RowRange)]
    assert [each.first for each in ranges] == [None, *boundaries]
    assert [each.last for each in ranges] == [*boundaries, None]
    assert sum(draft.rows or 0 for draft in drafts) == pieces * 10


def test_open_ends_go_to_the_lowest_and_highest_addresses() -> None:
    """Ends are open by address, in any order of the partitions, and never at empty ones."""
    parts = [part("c", 20, 30), part("e", 30, 30), part("a", 0, 10), part("b", 10, 20)]
    ends = open_ends(parts, "t")
    assert ends == [(False, True), (False, False), (True, False), (False, False)]


def test_when_all_extents_are_empty_the_first_part_reads_everything() -> None:
    """A table thought empty has exactly one unit for the rows it may have by now."""
    parts = [part("a", 5, 5), part("b", 9, 2)]
    assert open_ends(parts, "t") == [(True, True), (False, False)]
    (draft,) = cut(parts[1], 1, OpenEnds(first=False, last=False))
    assert isinstance(draft.selectors[0], RowRange)
    assert draft.selectors[0].first == draft.selectors[0].last == 9


def keyed_part(*keys: str, rows: int | None = None) -> Part:
    """A part of an index-organised table, with keys."""
    return Part(
        name="p/s",
        kind="subpartition",
        relation=None,
        object_id=None,
        rows=rows,
        bytes=None,
        spread=spread_of((), KeySample(column="K", keys=keys)),
    )


def ranges(drafts: list[Draft]) -> list[KeyRange]:
    found = [draft.selectors[0] for draft in drafts if isinstance(draft.selectors[0], KeyRange)]
    assert len(found) == len(drafts)
    return found


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
    drafts = list(cut_keys(keyed_part(*keys, rows=120), pieces))
    made = ranges(drafts)
    assert [each.first for each in made] == [None, *boundaries]
    assert [each.last for each in made] == [*boundaries, None]
    assert [draft.rows for draft in drafts] == rows
    assert {(each.column, each.partition, each.kind) for each in made} == {
        ("K", "p/s", "subpartition")
    }


@given(st.lists(st.text(max_size=3), min_size=1, max_size=60, unique=True), st.data())
def test_pieces_of_different_keys_are_even(keys: list[str], data: st.DataObject) -> None:
    """For any keys there are as many pieces as asked for, and they adjoin evenly."""
    pieces = data.draw(st.integers(1, len(keys) + 1))
    drafts = list(cut_keys(keyed_part(*keys, rows=len(keys) + 1), pieces))
    made = ranges(drafts)
    assert len(made) == pieces
    assert all(low.last == high.first for low, high in pairwise(made))
    weights = [draft.rows or 0 for draft in drafts]
    assert max(weights) - min(weights) <= 1
    assert sum(weights) == len(keys) + 1
