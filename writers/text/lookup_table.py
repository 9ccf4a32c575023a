"""Texts looked up by integer key: how small domains (years, minutes, lengths) become text.

Formatting a key costs a microsecond, taking a ready text a few nanoseconds; so each text is
made once and kept.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from writers.arrow_compute import pc

_DENSE_KEYS = 20_000
"""Widest range kept as a table; above it only the distinct keys of a batch are formatted."""
_MARGIN = 500
_FEW_KEYS = 256
"""Fewer keys than this are not worth a table."""


class LookupTable:
    """A text for each integer key, made on first use.

    Safe for several threads: what is kept is replaced as a whole, never changed.

    Args:
        text: Gives the text of a key.
        domain: First and last key there can be, a few thousand apart at most; None if any can.
    """

    def __init__(self, text: Callable[[int], str], domain: tuple[int, int] | None = None) -> None:
        self._text = text
        self._domain = domain
        self._kept: tuple[int, int, pa.Array] = (0, -1, pa.array([], pa.string()))

    def take(self, keys: pa.Array) -> pa.Array:
        """Return the text of each key, null for null."""
        bounds = pc.min_max(keys).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None:
            return pa.nulls(len(keys), pa.string())
        first, last, texts = self._kept
        if low < first or high > last:
            if high - low > _DENSE_KEYS or len(keys) < _FEW_KEYS:
                return self._take_distinct(keys)
            first, last, texts = self._grown(low, high)
        return texts.take(pc.subtract(keys, pa.scalar(first, keys.type)))

    def _take_distinct(self, keys: pa.Array) -> pa.Array:
        encoded = keys.dictionary_encode()
        texts = pa.array([self._text(key) for key in encoded.dictionary.to_pylist()], pa.string())
        return texts.take(encoded.indices)

    def _grown(self, low: int, high: int) -> tuple[int, int, pa.Array]:
        first, last, _ = self._kept
        if self._domain is not None:
            low, high = self._domain
        elif first <= last and max(high, last) - min(low, first) <= _DENSE_KEYS:
            low = min(first, low - _MARGIN if low < first else first)
            high = max(last, high + _MARGIN if high > last else last)
        texts = pa.array([self._text(key) for key in range(low, high + 1)], pa.string())
        self._kept = (low, high, texts)
        return self._kept


_THREE_DIGITS = LookupTable("{:03}".format, (0, 999))
_TWO_DIGITS = LookupTable("{:02}".format, (0, 99))
_ONE_DIGIT = LookupTable(str, (0, 9))
_LEADING = {0: _THREE_DIGITS, 1: _ONE_DIGIT, 2: _TWO_DIGITS}


def zero_padded(numbers: pa.Array, digits: int) -> list[pa.Array]:
    """Return the numbers as texts of `digits` digits, in pieces to be joined from left to right.

    Args:
        numbers: int64, each at least 0 and below 10**digits; null stays null.
        digits: 1 or more.
    """
    pieces: list[pa.Array] = []
    left = digits
    while left > 3:
        upper = pc.divide(numbers, 1000)
        pieces.insert(0, _THREE_DIGITS.take(pc.subtract(numbers, pc.multiply(upper, 1000))))
        numbers, left = upper, left - 3
    pieces.insert(0, _LEADING[left % 3].take(numbers))
    return pieces
