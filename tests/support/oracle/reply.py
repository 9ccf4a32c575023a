"""An independent reader of the bytes of the Oracle test server, made from the format's description.

It shares no code with the server's encoders: where both agree with each other and with bytes
recorded from real servers, neither is likely to be wrong.
"""

from __future__ import annotations

import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple


class Header(NamedTuple):
    """A row header."""

    flags: int
    columns_sent: int
    asked: int
    vector: bytes


class Reply:
    """A reader of messages, front to back."""

    def __init__(self, data: bytes) -> None:
        """Start at the first byte."""
        self.data = bytes(data)
        self.at = 0

    def left(self) -> bytes:
        """Return the unread bytes."""
        return self.data[self.at :]

    def raw(self, count: int) -> bytes:
        """Read bytes."""
        assert self.at + count <= len(self.data), "the message is too short"
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def byte(self) -> int:
        """Read one byte."""
        return self.raw(1)[0]

    def integer(self) -> int:
        """Read an integer with its length; the length's top bit is a minus."""
        first = self.byte()
        data = self.raw(first & 0x7F)
        assert not data or data[0], "an integer is longer than it need be"
        value = int.from_bytes(data, "big")
        return -value if first & 0x80 else value

    def text(self) -> bytes | None:
        """Read a byte string with its length."""
        length = self.byte()
        if length in (0, 255):
            return None
        if length < 254:
            return self.raw(length)
        assert length == 254
        pieces = b""
        while chunk := self.integer():
            pieces += self.raw(chunk)
        return pieces

    def double_text(self) -> bytes | None:
        """Read a byte string with two lengths."""
        length = self.integer()
        if not length:
            return None
        data = self.text()
        assert data is not None
        assert len(data) == length
        return data

    def header(self) -> Header:
        """Read a row header."""
        assert self.byte() == 0x06
        flags, sent = self.byte(), self.integer()
        assert self.integer() == 0
        asked = self.integer()
        assert self.integer() == 0
        count = self.integer()
        vector = b""
        if count:
            assert self.byte() == count
            vector = self.raw(count)
        assert self.double_text() is None
        return Header(flags, sent, asked, vector)

    def cell(self, name: str, form: int = 1) -> Any:
        """Read one value of a type, LONG's indicators included."""
        if name == "ROWID":
            if not self.byte():
                return None
            numbers = [self.integer(), self.integer(), self.byte(), self.integer(), self.integer()]
            return (numbers[0], numbers[1], numbers[3], numbers[4])
        if name == "UROWID":
            length = self.integer()
            return self.text() if length else None
        if name == "XMLTYPE":
            return self._xmltype()
        if name in ("CLOB", "NCLOB", "BLOB"):
            if not self.integer():
                return None
            return self.integer(), self.integer(), self.text()
        data = self.text()
        if name in ("LONG", "LONG RAW"):
            indicator, code = self.integer(), self.integer()
            assert (indicator, code) == ((-1, 1405) if data is None else (0, 0))
        return None if data is None else scalar(name, data, form)

    def _xmltype(self) -> str | None:
        oid = self.double_text()
        assert (self.double_text(), self.double_text(), self.integer()) == (None, None, 0)
        length, flags = self.integer(), self.integer()
        assert flags == 1
        if not length:
            assert oid is None
            return None
        image = self.text() or b""
        assert len(image) == length == int.from_bytes(image[3:7], "big")
        assert image[:3] == b"\x84\x01\xfe"
        assert image[8:12] == b"\0\0\0\4"
        return image[12:].decode()


