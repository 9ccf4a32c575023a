"""The metadata of a Parquet file, as `parquet.thrift` of the format gives it.

What depends on types and not on rows (the schema, the order of each column's values, the metadata
of fields and file) is taken byte by byte from a file without rows that pyarrow wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from writers import __version__
from writers.parquet.native.bounds import Bounds, boundary_order, joined, order_of
from writers.parquet.native.columns import Encoding
from writers.parquet.native.layout import Chunk, ChunkRecord, Place, RowGroup
from writers.parquet.native.thrift import (
    Value,
    binary,
    boolean,
    fields_of,
    int16,
    int32,
    int64,
    several,
    structure,
)

if TYPE_CHECKING:
    from writers.model import SortColumn
    from writers.parquet.native.pages import Page

MAGIC = b"PAR1"

CREATED_BY = f"unloader version {__version__} (build native)".encode()
"""The writer of a file, in the form that readers parse."""

_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""The lz4 without a frame: readers disagree about the one that the first lz4 had."""

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEYS, _CREATED_BY, _ORDERS = range(1, 8)


def page_header(page: Page, *, uncompressed: int, compressed: int) -> bytes:
    """Return what stands in front of a page."""
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
    """Return what the end of a file has of a row group.

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
    """Return the bounds of a chunk's pages, all of which have some or are NULL."""
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
