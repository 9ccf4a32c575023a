"""One Parquet file by the native library: row groups as they come, then indexes and footer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from writers.parquet.native.layout import (
    Chunk,
    ColumnForm,
    ColumnPlan,
    Encoding,
    Place,
    RowGroup,
    WrittenPage,
    forms_of,
)
from writers.parquet.native.metadata import MAGIC, Footers, PageEncoder, page_header, row_group
from writers.parquet.options import PAGE_BYTES, format_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from writers.files.sink import Sink
    from writers.model import ParquetFormat
    from writers.parquet.native.metadata import Page


class Prepared(Struct, frozen=True):
    """What all files of one schema and format have in common."""

    forms: tuple[ColumnForm, ...]
    footers: Footers


def prepared(schema: pa.Schema, parquet: ParquetFormat) -> Prepared | None:
    """Return what files of a schema need, None where the library does not know all of it."""
    if parquet.version != "2.6" or parquet.data_page_version != "1.0" or parquet.bloom_filters:
        return None
    return _prepared(schema.serialize().to_pybytes(), parquet)


@lru_cache(maxsize=8)
def _prepared(serialized: bytes, parquet: ParquetFormat) -> Prepared | None:

    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty, **format_options(parquet))
    forms = forms_of(schema, pq.ParquetFile(empty).metadata.schema)
    return None if forms is None else Prepared(forms, Footers(empty.getvalue()))


class NativeFile:
    """Writes one file; the same rows in the same row groups give the same bytes.

    Args:
        sink: Takes the bytes; it is ended by the caller.
        common: Of the schema.
        plans: How each column is written.
        parquet: The format.
    """

    holds_batches = False
    """Batches are encoded as they come."""

    def __init__(
        self, sink: Sink, common: Prepared, plans: Sequence[ColumnPlan], parquet: ParquetFormat
    ) -> None:
        self._sink, self._common, self._parquet = sink, common, parquet
        self._encoder = PageEncoder(
            common.forms,
            [plan.encoding for plan in plans],
            page_bytes=PAGE_BYTES,
            bounds=parquet.statistics,
        )
        self._columns = [ChunkWriter(plan) for plan in plans]
        self._groups: list[RowGroup] = []
        self._rows = 0
        self.rows = 0
        """In the whole file so far."""
        sink.write(MAGIC)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the row group.

        Raises:
            ValueNotRepresentable: A value cannot be written; names its column.
        """
        self._add(self._encoder.append(batch))
        self._rows += batch.num_rows

    def end_row_group(self) -> None:
        """Write the row group."""
        self._add(self._encoder.finish())
        chunks = [column.write(self._sink) for column in self._columns]
        self._groups.append(row_group(self._rows, chunks, statistics=self._parquet.statistics))
        self.rows += self._rows
        self._rows = 0

    def close(self) -> None:
        """Write the indexes and the footer, which come after the row groups."""
        chunks = [chunk for group in self._groups for chunk in group.chunks]
        columns = [self._put(chunk.column_index) for chunk in chunks]
        offsets = [self._put(chunk.offset_index) for chunk in chunks]
        names = [form.name for form in self._common.forms]
        order = [(names.index(column.name), column) for column in self._parquet.sorted_by]
        indexes = zip(columns, offsets, strict=True)
        self._sink.write(self._common.footers.footer(self._groups, indexes, order))

    def give_up(self) -> None:
        """Stop writing; the file releases its memory."""

    def _add(self, pages: Iterable[Page]) -> None:
        for page in pages:
            self._columns[page.column].add(page)

    def _put(self, data: bytes | None) -> Place | None:
        if data is None:
            return None
        place = Place(offset=self._sink.bytes_accepted, size=len(data))
        self._sink.write(data)
        return place


_ARROW_NAMES = {"lz4": "lz4_raw"}


class ChunkWriter:
    """Gathers the pages of a column until the row group ends."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._codec: Any = None
        if plan.codec != "none":
            self._codec = pa.Codec(_ARROW_NAMES.get(plan.codec, plan.codec), plan.level)
        self._pages: list[tuple[Page, int, pa.Buffer]] = []

    def add(self, page: Page) -> None:
        """Compress a page, which is in the caches still, and hold it."""
        data, size = page.data, page.data.size
        if self._codec is not None:
            data = self._codec.compress(data)
        # A dictionary is complete when its chunk is, and must stand before the rest.
        self._pages.insert(0 if page.dictionary else len(self._pages), (page, size, data))

    def write(self, sink: Sink) -> Chunk:
        """Write the chunk and begin the next one."""
        chunk = Chunk(plan=self._plan, start=sink.bytes_accepted)
        row = 0
        for page, size, data in self._pages:
            header = page_header(page, uncompressed=size, compressed=data.size)
            offset = sink.bytes_accepted
            sink.write(header)
            sink.write(data)
            chunk.compressed += len(header) + data.size
            chunk.uncompressed += len(header) + size
            chunk.kinds[page.dictionary, page.encoding] += 1
            if page.dictionary:
                chunk.has_dictionary = True
                continue
            chunk.data_start = chunk.data_start or offset
            chunk.pages.append(
                WrittenPage(
                    offset=offset,
                    size=len(header) + data.size,
                    first_row=row,
                    rows=page.rows,
                    nulls=page.nulls,
                    bounds=page.bounds,
                )
            )
            row += page.rows
        self._pages.clear()
        return chunk


def plans_of(forms: Sequence[ColumnForm], options: dict[str, Any]) -> list[ColumnPlan] | None:
    """Return the plan that pyarrow's options make, None where the library cannot follow it.

    Args:
        forms: Of all columns.
        options: As `writers.parquet.columns.column_options` returns them.
    """
    codec, level = options["compression"], options["compression_level"]
    plans = []
    for form in forms:
        encoding = Encoding[options["column_encoding"].get(form.name, "PLAIN")]
        if form.name in options["use_dictionary"] and form.can(Encoding.RLE_DICTIONARY):
            encoding = Encoding.RLE_DICTIONARY
        if not form.can(encoding):
            return None
        plans.append(
            ColumnPlan(
                form=form,
                encoding=encoding,
                codec=codec[form.name] if isinstance(codec, dict) else codec,
                level=level.get(form.name) if isinstance(level, dict) else level,
            )
        )
    return plans
