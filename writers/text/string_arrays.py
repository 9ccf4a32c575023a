"""Arrow string arrays as raw text: their bytes, their limit, and joining them row by row.

A string array reaches 2 GiB with its 32-bit offsets; beyond that it must be a large_string one,
and Arrow's functions do not take the two together.
"""

from __future__ import annotations

import pyarrow as pa

from writers.arrow_compute import pc

STRING_LIMIT = 2**31 - 1
"""Bytes that the 32-bit offsets of a string array can reach."""


def value_bytes(values: pa.Array) -> memoryview:
    """Return the bytes of a string or binary array's values, the slice's only, not copied."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return memoryview(b"")
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    end = values.offset + len(values)
    raw = memoryview(values.buffers()[1]).cast("b")[: (8 if large else 4) * (end + 1)]
    offsets = raw.cast("q" if large else "i")
    return memoryview(data)[offsets[values.offset] : offsets[end]]


def without_views(values: pa.Array) -> pa.Array:
    """Return string and binary views as large_string and large_binary arrays."""
    kind = pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary()
    try:
        return pc.cast(values, kind)
    except pa.ArrowNotImplementedError:
        # Older Arrow versions lack this cast.
        return pa.array(values.to_pylist(), kind)


def with_room(texts: pa.Array, *, factor: int = 1, more: int = 0) -> pa.Array:
    """Return texts that may grow to `factor` times their bytes and `more` a row.

    They are large_string where that is out of reach of a string array, else unchanged.
    """
    if factor * len(value_bytes(texts)) + more * len(texts) > STRING_LIMIT:
        return pc.cast(texts, pa.large_string())
    return texts


def compact(texts: pa.Array) -> pa.Array:
    """Return texts as a string array where they fit into one."""
    if pa.types.is_large_string(texts.type) and len(value_bytes(texts)) <= STRING_LIMIT:
        return pc.cast(texts, pa.string())
    return texts


def joined(*pieces: pa.Array | pa.Scalar | str) -> pa.Array:
    """Concatenate row by row; a row is null where a piece is.

    Args:
        pieces: Text for every row, or arrays of equal length, at least one; large_string if any
            of them is, and so is the result.
    """
    kind = pa.string()
    if any(isinstance(p, pa.Array) and pa.types.is_large_string(p.type) for p in pieces):
        kind = pa.large_string()
    same = [
        pa.scalar(piece, kind) if isinstance(piece, str) else pc.cast(piece, kind)
        for piece in pieces
    ]
    return pc.binary_join_element_wise(*same, pa.scalar("", kind))
