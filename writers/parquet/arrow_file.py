"""One Parquet file by pyarrow: the reference, and the way for all that the native library leaves.

Its options are those of `writers.parquet.options` and `writers.parquet.columns`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from writers.encryption.parquet import writing_options
from writers.parquet.options import compression_options, format_options
from writers.parquet.order import sorting_columns
from writers.parquet.rows import aligned
from writers.parquet.types import refusal, statistics_options

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.files.sink import Sink
    from writers.model import OutputSpec, ParquetFormat


class ArrowFile:
    """Writes one file; the same rows in the same row groups give the same bytes.

    Args:
        sink: Takes the bytes; it is ended by the caller.
        schema: Of every batch.
        spec: Its format is `parquet`.
        parquet: The format.
        paths: Of all columns in the file.
        options: How the columns are encoded; empty in a file without rows.
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
        import pyarrow as pa
        import pyarrow.parquet as pq

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
        """Add rows to the row group."""
        self._gathered.append(batch)

    def end_row_group(self) -> None:
        """Write the row group.

        Raises:
            ValueNotRepresentable: A value cannot be written; names its column.
        """
        import pyarrow as pa

        table = pa.Table.from_batches(aligned(self._gathered), self._schema)
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowException, ValueError, OverflowError, OSError) as exc:
            raise refusal(table, exc, self._format) from exc
        self._gathered.clear()
        self.rows += table.num_rows

    def close(self) -> None:
        """Write what comes behind the row groups."""
        self._writer.close()

    def give_up(self) -> None:
        """Write nothing any more."""
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
