"""Python values of every Oracle type as the cells of a row message, and the types' numbers.

A cell is what one column adds to one row, its length included; NULL is a cell too. Values behind
locators (CLOB, NCLOB, BLOB) get their cells from `lobs.py`, which knows the connection.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from oracle_server.model import Rowid, Type
from oracle_server.wire.values.forms import NULL, clr, dalc, sb, ub
from oracle_server.wire.values.numbers import encode_double, encode_float, encode_number
from oracle_server.wire.values.oson import encode_json
from oracle_server.wire.values.temporal import (
    encode_date,
    encode_day_second,
    encode_timestamp,
    encode_timestamp_tz,
    encode_year_month,
)
from oracle_server.wire.values.vectors import encode_vector

Encoder = Callable[[Any], bytes]

XMLTYPE_OID = bytes.fromhex("00000000000000000000000000020100")
"""Type id under which XMLTYPE is described."""
LONG_NULL = b"\x00" + sb(-1) + ub(1405)
"""A LONG that is NULL: no data, its indicator, and the code that says the value was null."""
LONG = 8
LONG_RAW = 24
LONG_VARCHAR = 94


class WireType(NamedTuple):
    """What a type is called on the wire."""

    number: int
    form: int = 0
    """Character set form: 1 database character set, 2 national, 0 no text."""


WIRE_TYPES = {
    "NUMBER": WireType(2),
    "FLOAT": WireType(2),
    "VARCHAR2": WireType(1, 1),
    "NVARCHAR2": WireType(1, 2),
    "CHAR": WireType(96, 1),
    "NCHAR": WireType(96, 2),
    "LONG": WireType(LONG, 1),
    "RAW": WireType(23),
    "LONG RAW": WireType(LONG_RAW),
    "DATE": WireType(12),
    "TIMESTAMP": WireType(180),
    "TIMESTAMP WITH TIME ZONE": WireType(181),
    "TIMESTAMP WITH LOCAL TIME ZONE": WireType(231),
    "INTERVAL YEAR TO MONTH": WireType(182),
    "INTERVAL DAY TO SECOND": WireType(183),
    "BINARY_FLOAT": WireType(100),
    "BINARY_DOUBLE": WireType(101),
    "ROWID": WireType(11),
    "UROWID": WireType(208),
    "CLOB": WireType(112, 1),
    "NCLOB": WireType(112, 2),
    "BLOB": WireType(113),
    "JSON": WireType(119),
    "XMLTYPE": WireType(109),
    "VECTOR": WireType(127),
    "BOOLEAN": WireType(252),
}
LOCATOR_TYPES = frozenset({"CLOB", "NCLOB", "BLOB"})
"""Types whose values stay behind and are sent as locators."""
PREFETCHED_TYPES = frozenset({"JSON", "VECTOR"})
"""Types that look like LOBs with all of their data in the row."""


def wire_type(type: Type) -> WireType:
    """Return a type's number and character set form.

    Raises:
        KeyError: No such type, or one no column can be fetched as (BFILE, objects).
    """
    return WIRE_TYPES[type.name]


def encoder(type: Type) -> Encoder:
    """Return the function from a Python value, or None, to its cell.

    Raises:
        KeyError: A type without a form of its own: CLOB, NCLOB, BLOB.
    """
    if type.name == "VECTOR":
        element = type.element or "FLOAT32"
        return _prefetched(lambda value: encode_vector(value, element))
    return _ENCODERS[type.name]


def cell(type: Type, value: Any) -> bytes:
    """Return one value's cell."""
    return encoder(type)(value)


def _clr_of(encode: Encoder) -> Encoder:
    def encode_cell(value: Any) -> bytes:
        return NULL if value is None else clr(encode(value))

    return encode_cell


def _long_of(encode: Encoder) -> Encoder:
    def encode_cell(value: Any) -> bytes:
        return LONG_NULL if value is None else clr(encode(value)) + b"\x00\x00"

    return encode_cell


def _prefetched(encode: Encoder) -> Encoder:
    def encode_cell(value: Any) -> bytes:
        if value is None:
            return NULL
        image = encode(value)
        # The locator of such a value is never used: the data is here.
        return b"".join((ub(40), ub(len(image)), ub(8060), clr(image), clr(bytes(40))))

    return encode_cell


def utf8(value: str) -> bytes:
    """Return text in the client's character set."""
    return value.encode()


def utf16(value: str) -> bytes:
    """Return text in the national character set; halves of a surrogate pair may stand alone."""
    return value.encode("utf-16-be", "surrogatepass")


def _boolean(value: bool) -> bytes:
    return b"\x01\x01" if value else b"\x00"


def _rowid(value: Rowid | None) -> bytes:
    if value is None:
        return NULL
    address = (ub(value.object), ub(value.file), b"\x00", ub(value.block), ub(value.slot))
    return b"\x0d" + b"".join(address)


def _urowid(value: Rowid | str | None) -> bytes:
    if value is None:
        return NULL
    if isinstance(value, str) and not value.startswith("*"):
        value = Rowid.parse(value)
    if isinstance(value, Rowid):
        parts = (value.object, 4), (value.file, 2), (value.block, 4), (value.slot, 2)
        image = b"\x01" + b"".join(part.to_bytes(width, "big") for part, width in parts)
    else:
        text = value[1:]
        image = b"\x02" + base64.b64decode(text + "=" * (-len(text) % 4))
    return ub(len(image)) + clr(image)


def _xmltype(value: str | None) -> bytes:
    if value is None:
        return bytes(5) + ub(1)
    text = value.encode()
    # Image flags (version 8.1, no prefix segment) and version, total length, XML version 1, string.
    body = b"\x01" + (0x0004).to_bytes(4, "big") + text
    image = b"\x84\x01\xfe" + (len(body) + 7).to_bytes(4, "big") + body
    head = (dalc(XMLTYPE_OID), NULL, NULL, NULL, ub(len(image)), ub(1))
    return b"".join(head) + clr(image)


_ENCODERS: dict[str, Encoder] = {
    "NUMBER": _clr_of(encode_number),
    "FLOAT": _clr_of(encode_number),
    "VARCHAR2": _clr_of(utf8),
    "NVARCHAR2": _clr_of(utf16),
    "CHAR": _clr_of(utf8),
    "NCHAR": _clr_of(utf16),
    "LONG": _long_of(utf8),
    "RAW": _clr_of(bytes),
    "LONG RAW": _long_of(bytes),
    "DATE": _clr_of(encode_date),
    "TIMESTAMP": _clr_of(encode_timestamp),
    "TIMESTAMP WITH TIME ZONE": _clr_of(encode_timestamp_tz),
    "TIMESTAMP WITH LOCAL TIME ZONE": _clr_of(encode_timestamp),
    "INTERVAL YEAR TO MONTH": _clr_of(encode_year_month),
    "INTERVAL DAY TO SECOND": _clr_of(encode_day_second),
    "BINARY_FLOAT": _clr_of(encode_float),
    "BINARY_DOUBLE": _clr_of(encode_double),
    "ROWID": _rowid,
    "UROWID": _urowid,
    "JSON": _prefetched(encode_json),
    "XMLTYPE": _xmltype,
    "BOOLEAN": _clr_of(_boolean),
}
