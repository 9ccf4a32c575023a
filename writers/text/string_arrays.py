"""Arrow string arrays as raw text: their bytes, their limit, and joining them row by row.

A string array reaches 2 GiB with its 32-bit offsets; beyond that it must be a large_string one,
and Arrow's functions do not take the two together.

Where a value stands, and how one that cannot be written is refused.

Messages name the column and the row, counted from 1 within the work unit. They do not hold the
value itself, which may be confidential; a text that is not what its column's metadata says (a
timestamp) is the exception, for nothing else would explain it.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from uuid import UUID

import pyarrow as pa
from msgspec import Struct

from writers.errors import ValueNotRepresentable
from writers.model import BinaryForm
from writers.schema import pc

STRING_LIMIT = 2**31 - 1
"""Bytes that the 32-bit offsets of a string array can reach."""


def value_bytes(values: pa.Array) -> memoryview:
    """Return the bytes of a string or binary array's values, the slice's only, not copied."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return memoryview(b"")
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    end = values.offset + len(values)
    raw = memoryview(values.buffers()[1]).cast("b")[: (8 if large else 4) * (end + 1)]
    offsets = raw.cast("q" if large else "i")
    return memoryview(data)[offsets[values.offset] : offsets[end]]


def without_views(values: pa.Array) -> pa.Array:
    """Return string and binary views as large_string and large_binary arrays."""
    kind = pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary()
    try:
        return pc.cast(values, kind)
    except pa.ArrowNotImplementedError:
        # Older Arrow versions lack this cast.
        return pa.array(values.to_pylist(), kind)


def with_room(texts: pa.Array, *, factor: int = 1, more: int = 0) -> pa.Array:
    """Return texts, large if necessary, that may grow `factor` times and `more` a row."""
    if factor * len(value_bytes(texts)) + more * len(texts) > STRING_LIMIT:
        return pc.cast(texts, pa.large_string())
    return texts


def compact(texts: pa.Array) -> pa.Array:
    if pa.types.is_large_string(texts.type) and len(value_bytes(texts)) <= STRING_LIMIT:
        return pc.cast(texts, pa.string())
    return texts


def joined(*pieces: pa.Array | pa.Scalar | str) -> pa.Array:
    """Concatenate row by row; null where a piece is, and large_string if one of them is."""
    kind = pa.string()
    if any(isinstance(p, pa.Array) and pa.types.is_large_string(p.type) for p in pieces):
        kind = pa.large_string()
    same = [
        pa.scalar(piece, kind) if isinstance(piece, str) else pc.cast(piece, kind)
        for piece in pieces
    ]
    return pc.binary_join_element_wise(*same, pa.scalar("", kind))


def binary_texts(values: pa.Array, form: BinaryForm) -> pa.Array:
    def text(value: bytes) -> str:
        if form == "base64":
            return binascii.b2a_base64(value, newline=False).decode()
        return "\\x" + value.hex() if form == "prefixed-hex" else value.hex()

    return _each(values, text)


def uuid_texts(values: pa.Array) -> pa.Array:
    return _each(values, lambda value: str(UUID(bytes=value)))


def _each(values: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    texts = [None if value is None else text(value) for value in values.to_pylist()]
    return compact(pa.array(texts, pa.large_string()))


class Place(Struct, frozen=True, kw_only=True):
    """The column of an array, and the row of its first value."""

    column: str
    first_row: int = 1
    """Counted from 1 within the work unit."""
    rows: pa.Array | None = None
    """Where the values are only some of the rows: the index of each, from `first_row` on."""

    def at(self, rows: pa.Array) -> Place:
        """Return the place of an array that was taken at these indices."""
        rows = rows if self.rows is None else self.rows.take(rows)
        return Place(column=self.column, first_row=self.first_row, rows=rows)

    def refusal(self, index: int, reason: str, hint: str) -> ValueNotRepresentable:
        row = self.first_row + (index if self.rows is None else self.rows[index].as_py())
        return ValueNotRepresentable(f"column {self.column}, row {row}: {reason}.", f"{hint}.")

    def no_character(self, index: int, character: str, encoding: str) -> ValueNotRepresentable:
        what = f"U+{ord(character):04X}" if character else "for a part of the value"
        return self.refusal(
            index,
            f"{encoding} has no character {what}",
            "use --encoding utf-8, or give a replacement for such characters with --substitute",
        )

    def refuse_where(self, bad: pa.Array, reason: str, hint: str) -> None:
        """Raise for the first true element of a boolean array, if there is one."""
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            raise self.refusal(index, reason, hint)
