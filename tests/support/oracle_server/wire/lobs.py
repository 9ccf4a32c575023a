"""LOB locators of one connection, and the replies to LOB operations (function 96).

The value of a locator is read in pieces as a client asks for it: the server never holds more than
one piece of a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from oracle_server.model import LobValue, OracleError, Type
from oracle_server.wire.oracle_values import CHUNK, NULL, chunks, clr, sb, ub, utf16

GET_LENGTH = 0x0001
READ = 0x0002
TRIM = 0x0020
WRITE = 0x0040
CREATE_TEMP = 0x0110
FREE_TEMP = 0x0111
GET_CHUNK_SIZE = 0x4000
OPEN = 0x8000
CLOSE = 0x10000
IS_OPEN = 0x11000
FREE_TEMP_ARRAY = 0x80111
"""The piggyback's operation: a list of locators to free."""

LOCATOR_LENGTH = 40
CHUNK_SIZE = 8060
_CHARSETS = {0: 0, 1: 873, 2: 2000}
_KINDS = {"BLOB": 0x01, "CLOB": 0x02, "NCLOB": 0x04}
_FORMS = {"BLOB": 0, "CLOB": 1, "NCLOB": 2}
_TEMPORARY = 0x80
"""In the same byte as the kind, as captured locators of temporary LOBs have it."""
_PIECE_BYTES = 16 * CHUNK
"""A READ's data is made and sent in pieces of this size."""


class _Content(Protocol):
    """A LOB's content, addressed in its own units: UTF-16 units or bytes."""

    unit: int
    """Bytes of one unit as sent."""

    def length(self) -> int: ...

    def read(self, offset: int, amount: int) -> bytes: ...


class _Held:
    """The content of a temporary LOB that the client itself fills."""

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self._data = bytearray()

    def length(self) -> int:
        return len(self._data) // self.unit

    def read(self, offset: int, amount: int) -> bytes:
        return bytes(self._data[self.unit * offset : self.unit * (offset + amount)])

    def write(self, offset: int, data: bytes) -> None:
        start = self.unit * offset
        filler = b"\x00 " if self.unit == 2 else b"\x00"
        self._data += filler * (offset - self.length())
        self._data[start : start + len(data)] = data

    def trim(self, amount: int) -> None:
        del self._data[self.unit * amount :]


class _Kept:
    """A table's own value, which is not copied until it is read."""

    def __init__(self, value: str | bytes, unit: int) -> None:
        self.unit = unit
        self._value = value

    def length(self) -> int:
        value = self._value
        return (
            len(value) if not isinstance(value, str) or value.isascii() else len(utf16(value)) // 2
        )

    def read(self, offset: int, amount: int) -> bytes:
        value = self._value
        if not isinstance(value, str):
            return value[offset : offset + amount]
        if value.isascii():
            return utf16(value[offset : offset + amount])
        return utf16(value)[2 * offset : 2 * (offset + amount)]


class _Made:
    """Content that is made when it is read."""

    def __init__(self, value: LobValue, unit: int) -> None:
        self.unit = unit
        self._value = value

    def length(self) -> int:
        return self._value.length

    def read(self, offset: int, amount: int) -> bytes:
        data = self._value.read(offset, amount)
        return utf16(data) if isinstance(data, str) else data


def content_of(value: Any, type: Type) -> _Content:
    """Return the content of a `str`, `bytes` or LobValue of a CLOB, NCLOB or BLOB."""
    unit = 1 if type.name == "BLOB" else 2
    return _Kept(value, unit) if isinstance(value, (str, bytes)) else _Made(value, unit)


