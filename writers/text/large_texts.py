"""The text of a value that comes in pieces: the same as that of the whole value, never held whole.

What is held back from one piece to the next is a few characters or bytes: the beginning of a mark
that may go on in the next piece, or an odd byte of base64.
"""

from __future__ import annotations

import binascii
import string
from collections.abc import Callable, Iterator
from typing import cast

from writers.large_rows import LargeValue
from writers.model import BinaryForm

Pieces = Callable[[], Iterator[str]]
"""Reads a text from its start, at every call."""

_HEX_LETTERS = frozenset(string.hexdigits.lower() + "\\x")
_BASE64_LETTERS = frozenset(string.ascii_letters + string.digits + "+/=")


def large_text(value: LargeValue, form: BinaryForm, decimal_separator: str = ".") -> Pieces:
    """Return the text of a large value.

    Args:
        value: Binary or text.
        form: How binary is written.
        decimal_separator: What takes the place of a point; other than a point for numbers only.
    """
    if not value.binary:
        if decimal_separator == ".":
            return lambda: cast("Iterator[str]", value.pieces())
        return lambda: (
            piece.replace(".", decimal_separator) for piece in cast("Iterator[str]", value.pieces())
        )
    if form == "base64":
        return lambda: _base64(cast("Iterator[bytes]", value.pieces()))
    prefix = "\\x" if form == "prefixed-hex" else ""
    return lambda: _hex(cast("Iterator[bytes]", value.pieces()), prefix)


def large_alphabet(value: LargeValue, form: BinaryForm) -> frozenset[str] | None:
    """Return characters the text of a large value is made of, None if any."""
    if not value.binary:
        return None
    return _BASE64_LETTERS if form == "base64" else _HEX_LETTERS


def replaced(pieces: Pieces, pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Replace single characters, one pair after the other."""
    for piece in pieces():
        text = piece
        for old, new in pairs:
            text = text.replace(old, new)
        yield text


def _hex(pieces: Iterator[bytes], prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    for piece in pieces:
        yield binascii.hexlify(piece).decode("ascii")


def _base64(pieces: Iterator[bytes]) -> Iterator[str]:
    held = b""
    for piece in pieces:
        data = held + piece
        # Three bytes make four characters; only the value's end may be padded.
        whole = len(data) - len(data) % 3
        held = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False).decode("ascii")
    yield binascii.b2a_base64(held, newline=False).decode("ascii")
