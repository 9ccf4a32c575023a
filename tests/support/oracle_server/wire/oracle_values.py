"""Values of every Oracle type as bytes on the wire, and bind values read back."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from oracle_server.data.moments import in_utc, offset_seconds, region, shifted
from oracle_server.model import DaySecond, Moment, OracleError, Rowid, Type, YearMonth

LONGEST_SHORT = 252
"""Longest byte string with a one-byte length; longer ones go in chunks."""
CHUNK = 32767
NULL = b"\x00"


def ub(value: int) -> bytes:
    """Return an unsigned integer: a byte for its length, then as few bytes as hold it."""
    if not value:
        return b"\x00"
    length = (value.bit_length() + 7) // 8
    return bytes((length,)) + value.to_bytes(length, "big")


def sb(value: int) -> bytes:
    """Return a signed integer: as `ub`, with the length's top bit set if negative."""
    if value >= 0:
        return ub(value)
    positive = ub(-value)
    return bytes((positive[0] | 0x80,)) + positive[1:]


def clr(data: bytes) -> bytes:
    """Return a byte string with its length before it; an empty one is the same as NULL."""
    if len(data) <= LONGEST_SHORT:
        return bytes((len(data),)) + data
    return chunked(data)


def chunked(data: bytes) -> bytes:
    """Return a byte string in the form for long ones, at any length."""
    return b"\xfe" + chunks(data) + b"\x00"