class Locators:
    """The locators a connection was given. Unknown ones are ORA-22275."""

    def __init__(self) -> None:
        """Start without any."""
        self._contents: dict[bytes, _Content] = {}
        self._open: set[bytes] = set()
        self._made = 0

    def __len__(self) -> int:
        """Return how many locators are held: a test's measure of leaks."""
        return len(self._contents)

    def new(self, value: Any, type: Type, *, temporary: bool = False) -> bytes:
        """Return a new locator of 40 bytes for a CLOB's, NCLOB's or BLOB's value.

        Args:
            value: `str`, `bytes` or LobValue.
            temporary: The client has to free it.
        """
        locator = self._locator(type, temporary)
        self._contents[locator] = content_of(value, type)
        return locator

    def _locator(self, type: Type, temporary: bool) -> bytes:
        self._made += 1
        kind = _KINDS[type.name] | (_TEMPORARY if temporary else 0)
        form = _FORMS[type.name]
        # 0x80 in the third flag byte: characters of a varying width, which are sent as UTF-16.
        flags = bytes((kind, 0x08, 0x80 if form else 0, 0x01 if temporary else 0))
        head = b"".join(
            (
                (LOCATOR_LENGTH - 2).to_bytes(2, "big"),
                b"\x00\x01",
                flags,
                b"\x00\x01",
                self._made.to_bytes(8, "big"),
                _CHARSETS[form].to_bytes(2, "big"),
            )
        )
        return head.ljust(LOCATOR_LENGTH, b"\x00")

    def cell(self, value: Any, type: Type, *, prefetch: int = 0) -> bytes:
        """Return a row's cell with a new locator, or NULL: length, size, chunk size, locator.

        With `prefetch` its first characters or bytes, that many at most, stand before the locator.
        """
        if value is None:
            return NULL
        locator = self.new(value, type, temporary=type.expression)
        content = self._contents[locator]
        parts = [ub(LOCATOR_LENGTH), ub(content.length()), ub(CHUNK_SIZE)]
        if prefetch:
            if type.name != "BLOB":
                # Characters of a varying width, in the national character set.
                parts += (b"\x01", ub(_CHARSETS[2]), bytes((_FORMS[type.name],)))
            parts.append(clr(content.read(0, prefetch)))
        return b"".join((*parts, clr(locator)))

    def size(self, locator: bytes) -> int:
        """Return characters (UTF-16 units) or bytes of a locator."""
        return self._find(locator).length()

    def value(self, locator: bytes) -> str | bytes:
        content = self._find(locator)
        data = content.read(0, content.length())
        return data if content.unit == 1 else data.decode("utf-16-be", "surrogatepass")

    def free(self, locator: bytes) -> None:
        """Forget a locator; freeing it twice is allowed."""
        self._contents.pop(bytes(locator), None)
        self._open.discard(bytes(locator))

    def operate(
        self,
        operation: int,
        locator: bytes,
        *,
        offset: int = 0,
        amount: int = 0,
        has_amount: bool = True,
        data: bytes = b"",
        charset_form: int = 1,
        type_number: int = 112,
    ) -> Iterator[bytes]:
        """Return the reply to one LOB operation in pieces: [0E data], 08 parameters; no OER.

        READ answers in the FE-chunk form always, and with no data message when nothing is left. The
        pieces of a READ are made as they are taken, so send each before taking the next.

        Args:
            locator: As the client sent it (for CREATE_TEMP its 40 zero bytes).
            offset: Source offset, from 1: characters of a CLOB, bytes of a BLOB.
            amount: Characters or bytes to read; the new size for TRIM.
            has_amount: The request had the amount's pointer set, so the reply has the amount.
            data: What WRITE writes, as it came.
            charset_form: Of CREATE_TEMP (the request's source offset).
            type_number: Of CREATE_TEMP (the request's dest offset).

        Raises:
            OracleError: ORA-22275 for a locator unknown here, ORA-03001 for an operation that is.
                Raised immediately, not when the first piece is taken.
        """
        locator = bytes(locator)
        if operation == CREATE_TEMP:
            return iter((self._create(charset_form, type_number),))
        if operation in (FREE_TEMP, FREE_TEMP_ARRAY):
            for start in range(0, len(locator), LOCATOR_LENGTH):
                self.free(locator[start : start + LOCATOR_LENGTH])
            return iter((b"\x08" + locator,))
        content = self._find(locator)
        if operation == READ:
            return self._read(locator, content, max(offset, 1) - 1, amount)
        result, flag = self._manage(operation, locator, content, offset, amount, data)
        reply = b"\x08" + locator + (sb(result) if has_amount else b"") + flag
        return iter((reply,))

    def _find(self, locator: bytes) -> _Content:
        content = self._contents.get(bytes(locator))
        if content is None:
            raise OracleError(22275, "invalid LOB locator specified")
        return content

    def _create(self, form: int, type_number: int) -> bytes:
        name = "BLOB" if type_number == 113 else "NCLOB" if form == 2 else "CLOB"
        locator = self._locator(Type(name=name), True)
        self._contents[locator] = _Held(1 if name == "BLOB" else 2)
        return b"\x08" + locator + ub(2000 if form == 2 else 873) + b"\x00"

    def _read(self, locator: bytes, content: _Content, start: int, amount: int) -> Iterator[bytes]:
        amount = max(0, min(amount, content.length() - start))
        if amount:
            yield b"\x0e\xfe"
            step = _PIECE_BYTES // content.unit
            for offset in range(start, start + amount, step):
                yield chunks(content.read(offset, min(step, start + amount - offset)))
            yield b"\x00"
        yield b"\x08" + locator + sb(amount)

    def _manage(
        self,
        operation: int,
        locator: bytes,
        content: _Content,
        offset: int,
        amount: int,
        data: bytes,
    ) -> tuple[int, bytes]:
        """Do any operation except a read; return the amount and the flag byte of the reply."""
        if operation == GET_LENGTH:
            return content.length(), b""
        if operation == GET_CHUNK_SIZE:
            return CHUNK_SIZE, b""
        if operation == OPEN:
            self._open.add(locator)
            return amount, b""
        if operation == CLOSE:
            self._open.discard(locator)
            return 0, b""
        if operation == IS_OPEN:
            return 0, bytes((locator in self._open,))
        if operation == WRITE and isinstance(content, _Held):
            content.write(max(offset, 1) - 1, data)
            return amount, b""
        if operation == TRIM and isinstance(content, _Held):
            content.trim(amount)
            return amount, b""
        raise OracleError(3001, f"unimplemented feature: LOB operation {operation:#x}")
