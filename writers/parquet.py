"""Parquet files with row groups of exact size, written through the overlapped sink.

Values keep their Arrow type: nothing is coerced, and what Parquet cannot hold is refused with
the column's name. A file that is given up never gets a footer, so it cannot pass for whole.
"""

from __future__ import annotations

import contextlib
import io
from time import perf_counter
from typing import TYPE_CHECKING, Any

from writers.compression import CODECS, check_codec
from writers.errors import FormatError, ValueNotRepresentable, WriteError
from writers.large_rows import LargeRow, check_large_row, collected
from writers.model import Compression, ParquetFormat
from writers.schema import check_schema
from writers.staging import StagedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from writers.model import OutputSpec, StageSeconds, WrittenFile
    from writers.sink import Sink

_VERSIONS = ("1.0", "2.4", "2.6")
_ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Arrow bytes at which a row group is written early, whatever its rows."""
_ZSTD_LEVEL = 1
"""Smaller and quicker than level 3 on delta-encoded columns; see `writers.parquet_columns`."""


class ParquetWriter:
    """Writes batches as Parquet.

    Where row groups and files end depends on the rows and the spec only, so the same batches
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
        _check_options(spec.format)
        check_codec("parquet", spec.compression, CODECS["parquet"])
        _check_types(schema, spec.format)
        self._format = spec.format
        self._compression = spec.compression
        self._size_limit = spec.file_size_bytes
        self._schema = schema
        self._columns: dict[str, Any] | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._file_rows = 0
        self._encode_seconds = 0.0
        # The pages are compressed already.
        self._files = StagedFiles(spec, stem, "parquet", Compression())
        self._file: _SinkFile | None = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch; see `writers.base.Writer`."""
        check_schema(batch, self._schema)
        for piece in self._pieces(batch):
            self._pending.append(piece)
            self._pending_rows += piece.num_rows
            self._pending_bytes += piece.nbytes
            if (
                self._pending_rows >= self._format.row_group_rows
                or self._pending_bytes >= _ROW_GROUP_BYTES
            ):
                self._write_row_group()

    def write_large(self, row: LargeRow) -> None:
        """Take one row, its large values collected; see `writers.base.Writer`."""
        check_large_row(row, self._schema)
        self.write(collected(row))

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the files; see `writers.base.Writer`."""
        try:
            if self._pending_rows:
                self._write_row_group()
            if self._files.is_open:
                self._finish_file()
        except BaseException:
            self.abort()
            raise
        return self._files.files

    def abort(self) -> None:
        """Remove the files; see `writers.base.Writer`."""
        self._pending.clear()
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
        return self._files.stages(self._encode_seconds)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch where row groups end."""
        start, rows = 0, batch.num_rows
        while start < rows:
            piece = batch.slice(start, self._format.row_group_rows - self._pending_rows)
            room = _ROW_GROUP_BYTES - self._pending_bytes
            while piece.num_rows > 1 and piece.nbytes > room:
                piece = piece.slice(0, piece.num_rows // 2)
            start += piece.num_rows
            yield piece

    def _write_row_group(self) -> None:
        import pyarrow as pa

        started = perf_counter()
        table = pa.Table.from_batches(self._pending, self._schema)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0
        if self._columns is None:
            self._columns = self._choose_columns(table)
        if self._writer is None:
            self._open_file()
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
            raise _refusal(table, exc, self._format) from exc
        self._file_rows += table.num_rows
        self._encode_seconds += perf_counter() - started
        if self._size_limit and self._files.sink().bytes_accepted >= self._size_limit:
            self._finish_file()

    def _open_file(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file_rows = 0
        self._file = _SinkFile(self._files.sink())
        level = self._compression.level
        if level is None and self._compression.codec == "zstd":
            level = _ZSTD_LEVEL
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            self._schema,
            compression=self._compression.codec,
            compression_level=level,
            **_format_options(self._format),
            **(self._columns or {}),
        )

    def _finish_file(self) -> None:
        if self._writer is None:
            self._open_file()
        started = perf_counter()
        self._writer.close()
        self._encode_seconds += perf_counter() - started
        self._writer = self._file = None
        self._files.finish(self._file_rows)

    def _choose_columns(self, table: pa.Table) -> dict[str, Any]:
        from writers.parquet_columns import column_options

        return column_options(
            table, dictionary=self._format.dictionary, delta=self._format.version != "1.0"
        )


class _SinkFile(io.RawIOBase):
    """What Arrow takes for a file: an append-only view of a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.discard = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        # Arrow writes a footer even while it gives a file up; by then nobody may see it.
        if not self.discard:
            self._sink.write(data)
        return len(data)

    def tell(self) -> int:
        return self._sink.bytes_accepted


def _format_options(parquet: ParquetFormat) -> dict[str, Any]:
    return {
        "version": parquet.version,
        "write_statistics": parquet.statistics,
        # Half the size of the fixed-length bytes that are the default, and exact as well.
        "store_decimal_as_integer": True,
    }


def _check_options(parquet: ParquetFormat) -> None:
    if parquet.version not in _VERSIONS:
        raise FormatError(
            f"there is no Parquet version {parquet.version!r}. "
            f"Next: use one of {', '.join(_VERSIONS)}."
        )
    if parquet.row_group_rows < 1:
        raise FormatError(
            f"row groups of {parquet.row_group_rows} rows are impossible. Next: use 1 or more."
        )


def _check_types(schema: pa.Schema, parquet: ParquetFormat) -> None:
    """Refuse, before any row is read, a column that Parquet has no type for."""
    import pyarrow as pa

    for field in schema:
        if pa.types.is_date64(field.type):
            # Arrow stores it as whole days and drops the time of day without a word.
            raise _unsupported(field, "its time of day would be lost")
        try:
            _write_alone(pa.table({field.name: pa.nulls(0, field.type)}), parquet)
        except (pa.ArrowException, OSError) as exc:
            raise _unsupported(field, str(exc)) from exc


def _unsupported(field: pa.Field, why: str) -> FormatError:
    return FormatError(
        f"column {field.name!r} has the type {field.type}, which Parquet cannot hold: {why}. "
        f"Next: leave the column out, cast it in the query, or write text."
    )


def _refusal(table: pa.Table, exc: Exception, parquet: ParquetFormat) -> WriteError:
    """Return the error for a row group Arrow refused, with the first column it refuses alone."""
    import pyarrow as pa

    for index, name in enumerate(table.schema.names):
        try:
            _write_alone(table.select([index]), parquet)
        except (pa.ArrowException, ValueError, OverflowError, OSError) as reason:
            return ValueNotRepresentable(
                f"column {name!r} ({table.schema.field(index).type}) holds a value that Parquet "
                f"{parquet.version} cannot hold: {reason}. "
                f"Next: cast the column in the query, or write text."
            )
    return WriteError(
        f"Arrow could not write a row group of {table.num_rows} rows: {exc}. "
        f"Next: try smaller row groups, or report this with the types of the columns."
    )


def _write_alone(table: pa.Table, parquet: ParquetFormat) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.closing(
        pq.ParquetWriter(pa.MockOutputStream(), table.schema, **_format_options(parquet))
    ) as writer:
        writer.write_table(table)
