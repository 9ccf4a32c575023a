"""VECTOR as its image: a header, a norm nobody reads, and the elements."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from oracle_server.wire.values.numbers import encode_double, encode_float

FORMATS = {"FLOAT32": 2, "FLOAT64": 3, "INT8": 4, "BINARY": 5}
"""Element formats and their numbers in images and describes."""
_MAGIC = 0xDB
_NORM_RESERVED = 0x0010
_NORM = 0x0002


def encode_vector(values: Sequence[float | int], element: str) -> bytes:
    """Return the image of a vector.

    Args:
        values: The elements; of a BINARY vector its bytes, eight dimensions each.
        element: One of FORMATS.
    """
    if element == "BINARY":
        count, version, flags = 8 * len(values), 1, _NORM_RESERVED
    else:
        count, version, flags = len(values), 0, _NORM_RESERVED | _NORM
    norm = math.sqrt(sum(value * value for value in values)) if flags & _NORM else 0.0
    header = struct.pack(">BBHBI", _MAGIC, version, flags, FORMATS[element], count)
    return header + encode_double(norm) + _elements(values, element)


def _elements(values: Sequence[float | int], element: str) -> bytes:
    if element == "FLOAT32":
        return b"".join(map(encode_float, values))
    if element == "FLOAT64":
        return b"".join(map(encode_double, values))
    return struct.pack(f">{len(values)}{'b' if element == 'INT8' else 'B'}", *values)