def chunks(data: bytes) -> bytes:
    """Return the chunks of a long byte string without what stands before and after them."""
    return b"".join(
        ub(len(piece)) + piece
        for piece in (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
    )


def dalc(data: bytes) -> bytes:
    """Return a byte string with its length twice, or a zero for an empty one."""
    return ub(len(data)) + clr(data) if data else NULL


def read_ub(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the integer (of either sign) at a position, and the position after it."""
    length = data[position] & 0x7F
    end = position + 1 + length
    value = int.from_bytes(data[position + 1 : end], "big")
    return (-value if data[position] & 0x80 else value), end


def read_clr(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    """Return the byte string at a position (None for NULL), and the position after it."""
    length = data[position]
    position += 1
    if length in (0, 0xFF):
        return None, position
    if length != 0xFE:
        return bytes(data[position : position + length]), position + length
    pieces: list[bytes] = []
    while True:
        length, position = read_ub(data, position)
        if not length:
            return b"".join(pieces), position
        pieces.append(bytes(data[position : position + length]))
        position += length


def read_dalc(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    """Return the byte string with two lengths at a position, and the position after it."""
    length, position = read_ub(data, position)
    return read_clr(data, position) if length else (None, position)


_MOST_DIGITS = 20
_BASE_EXPONENT = 193
"""First byte of a positive number below 100 and not below 1."""
_END_OF_NEGATIVE = 102
"""Follows the digits of a negative number that has room for it, so that bytes sort as values."""
_POSITIVE = bytes((byte // 16 * 10 + byte % 16 + 1) & 0xFF for byte in range(256))
_NEGATIVE = bytes((101 - byte // 16 * 10 - byte % 16) & 0xFF for byte in range(256))


def encode_number(value: int | Decimal) -> bytes:
    """Return a NUMBER's 1 to 21 bytes.

    Raises:
        ValueError: More digits than 20 pairs hold, or outside 1E-130 .. 9.99...E125; a server would
            have rounded or refused such a value when it was stored.
    """
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError(f"NUMBER cannot hold {value}")
    text = str(value) if isinstance(value, int) else format(value, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    whole = whole.lstrip("0")
    digits = f"{'0' * (len(whole) % 2)}{whole}{fraction}{'0' * (len(fraction) % 2)}"
    leading = (len(digits) - len(digits.lstrip("0"))) // 2
    power = (len(whole) + 1) // 2 - 1 - leading
    trailing = (len(digits) - len(digits.rstrip("0"))) // 2
    digits = digits[2 * leading : len(digits) - 2 * trailing]
    if not digits:
        return b"\x80"
    if len(digits) > 2 * _MOST_DIGITS or not -65 <= power <= 62:
        raise ValueError(f"NUMBER cannot hold {value}")
    # Two decimal digits are one byte in hexadecimal; a table converts it to Oracle's byte for them.
    pairs = bytes.fromhex(digits)
    if text[0] != "-":
        return bytes((_BASE_EXPONENT + power,)) + pairs.translate(_POSITIVE)
    body = bytes((255 - _BASE_EXPONENT - power,)) + pairs.translate(_NEGATIVE)
    return body + bytes((_END_OF_NEGATIVE,)) if len(pairs) < _MOST_DIGITS else body


def decode_number(data: bytes) -> int | Decimal:
    """Return the value of a NUMBER's bytes: an `int` where it is whole, else a `Decimal`."""
    if data == b"\x80":
        return 0
    negative = not data[0] & 0x80
    if negative:
        power = 255 - data[0] - _BASE_EXPONENT
        body = data[1:-1] if data[-1] == _END_OF_NEGATIVE else data[1:]
        pairs = [101 - byte for byte in body]
    else:
        power = data[0] - _BASE_EXPONENT
        pairs = [byte - 1 for byte in data[1:]]
    digits = tuple(int(digit) for pair in pairs for digit in f"{pair:02d}")
    value = Decimal((int(negative), digits, 2 * (power - len(pairs) + 1)))
    return int(value) if value == value.to_integral_value() else value


def encode_double(value: float) -> bytes:
    """Return a BINARY_DOUBLE's 8 bytes, which sort as the values do; NaN is Oracle's one NaN."""
    return _sortable(struct.pack(">d", value), b"\x7f\xf8" + bytes(6), value)


def encode_float(value: float) -> bytes:
    """Return a BINARY_FLOAT's 4 bytes; a value beyond its range becomes infinite, as by a cast."""
    try:
        packed = struct.pack(">f", value)
    except OverflowError:
        packed = struct.pack(">f", float("inf") if value > 0 else float("-inf"))
    return _sortable(packed, b"\x7f\xc0\x00\x00", value)


def _sortable(packed: bytes, nan: bytes, value: float) -> bytes:
    if value != value:
        packed = nan
    if packed[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in packed)
    return bytes((packed[0] | 0x80,)) + packed[1:]


def decode_double(data: bytes) -> float:
    """Return the value of a BINARY_DOUBLE's or BINARY_FLOAT's bytes, which is by their number."""
    if data[0] & 0x80:
        packed = bytes((data[0] & 0x7F,)) + data[1:]
    else:
        packed = bytes(byte ^ 0xFF for byte in data)
    value: float = struct.unpack(">d" if len(data) == 8 else ">f", packed)[0]
    return value


_MIDDLE = 0x80000000
"""Zero of the four-byte fields of intervals."""
_OFFSET = 60
"""Zero of their one-byte fields."""
_ZONE_HOUR = 20
"""Zero of the hours of a zone."""
_REGION = 0x80
"""Bit that says the zone is a region, not an offset."""
_SECOND = 1_000_000_000


def encode_date(value: Moment) -> bytes:
    """Return the 7 bytes of a DATE; without the fraction of the second."""
    sign = -1 if value.year < 0 else 1
    century, year = divmod(abs(value.year), 100)
    return bytes(
        (
            100 + sign * century,
            100 + sign * year,
            value.month,
            value.day,
            value.hour + 1,
            value.minute + 1,
            value.second + 1,
        )
    )


def encode_timestamp(value: Moment) -> bytes:
    """Return the 11 bytes of a TIMESTAMP, 7 if it has no fraction, as real servers do."""
    return encode_date(value) + (value.nanos.to_bytes(4, "big") if value.nanos else b"")


def encode_timestamp_tz(value: Moment) -> bytes:
    """Return the 13 bytes of a TIMESTAMP WITH TIME ZONE: fields in UTC, then the zone.

    A region is written with its bit set and an id that means its name only within this server.
    """
    if region(value.zone or "+00:00") is None:
        minutes = offset_seconds(value) // 60
        sign = -1 if minutes < 0 else 1
        hours, minutes = divmod(abs(minutes), 60)
        tail = bytes((_ZONE_HOUR + sign * hours, _OFFSET + sign * minutes))
    else:
        number = 1 + zlib.crc32((value.zone or "").encode()) % 0x1FFF
        tail = bytes((_REGION | number >> 6, (number & 0x3F) << 2))
    return encode_date(in_utc(value)) + value.nanos.to_bytes(4, "big") + tail


def encode_year_month(value: YearMonth) -> bytes:
    """Return the 5 bytes of an INTERVAL YEAR TO MONTH; both fields have the interval's sign."""
    sign = -1 if value.months < 0 else 1
    years, months = divmod(abs(value.months), 12)
    return (_MIDDLE + sign * years).to_bytes(4, "big") + bytes((_OFFSET + sign * months,))


def encode_day_second(value: DaySecond) -> bytes:
    """Return the 11 bytes of an INTERVAL DAY TO SECOND; every field has the interval's sign."""
    sign = -1 if value.nanos < 0 else 1
    seconds, nanos = divmod(abs(value.nanos), _SECOND)
    days, clock = divmod(seconds, 86400)
    return b"".join(
        (
            (_MIDDLE + sign * days).to_bytes(4, "big"),
            bytes(_OFFSET + sign * part for part in (clock // 3600, clock // 60 % 60, clock % 60)),
            (_MIDDLE + sign * nanos).to_bytes(4, "big"),
        )
    )


def decode_moment(data: bytes) -> Moment:
    """Return the moment of 7, 11 or 13 bytes, the form of binds.

    Thirteen bytes have an offset as their zone (a client sends no region).
    """
    nanos = int.from_bytes(data[7:11], "big") if len(data) > 7 else 0
    year = 100 * (data[0] - 100) + data[1] - 100
    value = Moment(year, data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1, nanos)
    if len(data) < 13:
        return value
    minutes = 60 * (data[11] - _ZONE_HOUR) + data[12] - _OFFSET
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return shifted(value, 60 * minutes * _SECOND)._replace(zone=zone)


def decode_year_month(data: bytes) -> YearMonth:
    """Return the value of an INTERVAL YEAR TO MONTH's bytes."""
    return YearMonth(12 * (int.from_bytes(data[:4], "big") - _MIDDLE) + data[4] - _OFFSET)


def decode_day_second(data: bytes) -> DaySecond:
    """Return the value of an INTERVAL DAY TO SECOND's bytes."""
    days = int.from_bytes(data[:4], "big") - _MIDDLE
    hours, minutes, seconds = (byte - _OFFSET for byte in data[4:7])
    nanos = int.from_bytes(data[7:11], "big") - _MIDDLE
    return DaySecond((((24 * days + hours) * 60 + minutes) * 60 + seconds) * _SECOND + nanos)


FORMATS = {"FLOAT32": 2, "FLOAT64": 3, "INT8": 4, "BINARY": 5}
"""Element formats of vectors and their numbers in describes."""
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
TEXT_ONLY_TYPES = frozenset({"JSON", "VECTOR"})
"""Types whose values are only sent as the texts that JSON_SERIALIZE and VECTOR_SERIALIZE return."""


def wire_type(type: Type) -> WireType:
    """Return a type's number and character set form.

    Raises:
        KeyError: No such type, or one no column can be fetched as (BFILE, objects).
    """
    return WIRE_TYPES[type.name]


def encoder(type: Type) -> Encoder:
    """Return the function from a Python value, or None, to its cell.

    Raises:
        KeyError: A type without its own form: CLOB, NCLOB, BLOB, JSON, VECTOR.
    """
    return _ENCODERS[type.name]


def cell(type: Type, value: Any) -> bytes:
    return encoder(type)(value)


def _clr_of(encode: Encoder) -> Encoder:
    def encode_cell(value: Any) -> bytes:
        return NULL if value is None else clr(encode(value))

    return encode_cell


def _long_of(encode: Encoder) -> Encoder:
    def encode_cell(value: Any) -> bytes:
        return LONG_NULL if value is None else clr(encode(value)) + b"\x00\x00"

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
    "XMLTYPE": _xmltype,
    "BOOLEAN": _clr_of(_boolean),
}


def _utf8(data: bytes) -> str:
    return data.decode()


def _utf16(data: bytes) -> str:
    return data.decode("utf-16-be")


_TEXT = frozenset({1, 8, 96, 11, 208})
"""VARCHAR2, LONG, CHAR; ROWID and UROWID arrive as their text."""
_DECODERS: dict[int, Callable[[bytes], Any]] = {
    2: decode_number,
    3: decode_number,
    12: decode_moment,
    23: bytes,
    24: bytes,
    100: decode_double,
    101: decode_double,
    180: decode_moment,
    181: decode_moment,
    182: decode_year_month,
    183: decode_day_second,
    231: decode_moment,
    252: lambda data: data[0] == 1,
}


def decode_bind(content: bytes | None, type_number: int, charset_form: int = 1) -> Any:
    """Return the Python value of a bind's bytes.

    Args:
        content: Without their length; None is NULL.
        type_number: Of the bind's descriptor.
        charset_form: Of the descriptor; 2 is text in UTF-16.

    Returns:
        None, str, int, Decimal, float, bool, bytes, Moment, YearMonth or DaySecond.

    Raises:
        OracleError: ORA-00932, a type no statement here takes as a bind.
    """
    if content is None:
        return None
    if type_number in _TEXT:
        return _utf16(content) if charset_form == 2 else _utf8(content)
    decode = _DECODERS.get(type_number)
    if decode is None:
        raise OracleError(932, f"inconsistent data types: bind of type {type_number}")
    return decode(content)
