"""Where a value stands, and how one that cannot be written is refused.

Messages name the column and the row, counted from 1 within the work unit; they never hold the
value itself, which may be confidential.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from writers.errors import ValueNotRepresentable


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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
        return ValueNotRepresentable(f"column {self.column}, row {row}: {reason}. Next: {hint}.")

    def refuse_where(self, bad: pa.Array, reason: str, hint: str) -> None:
        """Raise for the first true element of a boolean array, if there is one.

        Raises:
            ValueNotRepresentable: An element is true.
        """
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            raise self.refusal(index, reason, hint)
