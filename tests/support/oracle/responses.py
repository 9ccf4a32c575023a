"""Responses to fetches: made by the test server's own encoder, and read by plain Python.

The reading is the reference of the native decoder. It is written from the description of the
protocol, value by value, with Python's own integers, decimals and dates.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from oracle_server.model import Column, Type
from oracle_server.wire.channel import packetise
from oracle_server.wire.errors import Outcome
from oracle_server.wire.lobs import Locators
from oracle_server.wire.row_replies import RowCursor, RowSet

FIELD_VERSION = 24
END_OF_RESPONSE = 0x2000
_MORE_DIGITS = 200


def responses(
    types: Sequence[Type], rows: Sequence[Sequence[Any]], sizes: Sequence[int], sdu: int
) -> Iterator[bytes]:
    """Yield the response to each fetch as its bytes on the wire, until there are no more rows.

    Args:
        types: Of the columns.
        rows: Of the whole statement.
        sizes: Rows asked for, fetch by fetch; the last one again and again.
        sdu: Bytes of a packet.
    """
    columns = tuple(Column(name=f"C{at}", type=kind) for at, kind in enumerate(types))
    cursor, locators, turn = RowCursor(RowSet(columns, rows)), Locators(), 0
    while not cursor.done:
        asked = sizes[min(turn, len(sizes) - 1)]
        data = cursor.take(asked, locators)
        outcome = Outcome(
            rows=cursor.rows_so_far, end_of_rows=cursor.done, kind="select", flags=cursor.oer_flags
        )
        reply = data + outcome.encode(FIELD_VERSION) + b"\x1d"
        yield on_the_wire(reply, sdu)
        turn += 1


def on_the_wire(reply: bytes, sdu: int = 8192, flags: int = END_OF_RESPONSE) -> bytes:
    """Return a response in packets."""
    packets = packetise([reply], sdu=sdu, wide=True, flags=flags)
    return b"".join(bytes(part) for packet in packets for part in packet)


def payload(wire: bytes) -> bytes:
    """Return the content of the DATA packets that a response begins with.

    What follows them is for the driver, which also refuses a last packet that is cut off.
    """
    found, at = b"", 0
    while len(wire) - at > 10 and wire[at + 4] == 6:
        (length,) = struct.unpack_from(">I", wire, at)
        found += wire[at + 10 : at + length]
        at += length
    return found


@dataclass
class PlainDecoder:
    """Reads the responses of one statement one after the other."""

    types: Sequence[Type]
    before: list[Any] | None = None

    def rows(self, wire: bytes) -> list[list[Any]]:
        """Return the rows of the next response as Python values."""
        stream, found = _Stream(payload(wire)), []
        vector: bytes | None = None
        while True:
            message = stream.byte()
            if message == 6:
                vector = self._header(stream)
            elif message == 0x15:
                stream.number()
                vector = stream.take((len(self.types) + 7) // 8)
            elif message == 7:
                found.append(self._row(stream, vector))
                vector = None
            else:
                assert message == 4
                return found

    def _header(self, stream: _Stream) -> bytes | None:
        stream.byte()
        for _ in range(4):
            stream.number()
        size = stream.number()
        vector = stream.take(stream.byte()) if size else None
        assert stream.number() == 0
        return vector

    def _row(self, stream: _Stream, vector: bytes | None) -> list[Any]:
        row = []
        for at, kind in enumerate(self.types):
            if vector is not None and not vector[at // 8] >> at % 8 & 1:
                assert self.before is not None
                row.append(self.before[at])
            else:
                cell = stream.value()
                row.append(None if cell is None else _value(kind, cell))
        self.before = row
        return row


@dataclass
class _Stream:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        assert len(found) == count
        self.at += count
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        size = self.byte()
        number = int.from_bytes(self.take(size & 0x7F), "big")
        return -number if size & 0x80 else number

    def value(self) -> bytes | None:
        size = self.byte()
        if size in (0, 255):
            return None
        if size != 254:
            return self.take(size)
        found = b""
        while count := self.number():
            found += self.take(count)
        return found or None


def _value(kind: Type, cell: bytes) -> Any:
    if kind.name in ("VARCHAR2", "CHAR"):
        return cell.decode()
    if kind.name in ("NVARCHAR2", "NCHAR"):
        return cell.decode("utf-16-be")
    if kind.name == "RAW":
        return cell
    if kind.name == "NUMBER":
        return _number(cell)
    if kind.name == "BINARY_DOUBLE":
        return struct.unpack(">d", _ieee(cell))[0]
    if kind.name == "BINARY_FLOAT":
        return struct.unpack(">f", _ieee(cell))[0]
    century, year, month, day, hour, minute, second = cell[:7]
    nanos = int.from_bytes(cell[7:11], "big")
    return datetime(
        (century - 100) * 100 + year - 100,
        month,
        day,
        hour - 1,
        minute - 1,
        second - 1,
        nanos // 1000,
    )


def _ieee(cell: bytes) -> bytes:
    if cell[0] & 0x80:
        return bytes((cell[0] & 0x7F, *cell[1:]))
    return bytes(255 - byte for byte in cell)


def _number(cell: bytes) -> Decimal:
    if cell == b"\x80":
        return Decimal(0)
    positive = cell[0] & 0x80
    exponent = cell[0] - 193 if positive else 62 - cell[0]
    digits = [each - 1 if positive else 101 - each for each in cell[1:] if positive or each != 102]
    with localcontext() as context:
        context.prec = _MORE_DIGITS
        value = sum(Decimal(each).scaleb(2 * (exponent - at)) for at, each in enumerate(digits))
        return Decimal(value if positive else -value)
