"""Wide rows of COPY's CSV text: found in the text as it came, their long values read from there.

The driver hands out whole rows, so the text of one is held once, whatever its size. Parsed, it
would take several times that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from writers.held_values import LEAST_BYTES, PIECE_BYTES, decoded, may_be_large
from writers.large_rows import LargeRow

if TYPE_CHECKING:
    import pyarrow as pa

    from unloader.sources.postgres.parse import CopyParser

_END_OF_FIELD = re.compile(rb"[,\n]")
_QUOTE = ord('"')
_COMMA = ord(",")
_FIRST_LOOK_BYTES = 256
"""Most fields end sooner; only where one does not, larger windows are copied."""


class Field(Struct, frozen=True, kw_only=True):
    """Where the text of one value lies, with its quotes."""

    start: int
    end: int
    quoted: bool


def records(text: memoryview) -> Iterator[tuple[Field, ...]]:
    """Yield the fields of each record in a text of whole records."""
    fields: list[Field] = []
    at = 0
    while at < len(text):
        quoted = text[at] == _QUOTE
        end = _closing_quote(text, at + 1) + 1 if quoted else _bare_end(text, at)
        fields.append(Field(start=at, end=end, quoted=quoted))
        at = end + 1
        if text[end] != _COMMA:
            yield tuple(fields)
            fields = []


def _windows(text: memoryview, start: int) -> Iterator[tuple[int, bytes]]:
    size = _FIRST_LOOK_BYTES
    while start < len(text):
        window = bytes(text[start : start + size])
        yield start, window
        start += len(window)
        size = PIECE_BYTES


def _bare_end(text: memoryview, start: int) -> int:
    for at, window in _windows(text, start):
        if found := _END_OF_FIELD.search(window):
            return at + found.start()
    return len(text)


def _closing_quote(text: memoryview, start: int) -> int:
    """Return where the quote stands that ends a value; quotes inside it are doubled."""
    at, size = start, _FIRST_LOOK_BYTES
    while True:
        window = bytes(text[at : at + size])
        # Pairs go first, from the left; a text of PostgreSQL holds no NUL.
        found = window.replace(b'""', b"\0\0").find(b'"')
        last = at + len(window) >= len(text)
        if found >= 0 and (last or found < len(window) - 1):
            return at + found
        if last:
            return len(text)
        # What ends the window may be the first half of a pair.
        at += len(window) if found < 0 else found
        size = PIECE_BYTES


class CopiedValue(Struct, frozen=True, kw_only=True):
    """One value in the text of COPY, read piece by piece."""

    text: memoryview
    """Without the quotes around it."""
    quoted: bool
    """Quotes inside are doubled."""
    binary: bool
    """The text is that of bytes, in hexadecimal digits."""
    column: str

    def pieces(self) -> Iterator[bytes] | Iterator[str]:
        """Read the value from its start; `ValueNotRepresentable` where it is not UTF-8."""
        texts = decoded(self._unquoted(), self.column)
        # Pieces are even, so none ends between the two digits of a byte.
        return (bytes.fromhex(piece) for piece in texts) if self.binary else texts

    def _unquoted(self) -> Iterator[bytes]:
        at = 0
        while at < len(self.text):
            piece = bytes(self.text[at : at + PIECE_BYTES])
            if self.quoted and _ends_in_half_a_pair(piece):
                piece = bytes(self.text[at : at + len(piece) + 1])
            at += len(piece)
            yield piece.replace(b'""', b'"') if self.quoted else piece


def _ends_in_half_a_pair(piece: bytes) -> bool:
    return piece.endswith(b'"') and (len(piece) - len(piece.rstrip(b'"'))) % 2 == 1


class WideRows:
    """Makes batches, and rows by themselves, of a text with wide rows.

    Args:
        schema: Of the batches.
        parser: For all that is not wide.
        least_bytes: Size of the text from which on a row is one by itself.
    """

    def __init__(self, schema: pa.Schema, parser: CopyParser, least_bytes: int) -> None:
        """Prepare for the text of one unit."""
        import pyarrow as pa

        self._schema = schema
        self._parser = parser
        self.least_bytes = least_bytes
        self._may_be_large = [may_be_large(field) for field in schema]
        self._binary = [pa.types.is_binary(field.type) for field in schema]

    def rows(self, text: memoryview) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the records of a text in order."""
        begun = 0
        for fields in records(text):
            start, end = fields[0].start, fields[-1].end + 1
            row = self._large_row(text, fields) if end - start >= self.least_bytes else None
            if row is None:
                continue
            if begun < start:
                yield self._parser.parse(text[begun:start])
            yield row
            del row
            begun = end
        if begun < len(text):
            yield self._parser.parse(text[begun:])

    def _large_row(self, text: memoryview, fields: tuple[Field, ...]) -> LargeRow | None:
        values, small = [], []
        for index, field in enumerate(fields):
            if field.end - field.start < LEAST_BYTES or not self._may_be_large[index]:
                small.append(bytes(text[field.start : field.end]))
                continue
            small.append(b"")
            inner = slice(field.start + field.quoted, field.end - field.quoted)
            value = CopiedValue(
                text=text[inner],
                quoted=field.quoted,
                binary=self._binary[index],
                column=self._schema.field(index).name,
            )
            values.append((index, value))
        if not values:
            return None
        row = self._parser.parse(b",".join(small) + b"\n")
        held = fields[-1].end - fields[0].start
        return LargeRow(row=row, values=tuple(values), held_bytes=held)
