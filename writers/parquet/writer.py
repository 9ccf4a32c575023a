"""Parquet files with row groups of exact size, written through the overlapped sink.

Values keep their Arrow type: nothing is coerced, and what Parquet cannot hold is refused with
the column's name. A file that is given up never gets a footer, so it cannot pass for whole.
"""

from __future__ import annotations

import io
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from writers.codecs.compression import CODECS, check_codec
from writers.encryption.parquet import check_encryption, writing_options
from writers.errors import FormatError
from writers.files.staging import StagedFiles
from writers.large_rows import LargeRow, check_collectable, check_large_row, collected
from writers.model import Compression, ParquetFormat
from writers.parquet.columns import column_options
from writers.parquet.options import (
    bloom_options,
    check_bloom_filters,
    check_options,
    compression_options,
    format_options,
)
from writers.parquet.order import OrderCheck, sorting_columns
from writers.parquet.rows import RowGroups, aligned
from writers.parquet.types import check_types, refusal
from writers.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.files.sink import Sink
    from writers.model import OutputSpec, StageSeconds, WrittenFile


class ParquetWriter:
    """Writes batches as Parquet.

    Where row groups and files end depends on the rows and the spec only, so the same rows
    give the same files on every run of one pyarrow version.

    Args:
        spec: Its format must be a `ParquetFormat`. Version 1.0 uses no delta encodings, for
            old readers.
        schema: Of every batch.
        stem: Name of the files without extension.

    Raises:
        FormatError: The options are impossible, or Parquet has no type for a column.
        WriteError: The first file cannot be created.
    """

    def __init__(self, spec: OutputSpec, schema: pa.Schema, stem: str) -> None:
        if not isinstance(spec.format, ParquetFormat):
            raise FormatError(f"a Parquet writer cannot write {type(spec.format).__name__}.")
        check_options(spec.format)
        check_codec("parquet", spec.compression, CODECS["parquet"])
        check_bloom_filters(schema, spec.format)
        self._encryption = spec.encryption
        check_encryption(spec)
        self._paths = check_types(schema, spec.format)
        self._order = OrderCheck(schema, spec.format.sorted_by)
        self._format = spec.format
        self._compression = spec.compression
        self._size_limit = spec.file_size_bytes
        self._schema = schema
        self._options: dict[str, Any] = {}
        self._groups = RowGroups(spec.format.row_group_rows, spec.format.row_group_bytes)
        self._file_rows = 0
        self._encode_seconds = 0.0
        # The pages are compressed already.
        self._files = StagedFiles(spec, stem, "parquet", Compression())
        self._file: _SinkFile | None = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch; see `writers.base.Writer`."""
        check_schema(batch, self._schema)
        check_collectable(batch)
        self._order.check(batch)
        for group in self._groups.add(batch):
            self._write_row_group(group)

    def write_large(self, row: LargeRow) -> None:
        """Take one row, its large values collected; see `writers.base.Writer`."""
        check_large_row(row, self._schema)
        self.write(collected(row))

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the files; see `writers.base.Writer`."""
        try:
            if rest := self._groups.rest():
                self._write_row_group(rest)
            if self._files.is_open:
                self._finish_file()
        except BaseException:
            self.abort()
            raise
        return self._files.files

    def abort(self) -> None:
        """Remove the files; see `writers.base.Writer`."""
        self._groups.rest()
        if self._file is not None:
            self._file.discard = True
        self._files.abort()
        if self._writer is not None:
            # The writer, and the C++ object under it, write a footer when they are collected.
            self._writer.is_open = False
            self._writer = None

    @property
    def bytes_written(self) -> int:
        """Bytes in the files so far."""
        return self._files.bytes_written

    @property
    def stages(self) -> StageSeconds:
        """Wall seconds so far; waiting for the destination while encoding counts as encoding."""
        # What the sink takes is compressed already.
        return replace(self._files.stages(self._encode_seconds), uncompressed_bytes=None)

    def _write_row_group(self, batches: list[pa.RecordBatch]) -> None:
        import pyarrow as pa

        started = perf_counter()
        table = pa.Table.from_batches(aligned(batches), self._schema)
        if not self._options:
            self._options = self._choose_options(table)
        if self._writer is None:
            self._open_file()
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
            raise refusal(table, exc, self._format) from exc
        self._file_rows += table.num_rows
        self._encode_seconds += perf_counter() - started
        if self._size_limit and self._files.sink().bytes_accepted >= self._size_limit:
            self._finish_file()

    def _choose_options(self, table: pa.Table) -> dict[str, Any]:
        import pyarrow as pa

        try:
            return {
                **column_options(table, self._paths, self._format, self._compression),
                **bloom_options(table, self._format),
            }
        except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
            raise refusal(table, exc, self._format) from exc

    def _open_file(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file_rows = 0
        self._file = _SinkFile(self._files.sink())
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            self._schema,
            sorting_columns=sorting_columns(self._paths, self._format.sorted_by),
            **format_options(self._format),
            **(self._options or compression_options(self._compression, [])),
            **writing_options(self._encryption),
        )

    def _finish_file(self) -> None:
        if self._writer is None:
            self._open_file()
        started = perf_counter()
        self._writer.close()
        self._encode_seconds += perf_counter() - started
        self._writer = self._file = None
        self._files.finish(self._file_rows)


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
