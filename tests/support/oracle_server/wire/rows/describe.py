"""Message 16: what a query's columns are, with the values that real servers send."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from oracle_server.model import Column, Type
from oracle_server.wire.values.by_type import (
    LOCATOR_TYPES,
    PREFETCHED_TYPES,
    XMLTYPE_OID,
    wire_type,
)
from oracle_server.wire.values.forms import NULL, clr, dalc, sb, ub
from oracle_server.wire.values.vectors import FORMATS

_COLLATION = 16382
"""Collation id of every text column of a database that uses none."""
_NATIONAL_CHARSET = 2000
_WIDE_SCALE_TYPES = frozenset({2, 180, 181, 183, 231})
_MAX_LENGTH = 32767
_SIZES = {
    "NUMBER": 22,
    "FLOAT": 22,
    "TIMESTAMP": 11,
    "LONG": 0,
    "LONG RAW": 0,
    "CLOB": 4000,
    "NCLOB": 4000,
    "BLOB": 4000,
    "XMLTYPE": 2000,
    "JSON": 8200,
    "VECTOR": 8200,
    "UROWID": 4000,
}
"""Described sizes; 1 for the others, as was seen for DATE, ROWID and the binary floats. Those of
LOBs, JSON, VECTOR and XMLTYPE are guesses, for which clients only need something above zero."""
_ROW_SIZES = {
    "DATE": 7,
    "TIMESTAMP WITH TIME ZONE": 13,
    "TIMESTAMP WITH LOCAL TIME ZONE": 11,
    "INTERVAL YEAR TO MONTH": 5,
    "INTERVAL DAY TO SECOND": 11,
    "BINARY_FLOAT": 4,
    "BINARY_DOUBLE": 8,
}
"""What these types count for in the row size, in place of their described size of 1."""


def describe(
    columns: Sequence[Column],
    *,
    field_version: int,
    wide_scale: bool = False,
    statement: str = "",
    charset: int = 873,
) -> bytes:
    """Return a whole DESCRIBE message, its 10 (hex) first.

    Args:
        columns: Of the query, in order.
        field_version: TTC field version that both sides agreed on (11g 6, 12.1 7, 19c 12, 21c 16,
            23ai 24); it decides which fields there are.
        wide_scale: The scale of NUMBER, timestamps and intervals is an sb2 (Go and Java clients),
            else one byte (Python, Node).
        statement: Text of the statement, of which the message carries a hash.
        charset: Character set id of the database.
    """
    digest = hashlib.md5(statement.encode(), usedforsecurity=False).digest()
    now = _now()
    row_size = sum(_ROW_SIZES.get(column.type.name, size_of(column.type)) for column in columns)
    parts = [b"\x10", clr(digest + now), ub(row_size), ub(len(columns))]
    if columns:
        parts.append(b"\x82" if field_version >= 17 else b"\x5c")
    parts += (
        _column(column, position, field_version, wide_scale, charset)
        for position, column in enumerate(columns)
    )
    parts += (dalc(now), ub(0), ub(8168), ub(10), ub(10), NULL)
    return b"".join(parts)


def _now() -> bytes:
    moment = time.gmtime()
    century, year = divmod(moment.tm_year, 100)
    clock = (moment.tm_hour + 1, moment.tm_min + 1, moment.tm_sec % 60 + 1)
    return bytes((century + 100, year + 100, moment.tm_mon, moment.tm_mday, *clock))


def _column(
    column: Column, position: int, field_version: int, wide_scale: bool, charset: int
) -> bytes:
    kind = column.type
    number, form = wire_type(kind)
    precision, scale = _digits(kind)
    wide = wide_scale and number in _WIDE_SCALE_TYPES
    name = column.name.encode()
    is_object = kind.name == "XMLTYPE"
    parts = [
        bytes((number, 0x80 if form else 0, precision)),
        sb(scale) if wide else bytes((scale & 0xFF,)),
        ub(size_of(kind)),
        NULL,
        NULL,
        dalc(XMLTYPE_OID) if is_object else NULL,
        ub(1) if is_object else NULL,
        ub(_charset(column, form, charset)),
        bytes((form,)),
        ub(_characters(kind) if form else 0),
        ub(_COLLATION if form else 0) if field_version >= 8 else b"",
        bytes((column.nullable, min(len(name), 255))),
        dalc(name),
        dalc(b"SYS" if is_object else b""),
        dalc(b"XMLTYPE" if is_object else b""),
        ub(position),
        NULL,
    ]
    if field_version >= 17:
        parts += (NULL, NULL)
    if field_version >= 20:
        parts.append(NULL)
    if field_version >= 24:
        is_vector = kind.name == "VECTOR"
        parts.append(ub(kind.length or 0) if is_vector else NULL)
        parts.append(bytes((FORMATS[kind.element or "FLOAT32"] if is_vector else 0, 0)))
    return b"".join(parts)


def _digits(kind: Type) -> tuple[int, int]:
    """Return precision and scale: NUMBER without either has scale -127, an expression zeros."""
    if kind.name == "FLOAT":
        return kind.precision or 126, -127
    if kind.name == "NUMBER":
        if kind.expression:
            return 0, 0
        if kind.precision is None:
            return (0, -127) if kind.scale is None else (38, kind.scale)
        return kind.precision, kind.scale or 0
    if kind.name.startswith(("TIMESTAMP", "INTERVAL DAY")):
        leading = 2 if kind.precision is None else kind.precision
        return (leading if kind.name[0] == "I" else 0), (6 if kind.scale is None else kind.scale)
    if kind.name == "INTERVAL YEAR TO MONTH":
        return (2 if kind.precision is None else kind.precision), 0
    return 0, 0


def size_of(kind: Type) -> int:
    """Return a type's described size in bytes; text in characters takes four bytes each."""
    if kind.name == "RAW":
        return 2000 if kind.length is None else kind.length
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        width = 2 if kind.name[0] == "N" else 4 if kind.in_chars else 1
        return min(width * _characters(kind), _MAX_LENGTH)
    return _SIZES.get(kind.name, 1)


def _characters(kind: Type) -> int:
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        return (2000 if kind.name[0] == "N" else 4000) if kind.length is None else kind.length
    return 0


def _charset(column: Column, form: int, charset: int) -> int:
    if is_absent(column):
        return 1
    return (0, charset, _NATIONAL_CHARSET)[form]


def is_absent(column: Column) -> bool:
    """Tell whether no row has a byte for this column: it is described with size 0 (a NULL literal).

    A VARCHAR2, CHAR or RAW of length 0 is such a column.
    """
    return not size_of(column.type) and not is_long(column)


def is_long(column: Column) -> bool:
    """Tell whether the column is a LONG or LONG RAW, which switches bit vectors off."""
    return column.type.name in ("LONG", "LONG RAW")


def needs_define(columns: Sequence[Column]) -> bool:
    """Tell whether an execute must answer without rows because the client defines LOBs first.

    So with a CLOB, NCLOB, BLOB, JSON or VECTOR column: the driver executes again with defines.
    """
    return any(column.type.name in LOCATOR_TYPES | PREFETCHED_TYPES for column in columns)
