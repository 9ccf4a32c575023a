"""Descriptors and values of bind variables and defines in requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from oracle_server.model import OracleError
from oracle_server.wire.reader import Reader
from oracle_server.wire.rows.lobs import Locators
from oracle_server.wire.values.bind_values import decode_bind
from oracle_server.wire.values.forms import ub

ROW = 7
_BIND_IN = 32
_ARRAY = 0x40
_CURSOR = 102
_OBJECT = 109
_BOOLEAN = 252
_BOOLEAN_NULL = 0xFD
_LOBS = frozenset({112, 113, 114})
_WITH_LOCATOR = frozenset({119, 127})
_LONGEST = 32767
_COLLATION_VERSION = 8


class BindType(NamedTuple):
    """What a descriptor says of a bind variable or a define."""

    number: int
    size: int
    form: int
    is_array: bool
    prefetch: int = 0
    """Characters or bytes of a LOB that are to come with its locator."""


def read_types(reader: Reader, count: int, field_version: int) -> tuple[BindType, ...]:
    """Read descriptors."""
    return tuple(_read_type(reader, field_version) for _ in range(count))


def _read_type(reader: Reader, field_version: int) -> BindType:
    number, flags, _, _ = reader.raw(4)
    size = reader.ub()
    reader.skip("uu")
    reader.dalc()
    reader.skip("uu")
    form = reader.u8()
    prefetch = reader.ub()
    if field_version >= _COLLATION_VERSION:
        reader.skip("u")
    return BindType(number, size, form, bool(flags & _ARRAY), prefetch)


def read_rows(
    reader: Reader,
    types: tuple[BindType, ...],
    count: int,
    locators: Locators,
    *,
    is_plsql: bool,
) -> tuple[tuple[Any, ...], ...]:
    """Read `count` rows of values; long ones of SQL statements stand after the others."""
    return tuple(_read_row(reader, types, locators, is_plsql) for _ in range(count))


def _read_row(
    reader: Reader, types: tuple[BindType, ...], locators: Locators, is_plsql: bool
) -> tuple[Any, ...]:
    if reader.u8() != ROW:
        raise OracleError(3120, "two-task conversion routine: integer overflow")
    late = [not is_plsql and not each.is_array and each.size > _LONGEST for each in types]
    values: dict[int, Any] = {}
    for now in (False, True):
        for index, each in enumerate(types):
            if late[index] != now:
                continue
            if each.is_array:
                values[index] = [_read(reader, each, locators) for _ in range(reader.ub())]
            else:
                values[index] = _read(reader, each, locators)
    return tuple(values[index] for index in range(len(types)))


def _read(reader: Reader, kind: BindType, locators: Locators) -> Any:
    if kind.number in _LOBS:
        locator = reader.dalc()
        return None if locator is None else locators.value(locator)
    if kind.number == _BOOLEAN:
        length = reader.u8()
        data = reader.raw(1 if length == _BOOLEAN_NULL else length)
        return None if length == _BOOLEAN_NULL else decode_bind(data or b"\0", kind.number)
    if kind.number in _WITH_LOCATOR:
        reader.dalc()
    elif kind.number in (_CURSOR, _OBJECT):
        raise OracleError(932, f"inconsistent data types: bind of type {kind.number}")
    return decode_bind(reader.clr(), kind.number, kind.form)


def bind_directions(count: int) -> bytes:
    """Return message 0B: every bind variable of the block goes in."""
    numbers = (ub(count & 0xFF), ub(count >> 8), ub(1), bytes(3))
    return b"\x0b\x01" + b"".join(numbers) + bytes((_BIND_IN,)) * count
