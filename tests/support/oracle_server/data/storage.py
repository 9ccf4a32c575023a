"""Where rows lie: files, extents and the row addresses in them.

Extents of one segment are spread over several files and have extents of other segments between
them, as in a database that has lived; so the addresses of a segment have gaps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oracle_server.model import Rowid

BLOCK_BYTES = 8192
HEADER_BLOCKS = 3
"""Blocks at the start of a segment that hold no rows: two bitmaps and the segment header."""
ABSOLUTE_FILE_OFFSET = 8
"""FILE_ID is the relative file number plus this, as they differ in a pluggable database."""


class Extent(NamedTuple):
    """Blocks side by side in one file, which has a relative file number."""

    file: int
    block: int
    blocks: int


@dataclass(slots=True)
class Storage:
    """The files of a database."""

    next_block: dict[int, int] = field(default_factory=dict)
    others: list[Extent] = field(default_factory=list)
    """Extents of segments that no user has, which lie between those of the tables."""
    turns: int = 0

    def allocate(self, blocks: int, files: Sequence[int]) -> Extent:
        """Return the next extent, in the next of the files."""
        self.turns += 1
        file = files[self.turns % len(files)]
        start = self.next_block.get(file, 128)
        gap = 8 * (self.turns * 7 % 3)
        if gap:
            self.others.append(Extent(file, start, gap))
        self.next_block[file] = start + gap + blocks
        return Extent(file, start + gap, blocks)


@dataclass(slots=True, kw_only=True)
class Layout:
    """The extents of one segment, and how row positions map to addresses in them.

    Position p is the p-th row in the order of the extents, a fixed number of rows to a block.
    """

    rows_per_block: int
    extents: list[Extent] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    """Position of the first row of each extent."""
    capacity: int = 0

    def add(self, extent: Extent) -> None:
        """Put an extent behind the others."""
        header = HEADER_BLOCKS if not self.extents else 0
        self.extents.append(extent)
        self.firsts.append(self.capacity)
        self.capacity += max(0, extent.blocks - header) * self.rows_per_block

    def rowid(self, data_object: int, position: int) -> Rowid:
        """Return the address of a row."""
        number = bisect_right(self.firsts, position) - 1
        block, slot = divmod(position - self.firsts[number], self.rows_per_block)
        return Rowid(
            data_object, self.extents[number].file, self._first_block(number) + block, slot
        )

    def _first_block(self, number: int) -> int:
        return self.extents[number].block + (HEADER_BLOCKS if number == 0 else 0)

    def _end(self, number: int) -> int:
        return self.firsts[number + 1] if number + 1 < len(self.firsts) else self.capacity

    def between(
        self, low: tuple[int, int, int] | None, high: tuple[int, int, int] | None
    ) -> Iterator[tuple[int, int]]:
        """Yield the position ranges of addresses (file, block, slot) from `low` to below `high`."""
        for number in range(len(self.extents)):
            start = self.firsts[number] if low is None else self._bound(number, low)
            stop = self._end(number) if high is None else self._bound(number, high)
            if start < stop:
                yield start, stop

    def _bound(self, number: int, address: tuple[int, int, int]) -> int:
        """Return the first position in an extent that is not before an address."""
        file, block, slot = address
        first, end, extent = self.firsts[number], self._end(number), self.extents[number]
        if file != extent.file:
            return first if file < extent.file else end
        begin = self._first_block(number)
        if block < begin:
            return first
        offset = (block - begin) * self.rows_per_block + min(slot, self.rows_per_block)
        return min(first + offset, end)

    def blocks(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (file, block, first position, end position) of each block of the first rows."""
        for number, extent in enumerate(self.extents):
            begin = self._first_block(number)
            for start in range(self.firsts[number], self._end(number), self.rows_per_block):
                if start >= count:
                    break
                block = begin + (start - self.firsts[number]) // self.rows_per_block
                yield extent.file, block, start, min(start + self.rows_per_block, count)
