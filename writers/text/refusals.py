"""Where a value stands, and how one that cannot be written is refused.

Messages name the column and the row, counted from 1 within the work unit. They do not hold the
value itself, which may be confidential; a text that is not what its column's metadata says (a
timestamp) is the exception, for nothing else would explain it.
"""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from writers.arrow_compute import pc
from writers.errors import ValueNotRepresentable


class Place(Struct, frozen=True, kw_only=True):
    """The column an array belongs to, and the row its first value stands in."""

    column: str
    first_row: int = 1
    """Counted from 1 within the work unit."""
    rows: pa.Array | None = None
    """Where the values are only some of the rows: the index of each, from `first_row` on."""

    def at(self, rows: pa.Array) -> Place:
        """Return the place of an array that was taken at these indices."""
        return Place(column=self.column, first_row=self.first_row, rows=rows)

    def refusal(self, index: int, reason: str, hint: str) -> ValueNotRepresentable:
        """Return the error for the value at `index` of the array."""
        row = self.first_row + (index if self.rows is None else self.rows[index].as_py())
        return ValueNotRepresentable(f"column {self.column}, row {row}: {reason}.", f"{hint}.")

    def no_character(self, index: int, character: str, encoding: str) -> ValueNotRepresentable:
        """Return the error for a value with a character that the output encoding has not."""
        what = f"U+{ord(character):04X}" if character else "for a part of the value"
        return self.refusal(
            index,
            f"{encoding} has no character {what}",
            "use --encoding utf-8, or give a replacement for such characters with --substitute",
        )

    def refuse_where(self, bad: pa.Array, reason: str, hint: str) -> None:
        """Raise for the first true element of a boolean array, if there is one.

        Raises:
            ValueNotRepresentable: An element is true.
        """
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            raise self.refusal(index, reason, hint)


def too_long(row: int, length: int, digits: int) -> ValueNotRepresentable:
    """Return the error for a record of more bytes than its length prefix can say."""
    return ValueNotRepresentable(
        f"row {row}: the record has {length} bytes, too many for a record length of {digits} "
        "digits.",
        "raise --record-length.",
    )
