"""Binary values and UUIDs as text, one pass over the buffer of all values."""

from __future__ import annotations

import binascii

import pyarrow as pa

from writers.arrow_compute import pc
from writers.model import BinaryForm
from writers.text.string_arrays import STRING_LIMIT, compact, joined, value_bytes, without_views

_UUID_TEXT_BYTES = 36
_UUID_DASHES = frozenset({8, 13, 18, 23})


def binary_texts(values: pa.Array, form: BinaryForm) -> pa.Array:
    """Return the text of binary, large, view or fixed-size binary values, null for null."""
    if form == "base64":
        return _base64_texts(values)
    if pa.types.is_binary_view(values.type):
        values = without_views(values)
    elif pa.types.is_fixed_size_binary(values.type):
        values = pc.cast(values, pa.binary())
    texts = _hex_texts(values)
    return texts if form == "hex" else joined("\\x", texts)


def _hex_texts(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([], pa.string())
    data = value_bytes(values)
    # Room for the prefix, too.
    large = 2 * (len(data) + len(values)) > STRING_LIMIT
    offset_type, text_type = (pa.int64(), pa.large_string()) if large else (pa.int32(), pa.string())
    # The array's own offsets, since there may be bytes under a null.
    width = pa.int64() if pa.types.is_large_binary(values.type) else pa.int32()
    starts = pa.Array.from_buffers(
        width, len(values) + 1, [None, values.buffers()[1]], offset=values.offset
    )
    from_zero = pc.cast(pc.subtract(starts, starts[0]), offset_type)
    offsets = pc.multiply(from_zero, pa.scalar(2, offset_type))
    digits = pa.py_buffer(binascii.hexlify(data))
    texts = pa.Array.from_buffers(text_type, len(values), [None, offsets.buffers()[1], digits])
    if not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, text_type))


def _base64_texts(values: pa.Array) -> pa.Array:
    texts = [
        None if value is None else binascii.b2a_base64(value, newline=False).decode()
        for value in values.to_pylist()
    ]
    return compact(pa.array(texts, pa.large_string()))


def uuid_texts(values: pa.Array) -> pa.Array:
    """Return 16-byte values as 8-4-4-4-12 lower-case hexadecimal digits, null for null."""
    start, data = 16 * values.offset, values.buffers()[1]
    digits = binascii.hexlify(memoryview(data)[start : start + 16 * len(values)] if data else b"")
    texts = bytearray(b"-") * (_UUID_TEXT_BYTES * len(values))
    digit = 0
    for position in range(_UUID_TEXT_BYTES):
        if position not in _UUID_DASHES:
            texts[position::_UUID_TEXT_BYTES] = digits[digit::32]
            digit += 1
    buffers = [None, pa.py_buffer(bytes(texts))]
    fixed = pa.Array.from_buffers(pa.binary(_UUID_TEXT_BYTES), len(values), buffers)
    strings = pc.cast(pc.cast(fixed, pa.binary()), pa.string())
    if not values.null_count:
        return strings
    return pc.if_else(values.is_valid(), strings, pa.scalar(None, pa.string()))
