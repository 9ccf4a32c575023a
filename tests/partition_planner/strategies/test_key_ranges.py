"""Ranges of keys: positions in a sample decide, never the text of a key."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import KeyRange, KeySample
from partition_planner.parts import Draft, Part
from partition_planner.planner import cut_keys
from partition_planner.spreads import spread_of


def part(*keys: str, rows: int | None = None) -> Part:
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
    drafts = list(cut_keys(part(*keys, rows=120), pieces))
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
    drafts = list(cut_keys(part(*keys, rows=len(keys) + 1), pieces))
    made = ranges(drafts)
    assert len(made) == pieces
    assert all(low.last == high.first for low, high in pairwise(made))
    weights = [draft.rows or 0 for draft in drafts]
    assert max(weights) - min(weights) <= 1
    assert sum(weights) == len(keys) + 1
