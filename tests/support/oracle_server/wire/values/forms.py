"""The few ways in which messages write integers and byte strings, as functions to `bytes`."""

from __future__ import annotations

LONGEST_SHORT = 252
"""Longest byte string with a one-byte length; longer ones go in chunks."""
CHUNK = 32767
NULL = b"\x00"


def ub(value: int) -> bytes:
    """Return an unsigned integer: a byte for its length, then as few bytes as hold it."""
    if not value:
        return b"\x00"
    length = (value.bit_length() + 7) // 8
    return bytes((length,)) + value.to_bytes(length, "big")


def sb(value: int) -> bytes:
    """Return a signed integer: as `ub`, with the length's top bit set if negative."""
    if value >= 0:
        return ub(value)
    positive = ub(-value)
    return bytes((positive[0] | 0x80,)) + positive[1:]


def clr(data: bytes) -> bytes:
    """Return a byte string with its length before it; an empty one is the same as NULL."""
    if len(data) <= LONGEST_SHORT:
        return bytes((len(data),)) + data
    return chunked(data)


def chunked(data: bytes) -> bytes:
    """Return a byte string in the form for long ones, whatever its length."""
    return b"\xfe" + chunks(data) + b"\x00"


def chunks(data: bytes) -> bytes:
    """Return the chunks of a long byte string without what stands before and after them."""
    return b"".join(
        ub(len(piece)) + piece
        for piece in (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
    )


def dalc(data: bytes) -> bytes:
    """Return a byte string with its length twice, or a zero for an empty one."""
    return ub(len(data)) + clr(data) if data else NULL


def read_ub(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the integer (of either sign) at a position, and the position after it."""
    length = data[position] & 0x7F
    end = position + 1 + length
    value = int.from_bytes(data[position + 1 : end], "big")
    return (-value if data[position] & 0x80 else value), end


def read_clr(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    """Return the byte string at a position (None for NULL), and the position after it."""
    length = data[position]
    position += 1
    if length in (0, 0xFF):
        return None, position
    if length != 0xFE:
        return bytes(data[position : position + length]), position + length
    pieces: list[bytes] = []
    while True:
        length, position = read_ub(data, position)
        if not length:
            return b"".join(pieces), position
        pieces.append(bytes(data[position : position + length]))
        position += length


def read_dalc(data: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    """Return the byte string with two lengths at a position, and the position after it."""
    length, position = read_ub(data, position)
    return read_clr(data, position) if length else (None, position)
