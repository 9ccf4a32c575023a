"""A row's cells: how to make them for what a client defined, compare them, and take them apart.

The bit vector of a row names the columns that are sent; bit i, least significant first, is 1 for
column i. A column without its bit repeats the row before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

from oracle_server.model import Column, OracleError, Type
from oracle_server.wire.rows.describe import is_absent
from oracle_server.wire.rows.lobs import Locators, content_of
from oracle_server.wire.values.by_type import (
    LOCATOR_TYPES,
    LONG,
    LONG_NULL,
    LONG_RAW,
    LONG_VARCHAR,
    PREFETCHED_TYPES,
    Encoder,
    encoder,
    wire_type,
)
from oracle_server.wire.values.forms import clr, read_clr, read_dalc, read_ub

ROW = b"\x07"
VECTOR = b"\x15"
_INLINE = frozenset({LONG, LONG_RAW, LONG_VARCHAR})
"""Types that a LOB is defined as when its data is to come in the row; the last one by Go clients."""


def make_encoders(
    columns: Sequence[Column],
    defines: Sequence[int] | None,
    locators: Locators | None,
    prefetches: Sequence[int] = (),
) -> list[Encoder]:
    """Return each column's function from a value to its cell.

    Raises:
        OracleError: ORA-00932, a LOB is defined as neither a LOB nor a LONG.
        ValueError: A LOB column, and no locators to put its values behind.
    """
    wanted = defines or [wire_type(column.type).number for column in columns]
    return [
        _encoder(column, number, locators, prefetch)
        for column, number, prefetch in zip(
            columns, wanted, prefetches or (0,) * len(columns), strict=True
        )
    ]


def _encoder(column: Column, number: int, locators: Locators | None, prefetch: int = 0) -> Encoder:
    kind = column.type
    if is_absent(column):
        return lambda value: b""
    if kind.name not in LOCATOR_TYPES:
        return encoder(kind)
    if number in _INLINE:
        return _inline(kind)
    if number != wire_type(kind).number:
        raise OracleError(932, f"inconsistent data types: expected {kind.name} got type {number}")
    if locators is None:
        raise ValueError(f"column {column.name}: a {kind.name} is encoded for one connection only")
    return lambda value: locators.cell(value, kind, prefetch=prefetch)


def _inline(kind: Type) -> Encoder:
    """Return the encoder of a LOB that the client defined as a LONG: the data is in the row.

    A CLOB is sent in the client's character set, an NCLOB in the national one.
    """

    def encode(value: Any) -> bytes:
        if value is None:
            return LONG_NULL
        content = content_of(value, kind)
        data = content.read(0, content.length())
        if kind.name == "CLOB":
            data = data.decode("utf-16-be", "replace").encode()
        return clr(data) + b"\x00\x00"

    return encode


def has_long(columns: Sequence[Column], defines: Sequence[int] | None) -> bool:
    """Tell whether a column goes over as a LONG or LONG RAW."""
    numbers = defines or [wire_type(column.type).number for column in columns]
    return any(number in _INLINE for number in numbers)


def always_sent(columns: Sequence[Column]) -> frozenset[int]:
    """Return the columns that are sent even if equal: LOBs and what looks like one (a guess)."""
    kinds = LOCATOR_TYPES | PREFETCHED_TYPES
    return frozenset(at for at, column in enumerate(columns) if column.type.name in kinds)


def changes(
    row: Sequence[bytes], before: Sequence[bytes], always: frozenset[int] = frozenset()
) -> tuple[bool, ...]:
    """Return for each column whether it must be sent after the row before it."""
    if not always:
        return tuple(map(bytes.__ne__, row, before))
    return tuple(
        at in always or cell != old for at, (cell, old) in enumerate(zip(row, before, strict=True))
    )


@lru_cache(maxsize=4096)
def bits(changed: tuple[bool, ...]) -> bytes:
    """Return the bit vector of a row's changes."""
    value = sum(1 << at for at, sent in enumerate(changed) if sent)
    return value.to_bytes((len(changed) + 7) // 8, "little")


@lru_cache(maxsize=4096)
def vector_message(changed: tuple[bool, ...]) -> bytes:
    """Return message 15 (hex) and the 07 of the row it stands before."""
    count = sum(changed)
    return VECTOR + (bytes((1, count)) if 0 < count < 256 else _count(count)) + bits(changed) + ROW


def _count(count: int) -> bytes:
    return b"\x02" + count.to_bytes(2, "big") if count else b"\x00"


def sent(row: Iterable[bytes], changed: Sequence[bool]) -> bytes:
    """Return the cells that are sent, joined."""
    return b"".join(compress(row, changed))


def split(columns: Sequence[Column], row: memoryview) -> list[bytes]:
    """Return the cells of a complete row message, whose 07 is its first byte."""
    position = len(ROW)
    cells = []
    for column in columns:
        end = position if is_absent(column) else _end(column.type.name, row, position)
        cells.append(bytes(row[position:end]))
        position = end
    return cells


def _end(name: str, row: memoryview, position: int) -> int:
    """Return where a cell ends."""
    first = row[position]
    if name == "ROWID":
        return _skip(row, position + 1, "uubuu") if first else position + 1
    if name == "UROWID":
        return _skip(row, position, "uc") if first else position + 1
    if name in PREFETCHED_TYPES:
        return _skip(row, position, "uuucc") if first else position + 1
    if name == "XMLTYPE":
        end = _skip(row, position, "dddu")
        length, end = read_ub(row, end)
        return _skip(row, end, "uc" if length else "u")
    return _skip(row, position, "cuu" if name in ("LONG", "LONG RAW") else "c")


def _skip(row: memoryview, position: int, parts: str) -> int:
    """Return the position after some parts: u integer, b byte, c byte string, d one with two lengths."""
    for part in parts:
        if part == "b":
            position += 1
        elif part == "u":
            position = read_ub(row, position)[1]
        elif part == "c":
            position = read_clr(row, position)[1]
        else:
            position = read_dalc(row, position)[1]
    return position
