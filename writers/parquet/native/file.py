"""One Parquet file by the native library: row groups as they come, then indexes and footer.

The metadata follows `parquet.thrift` of the format, in Thrift's compact protocol. What depends on
types and not on rows (the schema, the order of each column's values, the metadata of fields and
file) is taken byte by byte from a file without rows that pyarrow wrote.

Readers skip pages, row groups and files by the least and greatest values. So these bounds must
cover every value, or be left out. NaN is in no bounds, and readers take it for greater than all
numbers, or for different from them. A page with NaN therefore has no bounds, and neither has its
column chunk.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from writers import __version__
from writers.files.sink import Sink
from writers.model import ParquetFormat
from writers.parquet.native.pages import (
    Bounds,
    ColumnForm,
    Encoding,
    Page,
    PageEncoder,
    Physical,
    forms_of,
)
from writers.parquet.options import PAGE_BYTES, format_options

# --- Thrift's compact protocol, as far as the metadata of Parquet files needs it.

Value = tuple[int, bytes]
"""A type of the protocol and the encoded value."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def boolean(value: bool) -> Value:
    """Return a truth value; it is part of its type."""
    return (_TRUE if value else _FALSE, b"")


def _integer(kind: int, value: int) -> Value:
    return kind, _varint(value << 1 if value >= 0 else (-value << 1) - 1)


int16, int32, int64 = (partial(_integer, kind) for kind in (_I16, _I32, _I64))


def binary(value: bytes) -> Value:
    return _BINARY, _varint(len(value)) + value


def structure(fields: dict[int, Value | None]) -> Value:
    """Return a structure of fields, each less than 16 above the one before; omit None."""
    out, last = bytearray(), 0
    for number, value in fields.items():
        if value is not None:
            kind, data = value
            out.append((number - last) << 4 | kind)
            out += data
            last = number
    out.append(0)
    return _STRUCT, bytes(out)


def several(values: Iterable[Value]) -> Value:
    listed = list(values)
    kind = listed[0][0] if listed else _STRUCT
    # Only the type distinguishes the two truth values.
    data = [bytes([each[0]]) if each[0] in (_TRUE, _FALSE) else each[1] for each in listed]
    kind, count = _TRUE if kind == _FALSE else kind, len(data)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return _LIST, head + b"".join(data)


def fields_of(data: bytes) -> dict[int, Value]:
    """Return the fields of an encoded structure by number; ValueError for other bytes."""
    found: dict[int, Value] = {}
    at = number = 0
    try:
        while head := data[at]:
            at += 1
            if not head >> 4:
                raise ValueError("a field number is far from the previous number")
            number += head >> 4
            end = _end(data, at, head & 15)
            found[number] = head & 15, data[at:end]
            at = end
    except IndexError:
        raise ValueError("the structure has no end") from None
    return found


def _end(data: bytes, at: int, kind: int) -> int:
    """Return where a value ends that begins at a place."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind in (_I16, _I32, _I64):
        return _number(data, at)[1]
    if kind == _BINARY:
        size, at = _number(data, at)
        return at + size
    if kind == _LIST:
        head, at = data[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = _number(data, at)
        for _ in range(count):
            at = at + 1 if head & 15 in (_TRUE, _FALSE) else _end(data, at, head & 15)
        return at
    if kind == _STRUCT:
        while head := data[at]:
            at = _end(data, at + 1, head & 15)
        return at + 1
    raise ValueError(f"a value has the type {kind}")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


# --- The file.

MAGIC = b"PAR1"
CREATED_BY = f"unloader version {__version__} (build native)".encode()
"""The writer of a file, in the form that readers parse."""

_ARROW_NAMES = {"lz4": "lz4_raw"}
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""The lz4 without a frame: readers disagree about the one that the first lz4 had."""
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEYS, _CREATED_BY, _ORDERS = range(1, 8)
_UNORDERED, _ASCENDING, _DESCENDING = 0, 1, 2
_NUMBERS = {
    (Physical.INT32, True): "<i",
    (Physical.INT32, False): "<I",
    (Physical.INT64, True): "<q",
    (Physical.INT64, False): "<Q",
    (Physical.FLOAT, True): "<f",
    (Physical.DOUBLE, True): "<d",
}


class Prepared(Struct, frozen=True):
    """What all files of one schema and format have in common."""

    forms: tuple[ColumnForm, ...]
    usual: dict[int, Value]
    """The fields of a footer without rows."""


