"""The layout of a file: its row groups, column chunks and written pages.

The least and greatest values of pages and column chunks.

Readers skip pages, row groups and files by these bounds. So bounds must cover every value, or be
left out. NaN is in no bounds, and readers take it for greater than all numbers, or for different
from them. A page with NaN therefore has no bounds, and neither has its column chunk.

The columns that the native library can encode, and their description for it.

pyarrow decides the physical type, by its schema of the file. The library cannot write a column that
pyarrow would store in another way.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from pyarrow import types

if TYPE_CHECKING:
    import pyarrow as pa


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


_NUMBER_ENCODINGS = frozenset({Encoding.PLAIN, Encoding.RLE_DICTIONARY})
_ENCODINGS = {
    Physical.BOOLEAN: frozenset({Encoding.PLAIN}),
    Physical.INT32: _NUMBER_ENCODINGS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.INT64: _NUMBER_ENCODINGS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.FLOAT: _NUMBER_ENCODINGS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.DOUBLE: _NUMBER_ENCODINGS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.BYTE_ARRAY: _NUMBER_ENCODINGS | {Encoding.DELTA_BYTE_ARRAY},
    Physical.FIXED_LEN_BYTE_ARRAY: _NUMBER_ENCODINGS,
}
"""The encodings of the library."""


class ColumnForm(Struct, frozen=True, kw_only=True):
    """How one column is stored."""

    name: str
    source: Source
    physical: Physical
    width: int = 0
    """Bytes of a value of fixed length, 0 for others."""
    nullable: bool = True
    signed: bool = True
    factor: int = 1
    """Numbers are multiplied with it: Parquet has no seconds."""

    def can(self, encoding: Encoding) -> bool:
        """Return whether the library has this encoding for the column."""
        return encoding in _ENCODINGS[self.physical]


def forms_of(schema: pa.Schema, stored: Any) -> tuple[ColumnForm, ...] | None:
    """Return how the columns are stored, None where the library does not know one of them.

    Args:
        schema: Of the batches.
        stored: pyarrow's schema of the file that these batches make.
    """
    if not len(schema) or len(stored) != len(schema):
        return None
    forms = []
    for index, each in enumerate(schema):
        form = _form_of(each)
        column = stored.column(index)
        if form is None or form.physical.name != column.physical_type:
            return None
        if column.max_repetition_level or column.max_definition_level != int(form.nullable):
            return None
        if form.width and form.width != column.length:
            return None
        forms.append(form)
    return tuple(forms)


def _form_of(field: pa.Field) -> ColumnForm | None:

    kind, common = field.type, {"name": field.name, "nullable": field.nullable}
    if types.is_decimal128(kind):
        return _decimal(kind.precision, common)
    if types.is_fixed_size_binary(kind):
        return ColumnForm(
            source=Source.FIXED,
            physical=Physical.FIXED_LEN_BYTE_ARRAY,
            width=kind.byte_width,
            signed=False,
            **common,
        )
    found = _simple_forms().get(str(kind))
    if found is None and types.is_timestamp(kind):
        found = (Source.INT64, Physical.INT64, True, 1000 if kind.unit == "s" else 1)
    if found is None:
        return None
    source, physical, signed, factor = found
    return ColumnForm(source=source, physical=physical, signed=signed, factor=factor, **common)


def _decimal(precision: int, common: dict[str, Any]) -> ColumnForm:
    if precision <= 18:
        physical = Physical.INT32 if precision <= 9 else Physical.INT64
        return ColumnForm(source=Source.DECIMAL, physical=physical, **common)
    return ColumnForm(
        source=Source.DECIMAL,
        physical=Physical.FIXED_LEN_BYTE_ARRAY,
        # Enough bytes for the largest number of these digits, and a sign.
        width=(10**precision).bit_length() // 8 + 1,
        **common,
    )


def _simple_forms() -> dict[str, tuple[Source, Physical, bool, int]]:
    text32 = (Source.TEXT32, Physical.BYTE_ARRAY, False, 1)
    text64 = (Source.TEXT64, Physical.BYTE_ARRAY, False, 1)
    return {
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
        "string": text32,
        "binary": text32,
        "large_string": text64,
        "large_binary": text64,
    }


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How a column is written in all row groups."""

    form: ColumnForm
    encoding: Encoding
    codec: str
    level: int | None


class WrittenPage(Struct, frozen=True, kw_only=True):
    """A data page in the file."""

    offset: int
    size: int
    """With its header."""
    first_row: int
    rows: int
    nulls: int
    bounds: Bounds | None

    @property
    def has_values(self) -> bool:
        """Whether not all of its rows are NULL."""
        return self.nulls < self.rows


