"""The metadata of a Parquet file, as `parquet.thrift` of the format gives it.

What depends on types and not on rows (the schema, the order of each column's values, the metadata
of fields and file) is taken byte by byte from a file without rows that pyarrow wrote.

Pages from record batches through the native library.

The shared library that encodes pages: where it lies, whether it can be used, and its structures.

It is loaded on first use, once a process. A call gives the interpreter up while it encodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from writers import __version__, built_library
from writers.built_library import ArrowArray, Unusable
from writers.errors import ValueNotRepresentable, WriteError
from writers.parquet.native.layout import (
    Bounds,
    Chunk,
    ChunkRecord,
    ColumnForm,
    Encoding,
    Place,
    RowGroup,
    Value,
    binary,
    boolean,
    boundary_order,
    fields_of,
    int16,
    int32,
    int64,
    joined,
    order_of,
    several,
    structure,
)

if TYPE_CHECKING:
    from writers.model import SortColumn


MAGIC = b"PAR1"

CREATED_BY = f"unloader version {__version__} (build native)".encode()
"""The writer of a file, in the form that readers parse."""

_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""The lz4 without a frame: readers disagree about the one that the first lz4 had."""

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEYS, _CREATED_BY, _ORDERS = range(1, 8)


def page_header(page: Page, *, uncompressed: int, compressed: int) -> bytes:
    """Return the header of a page."""
    data = dictionary = None
    if page.dictionary:
        dictionary = structure([(1, int32(page.rows)), (2, int32(page.encoding))])
    else:
        data = structure(
            [
                (1, int32(page.rows)),
                (2, int32(page.encoding)),
                (3, int32(Encoding.RLE)),
                (4, int32(Encoding.RLE)),
            ]
        )
    return structure(
        [
            (1, int32(_DICTIONARY_PAGE if page.dictionary else _DATA_PAGE)),
            (2, int32(uncompressed)),
            (3, int32(compressed)),
            (5, data),
            (7, dictionary),
        ]
    )[1]


def row_group(rows: int, chunks: Sequence[Chunk], *, statistics: bool) -> RowGroup:
    """Return the entry of a row group in the file's end.

    Args:
        rows: Of the row group.
        chunks: All columns.
        statistics: Whether column chunks have their bounds and number of NULLs, and indexes.
    """
    return RowGroup(
        rows=rows,
        start=chunks[0].start,
        compressed=sum(chunk.compressed for chunk in chunks),
        uncompressed=sum(chunk.uncompressed for chunk in chunks),
        chunks=[_recorded(chunk, statistics) for chunk in chunks],
    )


def _recorded(chunk: Chunk, statistics: bool) -> ChunkRecord:
    if not statistics:
        return ChunkRecord(
            metadata=_chunk_metadata(chunk, None), column_index=None, offset_index=None
        )
    # One page with values but without bounds leaves the chunk without: they have to cover all.
    pages = [page.bounds for page in chunk.pages if page.has_values]
    bounded = [bounds for bounds in pages if bounds is not None]
    order = order_of(chunk.plan.form)
    is_whole = len(bounded) == len(pages)
    bounds = joined(bounded, order) if bounded and is_whole else None
    return ChunkRecord(
        metadata=_chunk_metadata(chunk, _statistics(chunk, bounds)),
        column_index=(
            _column_index(chunk, boundary_order(bounded, order))
            if is_whole and all(each.fit for each in bounded)
            else None
        ),
        offset_index=_offset_index(chunk),
    )


def _column_index(chunk: Chunk, order: int) -> bytes:
    """Return the bounds of a chunk's pages; each page has bounds or is NULL."""
    each = [page.bounds for page in chunk.pages]
    return structure(
        [
            (1, several(boolean(bounds is None) for bounds in each)),
            (2, several(binary(bounds.least if bounds else b"") for bounds in each)),
            (3, several(binary(bounds.greatest if bounds else b"") for bounds in each)),
            (4, int32(order)),
            (5, several(int64(page.nulls) for page in chunk.pages)),
        ]
    )[1]


def _offset_index(chunk: Chunk) -> bytes:
    """Return where a chunk's pages are."""
    return structure(
        [
            (
                1,
                several(
                    structure(
                        [
                            (1, int64(page.offset)),
                            (2, int32(page.size)),
                            (3, int64(page.first_row)),
                        ]
                    )
                    for page in chunk.pages
                ),
            )
        ]
    )[1]


