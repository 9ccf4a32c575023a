"""Rows encoded once and served many times: a reply is a few slices of two buffers.

Every row is kept whole and, for bit vectors, as what differs from the row before it in the table.
Where slices of the table join, the row before is another one, and that row's vector is made anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from oracle_server.model import Column
from oracle_server.wire.rows import cells
from oracle_server.wire.values.by_type import PREFETCHED_TYPES, Encoder

_CHUNK_ROWS = 10_000
_REMEMBERED_VALUES = 100_000
"""Cells remembered in a column, so that repeated values are encoded once."""


class Batch(NamedTuple):
    """The rows of one reply, without their header."""

    rows: int
    body: bytes
    vector: bytes
    """Bit vector of the first row, which goes into the row header; empty if that row is whole."""
    sent: int
    """Columns of the first row that are sent."""
    compressed: bool
    """A row had a vector."""
    repeats: bool
    """A vector named a repeated value."""


class EncodedTable:
    """Rows that were encoded once, to be served many times at next to no cost."""

    def __init__(self, columns: tuple[Column, ...], *, vectors: bool) -> None:
        """Start without rows; use `of`."""
        self.columns = columns
        self.vectors = vectors
        self._whole = bytearray()
        self._whole_ends = array("Q", [0])
        self._partial = bytearray()
        self._partial_ends = array("Q", [0])
        self._repeats = bytearray()

    @classmethod
    def of(
        cls,
        columns: Iterable[Column],
        values: Iterable[Sequence[Any]],
        *,
        vectors: bool = True,
    ) -> EncodedTable:
        """Encode rows.

        Args:
            columns: Of the projection; no CLOB, NCLOB or BLOB.
            values: One sequence of Python values a row.
            vectors: Keep the compressed form too (twice the memory). Without it cursors over this
                table send complete rows.

        Raises:
            ValueError: A column has a type whose form depends on the connection.
        """
        columns = tuple(columns)
        table = cls(columns, vectors=vectors and not cells.has_long(columns, None))
        encoders = [
            encode if column.type.name in PREFETCHED_TYPES else _remembering(encode)
            for column, encode in zip(
                columns, cells.make_encoders(columns, None, None), strict=True
            )
        ]
        always = cells.always_sent(columns)
        rows = iter(values)
        before: Sequence[bytes] = ()
        while chunk := list(islice(rows, _CHUNK_ROWS)):
            in_columns = [
                list(map(encode, column))
                for encode, column in zip(encoders, zip(*chunk, strict=True), strict=True)
            ]
            for row in zip(*in_columns, strict=True):
                table._add(row, before, always)
                before = row
        return table

    def _add(self, row: Sequence[bytes], before: Sequence[bytes], always: frozenset[int]) -> None:
        whole = b"".join(row)
        self._whole += cells.ROW
        self._whole += whole
        self._whole_ends.append(len(self._whole))
        if not self.vectors:
            return
        if not before:
            self._repeats.append(0)
        else:
            changed = cells.changes(row, before, always)
            complete = all(changed)
            self._repeats.append(not complete)
            self._partial += cells.vector_message(changed)
            self._partial += whole if complete else cells.sent(row, changed)
        self._partial_ends.append(len(self._partial))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._whole_ends) - 1

    def rows(self, slices: Iterable[tuple[int, int]] | None = None) -> EncodedRows:
        """Return a RowSource of rows [start, stop) of each slice in order; None is every row."""
        return EncodedRows(self, slices)

    def whole(self, start: int, stop: int) -> memoryview:
        """Return complete row messages."""
        ends = self._whole_ends
        return memoryview(self._whole)[ends[start] : ends[stop]]

    def partial(self, start: int, stop: int) -> memoryview:
        """Return row messages, each with the vector before it; row 0 has none."""
        ends = self._partial_ends
        return memoryview(self._partial)[ends[start] : ends[stop]]

    def repeats(self, start: int, stop: int) -> bool:
        """Tell whether one of these rows repeats a value of the row before it in the table."""
        return self._repeats.find(1, start, stop) >= 0


class EncodedRows:
    """A RowSource over slices of an EncodedTable. Each is read once, by one cursor."""

    def __init__(self, table: EncodedTable, slices: Iterable[tuple[int, int]] | None) -> None:
        """Take the slices; those that touch become one."""
        self.columns = table.columns
        self.can_compress = table.vectors
        self._table = table
        self._always = cells.always_sent(table.columns)
        self._slices = _joined(slices if slices is not None else ((0, len(table)),), len(table))
        self._at, self._stop = next(self._slices, (0, 0))
        self._last: int | None = None

    @property
    def table(self) -> EncodedTable:
        """What the slices are of."""
        return self._table

    def batch(self, limit: int, position: int, compress: bool, encoders: list[Encoder]) -> Batch:
        """Return the next rows; see `rows.RowSet.batch`."""
        parts: list[bytes | memoryview] = []
        count, vector, width = 0, b"", len(self.columns)
        repeats = False
        while count < limit and self._find_row():
            start, last = self._at, self._last
            if compress and position + count >= 2 and (not count or last != start - 1):
                message, row_repeats = self._after(start, last)
                if not count:
                    vector, width, message = self._taken_apart(message)
                parts.append(message)
                repeats = repeats or row_repeats
                stop = start + 1
            elif compress and position + count >= 2:
                stop = min(self._stop, start + limit - count)
                parts.append(self._table.partial(start, stop))
                repeats = repeats or self._table.repeats(start, stop)
            else:
                most = min(limit - count, 2 - position - count) if compress else limit - count
                stop = min(self._stop, start + most)
                parts.append(self._table.whole(start, stop))
            count += stop - start
            self._at, self._last = stop, stop - 1
        compressed = compress and position + count > 2 and count > 0
        return Batch(count, b"".join(parts), vector, width, compressed, repeats)

    def _find_row(self) -> bool:
        """Go to the next slice if this one is at its end; return whether there is a row."""
        while self._at >= self._stop:
            following = next(self._slices, None)
            if following is None:
                return False
            self._at, self._stop = following
        return True

    def _after(self, row: int, last: int | None) -> tuple[bytes | memoryview, bool]:
        """Return a row's message with its vector after the row that was sent last."""
        if last == row - 1:
            return self._table.partial(row, row + 1), self._table.repeats(row, row + 1)
        assert last is not None
        ours = cells.split(self.columns, self._table.whole(row, row + 1))
        before = cells.split(self.columns, self._table.whole(last, last + 1))
        changed = cells.changes(ours, before, self._always)
        return cells.vector_message(changed) + cells.sent(ours, changed), not all(changed)

    def _taken_apart(self, message: bytes | memoryview) -> tuple[bytes, int, bytes]:
        """Return a row's vector, columns sent and message: in a row header they stand elsewhere."""
        start = 2 + message[1]
        end = start + (len(self.columns) + 7) // 8
        width = int.from_bytes(message[2:start], "big")
        return bytes(message[start:end]), width, bytes(message[end:])


def _joined(slices: Iterable[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Yield the slices, cut to the table, without empty ones, those that touch as one."""
    held: tuple[int, int] | None = None
    for start, stop in slices:
        start, stop = max(start, 0), min(stop, length)
        if start >= stop:
            continue
        if held is not None and held[1] == start:
            held = held[0], stop
            continue
        if held is not None:
            yield held
        held = start, stop
    if held is not None:
        yield held


def _remembering(encode: Encoder) -> Callable[[Any], bytes]:
    """Return an encoder that makes the cell of a value it had lately only once."""
    known: dict[Any, bytes] = {}

    def encode_cell(value: Any) -> bytes:
        try:
            cell = known.get(value)
        except TypeError:
            return encode(value)
        if cell is None:
            cell = encode(value)
            if len(known) >= _REMEMBERED_VALUES:
                known.clear()
            # 0.0 and -0.0 are one key but two values.
            if value != 0 or not isinstance(value, float):
                known[value] = cell
        return cell

    return encode_cell
