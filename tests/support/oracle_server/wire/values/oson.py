"""JSON as OSON, Oracle's binary form: a dictionary of field names, then a tree of nodes.

Written with what real servers use: short strings and numbers in their node's first byte, offsets of
two bytes while the tree is small, field names in the order of their hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from oracle_server.wire.values.numbers import encode_double, encode_number

_MAGIC = b"\xff\x4a\x5a\x01"
_HASHES_OF_ONE_BYTE = 0x0100
_NAMES_OF_TWO_BYTES = 0x0400
_LARGE_NAMES = 0x0800
_LARGE_TREE = 0x1000
_TINY_NODES = 0x2000
_INLINE_LEAVES = 0x0002 | 0x0004
_SCALAR = 0x0010
_OBJECT = 0x84
_ARRAY = 0xC0


def encode_json(value: Any) -> bytes:
    """Return the OSON of None, bool, int, Decimal, float, str, and sequences and dicts of them.

    Raises:
        ValueError: A field name longer than 255 bytes, which needs the newer version of the format.
        TypeError: A value JSON has no form for.
    """
    if not isinstance(value, (list, tuple, dict)):
        tree = _leaf(value)
        large = len(tree) > 0xFFFF
        flags = _INLINE_LEAVES | _SCALAR | (_LARGE_TREE if large else 0)
        return _MAGIC + _be(2, flags) + _be(4 if large else 2, len(tree)) + tree
    names = sorted(set(_names(value)), key=lambda name: (_hash(name) & 0xFF, len(name), name))
    if any(len(name) > 255 for name in names):
        raise ValueError("a field name is longer than 255 bytes")
    ids = {name: number for number, name in enumerate(names, 1)}
    id_width = 1 if len(names) < 256 else 2
    tree = _Tree(ids, id_width, 2).build(value)
    if len(tree) > 0xFFFF:
        tree = _Tree(ids, id_width, 4).build(value)
    texts = b"".join(bytes((len(name),)) + name for name in names)
    flags = _INLINE_LEAVES | _HASHES_OF_ONE_BYTE | _TINY_NODES
    flags |= _NAMES_OF_TWO_BYTES if id_width == 2 else 0
    flags |= _LARGE_NAMES if len(texts) > 0xFFFF else 0
    flags |= _LARGE_TREE if len(tree) > 0xFFFF else 0
    width = 4 if flags & _LARGE_NAMES else 2
    offsets, at = [], 0
    for name in names:
        offsets.append(_be(width, at))
        at += 1 + len(name)
    return b"".join(
        (
            _MAGIC,
            _be(2, flags),
            _be(id_width, len(names)),
            _be(width, len(texts)),
            _be(4 if flags & _LARGE_TREE else 2, len(tree)),
            _be(2, 0),
            bytes(_hash(name) & 0xFF for name in names),
            *offsets,
            texts,
            tree,
        )
    )


def _be(width: int, value: int) -> bytes:
    return value.to_bytes(width, "big")


def _hash(name: bytes) -> int:
    value = 0x811C9DC5
    for byte in name:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def _names(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        yield from (name.encode() for name in value)
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for child in value:
            yield from _names(child)


class _Tree:
    """The nodes, each container followed by its children; offsets count from the tree's start."""

    def __init__(self, ids: dict[bytes, int], id_width: int, offset_width: int) -> None:
        self._ids = ids
        self._id_width = id_width
        self._offset_width = offset_width
        self._data = bytearray()

    def build(self, value: Any) -> bytes:
        self._add(value)
        return bytes(self._data)

    def _add(self, value: Any) -> None:
        if isinstance(value, dict):
            pairs = [(self._ids[name.encode()], child) for name, child in value.items()]
            pairs.sort(key=lambda pair: pair[0])
            numbers = b"".join(_be(self._id_width, number) for number, _ in pairs)
            self._container(_OBJECT, numbers, [child for _, child in pairs])
        elif isinstance(value, (list, tuple)):
            self._container(_ARRAY, b"", list(value))
        else:
            self._data += _leaf(value)

    def _container(self, kind: int, numbers: bytes, children: list[Any]) -> None:
        count = len(children)
        width = 1 if count < 256 else 2 if count < 65536 else 4
        kind |= {1: 0, 2: 0x08, 4: 0x10}[width] | (0x20 if self._offset_width == 4 else 0)
        self._data += bytes((kind,)) + _be(width, count) + numbers
        at = len(self._data)
        self._data += bytes(self._offset_width * count)
        for child in children:
            # A tree too large for two bytes is thrown away and built again with four.
            offset = len(self._data) & (1 << 8 * self._offset_width) - 1
            self._data[at : at + self._offset_width] = _be(self._offset_width, offset)
            at += self._offset_width
            self._add(child)


def _leaf(value: Any) -> bytes:
    if value is None:
        return b"\x30"
    if isinstance(value, bool):
        return b"\x31" if value else b"\x32"
    if isinstance(value, (int, Decimal)):
        data = encode_number(value)
        return bytes((0x20 | len(data) - 1,)) + data if len(data) <= 16 else _sized(0x34, 1, data)
    if isinstance(value, float):
        return b"\x36" + encode_double(value)
    if isinstance(value, str):
        data = value.encode()
        if len(data) < 32:
            return bytes((len(data),)) + data
        if len(data) < 256:
            return _sized(0x33, 1, data)
        return _sized(0x37, 2, data) if len(data) < 65536 else _sized(0x38, 4, data)
    raise TypeError(f"JSON has no {type(value).__name__}")


def _sized(kind: int, width: int, data: bytes) -> bytes:
    return bytes((kind,)) + _be(width, len(data)) + data
