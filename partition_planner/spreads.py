"""How the rows of a part are spread, and so where it can be cut and what its pieces weigh.

A spread has a weight; the places where it can be cut are offsets between 0 and that weight. The
value at an offset is an address or a key. Both kinds find a place by bisection over sums made once,
so that a hundred thousand extents cost no more than their reading.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from partition_planner.table import KeySample, RowExtent


class Addresses:
    """Rows at the addresses of extents: weight is their number, offsets count them in order.

    Addresses between extents weigh nothing. They belong to the part that has the address below.
    """

    def __init__(self, extents: tuple[RowExtent, ...]) -> None:
        self.extents = extents
        self.weight = self.most_pieces = sum(extent.addresses for extent in extents)
        """Beyond `most_pieces` pieces one would be empty; 0 if all are."""

    def cuts(self, pieces: int) -> list[int]:
        """Return the ascending offsets between this number of even pieces, with 0 and the
        weight."""
        return [self.weight * piece // pieces for piece in range(pieces + 1)]

    def at(self, offset: int) -> int:
        """Return the address of a cut, with this number of addresses below it: within an extent.

        At the weight that is the end of the last extent.
        """
        if self.weight == 0:
            return self.extents[0].first
        extents, before = self._filled
        if offset == self.weight:
            return extents[-1].last
        found = bisect_right(before, offset) - 1
        return extents[found].first + offset - before[found]

    def span(self, first: int | None, last: int | None) -> tuple[int, int]:
        """Return the offsets at which the range [first, last) starts and ends; None is open."""
        start = 0 if first is None else self._below(first)
        return start, self.weight if last is None else self._below(last)

    def _below(self, address: int) -> int:
        extents, before = self._filled
        found = bisect_right(extents, address, key=_first) - 1
        if found < 0:
            return 0
        return before[found] + min(address - extents[found].first, extents[found].addresses)

    @cached_property
    def _filled(self) -> tuple[list[RowExtent], list[int]]:
        """The extents that are not empty, and the offsets at which they start."""
        filled = [extent for extent in self.extents if extent.addresses]
        starts, total = [], 0
        for extent in filled:
            starts.append(total)
            total += extent.addresses
        return filled, starts


class Keys:
    """Rows in the order of a key: offsets count the intervals of a sample, in order.

    n keys make n + 1 intervals of about equally many rows. A key that repeats has the first of its
    places: all rows with this key are above.
    """

    def __init__(self, sample: KeySample) -> None:
        self.column = sample.column
        self.weight = len(sample.keys) + 1
        self._sample = sample.keys

    @property
    def most_pieces(self) -> int:
        """Number of pieces beyond which one would be empty."""
        return len(self._offsets) + 1

    def cuts(self, pieces: int) -> list[int]:
        """Return ascending offsets at which even pieces would meet, with 0 and the weight.

        Each is the nearest offset where a key occurs for the first time. Where keys repeat, two may
        fall together; they are then one, and there are fewer pieces.
        """
        ideal = (self.weight * piece // pieces for piece in range(1, pieces))
        inner = dict.fromkeys(self._nearest(offset) for offset in ideal)
        return [0, *inner, self.weight]

    def at(self, offset: int) -> str:
        """Return the key at one of the inner `cuts`."""
        return self._sample[offset - 1]

    def span(self, first: str | None, last: str | None) -> tuple[int, int]:
        """Return the offsets at which the range [first, last) starts and ends; None is open.

        A key outside the sample gets the sample's start.
        """
        start = 0 if first is None else self._offsets.get(first, 0)
        return start, self.weight if last is None else self._offsets.get(last, 0)

    def _nearest(self, offset: int) -> int:
        firsts = self._firsts
        above = bisect_right(firsts, offset)
        return min(firsts[max(0, above - 1) : above + 1], key=lambda first: abs(first - offset))

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Each key to the offset where it first occurs, ascending."""
        found: dict[str, int] = {}
        for at, key in enumerate(self._sample, start=1):
            found.setdefault(key, at)
        return found

    @cached_property
    def _firsts(self) -> list[int]:
        return list(self._offsets.values())


Spread = Addresses | Keys


def spread_of(extents: tuple[RowExtent, ...], keys: KeySample | None) -> Spread | None:
    """Return how rows are spread, by extents sooner than by keys; None if neither is known."""
    if extents:
        return Addresses(extents)
    return Keys(keys) if keys is not None and keys.keys else None


def _first(extent: RowExtent) -> int:
    return extent.first
