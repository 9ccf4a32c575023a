r"""Rows of COPY's text form, and the same rows in its CSV form.

The text form takes an eighth less of the server's CPU. `src/text_form.cpp` turns a row into the
bytes that the server would have sent in the CSV form; `csv_row` is what it is held against. Source:
"File Formats" on the page of COPY in PostgreSQL's manual, and CopyAttributeOutText and
CopyAttributeOutCSV in its copyto.c, whose rules are the same in all versions from 10 to 18: also
that `\.` is quoted where it is all of a row, though from 18 on it ends no CSV file any more.
"""

from __future__ import annotations

import ctypes
import re

from msgspec import Struct

from unloader.sources.postgres.errors import Malformed

_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_VALUE = re.compile(rb"(?:[^\t\\\r\n]|\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{1,2}|[^\r\n]))*")
_ESCAPED = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)


class TextForm(Struct, frozen=True, kw_only=True):
    """What becomes of rows in the text form: a dialect of the CSV form.

    Delimiter, quote and NULL are ASCII, have no end of line, and are told from each other.
    """

    delimiter: bytes
    quote: bytes
    null: bytes
    forced: tuple[bool, ...]
    """One a column, of which there is at least one: whether every value but NULL is quoted."""


class CDialect(ctypes.Structure):
    """A `TextForm` as the native code takes it, which keeps none of it."""

    _fields_ = (
        ("null", ctypes.c_char_p),
        ("forced", ctypes.c_char_p),
        ("null_size", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("delimiter", ctypes.c_char),
        ("quote", ctypes.c_char),
    )


def c_dialect(form: TextForm) -> CDialect:
    """Return a form for the native code."""
    size, columns = len(form.null), len(form.forced)
    return CDialect(form.null, bytes(form.forced), size, columns, form.delimiter, form.quote)


def csv_row(form: TextForm, row: bytes) -> bytes:
    """Return one row in the CSV form.

    Raises:
        Malformed: It is no row of so many columns in the text form.
    """
    found, at = [], 0
    while True:
        value = _VALUE.match(row, at)
        assert value is not None  # It may be empty.
        found.append(value[0])
        at = value.end() + 1
        if row[at - 1 : at] != b"\t":
            break
    if row[at - 1 :] != b"\n" or len(found) != len(form.forced):
        raise Malformed(f"a row of {len(form.forced)} columns")
    values = zip(found, form.forced, strict=True)
    return form.delimiter.join(_csv_value(form, *each) for each in values) + b"\n"


def _csv_value(form: TextForm, text: bytes, is_quoted: bool) -> bytes:
    if text == rb"\N":
        return form.null
    value = _ESCAPED.sub(_unescaped, text)
    is_alone = len(form.forced) == 1 and value == rb"\."
    is_read_otherwise = value == form.null or is_alone
    marks = (form.delimiter, form.quote, b"\r", b"\n")
    if is_quoted or is_read_otherwise or any(mark in value for mark in marks):
        return form.quote + value.replace(form.quote, 2 * form.quote) + form.quote
    return value


def _unescaped(escape: re.Match[bytes]) -> bytes:
    text = escape[1]
    if text.isdigit() and text[:1] < b"8":
        return bytes((int(text, 8) & 0xFF,))
    if len(text) > 1:
        return bytes((int(text[1:], 16),))
    return _LETTERS.get(text, text)
