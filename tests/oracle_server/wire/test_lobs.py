"""LOB operations: replies as recorded, offsets in UTF-16 units, large values in pieces."""

from __future__ import annotations

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.reply import Reply
from oracle_server.model import Type
from oracle_server.wire import lobs
from oracle_server.wire.lobs import Locators

CLOB, NCLOB, BLOB = Type(name="CLOB"), Type(name="NCLOB"), Type(name="BLOB")


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
