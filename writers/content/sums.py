"""The checksum of each column of some rows, added up batch by batch.

The checksum of a column is the sum over its values, modulo 2**64, of the first eight bytes of the
MD5 of the value's text; NULLs are counted. It does not depend on the order of rows, and the sums of
a table's parts add up to the whole table's sum. docs/verification.md defines the texts.

The shared library that computes the sums is built, like the encoder's, if it can be, and loaded on
first use, once a process. A call gives the interpreter up while it computes. Python computes the
same numbers, value by value.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import types

from writers import built_library
from writers.built_library import ArrowArray
from writers.large_rows import LargeRow, PassedValue
from writers.model import ContentSums, TextFormat, hexadecimal
from writers.schema import INFINITE, has_infinities, text_class
from writers.text.mask_texts import UNIT_DIGITS
from writers.text.text_values import text_of

ABI_VERSION = 2
"""Of the interface in `column_sum.cpp`, which has the same number."""
NAME = "writers.content._sums"
OVERRIDE = "UNLOADER_NATIVE_SUMS_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""
_UTC, _INFINITE = 1, 2
_NUMBER = re.compile(rb"([+-]?)0*(\d*)(?:\.(\d*?)0*)?")


class Kind(IntEnum):
    """The kinds of values; `column_sum.cpp` has the same numbers."""

    BYTES = 0
    """Text or bytes as they are."""
    NUMBER_TEXT = 1
    HEX_TEXT = 2
    """Text of bytes in hexadecimal digits, after `digits` characters."""
    INTEGER = 3
    NATURAL = 4
    DECIMAL = 5
    FLOAT = 6
    BOOLEAN = 7
    DATE = 8
    TIMESTAMP = 9
    TIME = 10


class Form(Struct, frozen=True, kw_only=True):
    """How the values of an array are read, and made the texts that are hashed."""

    kind: Kind
    width: int = 0
    """Bytes of a value, or of an offset of texts."""
    digits: int = 0
    """Of a decimal's fraction, of a tick's fraction of a second, or of a prefix."""
    utc: bool = False
    """Timestamps are instants."""
    infinite: bool = False
    """The ends of the range of dates and timestamps are infinity."""


def form_of(kind: pa.DataType, *, text_class: str = "", infinite: bool = False) -> Form | None:
    """Return the form of a type and its metadata; None where the text must be made first."""
    if types.is_string(kind) or types.is_large_string(kind):
        if text_class == "timestamp":
            return None
        number = text_class == "number"
        width = 8 if types.is_large_string(kind) else 4
        return Form(kind=Kind.NUMBER_TEXT if number else Kind.BYTES, width=width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Form(kind=Kind.BYTES, width=8 if types.is_large_binary(kind) else 4)
    if types.is_integer(kind):
        signed = types.is_signed_integer(kind)
        return Form(kind=Kind.INTEGER if signed else Kind.NATURAL, width=kind.bit_width // 8)
    if types.is_decimal128(kind) and kind.scale >= 0:
        return Form(kind=Kind.DECIMAL, width=16, digits=kind.scale)
    if types.is_float32(kind) or types.is_float64(kind):
        return Form(kind=Kind.FLOAT, width=kind.bit_width // 8)
    if types.is_boolean(kind):
        return Form(kind=Kind.BOOLEAN)
    if types.is_date32(kind):
        return Form(kind=Kind.DATE, width=4, infinite=infinite)
    if types.is_timestamp(kind):
        return Form(
            kind=Kind.TIMESTAMP,
            width=8,
            digits=UNIT_DIGITS[kind.unit],
            utc=kind.tz is not None,
            infinite=infinite,
        )
    if types.is_time(kind):
        return Form(kind=Kind.TIME, width=kind.bit_width // 8, digits=UNIT_DIGITS[kind.unit])
    return None


class _Spec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("form", "width", "digits", "flags"))


class _Result(ctypes.Structure):
    _fields_ = (("sum", ctypes.c_uint64), ("nulls", ctypes.c_int64))


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the library, None where it was not built, or for another version."""
    arguments = (ctypes.POINTER(_Spec), ctypes.POINTER(ArrowArray), ctypes.POINTER(_Result))
    try:
        functions = {"column": (ctypes.c_int32, arguments)}
        return built_library.load(NAME, OVERRIDE, "unloader_sums_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None


def column_sum(array: pa.Array, form: Form) -> tuple[int, int]:
    """Return the sum over an array's values, modulo 2**64, and the number of nulls."""
    loaded = library()
    if loaded is None:
        return plain_sum(array, form)
    exported, result = ArrowArray(), _Result()
    flags = _UTC * form.utc | _INFINITE * form.infinite
    spec = _Spec(int(form.kind), form.width, form.digits, flags)
    array._export_to_c(ctypes.addressof(exported))
    status = loaded.unloader_sums_column(spec, exported, result)
    if status == -1:
        raise MemoryError("there is not enough memory for a checksum")
    if status:
        raise ValueError(f"values of {array.type} are not {form.kind.name}")
    return result.sum, result.nulls


def plain_sum(array: pa.Array, form: Form) -> tuple[int, int]:
    """Return what `column_sum` does, without the library."""
    values = (value for value in _texts(array, form) if value is not None)
    return sum(map(number_of, values)) % 2**64, array.null_count


def number_of(text: bytes) -> int:
    """Return what one value adds to the checksum of its column."""
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "big")


