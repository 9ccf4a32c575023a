"""Parquet files with row groups of exact size, written through the overlapped sink.

Values keep their Arrow type: nothing is coerced, and what Parquet cannot hold is refused with
the column's name. A file that is given up never gets a footer, so it cannot pass for whole.

The first row group is gathered, as the encodings are chosen from it. Then the native library
encodes the batches as they come, where it was built and knows all that the file is to have;
elsewhere pyarrow does, row group by row group.
"""

from __future__ import annotations

import io
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from writers.codecs.compression import CODECS, check_codec
from writers.encryption.parquet import check_encryption, writing_options
from writers.errors import FormatError, ValueNotRepresentable
from writers.files.sink import Sink, StagedFiles
from writers.large_rows import LargeRow, check_collectable, check_large_row, collected
from writers.model import Compression, ParquetFormat
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
from writers.parquet.rows import OrderCheck, RowGroups, compact, sorting_columns
from writers.schema import check_schema, in_microseconds, with_field_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from writers.model import OutputSpec, ParquetFormat, StageSeconds, WrittenFile

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
        """Take one batch; see `writers.base.Writer`."""
        check_schema(batch, self._given)
        check_collectable(batch)
        self._order.check(batch)
        batch = self._as_written(batch)
        for piece, ends in self._groups.cut(batch):
            self._group_rows += piece.num_rows
            if self._open is None:
                self._first.append(compact(piece))
            else:
                self._encode(piece)
            if ends:
                self._end_row_group()

    def write_large(self, row: LargeRow) -> None:
        """Take one row, its large values collected; see `writers.base.Writer`."""
        check_large_row(row, self._given)
        self.write(collected(row))

    def _as_written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema.equals(self._given):
            return batch
        try:
            arrays = [
                column.cast(field.type)
                for column, field in zip(batch.columns, self._schema, strict=True)
            ]
        except pa.ArrowInvalid as exc:
            raise ValueNotRepresentable(
                f"a timestamp does not fit into microseconds: {exc}.",
                "leave the row out, or write the column as text.",
            ) from exc
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the files; see `writers.base.Writer`."""
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
        """Remove the files; see `writers.base.Writer`."""
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
    """Writes one file; the same rows in the same row groups give the same bytes.

    `options` say how the columns are encoded; they are empty in a file without rows.
    """

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
