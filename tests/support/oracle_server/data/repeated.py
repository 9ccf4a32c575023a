"""Rows that come again and again: a large table in the memory of a small one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from oracle_server.data.tables import Row, SegmentView, Slice


class RepeatedRows(Sequence[Row]):
    """The rows of a sequence, one turn after the other."""

    def __init__(self, rows: Sequence[Row], times: int) -> None:
        """Take the rows of a turn, at least one, and the number of turns."""
        self.rows = rows
        self._times = times

    def __len__(self) -> int:
        """Return the number of rows of all turns."""
        return len(self.rows) * self._times

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """Return a row, or the rows of a slice without a step."""
        if isinstance(index, int):
            return self.rows[index % len(self.rows)]
        start, stop, _ = index.indices(len(self))
        parts = turns((start, stop), len(self.rows))
        return [row for first, last in parts for row in self.rows[first:last]]


def turns(rows: Slice, length: int) -> list[Slice]:
    """Return the slices of a turn of so many rows that a slice of all turns consists of."""
    start, stop = rows
    found: list[Slice] = []
    while start < stop:
        first = start % length
        count = min(length - first, stop - start)
        found.append((first, first + count))
        start += count
    return found


def one_turn(views: Sequence[SegmentView]) -> list[int] | None:
    """Return how many rows a turn of each segment has; None if a row is not one of such turns."""
    lengths = []
    for view in views:
        base = view.segment.base
        if not isinstance(base, RepeatedRows) or view.is_changed:
            return None
        lengths.append(len(base.rows))
    return lengths


def in_turns(
    slices: Sequence[Slice], views: Sequence[SegmentView], lengths: Sequence[int]
) -> list[Slice]:
    """Return slices of a table as slices of one turn of each of its segments, in their order.

    Args:
        slices: Of the table's rows, ascending.
        views: Of its segments.
        lengths: Rows of a turn of each.
    """
    found: list[Slice] = []
    for start, stop in slices:
        before = here = 0
        for view, length in zip(views, lengths, strict=True):
            first, last = max(start - before, 0), min(stop - before, len(view))
            found += [(here + a, here + b) for a, b in turns((first, last), length)]
            before += len(view)
            here += length
    return found
