"""Pages from record batches through the native library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from writers.built_library import ArrowArray
from writers.errors import ValueNotRepresentable, WriteError
from writers.parquet.native.bounds import Bounds
from writers.parquet.native.columns import ColumnForm, Encoding
from writers.parquet.native.library import ColumnSpec, PageOut, library

if TYPE_CHECKING:
    import pyarrow as pa

_DONE, _REFUSED, _NO_MEMORY = 0, 1, -1
_DICTIONARY = 2


class Page(Struct, frozen=True, kw_only=True):
    """The bytes of a page, not yet compressed, and what is in them."""

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
        page_bytes: A page ends with the row that brings it to so many bytes, or up to 1,023 rows
            later where rows are small.
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
        """Let the memory go."""
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
        import pyarrow as pa

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
