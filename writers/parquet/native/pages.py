"""Pages from record batches through the native library: which columns it knows, and its interface.

pyarrow decides the physical type, by its schema of the file. The library cannot write a column that
pyarrow would store in another way. It is loaded on first use, once a process. A call gives the
interpreter up while it encodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyarrow import types

from writers import built_library
from writers.built_library import ArrowArray
from writers.errors import ValueNotRepresentable, WriteError


class Source(IntEnum):
    """How values lie in Arrow; the same numbers are in `page.h`."""

    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    DECIMAL = 8
    TEXT32 = 9
    TEXT64 = 10
    FIXED = 11


class Physical(IntEnum):
    """The types of the Parquet format, by its numbers."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Encoding(IntEnum):
    """Those encodings of the Parquet format that are written, by its numbers."""

    PLAIN = 0
    RLE = 3
    DELTA_BINARY_PACKED = 5
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


_NUMBERS = frozenset({Encoding.PLAIN, Encoding.RLE_DICTIONARY})
_ENCODINGS = {
    Physical.BOOLEAN: frozenset({Encoding.PLAIN}),
    Physical.INT32: _NUMBERS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.INT64: _NUMBERS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.FLOAT: _NUMBERS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.DOUBLE: _NUMBERS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.BYTE_ARRAY: _NUMBERS | {Encoding.DELTA_BYTE_ARRAY},
    Physical.FIXED_LEN_BYTE_ARRAY: _NUMBERS,
}
"""The encodings of the library."""
_FORMS = {
    "bool": (Source.BOOLEAN, Physical.BOOLEAN, False, 1),
    "int8": (Source.INT8, Physical.INT32, True, 1),
    "int16": (Source.INT16, Physical.INT32, True, 1),
    "int32": (Source.INT32, Physical.INT32, True, 1),
    "int64": (Source.INT64, Physical.INT64, True, 1),
    "uint8": (Source.UINT8, Physical.INT32, False, 1),
    "uint16": (Source.UINT16, Physical.INT32, False, 1),
    "uint32": (Source.UINT32, Physical.INT32, False, 1),
    "uint64": (Source.INT64, Physical.INT64, False, 1),
    "float": (Source.INT32, Physical.FLOAT, True, 1),
    "double": (Source.INT64, Physical.DOUBLE, True, 1),
    "date32[day]": (Source.INT32, Physical.INT32, True, 1),
    "time32[s]": (Source.INT32, Physical.INT32, True, 1000),
    "time32[ms]": (Source.INT32, Physical.INT32, True, 1),
    "time64[us]": (Source.INT64, Physical.INT64, True, 1),
    "time64[ns]": (Source.INT64, Physical.INT64, True, 1),
    "string": (Source.TEXT32, Physical.BYTE_ARRAY, False, 1),
    "binary": (Source.TEXT32, Physical.BYTE_ARRAY, False, 1),
    "large_string": (Source.TEXT64, Physical.BYTE_ARRAY, False, 1),
    "large_binary": (Source.TEXT64, Physical.BYTE_ARRAY, False, 1),
}
"""By Arrow's name of a type: how it lies and is stored, whether it is signed, and its factor."""


class ColumnForm(Struct, frozen=True, kw_only=True):
    name: str
    source: Source
    physical: Physical
    width: int = 0
    """Bytes of a value of fixed length, 0 for others."""
    nullable: bool
    signed: bool = True
    factor: int = 1
    """Numbers are multiplied with it: Parquet has no seconds."""

    def can(self, encoding: Encoding) -> bool:
        return encoding in _ENCODINGS[self.physical]


def forms_of(schema: pa.Schema, stored: Any) -> tuple[ColumnForm, ...] | None:
    """Return how columns of the schema are `stored` by pyarrow; None where one is unknown."""
    if not len(schema) or len(stored) != len(schema):
        return None
    forms = []
    for index, each in enumerate(schema):
        form, column = _form_of(each), stored.column(index)
        if (
            form is None
            or form.physical.name != column.physical_type
            or column.max_repetition_level
            or column.max_definition_level != int(form.nullable)
            or (form.width and form.width != column.length)
        ):
            return None
        forms.append(form)
    return tuple(forms)


