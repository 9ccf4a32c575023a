"""How many bytes text takes in an output encoding, at most."""

from __future__ import annotations

import codecs
from fractions import Fraction

_CHARACTER = {
    "euc_jis_2004": 3,
    "euc_jisx0213": 3,
    "euc_jp": 3,
    "gb18030": 4,
}
_GROWTH = {
    "euc_jis_2004": Fraction(3, 2),
    "euc_jisx0213": Fraction(3, 2),
    "euc_jp": Fraction(3, 2),
    "gb18030": Fraction(2),
}
"""Bytes that one byte of UTF-8 becomes: letters of two bytes there can have three or four here."""
_ESCAPED = 9
"""A character of ISO 2022 between two changes of state."""


def most_bytes_of_characters(encoding: str, count: int) -> int:
    """Return how many bytes so many characters take at most.

    The eight bytes that Python's EUC-KR gives Hangul outside KS X 1001 are not reckoned with.
    """
    codec = codecs.lookup(encoding).name
    if codec.startswith("utf-"):
        return 4 * count
    if codec.startswith("iso2022"):
        return _ESCAPED * count
    return (_CHARACTER.get(codec) or _usual_bytes(codec)) * count


def most_bytes_of_utf8(encoding: str, count: int) -> int:
    """Return how many bytes a text takes at most that takes so many in UTF-8."""
    codec = codecs.lookup(encoding).name
    if codec.startswith("utf-16"):
        return 2 * count
    if codec.startswith("utf-32"):
        return 4 * count
    if codec.startswith("iso2022"):
        return _ESCAPED * count
    grown = _GROWTH.get(codec, Fraction(1)) * count
    return -(-grown.numerator // grown.denominator)


def _usual_bytes(codec: str) -> int:
    """Return 1 for a set of single bytes, 2 for one where bytes go by two."""
    return 1 if len(bytes(range(256)).decode(codec, "replace")) == 256 else 2
