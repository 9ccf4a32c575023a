"""LOB operations: replies as recorded, offsets in UTF-16 units, large values in pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES
from oracle.reply import Reply
from oracle_server.model import OracleError, Type
from oracle_server.wire.rows import lobs
from oracle_server.wire.rows.lobs import Locators

CLOB, NCLOB, BLOB = Type(name="CLOB"), Type(name="NCLOB"), Type(name="BLOB")


class Pattern:
    """A LobValue of any length that is never held; remembers the largest piece asked for."""

    def __init__(self, length: int, *, text: bool) -> None:
        """Take the length in characters or bytes."""
        self.length = length
        self.largest = 0
        self._text = text

    def read(self, offset: int, amount: int) -> str | bytes:
        """Return characters or bytes that tell where they are from."""
        self.largest = max(self.largest, amount)
        piece = bytes(48 + at % 10 for at in range(offset, offset + amount))
        return piece.decode() if self._text else piece


def read(locators: Locators, locator: bytes, offset: int, amount: int) -> tuple[bytes, int]:
    """Return the data and the amount of a READ."""
    pieces = locators.operate(lobs.READ, locator, offset=offset, amount=amount)
    reply = Reply(b"".join(pieces))
    data = b""
    kind = reply.byte()
    if kind == 0x0E:
        assert reply.data[reply.at] == 0xFE
        data = reply.text() or b""
        kind = reply.byte()
    assert kind == 0x08
    assert reply.raw(40) == locator
    count = reply.integer()
    assert not reply.left()
    return data, count


def test_recorded_read() -> None:
    """35 bytes are read in the chunk form, as 18c and 23ai servers answer."""
    locators = Locators()
    locator = locators.new(b"rust-oracledb cassette blob payload", BLOB)
    reply = b"".join(locators.operate(lobs.READ, locator, offset=1, amount=2**32 - 1))
    text = b"rust-oracledb cassette blob payload"
    assert reply == b"\x0e\xfe\x01\x23" + text + b"\x00\x08" + locator + b"\x01\x23"


def test_recorded_temporary() -> None:
    """A temporary BLOB is made, written, read and freed with the replies a 23ai server gave."""
    locators = Locators()
    pieces = locators.operate(
        lobs.CREATE_TEMP, bytes(40), has_amount=False, charset_form=0, type_number=113
    )
    reply = b"".join(pieces)
    locator = reply[1:41]
    assert locator[:6].hex(" ") == "00 26 00 01 81 08"
    assert locator[7] & 0x01
    assert reply[41:].hex(" ") == "02 03 69 00"
    written = locators.operate(lobs.WRITE, locator, offset=1, data=b"payload", has_amount=False)
    assert b"".join(written) == b"\x08" + locator
    assert read(locators, locator, 1, 100) == (b"payload", 7)
    assert b"".join(locators.operate(lobs.TRIM, locator, amount=3))[-2:] == b"\x01\x03"
    assert locators.value(locator) == b"pay"
    list(locators.operate(lobs.FREE_TEMP_ARRAY, locator + bytes(40), has_amount=False))
    assert len(locators) == 0


@pytest.mark.parametrize("kind", [CLOB, NCLOB])
@settings(max_examples=examples(60), deadline=None)
@given(text=st.text(max_size=60), offset=st.integers(1, 70), amount=st.integers(0, 80))
def test_characters(kind: Type, text: str, offset: int, amount: int) -> None:
    """Offsets and amounts of text count UTF-16 units, and the data is UTF-16."""
    locators = Locators()
    locator = locators.new(text, kind)
    units = text.encode("utf-16-be")
    wanted = units[2 * (offset - 1) : 2 * (offset - 1 + amount)]
    assert read(locators, locator, offset, amount) == (wanted, len(wanted) // 2)
    assert locators.size(locator) == len(units) // 2
    assert locator[6] & 0x80


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 200_000), st.integers(1, 200_000), st.integers(1, 300_000), st.booleans())
def test_made_values(length: int, offset: int, amount: int, text: bool) -> None:
    """Values made on demand are read at any offset and in any amount."""
    locators = Locators()
    locator = locators.new(Pattern(length, text=text), CLOB if text else BLOB)
    data, count = read(locators, locator, offset, amount)
    expected = bytes(48 + at % 10 for at in range(offset - 1, min(length, offset - 1 + amount)))
    assert (data.decode("utf-16-be").encode() if text else data) == expected
    assert count == len(expected)


@pytest.mark.long(OTHER_ROUTES)
def test_streaming() -> None:
    """The pieces of a large LOB are made one at a time; the whole is never held."""
    value = Pattern(6_000_000, text=True)
    locators = Locators()
    locator = locators.new(value, CLOB)
    tracemalloc.start()
    sent = sum(map(len, locators.operate(lobs.READ, locator, offset=1, amount=2**32 - 1)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sent > 12_000_000
    assert value.largest <= 1_000_000
    assert peak < 6_000_000


def test_gigabyte() -> None:
    """A gigabyte is answered at once; only what is taken is made."""
    value = Pattern(2**30, text=False)
    locators = Locators()
    locator = locators.new(value, BLOB)
    pieces: Iterator[bytes] = locators.operate(lobs.READ, locator, offset=1, amount=2**32 - 1)
    assert next(pieces) == b"\x0e\xfe"
    assert next(pieces).startswith(b"\x02\x7f\xff0123456789")
    assert value.largest <= 1_000_000
    assert read(locators, locator, 2**30, 10) == (b"3", 1)


def test_questions() -> None:
    """Length, chunk size, opening and closing are answered with or without an amount."""
    locators = Locators()
    locator = locators.new("é\U0001f600", CLOB)

    def ask(operation: int, *, has_amount: bool) -> str:
        reply = b"".join(locators.operate(operation, locator, has_amount=has_amount))
        assert reply[:41] == b"\x08" + locator
        return reply[41:].hex(" ")

    assert ask(lobs.GET_LENGTH, has_amount=True) == "01 03"
    assert ask(lobs.GET_CHUNK_SIZE, has_amount=True) == "02 1f 7c"
    assert ask(lobs.IS_OPEN, has_amount=False) == "00"
    assert ask(lobs.OPEN, has_amount=True) == "00"
    assert ask(lobs.IS_OPEN, has_amount=False) == "01"
    assert ask(lobs.CLOSE, has_amount=False) == ""
    assert ask(lobs.IS_OPEN, has_amount=False) == "00"


def test_empty_and_unknown() -> None:
    """Nothing left means no data message; an unknown locator or operation is refused at once."""
    locators = Locators()
    locator = locators.new("", CLOB)
    assert read(locators, locator, 1, 100) == (b"", 0)
    with pytest.raises(OracleError, match="03001"):
        locators.operate(0x7777, locator)
    locators.free(locator)
    locators.free(locator)
    with pytest.raises(OracleError, match="22275"):
        locators.operate(lobs.READ, locator)