def _form_of(field: pa.Field) -> ColumnForm | None:
    kind, width = field.type, 0
    found = _FORMS.get(str(kind))
    if types.is_decimal128(kind):
        physical = Physical.INT32 if kind.precision <= 9 else Physical.INT64
        if kind.precision > 18:
            # Enough bytes for the largest number of these digits, and a sign.
            physical, width = (
                Physical.FIXED_LEN_BYTE_ARRAY,
                (10**kind.precision).bit_length() // 8 + 1,
            )
        found = (Source.DECIMAL, physical, True, 1)
    elif types.is_fixed_size_binary(kind):
        found, width = (Source.FIXED, Physical.FIXED_LEN_BYTE_ARRAY, False, 1), kind.byte_width
    elif types.is_timestamp(kind):
        found = (Source.INT64, Physical.INT64, True, 1000 if kind.unit == "s" else 1)
    if found is None:
        return None
    source, physical, signed, factor = found
    return ColumnForm(
        name=field.name,
        source=source,
        physical=physical,
        width=width,
        nullable=field.nullable,
        signed=signed,
        factor=factor,
    )


LONGEST = 4096
"""A longer value is left out, as with pyarrow, so that documents do not enlarge the footer. The
library cuts values to one byte more (`bounds.h`), which keeps their order."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Encoded values that all others are between."""

    least: bytes
    greatest: bytes

    @property
    def fit(self) -> bool:
        """Whether both are short enough to be in a file."""
        return len(self.least) <= LONGEST and len(self.greatest) <= LONGEST


class Page(Struct, frozen=True, kw_only=True):
    column: int
    dictionary: bool
    encoding: Encoding
    rows: int
    """Of a dictionary its entries."""
    nulls: int
    bounds: Bounds | None
    """None for a page without values, or with NaN."""
    data: pa.Buffer


_DONE, _REFUSED, _NO_MEMORY = 0, 1, -1
_DICTIONARY = 2
_REPORT = "use --encoder plain, and report this with the types of the columns."


class PageEncoder:
    """Makes pages of batches, one row group after the other; used by one thread.

    A page ends with the row that brings it to `page_bytes`, or up to 1,023 rows later where rows
    are small. With `bounds` pages have their least and greatest value.
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
            raise WriteError("the native library cannot encode these columns.", _REPORT)

    def __del__(self) -> None:
        if group := self.__dict__.pop("_group", None):
            self._library.unloader_pages_close(group)

    def append(self, batch: pa.RecordBatch) -> Iterator[Page]:
        """Encode a batch and yield full pages; it is of no use after ValueNotRepresentable."""
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
        return self._ready(status)

    def finish(self) -> Iterator[Page]:
        """End the row group and yield the rest of its pages; the next batch begins another one."""
        return self._ready(self._library.unloader_pages_finish(self._group))

    def _ready(self, status: int) -> Iterator[Page]:
        if status == _NO_MEMORY:
            raise MemoryError("there is not enough memory for the pages of a row group")
        if status != _DONE:
            raise WriteError("the native library did not understand a batch.", _REPORT)
        return self._pages()

    def _pages(self) -> Iterator[Page]:
        out = PageOut()
        while self._library.unloader_pages_take(self._group, out):
            memory = _Memory(self._library.unloader_pages_free, out.memory)
            bounds = None
            if out.bounded:
                bounds = Bounds(
                    least=ctypes.string_at(out.least, out.least_size),
                    greatest=ctypes.string_at(out.greatest, out.greatest_size),
                )
            yield Page(
                column=out.column,
                dictionary=out.kind == _DICTIONARY,
                encoding=Encoding(out.encoding),
                rows=out.rows,
                nulls=out.nulls,
                bounds=bounds,
                data=pa.foreign_buffer(out.data, out.size, memory),
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
    "append": (_NUMBER, (_POINTER, ctypes.POINTER(ArrowArray), ctypes.POINTER(ctypes.c_int64))),
    "finish": (_NUMBER, (_POINTER,)),
    "take": (_NUMBER, (_POINTER, ctypes.POINTER(PageOut))),
    "free": (None, (_POINTER,)),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version, or raise Unusable."""
    return built_library.load(NAME, OVERRIDE, "unloader_pages_", ABI_VERSION, _FUNCTIONS)


why_not = partial(built_library.reason, library)
"""Returns why the library cannot be used, None if it can."""
check_choice = partial(built_library.check_choice, "Parquet", why_not)
"""Refuses the choice "native" if the library cannot be used."""
