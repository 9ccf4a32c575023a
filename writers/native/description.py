"""What the library is given of a format and its columns: the bytes that `Format::read` takes.

All rules are those of `writers.text.marks`; the library is given the marks and what to do about
them, and decides nothing itself. Numbers are little-endian, texts UTF-8 behind their length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

import pyarrow as pa
from msgspec.structs import replace

from writers.model import FixedField, TextFormat
from writers.native.charsets import charset_description
from writers.native.moments import moment_program
from writers.schema import text_class
from writers.text.datetime_texts import mask_of
from writers.text.enclosing import Enclosing
from writers.text.fixed_width import is_free_text
from writers.text.marks import (
    bare_escapes,
    behind_bare,
    enclosed_escapes,
    enclosed_for,
    forbidden_bare,
    not_bare,
    overlaps_itself,
    protected_null,
    refused_anywhere,
)
from writers.text.masks import GROUPS
from writers.text.output_encoding import OutputEncoding
from writers.text.text_values import alphabet_of, content_of_field, format_for, plain_type


class Kind(IntEnum):
    """How values lie in memory, as `description.h` numbers it."""

    NONE = 0
    BOOLEAN = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    DECIMAL = 12
    MOMENT = 13
    TEXT32 = 14
    TEXT64 = 15
    TEXT_VIEW = 16
    BINARY32 = 17
    BINARY64 = 18
    BINARY_VIEW = 19
    BINARY_FIXED = 20
    UUID = 21


_INTEGERS = {
    pa.int8(): Kind.INT8,
    pa.int16(): Kind.INT16,
    pa.int32(): Kind.INT32,
    pa.int64(): Kind.INT64,
    pa.uint8(): Kind.UINT8,
    pa.uint16(): Kind.UINT16,
    pa.uint32(): Kind.UINT32,
    pa.uint64(): Kind.UINT64,
}
_OTHERS = {
    pa.null(): Kind.NONE,
    pa.bool_(): Kind.BOOLEAN,
    pa.float32(): Kind.FLOAT32,
    pa.float64(): Kind.FLOAT64,
    pa.string(): Kind.TEXT32,
    pa.large_string(): Kind.TEXT64,
    pa.string_view(): Kind.TEXT_VIEW,
    pa.binary(): Kind.BINARY32,
    pa.large_binary(): Kind.BINARY64,
    pa.binary_view(): Kind.BINARY_VIEW,
}
_BINARY_FORMS = {"prefixed-hex": 0, "hex": 1, "base64": 2}
_ENCLOSED, _ESCAPED, _REFUSED = range(3)
_UUID_BYTES = 16


def describe_format(schema: pa.Schema, format: TextFormat) -> tuple[bytes, tuple[Kind | None, ...]]:
    """Return the description of a format and schema, and the kind of each column.

    Args:
        schema: Its columns have passed `writers.text.text_values.check_field`.
        format: A checked one that `is_known`.

    Returns:
        None for the kind of a column that the library is to be given as text, string or
        large_string.
    """
    enclosing = Enclosing(format, single=len(schema) == 1)
    apart = not_bare(format, single=len(schema) == 1)
    columns = [_column(field, format, enclosing, apart) for field in schema]
    charset = b"" if OutputEncoding(format.encoding).is_utf8 else charset_description(format)
    # Nothing is enclosed or escaped where places tell the values apart.
    rules = replace(format, enclose="none", escape="none") if format.fixed else format
    description = b"".join(
        (
            _marks(format),
            _rules(rules, single=len(schema) == 1),
            _text(charset or b""),
            _list(_field(*pair) for pair in zip(format.fixed, schema, strict=bool(format.fixed))),
            _list(packed for _, packed in columns),
        )
    )
    return description, tuple(kind for kind, _ in columns)


def is_known(format: TextFormat) -> bool:
    """Tell whether the library can write records in this format at all."""
    return OutputEncoding(format.encoding).is_utf8 or charset_description(format) is not None


def _field(field: FixedField, column: pa.Field) -> bytes:
    return struct.pack("<QBBB", field.width, field.right, field.padded, is_free_text(column))


def _marks(format: TextFormat) -> bytes:
    words = format.boolean.split("/")
    end = (format.delimiter if format.trailing_delimiter else "") + format.eol
    texts = (format.delimiter, format.enclosure, format.null, end, format.decimal_separator, *words)
    binary = _BINARY_FORMS[format.binary]
    return b"".join(map(_text, texts)) + struct.pack("<BI", binary, format.record_length_digits)


def _rules(format: TextFormat, *, single: bool) -> bytes:
    """Return what `writers.text.enclosing` does about values that hold marks."""
    backslash, mark = format.escape == "backslash", format.enclosure
    bare = format.enclose == "none"
    protection = _ENCLOSED if not bare else _ESCAPED if backslash else _REFUSED
    enclosed = () if bare else enclosed_escapes(format) if backslash else ((mark, mark * 2),)
    # A backslash in front of what could run into the next mark keeps the two apart.
    runs = behind_bare(format) if bare else (format.delimiter,)
    return b"".join(
        (
            struct.pack("<BB", protection, format.escape == "none"),
            _texts(refused_anywhere(format)),
            _texts(() if bare else enclosed_for(format)),
            _texts(not_bare(format, single=single)),
            _texts(forbidden_bare(format)),
            _texts(mark for mark in runs if overlaps_itself(mark)),
            struct.pack("<B", not backslash and overlaps_itself(mark)),
            _pairs(enclosed),
            _pairs(bare_escapes(format) if backslash else ()),
            _text((backslash and protected_null(format.null)) or ""),
        )
    )


def _column(
    field: pa.Field, format: TextFormat, enclosing: Enclosing, apart: tuple[str, ...]
) -> tuple[Kind | None, bytes]:
    """Return the kind of a column, None for text, and its description."""
    index, stored = Kind.NONE, storage_type(field.type)
    if pa.types.is_dictionary(stored):
        index, stored = _INTEGERS[stored.index_type], storage_type(stored.value_type)
    kind, width, scale = _shape(stored)
    program: bytes | None = b""
    if kind is Kind.MOMENT:
        program = moment_program(stored, format_for(field, format))
    if program is None or _is_rewritten(field, format):
        kind, index, program = None, Kind.NONE, b""
    alphabet = alphabet_of(field, format)
    fixed = struct.pack(
        "<BBiiBBB",
        # What is given as text is described as such; string or large_string is given later.
        Kind.TEXT32 if kind is None else kind,
        Kind.NONE if kind is None else index,
        width,
        scale,
        format.enclose == "all"
        or (format.enclose == "strings" and content_of_field(field) == "text"),
        enclosing.leaves(alphabet),
        any(_may_be(text, field, format, alphabet) for text in apart),
    )
    return kind, fixed + _text(program)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values of an extension type are stored as; UUIDs stay."""
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.uuid":
        return storage_type(kind.storage_type)
    return kind


