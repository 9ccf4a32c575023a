"""Ranges of addresses: exact inside, open outside."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import RowExtent, RowRange
from partition_planner.parts import Part
from partition_planner.strategies.row_ranges import BOTH_OPEN, OpenEnds, cut, open_ends


def part(name: str, first: int, last: int, rows: int | None = None) -> Part:
    """A part with an extent."""
    extent = RowExtent(first=first, last=last)
    return Part(name=name, relation=None, rows=rows, bytes=None, extent=extent)


@given(st.integers(-100, 100), st.integers(1, 500), st.data())
def test_pieces_are_of_equal_address_count(first: int, length: int, data: st.DataObject) -> None:
    """Pieces adjoin, differ by at most one address, and share the rows out without remainder."""
    pieces = data.draw(st.integers(1, length))
    closed = OpenEnds(first=False, last=False)
    drafts = list(cut(part("p", first, first + length, rows=12_345), pieces, closed))
    ranges = [draft.selector for draft in drafts if isinstance(draft.selector, RowRange)]
    bounds = [(piece.first or 0, piece.last or 0) for piece in ranges]
    assert len(bounds) == pieces
    assert (bounds[0][0], bounds[-1][1]) == (first, first + length)
    assert all(low[1] == high[0] for low, high in pairwise(bounds))
    widths = {last - start for start, last in bounds}
    assert max(widths) - min(widths) <= 1
    assert min(widths) >= 1
    assert sum(draft.rows or 0 for draft in drafts) == 12_345


def test_one_piece_with_open_ends_is_everything() -> None:
    """A part cut into one open piece has no boundary at all."""
    (draft,) = cut(part("p", 3, 9), 1, BOTH_OPEN)
    assert draft.selector == RowRange(partition="p", relation=None, first=None, last=None)


def test_open_ends_go_to_the_lowest_and_highest_addresses() -> None:
    """Ends are open by address, in whatever order the partitions come, and never at empty ones."""
    parts = [part("c", 20, 30), part("e", 30, 30), part("a", 0, 10), part("b", 10, 20)]
    ends = open_ends(parts, "t")
    assert ends == [(False, True), (False, False), (True, False), (False, False)]


def test_when_all_extents_are_empty_the_first_part_reads_everything() -> None:
    """A table thought empty has exactly one unit for the rows it may have by now."""
    parts = [part("a", 5, 5), part("b", 9, 2)]
    assert open_ends(parts, "t") == [(True, True), (False, False)]
    (draft,) = cut(parts[1], 1, OpenEnds(first=False, last=False))
    assert isinstance(draft.selector, RowRange)
    assert draft.selector.first == draft.selector.last == 9
