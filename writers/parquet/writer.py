"""Parquet files with row groups of exact size, written through the overlapped sink.

Values keep their Arrow type: nothing is coerced, and what Parquet cannot hold is refused with
the column's name. A file that is given up never gets a footer, so it cannot pass for whole.

The first row group is gathered, as the encodings are chosen from it. Then the native library
encodes the batches as they come, where it was built and knows all that the file is to have;
elsewhere pyarrow does, row group by row group.

Row groups: batches cut exactly where there are enough rows or bytes.

Where a row group ends depends on the rows alone, not on the batches they came in, so bytes are
counted row by row: the values of a batch, without what a batch adds (validity, rounded buffers).

Whether rows are in the order that is declared for them: a file must not promise another.

Values are ordered as in Parquet's statistics: numbers by value, text and bytes by their bytes. A
database that sorts text by a language's rules has another one, and so has NaN none at all.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import types

from writers.codecs.compression import CODECS, check_codec
from writers.encryption.parquet import check_encryption, writing_options
from writers.errors import FormatError, ValueNotRepresentable
from writers.files.sink import Sink, StagedFiles
from writers.large_rows import LargeRow, check_collectable, check_large_row, collected
from writers.model import (
    Compression,
    OutputSpec,
    ParquetFormat,
    SortColumn,
    StageSeconds,
    WrittenFile,
)
from writers.parquet.columns import column_options
from writers.parquet.native.file import NativeFile, plans_of, prepared
from writers.parquet.native.pages import check_choice, why_not
from writers.parquet.options import (
    bloom_options,
    check_bloom_filters,
    check_options,
    check_types,
    compression_options,
    format_options,
    refusal,
    statistics_options,
)
from writers.schema import check_schema, in_microseconds, with_field_ids

OpenFile = Callable[[Sink], "ArrowFile | NativeFile"]


class ParquetWriter:
    """Writes batches as Parquet, or refuses the options or a column that Parquet has no type for.

    Where row groups and files end depends on the rows and the spec only, so the same rows give the
    same files on every run of one pyarrow version and one encoder. Version 1.0 uses no delta
    encodings, for old readers.
    """

    def __init__(self, spec: OutputSpec, schema: pa.Schema, stem: str) -> None:
        if not isinstance(spec.format, ParquetFormat):
            raise FormatError(f"a Parquet writer cannot write {type(spec.format).__name__}.")
        check_options(spec.format)
        check_codec("parquet", spec.compression, CODECS["parquet"])
        check_bloom_filters(schema, spec.format)
        check_encryption(spec)
        check_choice(spec.encoder)
        self._paths = check_types(schema, spec.format)
        self._order = OrderCheck(schema, spec.format.sorted_by)
        self._spec = spec
        self._format = spec.format
        self._given = schema
        self._schema = in_microseconds(schema) if spec.microseconds else schema
        self._open: OpenFile | None = None
        self._groups = RowGroups(spec.format.row_group_rows, spec.format.row_group_bytes)
        self._first: list[pa.RecordBatch] = []
        self._group_rows = 0
        self._encode_seconds = 0.0
        # The pages are compressed already.
        self._files = StagedFiles(spec, stem, "parquet", Compression())
        self._file: ArrowFile | NativeFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of the schema; ValueNotRepresentable names the column of a value."""
        check_schema(batch, self._given)
        check_collectable(batch)
        self._order.check(batch)
        if not self._schema.equals(self._given):
            pairs = zip(batch.columns, self._schema, strict=True)
            try:
                arrays = [column.cast(field.type) for column, field in pairs]
            except pa.ArrowInvalid as exc:
                raise ValueNotRepresentable(
                    f"a timestamp does not fit into microseconds: {exc}.",
                    "leave the row out, or write the column as text.",
                ) from exc
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for piece, ends in self._groups.cut(batch):
            self._group_rows += piece.num_rows
            if self._open is None:
                self._first.append(compact(piece))
            else:
                self._encode(piece)
            if ends:
                self._end_row_group()

    def write_large(self, row: LargeRow) -> None:
        """Take one row, its values collected; a larger one than `COLLECTED_BYTES` is refused."""
        check_large_row(row, self._given)
        self.write(collected(row))

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish and sync the files, which keep their staging names; or leave none."""
        try:
            if self._group_rows:
                self._end_row_group()
            if self._files.is_open:
                self._finish_file()
        except BaseException:
            self.abort()
            raise
        return self._files.files

    def abort(self) -> None:
        """Stop, and remove every staged file; never raises for files already gone."""
        self._first.clear()
        if self._file is not None:
            self._file.give_up()
        self._files.abort()
        self._file = None

    @property
    def bytes_written(self) -> int:
        return self._files.bytes_written

    @property
    def stages(self) -> StageSeconds:
        """Wall seconds so far; waiting for the destination while encoding counts as encoding."""
        # The sink receives compressed bytes.
        return replace(self._files.stages(self._encode_seconds), uncompressed_bytes=None)

    def _encode(self, batch: pa.RecordBatch) -> None:
        file = self._opened()
        started = perf_counter()
        file.write(compact(batch) if file.holds_batches else batch)
        self._encode_seconds += perf_counter() - started

    def _end_row_group(self) -> None:
        started = perf_counter()
        if self._open is None:
            self._open = self._chosen()
        file = self._opened()
        for batch in self._first:
            file.write(batch)
        self._first.clear()
        file.end_row_group()
        self._group_rows = 0
        self._encode_seconds += perf_counter() - started
        limit = self._spec.file_size_bytes
        if limit and self._files.sink().bytes_accepted >= limit:
            self._finish_file()

    def _chosen(self) -> OpenFile:
        """Return what opens the files, with encodings chosen from the first row group."""
        options: dict[str, Any] = {}
        if self._first:
            table = pa.Table.from_batches(self._first, self._schema)
            try:
                options = {
                    **column_options(table, self._paths, self._format, self._spec.compression),
                    **bloom_options(table, self._format),
                }
            except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
                raise refusal(table, exc, self._format) from exc
        schema = with_field_ids(self._schema, self._spec.field_ids)
        parquet, spec = self._format, self._spec
        if options and spec.encoder != "plain" and not spec.encryption.keyed and why_not() is None:
            common = prepared(schema, parquet)
            plans = None if common is None else plans_of(common.forms, options)
            if common is not None and plans is not None:
                return partial(NativeFile, common=common, plans=plans, parquet=parquet)
        return lambda sink: ArrowFile(sink, schema, spec, parquet, self._paths, options)

    def _opened(self) -> ArrowFile | NativeFile:
        if self._file is None:
            self._open = self._open or self._chosen()
            self._file = self._open(self._files.sink())
        return self._file

    def _finish_file(self) -> None:
        file = self._opened()
        started = perf_counter()
        file.close()
        self._encode_seconds += perf_counter() - started
        self._file = None
        self._files.finish(file.rows)


class ArrowFile:
    """Writes one file with encoding `options`: the same row groups give the same bytes."""

    holds_batches = True
    """Batches are kept until their row group ends."""

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        spec: OutputSpec,
        parquet: ParquetFormat,
        paths: list[str],
        options: dict[str, Any],
    ) -> None:
        self._schema, self._format = schema, parquet
        self._gathered: list[pa.RecordBatch] = []
        self.rows = 0
        """In all whole row groups."""
        self._view = _SinkFile(sink)
        self._writer: Any = pq.ParquetWriter(
            pa.PythonFile(self._view, mode="w"),
            schema,
            sorting_columns=sorting_columns(paths, parquet.sorted_by),
            **{**format_options(parquet), **statistics_options(schema, parquet)},
            **(options or compression_options(spec.compression, [])),
            **writing_options(spec.encryption),
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)

    def end_row_group(self) -> None:
        """Write the row group; ValueNotRepresentable names the column of a value."""
        # In one piece: pages would end at other rows if the same rows came in other batches.
        table = pa.Table.from_batches(self._gathered, self._schema).combine_chunks()
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
            raise refusal(table, exc, self._format) from exc
        self._gathered.clear()
        self.rows += table.num_rows

    def close(self) -> None:
        self._writer.close()

    def give_up(self) -> None:
        self._gathered.clear()
        self._view.discard = True
        # The writer, and the C++ object under it, write a footer when they are collected.
        self._writer.is_open = False
        self._writer = None


class _SinkFile(io.RawIOBase):
    """What Arrow takes for a file: an append-only view of a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.discard = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        # Arrow writes a footer even while it gives a file up; by then it must be out of sight.
        if not self.discard:
            self._sink.write(data)
        return len(data)

    def tell(self) -> int:
        return self._sink.bytes_accepted


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
    """Return a batch in one separate piece of memory, or as it is if Arrow has allocated it.

    Drivers make columns in memory that they let grow, many times as many pieces as there are
    batches; kept among the pieces of batches to come they tore up the C library's heap, which grew
    by 2 bytes a row (measured) for as long as a unit lasted.
    """
    if all(_is_of_arrow(each) for column in batch.columns for each in column.buffers()):
        return batch
    try:
        return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    except pa.ArrowException:  # Such a message does not hold dictionaries.
        return batch


def _is_of_arrow(buffer: pa.Buffer | None) -> bool:
    """Return whether Arrow has allocated the memory: a driver's is imported, and not mutable."""
    return (
        buffer is None
        or buffer.is_mutable
        or (buffer.parent is not None and buffer.parent.is_mutable)
    )


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
        """Check a batch, its first row against the last one before; errors name a row from 1."""
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
