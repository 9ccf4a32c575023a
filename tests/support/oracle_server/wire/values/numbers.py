"""NUMBER, BINARY_FLOAT and BINARY_DOUBLE as their bytes, without a length.

NUMBER is exact: digits in base 100, at most 20 of them. Formats from the published descriptions of
DUMP() output, checked against captures of real servers.
"""

from __future__ import annotations

import struct
from decimal import Decimal

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
    # Two decimal digits are one byte in hexadecimal; a table makes it the byte that stands for them.
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
