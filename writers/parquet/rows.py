"""Row groups: batches cut exactly where there are enough rows or bytes.

Where a row group ends depends on the rows alone, not on the batches they came in, so bytes are
counted row by row: the values of a batch, without what a batch adds (validity, rounded buffers).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


PAGE_ROWS = 1024
"""Arrow looks after so many values of a chunk whether a page is full; the default of its
`write_batch_size`."""


def aligned(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches that end where Arrow may end a page.

    Pages would end at other rows if the same rows came in other batches, and the file have other
    bytes. Only the rows around an end that is elsewhere are copied.
    """
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = min(PAGE_ROWS - rows, batch.num_rows) if rows else 0
        if start:
            held.append(batch.slice(0, start))
            rows += start
            if rows < PAGE_ROWS:
                continue
            yield from _joined(held)
            held, rows = [], 0
        whole = (batch.num_rows - start) // PAGE_ROWS * PAGE_ROWS
        if whole:
            yield batch.slice(start, whole)
        if start + whole < batch.num_rows:
            held.append(batch.slice(start + whole))
            rows = held[-1].num_rows
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches as one; as several where a column would hold more than an array can."""
    import pyarrow as pa

    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


class RowGroups:
    """Tells where row groups end.

    Args:
        rows: Of a row group at most.
        size: Bytes at which a row group ends, with the row that reaches them.
    """

    def __init__(self, rows: int, size: int) -> None:
        self._limit_rows = rows
        self._limit_bits = 8 * size
        self._rows = self._bits = 0

    def cut(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the rows of a batch in pieces, and with each whether a row group ends there."""
        start, rows = 0, batch.num_rows
        if not rows:
            return
        measure = _all([_measure(column) for column in batch.columns])
        while start < rows:
            stop = min(rows, start + self._limit_rows - self._rows)
            size = measure(start, stop)
            room = self._limit_bits - self._bits
            if size >= room:
                stop = _cut(measure, start, stop, room)
                size = measure(start, stop)
            self._rows += stop - start
            self._bits += size
            ends = self._rows >= self._limit_rows or self._bits >= self._limit_bits
            if ends:
                self._rows = self._bits = 0
            yield (batch.slice(start, stop - start) if stop - start < rows else batch), ends
            start = stop


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in one piece of memory of its own.

    Drivers make columns in memory that they let grow, many times as many pieces as there are
    batches; kept among the pieces of batches to come they tore up the C library's heap, which grew
    by 2 bytes a row (measured) for as long as a unit lasted.
    """
    import pyarrow as pa

    try:
        return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    except pa.ArrowException:  # Dictionaries are no part of such a message.
        return batch


def _cut(measure: Callable[[int, int], int], start: int, stop: int, room: int) -> int:
    """Return the first row behind `start` before which at least `room` bits lie."""
    ends = range(start + 1, stop + 1)
    return ends[bisect_left(ends, room, key=lambda end: measure(start, end))]


def _all(measures: list[Callable[[int, int], int] | int]) -> Callable[[int, int], int]:
    """Return the sum of several measures; a number is the bits of every single row."""
    fixed = sum(each for each in measures if isinstance(each, int))
    varying = [each for each in measures if not isinstance(each, int)]
    return lambda start, stop: (
        fixed * (stop - start) + sum(measure(start, stop) for measure in varying)
    )


def _measure(array: pa.Array) -> Callable[[int, int], int] | int:
    from pyarrow import types

    kind = array.type
    if types.is_string(kind) or types.is_binary(kind):
        return _lengths(array, "i", None)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _lengths(array, "q", None)
    if types.is_list(kind) or types.is_map(kind):
        return _lengths(array, "i", _all([_measure(array.values)]))
    if types.is_large_list(kind):
        return _lengths(array, "q", _all([_measure(array.values)]))
    if types.is_struct(kind):
        return _all([_measure(array.field(index)) for index in range(kind.num_fields)])
    if types.is_dictionary(kind):
        return _measure(array.indices)
    if hasattr(array, "storage"):
        return _measure(array.storage)
    try:
        return int(kind.bit_width)
    except ValueError:  # views and the like, which no source here makes
        return lambda start, stop: 8 * int(array.slice(start, stop - start).nbytes)


def _lengths(
    array: pa.Array, code: str, inner: Callable[[int, int], int] | None
) -> Callable[[int, int], int]:
    """Return the measure of values that are ranges of bytes, or of another array."""
    width = 4 if code == "i" else 8
    first = array.offset
    buffer: Any = memoryview(array.buffers()[1]).cast("B")
    offsets = buffer[: (first + len(array) + 1) * width].cast(code)

    def measure(start: int, stop: int) -> int:
        begin, end = offsets[first + start], offsets[first + stop]
        values = 8 * (end - begin) if inner is None else inner(begin, end)
        return int(8 * width * (stop - start) + values)

    return measure
