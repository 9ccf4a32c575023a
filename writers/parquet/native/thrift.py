"""Thrift's compact protocol, as far as the metadata of Parquet files needs it."""

from __future__ import annotations

from collections.abc import Iterable

Value = tuple[int, bytes]
"""A type of the protocol and the encoded value."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def boolean(value: bool) -> Value:
    """Return a truth value; it is part of its type."""
    return (_TRUE if value else _FALSE, b"")


def int16(value: int) -> Value:
    """Return a number of 16 bits."""
    return _I16, _zigzag(value)


def int32(value: int) -> Value:
    """Return a number of 32 bits, or one of an enumeration."""
    return _I32, _zigzag(value)


def int64(value: int) -> Value:
    """Return a number of 64 bits."""
    return _I64, _zigzag(value)


def binary(value: bytes) -> Value:
    """Return bytes or text."""
    return _BINARY, _varint(len(value)) + value


def structure(fields: dict[int, Value | None]) -> Value:
    """Return a structure of fields with ascending numbers, each of them below 16 more than the
    one before; None is left out."""
    out, last = bytearray(), 0
    for number, value in fields.items():
        if value is not None:
            kind, data = value
            out.append((number - last) << 4 | kind)
            out += data
            last = number
    out.append(0)
    return _STRUCT, bytes(out)


def several(values: Iterable[Value]) -> Value:
    """Return a list of values of one type."""
    listed = list(values)
    kind = listed[0][0] if listed else _STRUCT
    # Only the type distinguishes the two truth values.
    data = [bytes([each[0]]) if each[0] in (_TRUE, _FALSE) else each[1] for each in listed]
    kind, count = _TRUE if kind == _FALSE else kind, len(data)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return _LIST, head + b"".join(data)


def fields_of(data: bytes) -> dict[int, Value]:
    """Return the fields of an encoded structure as they are, by their numbers.

    Raises:
        ValueError: The bytes are not a structure.
    """
    found: dict[int, Value] = {}
    at = number = 0
    try:
        while head := data[at]:
            at += 1
            if not head >> 4:
                raise ValueError("a field number is far from the previous number")
            number += head >> 4
            end = _end(data, at, head & 15)
            found[number] = head & 15, data[at:end]
            at = end
    except IndexError:
        raise ValueError("the structure has no end") from None
    return found


def _end(data: bytes, at: int, kind: int) -> int:
    """Return where a value ends that begins at a place."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind in (_I16, _I32, _I64):
        return _number(data, at)[1]
    if kind == _BINARY:
        size, at = _number(data, at)
        return at + size
    if kind == _LIST:
        head, at = data[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = _number(data, at)
        for _ in range(count):
            at = at + 1 if head & 15 in (_TRUE, _FALSE) else _end(data, at, head & 15)
        return at
    if kind == _STRUCT:
        while head := data[at]:
            at = _end(data, at + 1, head & 15)
        return at + 1
    raise ValueError(f"a value has the type {kind}")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
