"""Checksums of columns that a database computes: the SQL for them, and its results.

docs/verification.md defines the checksum. For each column a source has SQL for the
text to hash, or reports that SQL cannot make it. The rest is the same for all sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader.model import Extract, ReadColumn
from writers.content.sums import hexadecimal
from writers.model import ContentSums
from writers.schema import text_classes

if TYPE_CHECKING:
    from partition_planner.model import Selector

COLUMNS_TOGETHER = 400
"""Columns that one statement hashes, by two items each and one for the rows: Oracle takes 1,000
items, PostgreSQL 1,664. A table of more columns is read several times, at the same snapshot."""

NO_SQL = "this source has no SQL that makes its text"
"""Why a column is not compared."""


class HashedColumn(Struct, frozen=True, kw_only=True):
    """A column of a scan, and the meaning of its text."""

    read: ReadColumn
    text_class: str = ""

    @property
    def expression(self) -> str:
        """SQL of the value as it is read."""
        return self.read.expression

    @property
    def kind(self) -> str:
        """The Arrow type that it is read as."""
        return self.read.output_type


Statement = Callable[[str, Extract, "Selector"], str]
"""Returns the query of a select list over the rows of a selector."""

Text = Callable[[HashedColumn], "str | None"]
"""Returns SQL for the text to hash of a column, None if SQL cannot make this text."""


class Hashing(Struct, frozen=True, kw_only=True):
    """How one kind of database computes checksums."""

    text: Text
    sum: str
    """SQL of the sum over a text, whose place is `{}`."""
    statement: Statement
    count: str = "count"
    """SQL of the function that counts."""
    reason: str = NO_SQL

    def unhashed(self, extract: Extract) -> dict[int, str]:
        return {
            index: self.reason
            for index, column in enumerate(columns_of(extract))
            if self.text(column) is None
        }

    def items(self, columns: Sequence[HashedColumn]) -> str:
        """Return the select list: rows, then for each column its values and their sum."""
        found = [f"{self.count}(*)"]
        for column in columns:
            text = self.text(column)
            found.append(f"{self.count}({column.expression})")
            if text is not None:
                found.append(self.sum.format(text))
        return ", ".join(found)

    def result(self, row: Sequence[Any], columns: Sequence[HashedColumn]) -> ContentSums:
        values = iter(row)
        rows = int(next(values))
        nulls, sums = [], []
        for column in columns:
            nulls.append(rows - int(next(values)))
            known = self.text(column) is not None
            sums.append(hexadecimal(int(next(values) or 0) if known else 0))
        return ContentSums(rows=rows, nulls=tuple(nulls), sums=tuple(sums))


class Hasher(Struct, frozen=True, kw_only=True):
    """A session that computes checksums at the snapshot of a run; used by one thread at a time."""

    hashing: Hashing
    rows: Callable[[str], Sequence[Sequence[Any]]]
    """Runs a query and returns all its rows."""
    cancel: Callable[[], None]
    """Makes the call that another thread waits for raise soon; never raises."""
    close: Callable[[], None]

    def sums(self, extract: Extract, selector: Selector) -> ContentSums:
        columns = columns_of(extract)
        parts = []
        for start in range(0, len(columns), COLUMNS_TOGETHER):
            some = columns[start : start + COLUMNS_TOGETHER]
            items = self.hashing.items(some)
            (row,) = self.rows(self.hashing.statement(items, extract, selector))
            parts.append(self.hashing.result(row, some))
        return ContentSums(
            rows=parts[0].rows,
            nulls=tuple(each for part in parts for each in part.nulls),
            sums=tuple(each for part in parts for each in part.sums),
        )


def columns_of(extract: Extract) -> tuple[HashedColumn, ...]:
    projection = extract.projection
    classes = text_classes(projection.schema)
    return tuple(
        HashedColumn(read=read, text_class=text_class)
        for read, text_class in zip(projection.columns, classes, strict=True)
    )