class Footers:
    """Makes the footers of files with one schema.

    Args:
        empty: A whole file of this schema without rows, by pyarrow.
    """

    def __init__(self, empty: bytes) -> None:
        size = int.from_bytes(empty[-8:-4], "little")
        self._usual = fields_of(empty[-8 - size : -8])

    def footer(
        self,
        groups: Sequence[RowGroup],
        indexes: Iterator[tuple[Place | None, Place | None]],
        sorted_by: Sequence[tuple[int, SortColumn]],
    ) -> bytes:
        """Return the last bytes of a file.

        Args:
            groups: All row groups.
            indexes: Where the column index and offset index of each chunk are, in their order.
            sorted_by: Numbers of columns and their order, recorded for each row group.
        """
        order = [
            structure(
                [
                    (1, int32(index)),
                    (2, boolean(column.descending)),
                    (3, boolean(column.nulls_first)),
                ]
            )
            for index, column in sorted_by
        ]
        listed = [_row_group(number, group, indexes, order) for number, group in enumerate(groups)]
        data = structure(
            [
                (_VERSION, self._usual[_VERSION]),
                (_SCHEMA, self._usual[_SCHEMA]),
                (_ROWS, int64(sum(group.rows for group in groups))),
                (_GROUPS, several(listed)),
                (_KEYS, self._usual.get(_KEYS)),
                (_CREATED_BY, binary(CREATED_BY)),
                (_ORDERS, self._usual.get(_ORDERS)),
            ]
        )[1]
        return data + len(data).to_bytes(4, "little") + MAGIC


def _row_group(
    number: int,
    group: RowGroup,
    indexes: Iterator[tuple[Place | None, Place | None]],
    order: list[Value],
) -> Value:
    return structure(
        [
            (1, several(_chunk(chunk, *next(indexes)) for chunk in group.chunks)),
            (2, int64(group.uncompressed)),
            (3, int64(group.rows)),
            (4, several(order) if order else None),
            (5, int64(group.start)),
            (6, int64(group.compressed)),
            # The field has 16 bits; it is for encrypted files.
            (7, int16(number) if number < 2**15 else None),
        ]
    )


def _chunk(chunk: ChunkRecord, columns: Place | None, offsets: Place | None) -> Value:
    return structure(
        [
            (2, int64(0)),
            (3, chunk.metadata),
            (4, int64(offsets.offset) if offsets else None),
            (5, int32(offsets.size) if offsets else None),
            (6, int64(columns.offset) if columns else None),
            (7, int32(columns.size) if columns else None),
        ]
    )


def _chunk_metadata(chunk: Chunk, statistics: Value | None) -> Value:
    form = chunk.plan.form
    # In the order of the bytes: dictionary, levels, values.
    first = [encoding for dictionary, encoding in chunk.kinds if dictionary]
    encodings = dict.fromkeys([*first, Encoding.RLE, *(encoding for _, encoding in chunk.kinds)])
    return structure(
        [
            (1, int32(form.physical)),
            (2, several(int32(encoding) for encoding in encodings)),
            (3, several([binary(form.name.encode())])),
            (4, int32(_CODECS[chunk.plan.codec])),
            (5, int64(sum(page.rows for page in chunk.pages))),
            (6, int64(chunk.uncompressed)),
            (7, int64(chunk.compressed)),
            (9, int64(chunk.data_start)),
            (11, int64(chunk.start) if chunk.has_dictionary else None),
            (12, statistics),
            (
                13,
                several(
                    structure(
                        [
                            (1, int32(_DICTIONARY_PAGE if dictionary else _DATA_PAGE)),
                            (2, int32(encoding)),
                            (3, int32(count)),
                        ]
                    )
                    for (dictionary, encoding), count in chunk.kinds.items()
                ),
            ),
        ]
    )


def _statistics(chunk: Chunk, bounds: Bounds | None) -> Value:
    """Return the statistics of a chunk, with both bounds or none: readers use them together."""
    fields: list[tuple[int, Value | None]] = [(3, int64(sum(page.nulls for page in chunk.pages)))]
    if bounds is not None and bounds.fit:
        fields += [
            (5, binary(bounds.greatest)),
            (6, binary(bounds.least)),
            (7, boolean(True)),
            (8, boolean(True)),
        ]
    return structure(fields)


_DONE, _REFUSED, _NO_MEMORY = 0, 1, -1
_DICTIONARY = 2


class Page(Struct, frozen=True, kw_only=True):
    """The uncompressed bytes of a page, and its counts."""

    column: int
    dictionary: bool
    encoding: Encoding
    rows: int
    """Of a dictionary its entries."""
    nulls: int
    bounds: Bounds | None
    """None for a page without values, or with NaN."""
    data: pa.Buffer


