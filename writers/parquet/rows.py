"""Row groups: batches cut exactly where there are enough rows or bytes.

Where a row group ends depends on the rows alone, not on the batches they came in, so bytes are
counted row by row: the values of a batch, without what a batch adds (validity, rounded buffers).

Whether rows are in the order that is declared for them: a file must not promise another.

Values are ordered as in Parquet's statistics: numbers by value, text and bytes by their bytes. A
database that sorts text by a language's rules has another one, and so has NaN none at all.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from writers.errors import FormatError, ValueNotRepresentable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from writers.model import SortColumn


class RowGroups:
    """Ends a row group after a number of rows, or with the row that reaches a size."""

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
                # The first row after `start` before which there are at least `room` bits.
                ends_at = range(start + 1, stop + 1)
                stop = ends_at[bisect_left(ends_at, room, key=partial(measure, start))]
                size = measure(start, stop)
            self._rows += stop - start
            self._bits += size
            ends = self._rows >= self._limit_rows or self._bits >= self._limit_bits
            if ends:
                self._rows = self._bits = 0
            yield (batch.slice(start, stop - start) if stop - start < rows else batch), ends
            start = stop


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in one separate piece of memory.

    Drivers make columns in memory that they let grow, many times as many pieces as there are
    batches; kept among the pieces of batches to come they tore up the C library's heap, which grew
    by 2 bytes a row (measured) for as long as a unit lasted.
    """
    try:
        return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    except pa.ArrowException:  # Such a message does not hold dictionaries.
        return batch


def _all(measures: list[Callable[[int, int], int] | int]) -> Callable[[int, int], int]:
    """Return the sum of several measures; a number is the bits of every single row."""
    fixed = sum(each for each in measures if isinstance(each, int))
    varying = [each for each in measures if not isinstance(each, int)]
    return lambda start, stop: (
        fixed * (stop - start) + sum(measure(start, stop) for measure in varying)
    )


def _measure(array: pa.Array) -> Callable[[int, int], int] | int:
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


class OrderCheck:
    """Compares each row with the one before it, by columns that are there once and ordered."""

    def __init__(self, schema: pa.Schema, columns: tuple[SortColumn, ...]) -> None:
        self._columns = columns
        self._places = [_place(schema, column.name) for column in columns]
        self._last: list[pa.Array] = []
        self._rows = 0

    def check(self, batch: pa.RecordBatch) -> None:
        """Check the rows of a batch, the first against the last one before; the error names a row
        from 1."""
        if not self._columns or not batch.num_rows:
            return

        keys = [batch.column(place) for place in self._places]
        if self._last:
            ends = zip(self._last, keys, strict=True)
            self._check([pa.concat_arrays([last, key.slice(0, 1)]) for last, key in ends], -1)
        self._check(keys, 0)
        self._last = [key.slice(len(key) - 1) for key in keys]
        self._rows += batch.num_rows

    def _check(self, keys: list[pa.Array], shift: int) -> None:
        rows = len(keys[0])
        if rows < 2:
            return
        wrong = pc.index(self._in_order(keys), False).as_py()
        if wrong >= 0:
            declared = ", ".join(_words(column) for column in self._columns)
            raise ValueNotRepresentable(
                f"row {self._rows + wrong + 2 + shift:,} is not after the row before it in the "
                f"declared order {declared}.",
                "sort the rows in this order in the query (text by its bytes), or leave "
                "--sorted-by out.",
            )

    def _in_order(self, keys: list[pa.Array]) -> pa.Array:
        """Tell for each row but the first whether it may follow the one before."""
        fine: Any = pa.scalar(True)
        for column, key in reversed(list(zip(self._columns, keys, strict=True))):
            before, after = key.slice(0, len(key) - 1), key.slice(1)
            none_before, none_after = pc.is_null(before), pc.is_null(after)
            compare = pc.greater if column.descending else pc.less
            earlier = pc.fill_null(compare(before, after), False)
            null_side = none_before if column.nulls_first else none_after
            earlier = pc.or_(earlier, pc.and_(pc.xor(none_before, none_after), null_side))
            same = pc.fill_null(pc.equal(before, after), False)
            same = pc.or_(same, pc.and_(none_before, none_after))
            fine = pc.or_(earlier, pc.and_(same, fine))
        return fine


def sorting_columns(paths: list[str], columns: tuple[SortColumn, ...]) -> list[Any] | None:
    """Return the order that pyarrow records in a file, or None."""

    return [
        pq.SortingColumn(paths.index(column.name), column.descending, column.nulls_first)
        for column in columns
    ] or None


def _place(schema: pa.Schema, name: str) -> int:
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        raise FormatError(
            f"{'several columns have' if places else 'no column has'} the name {name!r} in "
            "--sorted-by.",
            f"use one of {', '.join(schema.names[:50])}.",
        )
    nothing = pa.nulls(0, schema.field(places[0]).type)
    try:
        pc.less(nothing, nothing)
        pc.equal(nothing, nothing)
    except pa.ArrowNotImplementedError as exc:
        raise FormatError(
            f"column {name!r} has the type {nothing.type}, which has no order.",
            "leave it out of --sorted-by.",
        ) from exc
    return int(places[0])


def _words(column: SortColumn) -> str:
    down = " desc" if column.descending else ""
    usual = column.descending
    nulls = "" if column.nulls_first == usual else f" nulls {'last' if usual else 'first'}"
    return f"{column.name}{down}{nulls}"
