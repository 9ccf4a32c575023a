"""Reading a request as its parts come, from as many packets as it spans."""

from __future__ import annotations

from collections.abc import Callable


class Reader:
    """The bytes of one request; more are fetched when those at hand do not do."""

    def __init__(self, data: bytes, more: Callable[[], bytes]) -> None:
        """Start with a request's first payload; `more` returns that of its next packet."""
        self.bare_texts = False
        """Texts whose length came earlier have no other length before them (some Java clients)."""
        self._data = data
        self._more = more
        self._position = 0

    @property
    def left(self) -> bytes:
        """What was received and not read."""
        return self._data[self._position :]

    def raw(self, length: int) -> bytes:
        """Return that many bytes."""
        end = self._position + length
        while len(self._data) < end:
            self._data = self._data[self._position :] + self._more()
            end -= self._position
            self._position = 0
        data = self._data[self._position : end]
        self._position = end
        return data

    def u8(self) -> int:
        """Return one byte."""
        return self.raw(1)[0]

    def u16(self) -> int:
        """Return two bytes, the higher one first."""
        return int.from_bytes(self.raw(2), "big")

    def u16_little(self) -> int:
        """Return two bytes, the lower one first."""
        return int.from_bytes(self.raw(2), "little")

    def ub(self) -> int:
        """Return an integer with its length before it; the length's top bit is the sign."""
        length = self.u8()
        value = int.from_bytes(self.raw(length & 0x7F), "big")
        return -value if length & 0x80 else value

    def skip(self, pattern: str) -> None:
        """Read over parts: `b` a byte, `u` an integer with a length."""
        for part in pattern:
            if part == "b":
                self.u8()
            else:
                self.ub()

    def terminated(self) -> bytes:
        """Return the bytes up to a zero, which is read too."""
        data = bytearray()
        while byte := self.u8():
            data.append(byte)
        return bytes(data)

    def clr(self) -> bytes | None:
        """Return a byte string with its length before it; None is NULL."""
        length = self.u8()
        if length in (0, 0xFF):
            return None
        if length != 0xFE:
            return self.raw(length)
        pieces = []
        while size := self.ub():
            pieces.append(self.raw(size))
        return b"".join(pieces)

    def dalc(self) -> bytes | None:
        """Return a byte string with two lengths before it."""
        return self.clr() if self.ub() else None

    def text(self, length: int) -> str:
        """Return a text whose length came earlier in the request; none is read for 0."""
        if self.bare_texts:
            return self.raw(length).decode()
        return (self.clr() or b"").decode() if length else ""

    def first_text(self, length: int) -> str:
        """Return the first text of a connection, which shows whether its texts are bare.

        A client leaves the length out when its character set is the database's (JDBC).
        """
        first = self.raw(1)
        self._position -= 1
        self.bare_texts = first[0] not in (length, 0xFE)
        return self.text(length)

    def pairs(self, count: int) -> dict[str, str]:
        """Return keys and their values, without the zeros that some keys end in."""
        found = {}
        for _ in range(count):
            key = (self.dalc() or b"").decode().rstrip("\0")
            found[key] = (self.dalc() or b"").decode()
            self.ub()
        return found
