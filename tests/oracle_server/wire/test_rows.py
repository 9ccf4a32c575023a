"""Rows on the wire: the bit vector rules as recorded from servers, and every row complete again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reply as oracle_reply
from oracle_server.model import Column, Moment, Rowid, Type
from oracle_server.wire.lobs import Locators
from oracle_server.wire.row_replies import EncodedRows, EncodedTable, RowCursor, RowSet

NUMBER = Type(name="NUMBER")
TEXT = Type(name="VARCHAR2", length=40)


def columns(*types: Type) -> tuple[Column, ...]:
    """Return columns C0, C1, ..."""
    return tuple(Column(name=f"C{at}", type=kind) for at, kind in enumerate(types))


def take_all(
    source: RowSet | EncodedRows, sizes: Iterable[int], *, vectors: bool = True
) -> tuple[list[tuple[Any, ...]], list[oracle_reply.Rows], list[int]]:
    """Fetch to the end; return the rows, the replies, and their OER flags."""
    cursor = RowCursor(source, vectors=vectors)
    types = [column.type.name for column in source.columns]
    rows: list[tuple[Any, ...]] = []
    replies, flags = [], []
    for size in sizes:
        data = cursor.take(size, Locators())
        reply = oracle_reply.rows(data, types, rows[-1] if rows else None)
        rows += reply.rows
        replies.append(reply)
        flags.append(cursor.oer_flags)
        assert cursor.last_count == len(reply.rows)
        assert cursor.rows_so_far == len(rows)
        assert cursor.done == (len(reply.rows) < size)
        if cursor.done:
            break
    return rows, replies, flags


RECORDED_19C = [
    ("DEMO", "INDEX", 1872),
    ("DEMO", "TABLE", 1516),
    ("DEMO", "VIEW", 1014),
    ("DEMO", "SEQUENCE", 313),
    ("DEMO", "PACKAGE", 112),
]


@pytest.mark.parametrize("encoded", [False, True])
def test_recorded_vectors_across_replies(encoded: bool) -> None:
    """Two rows, then three more, have the bytes python-oracledb got from a 19c server."""
    shape = columns(TEXT, TEXT, NUMBER)
    source = EncodedTable.of(shape, RECORDED_19C).rows() if encoded else RowSet(shape, RECORDED_19C)
    cursor = RowCursor(source)
    first = (
        "06 22 01 03 00 01 02 00 00 00 07 04 44 45 4d 4f 05 49 4e 44 45 58 03 c2 13 49"
        " 07 04 44 45 4d 4f 05 54 41 42 4c 45 03 c2 10 11"
    )
    assert cursor.take(2, Locators()).hex(" ") == first
    assert (cursor.done, cursor.oer_flags) == (False, 0)
    second = (
        "06 02 01 02 00 01 64 00 01 01 01 06 00 07 04 56 49 45 57 03 c2 0b 0f"
        " 15 01 02 06 07 08 53 45 51 55 45 4e 43 45 03 c2 04 0e"
        " 15 01 02 06 07 07 50 41 43 4b 41 47 45 03 c2 02 0d"
    )
    assert cursor.take(100, Locators()).hex(" ") == second
    assert (cursor.done, cursor.oer_flags, cursor.rows_so_far) == (True, 0, 5)


@pytest.mark.parametrize("encoded", [False, True])
def test_recorded_all_types(encoded: bool) -> None:
    """A row, one of NULLs and a row with a full vector have the bytes a 23ai server sent."""
    names = ["NUMBER", "NUMBER", "NUMBER", "NUMBER", "VARCHAR2", "CHAR", "DATE", "TIMESTAMP", "RAW", "BINARY_DOUBLE", "BINARY_FLOAT"]  # fmt: skip
    values = [
        (1, 12345678901234, *_decimals("12.34", "1.5"), "alpha", "ab   ", Moment(2024, 1, 2, 3, 4, 5), Moment(2024, 1, 2, 3, 4, 5, 123456000), b"\1\2", 2.5, 0.5),
        (2, *[None] * 10),
        (3, -42, *_decimals("-99.99", "-0.25"), "gamma", "xyz  ", Moment(1988, 12, 31, 23, 59, 58), Moment(1988, 12, 31, 23, 59, 58, 999999000), b"\xff" * 8, -1.5, -2.0),
    ]  # fmt: skip
    shape = columns(*(Type(name=name, length=10) for name in names))
    source = EncodedTable.of(shape, values).rows() if encoded else RowSet(shape, values)
    cursor = RowCursor(source)
    recorded = (
        "06 22 01 0b 00 01 64 00 00 00 07 02 c1 02 08 c7 0d 23 39 4f 5b 0d 23 03 c1 0d 23 03 c1 02 33"
        " 05 61 6c 70 68 61 05 61 62 20 20 20 07 78 7c 01 02 04 05 06 0b 78 7c 01 02 04 05 06 07 5b ca"
        " 00 02 01 02 08 c0 04 00 00 00 00 00 00 04 bf 00 00 00 07 02 c1 03 00 00 00 00 00 00 00 00 00"
        " 00 15 01 0b ff 07 07 02 c1 04 03 3e 3b 66 04 3e 02 02 66 03 3f 4c 66 05 67 61 6d 6d 61 05 78"
        " 79 7a 20 20 07 77 bc 0c 1f 18 3c 3b 0b 77 bc 0c 1f 18 3c 3b 3b 9a c6 18 08 ff ff ff ff ff ff"
        " ff ff 08 40 07 ff ff ff ff ff ff 04 3f ff ff ff"
    )
    assert cursor.take(100, Locators()).hex(" ") == recorded
    assert (cursor.done, cursor.oer_flags) == (True, 0x20)


def _decimals(*texts: str) -> list[Any]:
    from decimal import Decimal

    return [Decimal(text) for text in texts]


@pytest.mark.parametrize("encoded", [False, True])
def test_off_after_a_batch_without_repeats(encoded: bool) -> None:
    """98 vectors with all bits set, flag 0x20, then no vector ever again: as 23ai did."""
    shape = columns(NUMBER, NUMBER)
    values = [(n, n) for n in range(1, 101)] + [(7, 7)] * 200
    source = EncodedTable.of(shape, values).rows() if encoded else RowSet(shape, values)
    rows, replies, flags = take_all(source, [100, 100, 100, 100])
    assert rows == values
    assert replies[0].vectors == [None, None] + [b"\x03"] * 98
    assert replies[1].vectors == [None] * 100
    assert flags == [0x20, 0, 0, 0]
    assert [reply.header for reply in replies[:2]] == [
        oracle_reply.Header(0x22, 2, 100, b""),
        oracle_reply.Header(0x02, 2, 100, b""),
    ]


@pytest.mark.parametrize("encoded", [False, True])
def test_on_while_rows_repeat(encoded: bool) -> None:
    """Vectors stay on from reply to reply, the first in the header, even if all bits are set."""
    shape = columns(NUMBER)
    values = [(n,) for n in (1, 1, 2, 2, 3, 4, 4, 4, 5)]
    source = EncodedTable.of(shape, values).rows() if encoded else RowSet(shape, values)
    rows, replies, flags = take_all(source, [4, 4, 4])
    assert rows == values
    assert [reply.vectors for reply in replies] == [
        [None, None, b"\x01", b"\x00"],
        [b"\x01", b"\x01", b"\x00", b"\x00"],
        [b"\x01"],
    ]
    assert replies[1].header == oracle_reply.Header(0x02, 1, 4, b"\x01")
    assert flags == [0, 0, 0x20]


VALUES = {
    "NUMBER": [None, 0, 1, -1, 10**37],
    "VARCHAR2": [None, "a", "b", "x" * 300],
    "DATE": [None, Moment(2024, 1, 2), Moment(-1, 1, 1)],
    "ROWID": [None, Rowid(1, 2, 3, 4), Rowid(73038, 24, 36802, 58)],
    "XMLTYPE": [None, "<a/>", "<b/>"],
    "UROWID": [None, Rowid(1, 2, 3, 4)],
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
    """Return a few columns and rows of few different values, many of them repeated."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=10))
    rows = st.tuples(*(st.sampled_from(VALUES[name]) for name in names))
    shape = columns(*(Type(name=name, length=400) for name in names))
    few = draw(st.lists(rows, min_size=1, max_size=4))
    return shape, draw(st.lists(st.sampled_from(few), max_size=25))


def expected(shape: tuple[Column, ...], values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows as the independent reader gives them: complete rows, one by one."""
    rows, _, _ = take_all(RowSet(shape, values), [1000], vectors=False)
    return rows


@settings(max_examples=examples(120), deadline=None)
@given(tables(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans())
def test_any_rows_any_sizes(
    table: tuple[tuple[Column, ...], list[tuple[Any, ...]]], sizes: list[int], vectors: bool
) -> None:
    """Fetched in any sizes, all rows come back, from both kinds of source in the same bytes."""
    shape, values = table
    pattern = sizes * (len(values) + 1)
    encoded = EncodedTable.of(shape, values, vectors=vectors)
    rows, replies, flags = take_all(RowSet(shape, values), pattern, vectors=vectors)
    again = take_all(encoded.rows(), pattern)
    assert again == (rows, replies, flags)
    assert rows == expected(shape, values)
    sent = [vector for reply in replies for vector in reply.vectors]
    assert sent[:2] == [None, None][: len(sent)]
    if not vectors:
        assert set(sent) <= {None}