def _shape(kind: pa.DataType) -> tuple[Kind | None, int, int]:
    """Return the kind of a type, and width and scale where it has them."""
    types = pa.types
    if types.is_decimal(kind):
        return Kind.DECIMAL, kind.bit_width // 8, kind.scale
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return Kind.MOMENT, 0, 0
    if isinstance(kind, pa.BaseExtensionType):
        return Kind.UUID, _UUID_BYTES, 0
    if types.is_fixed_size_binary(kind):
        return Kind.BINARY_FIXED, kind.byte_width, 0
    return _INTEGERS.get(kind, _OTHERS.get(kind)), 0, 0


def _is_rewritten(field: pa.Field, format: TextFormat) -> bool:
    """Tell whether the text in a column stands for something that has another text."""
    carried = text_class(field)
    return carried == "timestamp" or (carried == "number" and format.decimal_separator != ".")


def _may_be(
    text: str, field: pa.Field, format: TextFormat, alphabet: frozenset[str] | None
) -> bool:
    """Tell whether a value of the column may be written as this text."""
    if alphabet is None:
        return True
    if text:
        return set(text) <= alphabet
    kind = plain_type(field.type)
    if content_of_field(field) != "text" or not pa.types.is_temporal(kind):
        return False
    # Only elements that may be empty.
    elements = mask_of(kind, format_for(field, format)).elements
    return all(GROUPS.get(e.kind) == "fraction" or e.text == "" for e in elements)


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def _list(items: Iterable[bytes]) -> bytes:
    packed = tuple(items)
    return struct.pack("<I", len(packed)) + b"".join(packed)


def _texts(texts: Iterable[str]) -> bytes:
    return _list(map(_text, texts))


def _pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return _list(_text(old) + _text(new) for old, new in pairs)