def prepared(schema: pa.Schema, parquet: ParquetFormat) -> Prepared | None:
    """Return what files of a schema need, None where the library does not know all of it."""
    if parquet.version != "2.6" or parquet.data_page_version != "1.0" or parquet.bloom_filters:
        return None
    return _prepared(schema.serialize().to_pybytes(), parquet)


@lru_cache(maxsize=8)
def _prepared(serialized: bytes, parquet: ParquetFormat) -> Prepared | None:
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    written = io.BytesIO()
    pq.write_table(schema.empty_table(), written, **format_options(parquet))
    forms = forms_of(schema, pq.ParquetFile(written).metadata.schema)
    data = written.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    return None if forms is None else Prepared(forms, fields_of(data[-8 - size : -8]))


class ColumnPlan(Struct, frozen=True, kw_only=True):
    form: ColumnForm
    encoding: Encoding
    codec: str
    level: int | None


def plans_of(forms: Sequence[ColumnForm], options: dict[str, Any]) -> list[ColumnPlan] | None:
    """Return the plans that `column_options` makes, None where the library cannot follow one."""
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


class NativeFile:
    """Writes one file; the same rows in the same row groups give the same bytes."""

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
        self._columns = [_ChunkWriter(plan) for plan in plans]
        self._groups: list[tuple[int, list[_Chunk]]] = []
        """The rows and column chunks of each row group."""
        self._rows = 0
        self.rows = 0
        """In the whole file so far."""
        sink.write(MAGIC)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the row group; ValueNotRepresentable names the column of a value."""
        self._add(self._encoder.append(batch))
        self._rows += batch.num_rows

    def end_row_group(self) -> None:
        self._add(self._encoder.finish())
        statistics = self._parquet.statistics
        chunks = [column.write(self._sink, statistics) for column in self._columns]
        self._groups.append((self._rows, chunks))
        self.rows += self._rows
        self._rows = 0

    def close(self) -> None:
        """Write the indexes and the footer, which come after the row groups."""
        chunks = [chunk for _, group in self._groups for chunk in group]
        columns = [self._put(chunk.column_index) for chunk in chunks]
        offsets = [self._put(chunk.offset_index) for chunk in chunks]
        places = zip(columns, offsets, strict=True)
        names = [form.name for form in self._common.forms]
        order = [
            structure(
                {
                    1: int32(names.index(column.name)),
                    2: boolean(column.descending),
                    3: boolean(column.nulls_first),
                }
            )
            for column in self._parquet.sorted_by
        ]
        usual = self._common.usual
        groups = []
        for number, (rows, chunks) in enumerate(self._groups):
            listed = []
            for chunk in chunks:
                column, offset = next(places)
                listed.append(
                    structure(
                        {
                            2: int64(0),
                            3: chunk.metadata,
                            4: int64(offset[0]) if offset else None,
                            5: int32(offset[1]) if offset else None,
                            6: int64(column[0]) if column else None,
                            7: int32(column[1]) if column else None,
                        }
                    )
                )
            entry = {
                1: several(listed),
                2: int64(sum(chunk.uncompressed for chunk in chunks)),
                3: int64(rows),
                4: several(order) if order else None,
                5: int64(chunks[0].start),
                6: int64(sum(chunk.compressed for chunk in chunks)),
                # The field has 16 bits; it is for encrypted files.
                7: int16(number) if number < 2**15 else None,
            }
            groups.append(structure(entry))
        footer = structure(
            {
                _VERSION: usual[_VERSION],
                _SCHEMA: usual[_SCHEMA],
                _ROWS: int64(self.rows),
                _GROUPS: several(groups),
                _KEYS: usual.get(_KEYS),
                _CREATED_BY: binary(CREATED_BY),
                _ORDERS: usual.get(_ORDERS),
            }
        )[1]
        self._sink.write(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def give_up(self) -> None:
        """Stop writing; the file releases its memory."""

    def _add(self, pages: Iterable[Page]) -> None:
        for page in pages:
            self._columns[page.column].add(page)

    def _put(self, data: bytes | None) -> tuple[int, int] | None:
        """Write an index; return its place and size."""
        if data is None:
            return None
        place = self._sink.bytes_accepted
        self._sink.write(data)
        return place, len(data)


class _Chunk(Struct, frozen=True, kw_only=True):
    """A column chunk in the file, with what is written after the row groups."""

    start: int
    compressed: int
    uncompressed: int
    metadata: Value
    column_index: bytes | None
    offset_index: bytes | None


class _ChunkWriter:
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

    def write(self, sink: Sink, statistics: bool) -> _Chunk:
        """Write the chunk and begin the next one; with `statistics` it has bounds and indexes."""
        start, data_start, row = sink.bytes_accepted, 0, 0
        compressed = uncompressed = 0
        pages: list[Page] = []
        places: list[Value] = []
        kinds: Counter[tuple[bool, Encoding]] = Counter()
        for page, size, data in self._pages:
            header = _page_header(page, uncompressed=size, compressed=data.size)
            offset = sink.bytes_accepted
            sink.write(header)
            sink.write(data)
            compressed += len(header) + data.size
            uncompressed += len(header) + size
            kinds[page.dictionary, page.encoding] += 1
            if page.dictionary:
                continue
            data_start = data_start or offset
            pages.append(page)
            all_bytes = len(header) + data.size
            places.append(structure({1: int64(offset), 2: int32(all_bytes), 3: int64(row)}))
            row += page.rows
        self._pages.clear()
        described = column_index = offset_index = None
        if statistics:
            described, column_index = _statistics(pages, self._plan.form)
            offset_index = structure({1: several(places)})[1]
        # In the order of the bytes: dictionary, levels, values.
        first = [encoding for dictionary, encoding in kinds if dictionary]
        encodings = dict.fromkeys([*first, Encoding.RLE, *(encoding for _, encoding in kinds)])
        counts = [
            structure(
                {
                    1: int32(_DICTIONARY_PAGE if dictionary else _DATA_PAGE),
                    2: int32(encoding),
                    3: int32(count),
                }
            )
            for (dictionary, encoding), count in kinds.items()
        ]
        metadata = structure(
            {
                1: int32(self._plan.form.physical),
                2: several(map(int32, encodings)),
                3: several([binary(self._plan.form.name.encode())]),
                4: int32(_CODECS[self._plan.codec]),
                5: int64(row),
                6: int64(uncompressed),
                7: int64(compressed),
                9: int64(data_start),
                11: int64(start) if first else None,
                12: described,
                13: several(counts),
            }
        )
        return _Chunk(
            start=start,
            compressed=compressed,
            uncompressed=uncompressed,
            metadata=metadata,
            column_index=column_index,
            offset_index=offset_index,
        )


def _page_header(page: Page, *, uncompressed: int, compressed: int) -> bytes:
    shape: dict[int, Value | None] = {1: int32(page.rows), 2: int32(page.encoding)}
    if not page.dictionary:
        shape |= {3: int32(Encoding.RLE), 4: int32(Encoding.RLE)}
    return structure(
        {
            1: int32(_DICTIONARY_PAGE if page.dictionary else _DATA_PAGE),
            2: int32(uncompressed),
            3: int32(compressed),
            7 if page.dictionary else 5: structure(shape),
        }
    )[1]


def _statistics(pages: Sequence[Page], form: ColumnForm) -> tuple[Value, bytes | None]:
    """Return the statistics of a chunk, and the bounds of its pages.

    A chunk has both bounds or none: readers use them together. The second is None unless each page
    has bounds or is NULL.
    """

    def order(value: bytes) -> Any:
        if code := _NUMBERS.get((form.physical, form.signed)):
            return struct.unpack(code, value)[0]
        if form.signed and form.physical == Physical.FIXED_LEN_BYTE_ARRAY:
            return int.from_bytes(value, "big", signed=True)
        return value

    bounded = [page.bounds for page in pages if page.bounds is not None]
    # One page with values but without bounds leaves the chunk without: they have to cover all.
    is_whole = len(bounded) == sum(page.nulls < page.rows for page in pages)
    fields: dict[int, Value | None] = {3: int64(sum(page.nulls for page in pages))}
    if bounded and is_whole:
        bounds = Bounds(
            least=min((each.least for each in bounded), key=order),
            greatest=max((each.greatest for each in bounded), key=order),
        )
        if bounds.fit:
            fields |= {
                5: binary(bounds.greatest),
                6: binary(bounds.least),
                7: boolean(True),
                8: boolean(True),
            }
    if not is_whole or not all(each.fit for each in bounded):
        return structure(fields), None
    each_bounds = [page.bounds for page in pages]
    pairs = list(pairwise((order(each.least), order(each.greatest)) for each in bounded))
    boundary_order = _UNORDERED
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        boundary_order = _ASCENDING
    elif all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        boundary_order = _DESCENDING
    index = structure(
        {
            1: several(boolean(bounds is None) for bounds in each_bounds),
            2: several(binary(bounds.least if bounds else b"") for bounds in each_bounds),
            3: several(binary(bounds.greatest if bounds else b"") for bounds in each_bounds),
            4: int32(boundary_order),
            5: several(int64(page.nulls) for page in pages),
        }
    )
    return structure(fields), index[1]