class Chunk(Struct, kw_only=True):
    """A column chunk that was just written."""

    plan: ColumnPlan
    start: int
    data_start: int = 0
    """Of the first data page."""
    has_dictionary: bool = False
    compressed: int = 0
    uncompressed: int = 0
    pages: list[WrittenPage] = field(default_factory=list)
    kinds: Counter[tuple[bool, Encoding]] = field(default_factory=Counter)
    """How many pages there are: of dictionaries or not, and their encoding."""


class Place(Struct, frozen=True, kw_only=True):
    """Where something is in a file."""

    offset: int
    size: int


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """The entry of a column chunk in the file's end, encoded and held until then."""

    metadata: Value
    column_index: bytes | None
    offset_index: bytes | None


class RowGroup(Struct, frozen=True, kw_only=True):
    """A row group in the file."""

    rows: int
    start: int
    compressed: int
    uncompressed: int
    chunks: list[ChunkRecord]


Value = tuple[int, bytes]
"""A type of the protocol and the encoded value."""

_TRUE, _FALSE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 4, 5, 6, 8, 9, 12


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def boolean(value: bool) -> Value:
    """Return a truth value; it is part of its type."""
    return (_TRUE if value else _FALSE, b"")


def int16(value: int) -> Value:
    """Return a number of 16 bits."""
    return _I16, _zigzag(value)


def int32(value: int) -> Value:
    """Return a number of 32 bits, or one of an enumeration."""
    return _I32, _zigzag(value)


def int64(value: int) -> Value:
    """Return a number of 64 bits."""
    return _I64, _zigzag(value)


def binary(value: bytes) -> Value:
    """Return bytes or text."""
    return _BINARY, _varint(len(value)) + value


def structure(fields: Iterable[tuple[int, Value | None]]) -> Value:
    """Return a structure of fields with ascending numbers, each of them below 16 more than the
    one before; None is left out."""
    out, last = bytearray(), 0
    for number, value in fields:
        if value is not None:
            kind, data = value
            out.append((number - last) << 4 | kind)
            out += data
            last = number
    out.append(0)
    return _STRUCT, bytes(out)


def several(values: Iterable[Value], *, kind: int = _STRUCT) -> Value:
    """Return a list of values of one type; `kind` is the type of an empty list."""
    listed = list(values)
    if listed:
        kind = listed[0][0]
    if kind == _FALSE:
        kind = _TRUE
    # Only the type distinguishes the two truth values.
    data = [bytes([each[0]]) if each[0] in (_TRUE, _FALSE) else each[1] for each in listed]
    count = len(data)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return _LIST, head + b"".join(data)


def fields_of(data: bytes) -> dict[int, Value]:
    """Return the fields of an encoded structure as they are, by their numbers.

    Raises:
        ValueError: The bytes are not a struct.
    """
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
    if kind == 3:  # a byte
        return at + 1
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


LONGEST = 4096
"""A longer value is left out, as with pyarrow, so that documents do not enlarge the footer. The
library cuts values to one byte more (`bounds.h`), which keeps their order."""

_UNORDERED, _ASCENDING, _DESCENDING = 0, 1, 2

_NUMBERS = {
    (Physical.INT32, True): "<i",
    (Physical.INT32, False): "<I",
    (Physical.INT64, True): "<q",
    (Physical.INT64, False): "<Q",
    (Physical.FLOAT, True): "<f",
    (Physical.DOUBLE, True): "<d",
}


class Bounds(Struct, frozen=True, kw_only=True):
    """Encoded values that all others are between."""

    least: bytes
    greatest: bytes

    @property
    def fit(self) -> bool:
        """Whether both are short enough to be in a file."""
        return len(self.least) <= LONGEST and len(self.greatest) <= LONGEST


def order_of(form: ColumnForm) -> Callable[[bytes], Any]:
    """Return the key by which encoded values of a column are compared."""
    if code := _NUMBERS.get((form.physical, form.signed)):
        unpack = struct.Struct(code).unpack
        return lambda value: unpack(value)[0]
    if form.signed and form.physical == Physical.FIXED_LEN_BYTE_ARRAY:
        return lambda value: int.from_bytes(value, "big", signed=True)
    return lambda value: value


def joined(pages: Sequence[Bounds], order: Callable[[bytes], Any]) -> Bounds:
    """Return the bounds of several pages together."""
    return Bounds(
        least=min((each.least for each in pages), key=order),
        greatest=max((each.greatest for each in pages), key=order),
    )


def boundary_order(pages: Sequence[Bounds], order: Callable[[bytes], Any]) -> int:
    """Return Parquet's number for the order of pages."""
    keys = [(order(each.least), order(each.greatest)) for each in pages]
    pairs = list(pairwise(keys))
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        return _ASCENDING
    if all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        return _DESCENDING
    return _UNORDERED