def _texts(array: pa.Array, form: Form) -> Iterator[bytes | None]:
    kind = form.kind
    if kind is Kind.FLOAT:
        layout = ">f" if form.width == 4 else ">d"
        for value in array.to_pylist():
            if value is None or math.isnan(value):
                yield None if value is None else b"NaN"
            else:
                yield struct.pack(layout, value).hex().encode()
        return
    if kind not in (Kind.BYTES, Kind.NUMBER_TEXT, Kind.HEX_TEXT):
        if kind is Kind.TIMESTAMP:
            array = array.view(pa.timestamp(array.type.unit, "UTC" if form.utc else None))
        field = pa.field("", array.type, metadata=INFINITE if form.infinite else None)
        array = text_of(array, field, TextFormat())
    for text in array.cast(pa.large_binary()).to_pylist():
        if text is not None and kind is Kind.HEX_TEXT:
            text = bytes.fromhex(text[form.digits :].decode("ascii"))
        elif text is not None and kind in (Kind.NUMBER_TEXT, Kind.DECIMAL):
            text = number_text(text)
        yield text


def number_text(text: bytes) -> bytes:
    """Return a number in digits without needless zeros or a sign +; another text as it is."""
    match = _NUMBER.fullmatch(text)
    if match is None or not any(48 <= byte <= 57 for byte in text):
        return text
    sign, whole, fraction = match[1], match[2], match[3] or b""
    if not whole and not fraction:
        return b"0"
    return b"-" * (sign == b"-") + (whole or b"0") + (b"." + fraction if fraction else b"")


class ColumnSums:
    """Adds up the batches of a schema, in any order; used by one thread at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = 0
        self._nulls = [0] * len(schema)
        self._sums = [0] * len(schema)

    def add(self, columns: Sequence[pa.Array], rows: int) -> None:
        self._rows += rows
        for index, (array, field) in enumerate(zip(columns, self._schema, strict=True)):
            self.add_column(index, *prepared(array, field))

    def add_column(self, index: int, array: pa.Array, form: Form) -> None:
        """Add values of one column alone; `rows` are not counted."""
        found, nulls = column_sum(array, form)
        self._sums[index] += found
        self._nulls[index] += nulls

    def count(self, rows: int) -> None:
        self._rows += rows

    def hashed(self, large: LargeRow) -> LargeRow:
        """Return a large row that counts once its values have been read to their ends."""
        self.add(large.row.columns, 1)
        values = []
        for index, value in large.values:
            self._nulls[index] -= 1  # There is a null in its place.
            values.append((index, PassedValue(value, self._hashing(index))))
        return replace(large, values=tuple(values))

    def _hashing(self, index: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return a function that adds a value to its column's sum when it is first read whole."""
        is_counted = False

        def through(pieces: Iterator[Any]) -> Iterator[Any]:
            nonlocal is_counted
            state = hashlib.md5(usedforsecurity=False)
            for piece in pieces:
                state.update(piece.encode() if isinstance(piece, str) else piece)
                yield piece
            if not is_counted:
                is_counted = True
                self._sums[index] += int.from_bytes(state.digest()[:8], "big")

        return through

    def result(self) -> ContentSums:
        return ContentSums(
            rows=self._rows,
            nulls=tuple(self._nulls),
            sums=tuple(hexadecimal(each) for each in self._sums),
        )


def prepared(array: pa.Array, field: pa.Field) -> tuple[pa.Array, Form]:
    """Return values of a field as an array with a form; a type without a form becomes text."""
    form = form_of(array.type, text_class=text_class(field), infinite=has_infinities(field))
    if form is not None:
        return array, form
    texts = text_of(array, field.with_type(array.type), TextFormat())
    form = form_of(texts.type)
    assert form is not None
    return texts, form
