"""What a type declares of the length of its values, as each source reads its own types.

Records of fixed width take their fields from it, where the Arrow type alone does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from msgspec import Struct

_LENGTH = re.compile(r"(?P<name>[A-Z0-9_ ]+?) ?\((?P<length>\d+)(?: (?P<unit>BYTE|CHAR))?\)")
_DECIMAL = re.compile(r"(?:NUMBER|NUMERIC|DECIMAL) ?\((\d+|\*)(?:, ?(-?\d+))?\)")
_MAX_PRECISION = 38


class Declared(Struct, frozen=True, kw_only=True):
    """How long the values of a type can be; what is not known is left out."""

    characters: int | None = None
    """Text of so many characters."""
    utf8_bytes: int | None = None
    """Text of so many bytes in the database, whose encoding is UTF-8 as a rule."""
    padded: bool = False
    """Text is filled up with blanks, which mean nothing."""
    digits: tuple[int, int] | None = None
    """Precision and scale of numbers, for those that are carried as text."""
    binary_bytes: int | None = None
    second_digits: int = 9
    """Of a second's fraction, for timestamps that are carried as text."""
    zone: Literal["offset", "region"] | None = None
    """What a date and time has behind it, if anything: an offset, or perhaps a region's name."""
    dated: bool = False
    """It is a date without a time of day."""
    longest: str = ""
    """A text of ASCII characters that is as long as the longest value."""


def text_length(
    source_type: str, names: Collection[str], padded: Collection[str] = ()
) -> Declared | None:
    """Return the length that `NAME(15)`, `NAME(15 BYTE)` or `NAME(15 CHAR)` declares.

    Args:
        source_type: In capitals.
        names: Those of the types of text that have a length.
        padded: Those that are filled up with blanks, with a length or without.

    Returns:
        None if the type has none of the names.
    """
    name = source_type.partition("(")[0].strip()
    match = _LENGTH.fullmatch(source_type)
    if match is None or match["name"] not in names:
        return Declared(padded=True) if name in padded else None
    length, blanks = int(match["length"]), name in padded
    if match["unit"] == "BYTE":
        return Declared(utf8_bytes=length, padded=blanks)
    return Declared(characters=length, padded=blanks)


def decimal_digits(source_type: str) -> Declared | None:
    """Return the digits that `NUMBER(p,s)` and its like declare, None for any other type."""
    match = _DECIMAL.fullmatch(source_type)
    if match is None:
        return None
    precision = _MAX_PRECISION if match[1] == "*" else int(match[1])
    return Declared(digits=(precision, int(match[2] or 0)))


def one_of(source_type: str, lengths: dict[str, int]) -> Declared:
    """Return the length of a type with a name from a table; its arguments do not matter."""
    length = lengths.get(re.sub(r" ?\(\d+\)", "", source_type), 0)
    return Declared(longest="9" * length)
