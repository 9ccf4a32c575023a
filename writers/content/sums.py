"""The checksum of each column of some rows, added up batch by batch.

The checksum of a column is the sum over its values, modulo 2**64, of the first eight bytes of the
MD5 of the value's text; NULLs are counted. It does not depend on the order of rows, and the sums of
a table's parts add up to the whole table's sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from writers.content.forms import Form, form_of
from writers.model import ContentSums, TextFormat, hexadecimal
from writers.schema import has_infinities, text_class

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow, LargeValue


class ColumnSums:
    """Adds up the batches of a schema, in any order; used by one thread at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = 0
        self._nulls = [0] * len(schema)
        self._sums = [0] * len(schema)

    def add(self, columns: Sequence[pa.Array], rows: int) -> None:
        """Add the rows of a batch, one array of each column."""
        self._rows += rows
        for index, (array, field) in enumerate(zip(columns, self._schema, strict=True)):
            self.add_column(index, *prepared(array, field))

    def add_column(self, index: int, array: pa.Array, form: Form) -> None:
        """Add values of one column alone; `rows` are not counted."""
        found, nulls = _sum(array, form)
        self._sums[index] += found
        self._nulls[index] += nulls

    def count(self, rows: int) -> None:
        self._rows += rows

    def hashed(self, large: LargeRow) -> LargeRow:
        """Return a large row that counts once its values have been read to their ends."""
        self.add(large.row.columns, 1)
        values = []
        for index, value in large.values:
            self._nulls[index] -= 1  # There is a null in its place.
            values.append((index, _HashedValue(self._sums, index, value)))
        return replace(large, values=tuple(values))

    def result(self) -> ContentSums:
        return ContentSums(
            rows=self._rows,
            nulls=tuple(self._nulls),
            sums=tuple(hexadecimal(each) for each in self._sums),
        )


class _HashedValue:
    """A large value that adds to its column's sum when it is first read to its end."""

    def __init__(self, sums: list[int], index: int, value: LargeValue) -> None:
        self._sums = sums
        self._index = index
        self._value = value
        self._counted = False

    @property
    def binary(self) -> bool:
        return self._value.binary

    def pieces(self) -> Iterator[Any]:
        state = hashlib.md5(usedforsecurity=False)
        for piece in self._value.pieces():
            state.update(piece.encode() if isinstance(piece, str) else piece)
            yield piece
        if not self._counted:
            self._counted = True
            self._sums[self._index] += int.from_bytes(state.digest()[:8], "big")


def prepared(array: pa.Array, field: pa.Field) -> tuple[pa.Array, Form]:
    """Return values of a field as an array with a form; a type without a form becomes text."""
    form = form_of(array.type, text_class=text_class(field), infinite=has_infinities(field))
    if form is not None:
        return array, form
    from writers.text.text_values import text_of

    texts = text_of(array, field.with_type(array.type), TextFormat())
    form = form_of(texts.type)
    assert form is not None
    return texts, form


def _sum(array: pa.Array, form: Form) -> tuple[int, int]:
    from writers.content import native, plain

    loaded = native.library()
    return (
        plain.column_sum(array, form) if loaded is None else native.column_sum(loaded, array, form)
    )