class PageEncoder:
    """Makes pages of batches, one row group after the other; used by one thread.

    Args:
        forms: Of all columns.
        encodings: One for each.
        page_bytes: A page ends with the row that brings it to this size, or up to 1,023 rows later
            where rows are small.
        bounds: Whether pages have their least and greatest value.
    """

    def __init__(
        self,
        forms: Sequence[ColumnForm],
        encodings: Sequence[Encoding],
        *,
        page_bytes: int,
        bounds: bool,
    ) -> None:
        self._library = library()
        self._forms = tuple(forms)
        specs = (ColumnSpec * len(forms))()
        for spec, form, encoding in zip(specs, forms, encodings, strict=True):
            spec.source, spec.physical, spec.encoding = form.source, form.physical, encoding
            spec.width, spec.factor = form.width, form.factor
            spec.nullable, spec.is_signed, spec.bounds = form.nullable, form.signed, bounds
        self._group = self._library.unloader_pages_open(specs, len(forms), page_bytes)
        if not self._group:
            raise WriteError("the native library cannot encode these columns.", _PLAIN)

    def __del__(self) -> None:
        """Release the memory."""
        if group := self.__dict__.pop("_group", None):
            self._library.unloader_pages_close(group)

    def append(self, batch: pa.RecordBatch) -> Iterator[Page]:
        """Encode all rows of a batch and yield the pages that are full.

        Raises:
            ValueNotRepresentable: A value cannot be written; names its column. The encoder must
                not be used after it.
        """
        exported, column = ArrowArray(), ctypes.c_int64()
        batch._export_to_c(ctypes.addressof(exported))
        status = self._library.unloader_pages_append(self._group, exported, column)
        if status == _REFUSED:
            form = self._forms[column.value]
            raise ValueNotRepresentable(
                f"column {form.name!r} ({batch.schema.field(column.value).type}) holds a value "
                f"that its type in Parquet cannot hold.",
                "cast the column in the query, or write text.",
            )
        self._check(status)
        return self._ready()

    def finish(self) -> Iterator[Page]:
        """End the row group and yield the rest of its pages; the next batch begins another one."""
        self._check(self._library.unloader_pages_finish(self._group))
        return self._ready()

    def _ready(self) -> Iterator[Page]:

        out = PageOut()
        while self._library.unloader_pages_take(self._group, out):
            memory = _Memory(self._library.unloader_pages_free, out.memory)
            yield Page(
                column=out.column,
                dictionary=out.kind == _DICTIONARY,
                encoding=Encoding(out.encoding),
                rows=out.rows,
                nulls=out.nulls,
                bounds=_bounds(out),
                data=pa.foreign_buffer(out.data, out.size, memory),
            )

    def _check(self, status: int) -> None:
        if status == _NO_MEMORY:
            raise MemoryError("there is not enough memory for the pages of a row group")
        if status != _DONE:
            raise WriteError("the native library did not understand a batch.", _PLAIN)


_PLAIN = "use --encoder plain, and report this with the types of the columns."


def _bounds(out: PageOut) -> Bounds | None:
    if not out.bounded:
        return None
    return Bounds(
        least=ctypes.string_at(out.least, out.least_size),
        greatest=ctypes.string_at(out.greatest, out.greatest_size),
    )


class _Memory:
    """Memory of the library; freed when nothing refers to it any more."""

    __slots__ = ("_address", "_free")

    def __init__(self, free: Callable[[Any], None], address: int) -> None:
        self._free, self._address = free, address

    def __del__(self) -> None:
        self._free(self._address)


ABI_VERSION = 1
"""Of the interface in `pages.cpp`, which has the same number."""

NAME = "writers.parquet.native._pages"

OVERRIDE = "UNLOADER_NATIVE_PAGES_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class ColumnSpec(ctypes.Structure):
    """The library's description of a column, as in `page.h`."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            *("source", "physical", "encoding", "width"),
            *("nullable", "is_signed", "bounds", "factor"),
        )
    )


class PageOut(ctypes.Structure):
    """A page that is ready; as `page.h` has it."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("rows", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
        ("column", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("encoding", ctypes.c_int32),
        ("bounded", ctypes.c_int32),
        ("least", ctypes.c_void_p),
        ("greatest", ctypes.c_void_p),
        ("least_size", ctypes.c_uint64),
        ("greatest_size", ctypes.c_uint64),
    )


_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int32
_FUNCTIONS = {
    "open": (_POINTER, (ctypes.POINTER(ColumnSpec), ctypes.c_size_t, ctypes.c_uint64)),
    "close": (None, (_POINTER,)),
    "append": (
        _NUMBER,
        (_POINTER, ctypes.POINTER(ArrowArray), ctypes.POINTER(ctypes.c_int64)),
    ),
    "finish": (_NUMBER, (_POINTER,)),
    "take": (_NUMBER, (_POINTER, ctypes.POINTER(PageOut))),
    "free": (None, (_POINTER,)),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version.

    Raises:
        Unusable: The library is missing, cannot be loaded, or is another version.
    """
    return built_library.load(NAME, OVERRIDE, "unloader_pages_", ABI_VERSION, _FUNCTIONS)


def why_not() -> str | None:
    """Return why the library cannot be used, None if it can."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None
