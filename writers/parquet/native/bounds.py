"""The least and greatest values of pages and column chunks.

Readers skip pages, row groups and files by these bounds. So bounds must cover every value, or be
left out. NaN is in no bounds, and readers take it for greater than all numbers, or for different
from them. A page with NaN therefore has no bounds, and neither has its column chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from writers.parquet.native.columns import ColumnForm, Physical

LONGEST = 4096
"""A longer value is left out, as with pyarrow, so that documents do not enlarge the footer. The
library cuts values to one byte more (`bounds.h`), which keeps their order."""

_UNORDERED, _ASCENDING, _DESCENDING = 0, 1, 2

_NUMBERS = {
    (Physical.INT32, True): "<i",
    (Physical.INT32, False): "<I",
    (Physical.INT64, True): "<q",
    (Physical.INT64, False): "<Q",
    (Physical.FLOAT, True): "<f",
    (Physical.DOUBLE, True): "<d",
}


class Bounds(Struct, frozen=True, kw_only=True):
    """Encoded values that all others are between."""

    least: bytes
    greatest: bytes

    @property
    def fit(self) -> bool:
        """Whether both are short enough to be in a file."""
        return len(self.least) <= LONGEST and len(self.greatest) <= LONGEST


def order_of(form: ColumnForm) -> Callable[[bytes], Any]:
    """Return the key by which encoded values of a column are compared."""
    if code := _NUMBERS.get((form.physical, form.signed)):
        unpack = struct.Struct(code).unpack
        return lambda value: unpack(value)[0]
    if form.signed and form.physical == Physical.FIXED_LEN_BYTE_ARRAY:
        return lambda value: int.from_bytes(value, "big", signed=True)
    return lambda value: value


def joined(pages: Sequence[Bounds], order: Callable[[bytes], Any]) -> Bounds:
    """Return the bounds of several pages together."""
    return Bounds(
        least=min((each.least for each in pages), key=order),
        greatest=max((each.greatest for each in pages), key=order),
    )


def boundary_order(pages: Sequence[Bounds], order: Callable[[bytes], Any]) -> int:
    """Return Parquet's number for the order of pages."""
    keys = [(order(each.least), order(each.greatest)) for each in pages]
    pairs = list(pairwise(keys))
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        return _ASCENDING
    if all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        return _DESCENDING
    return _UNORDERED
