"""The forms of an Arrow array's values, as far as their checksum must know them.

A form defines the text of a value for its hash; docs/verification.md defines the texts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa


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


_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def form_of(kind: pa.DataType, *, text_class: str = "", infinite: bool = False) -> Form | None:
    """Return the form of an Arrow type's values, None where their text must be made first.

    `text_class` and `infinite` are the meaning of the field by its metadata.
    """
    from pyarrow import types

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
            digits=_DIGITS[kind.unit],
            utc=kind.tz is not None,
            infinite=infinite,
        )
    if types.is_time(kind):
        return Form(kind=Kind.TIME, width=kind.bit_width // 8, digits=_DIGITS[kind.unit])
    return None
