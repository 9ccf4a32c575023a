"""The least and greatest values of pages: which of several, and in which order pages lie."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from writers.parquet.native.columns import ColumnForm, Physical
from writers.records import dataclass

LONGEST = 4096
"""A longer value is not told, as with pyarrow, so that documents do not enlarge the footer."""

_UNORDERED, _ASCENDING, _DESCENDING = 0, 1, 2

_NUMBERS = {
    (Physical.INT32, True): "<i",
    (Physical.INT32, False): "<I",
    (Physical.INT64, True): "<q",
    (Physical.INT64, False): "<Q",
    (Physical.FLOAT, True): "<f",
    (Physical.DOUBLE, True): "<d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Encoded values; None where there is none to tell."""

    least: bytes | None = None
    greatest: bytes | None = None

    @property
    def are_whole(self) -> bool:
        """Whether both are known."""
        return self.least is not None and self.greatest is not None

    def short(self) -> Bounds:
        """Return them without a value that is too long to be told."""
        return Bounds(least=_short(self.least), greatest=_short(self.greatest))


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
    least = [each.least for each in pages if each.least is not None]
    greatest = [each.greatest for each in pages if each.greatest is not None]
    return Bounds(
        least=min(least, key=order, default=None), greatest=max(greatest, key=order, default=None)
    )


def boundary_order(pages: Sequence[Bounds], order: Callable[[bytes], Any]) -> int:
    """Return Parquet's number for the order of pages, all of which have both bounds."""
    keys = [(order(each.least or b""), order(each.greatest or b"")) for each in pages]
    pairs = list(pairwise(keys))
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        return _ASCENDING
    if all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        return _DESCENDING
    return _UNORDERED


def _short(value: bytes | None) -> bytes | None:
    return value if value is not None and len(value) <= LONGEST else None