def scalar(name: str, data: bytes, form: int = 1) -> Any:
    """Return the value of a scalar's bytes, times as tuples of their fields."""
    if name in ("VARCHAR2", "CHAR", "LONG"):
        return data.decode()
    if name in ("NVARCHAR2", "NCHAR"):
        return data.decode("utf-16-be")
    if name in ("NUMBER", "FLOAT"):
        return number(data)
    if name in ("BINARY_DOUBLE", "BINARY_FLOAT"):
        return floating(data)
    if name == "BOOLEAN":
        return {b"\x01\x01": True, b"\x00": False}[data]
    if name == "DATE" or name.startswith("TIMESTAMP"):
        return fields(data)
    if name == "INTERVAL YEAR TO MONTH":
        return 12 * (int.from_bytes(data[:4], "big") - 2**31) + data[4] - 60
    if name == "INTERVAL DAY TO SECOND":
        days, fraction = (int.from_bytes(part, "big") - 2**31 for part in (data[:4], data[7:]))
        hours, minutes, seconds = (byte - 60 for byte in data[4:7])
        return (days * 86400 + hours * 3600 + minutes * 60 + seconds) * 10**9 + fraction
    return data


def number(data: bytes) -> Decimal:
    """Return a NUMBER's value: base 100 digits, the first byte says where the point is."""
    if data == b"\x80":
        return Decimal(0)
    assert 2 <= len(data) <= 21
    if data[0] >= 0x80:
        power, digits, sign = data[0] - 193, [byte - 1 for byte in data[1:]], 1
    else:
        power, sign = 62 - data[0], -1
        assert (data[-1] == 102) == (len(data) < 21 or data[-1] == 102)
        digits = [101 - byte for byte in (data[1:-1] if data[-1] == 102 else data[1:])]
    assert all(0 <= digit <= 99 for digit in digits)
    assert digits[0]
    assert digits[-1]
    value = sum(
        (Fraction(digit) * Fraction(100) ** (power - at) for at, digit in enumerate(digits)),
        Fraction(0),
    )
    with localcontext() as context:
        context.prec = 300
        return sign * Decimal(value.numerator) / Decimal(value.denominator)


def floating(data: bytes) -> float:
    """Return a binary float's value: bytes that sort as the numbers do."""
    flipped = [byte ^ 255 for byte in data] if data[0] < 128 else [data[0] ^ 128, *data[1:]]
    value: float = struct.unpack(">f" if len(data) == 4 else ">d", bytes(flipped))[0]
    return value


def fields(data: bytes) -> tuple[int, ...]:
    """Return year, month, day, hour, minute, second, nanoseconds, and the zone's minutes if any."""
    assert len(data) in (7, 11, 13)
    year = 100 * (data[0] - 100) + data[1] - 100
    clock = [byte - 1 for byte in data[4:7]]
    nanos = int.from_bytes(data[7:11], "big") if len(data) > 7 else 0
    zone = [60 * (data[11] - 20) + data[12] - 60] if len(data) == 13 else []
    return (year, data[2], data[3], *clock, nanos, *zone)


class Rows(NamedTuple):
    """One reply's rows, complete again, and how they were sent."""

    header: Header
    rows: list[tuple[Any, ...]]
    vectors: list[bytes | None]
    """Of each row; the first one's may be the header's."""


def rows(
    data: bytes,
    types: list[str],
    before: tuple[Any, ...] | None = None,
    absent: frozenset[int] = frozenset(),
) -> Rows:
    """Read a row header and its rows to the end of the data.

    Args:
        data: What `RowCursor.take` returned.
        types: Name of each column's type.
        before: The last row of the reply before, which the first row may repeat.
        absent: Columns without a byte in any row.
    """
    reply = Reply(data)
    header = reply.header()
    complete: list[tuple[Any, ...]] = []
    vectors: list[bytes | None] = []
    pending = header.vector or None
    if pending:
        assert header.columns_sent == sum(bin(byte).count("1") for byte in pending)
    while reply.left():
        kind = reply.byte()
        if kind == 0x15:
            sent = reply.integer()
            pending = reply.raw((len(types) + 7) // 8)
            assert sent == sum(bin(byte).count("1") for byte in pending)
            continue
        assert kind == 0x07
        row: list[Any] = []
        for at, name in enumerate(types):
            if pending is not None and not pending[at // 8] >> at % 8 & 1:
                assert before is not None
                row.append(before[at])
            else:
                row.append(None if at in absent else reply.cell(name))
        before = tuple(row)
        complete.append(before)
        vectors.append(pending)
        pending = None
    return Rows(header, complete, vectors)
