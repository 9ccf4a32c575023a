"""Wide rows of a batch: their values are lent to a writer piece by piece, not copied.

A source whose library makes whole batches holds a value of any size once. Encoding it as a part of
its batch would take several times that; as a `LargeRow` it takes a piece of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct
from pyarrow import types

from writers.errors import ValueNotRepresentable
from writers.large_rows import LargeRow, is_long
from writers.schema import text_class
from writers.text.string_arrays import value_bytes

LEAST_BYTES = 64 * 1024
"""A value of a wide row is lent from this size on. Smaller ones are encoded with the row, which may
have many of them."""

PIECE_BYTES = 192 * 1024
"""Of a piece. Encoding takes a few times that, which stays within a processor's cache."""


class HeldValue(Struct, frozen=True, kw_only=True):
    """One value in memory, read piece by piece."""

    data: memoryview
    """All of its bytes; text is in UTF-8."""
    binary: bool
    column: str

    def pieces(self) -> Iterator[bytes] | Iterator[str]:
        """Read the value from its start; it may not be text."""
        starts = range(0, self.data.nbytes, PIECE_BYTES)
        pieces = (bytes(self.data[start : start + PIECE_BYTES]) for start in starts)
        return pieces if self.binary else decoded(pieces, self.column)


def decoded(pieces: Iterator[bytes], column: str) -> Iterator[str]:
    """Yield text for pieces of UTF-8 that may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueNotRepresentable(
            f"column {column} holds text that is not valid UTF-8.",
            f"leave it out with --exclude {column}.",
        ) from error


def may_be_large(field: pa.Field) -> bool:
    return is_long(field.type) and text_class(field) != "timestamp"


def held_row(row: pa.RecordBatch) -> LargeRow | None:
    """Return a row with long values lent, for the same bytes; None without long values."""
    columns, values = list(row.columns), []
    for index, field in enumerate(row.schema):
        if not may_be_large(field) or not columns[index].is_valid()[0].as_py():
            continue
        data = value_bytes(columns[index])
        if data.nbytes < LEAST_BYTES:
            continue
        binary = bool(types.is_binary(field.type) or types.is_large_binary(field.type))
        values.append((index, HeldValue(data=data, binary=binary, column=field.name)))
        columns[index] = pa.nulls(1, field.type)
    if not values:
        return None
    small = pa.RecordBatch.from_arrays(columns, schema=row.schema)
    return LargeRow(row=small, values=tuple(values), held_bytes=row.nbytes)
