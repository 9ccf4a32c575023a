"""Checksums of columns as a database computes them: what its SQL has to say, and what comes back.

docs/verification.md defines the checksum. A source says for each column how SQL makes the text that
is hashed, or that it cannot; the rest is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from unloader.model import Extract, ReadColumn
from writers.model import ContentSums
from writers.records import dataclass

if TYPE_CHECKING:
    from partition_planner.model import Selector

NO_SQL = "no SQL of this source makes its text"
"""Why a column is not compared."""


class Hasher(Protocol):
    """A session that computes checksums at the snapshot of a run; used by one thread at a time."""

    def sums(self, extract: Extract, selector: Selector) -> ContentSums:
        """Return the checksums of the rows of a selector; those of unhashed columns mean nothing.

        Raises:
            SourceError: The database refused, or the snapshot is gone.
        """

    def cancel(self) -> None:
        """Make the call that another thread waits for raise soon; never raises."""

    def close(self) -> None:
        """Close the session; never raises."""


class HashingCatalog(Protocol):
    """What a catalog has besides where `capabilities.hashes` is true."""

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        """Return the columns that the database cannot hash, by index, each with why."""

    def open_hasher(self, extract: Extract) -> Hasher:
        """Open a session at the extract's snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedColumn:
    """A column of a scan, and what its text stands for."""

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
"""Returns SQL for what is hashed of a column, None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashing:
    """How one kind of database computes checksums."""

    text: Text
    sum: str
    """SQL of the sum over a text, which stands where `{}` is."""
    statement: Statement
    reason: str = NO_SQL

    def unhashed(self, extract: Extract) -> dict[int, str]:
        """Return the columns without a text, by index, each with why."""
        return {
            index: self.reason
            for index, column in enumerate(columns_of(extract))
            if self.text(column) is None
        }

    def items(self, extract: Extract) -> str:
        """Return the select list: rows, then for each column its values and their sum."""
        found = ["count(*)"]
        for column in columns_of(extract):
            text = self.text(column)
            found.append(f"count({column.expression})")
            if text is not None:
                found.append(self.sum.format(text))
        return ", ".join(found)

    def result(self, row: Sequence[Any], extract: Extract) -> ContentSums:
        """Return what a row of these items says."""
        from writers.content.sums import hexadecimal

        values = iter(row)
        rows = int(next(values))
        nulls, sums = [], []
        for column in columns_of(extract):
            nulls.append(rows - int(next(values)))
            known = self.text(column) is not None
            sums.append(hexadecimal(int(next(values) or 0) if known else 0))
        return ContentSums(rows=rows, nulls=tuple(nulls), sums=tuple(sums))


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlHasher:
    """A `Hasher` in a session that runs SQL."""

    hashing: Hashing
    rows: Callable[[str], Sequence[Sequence[Any]]]
    """Runs a query and returns all its rows."""
    cancel: Callable[[], None]
    close: Callable[[], None]

    def sums(self, extract: Extract, selector: Selector) -> ContentSums:
        """Return the checksums of the rows of a selector."""
        items = self.hashing.items(extract)
        (row,) = self.rows(self.hashing.statement(items, extract, selector))
        return self.hashing.result(row, extract)


def columns_of(extract: Extract) -> tuple[HashedColumn, ...]:
    """Return the columns of an extract that comes as batches."""
    from writers.schema import text_classes

    projection = extract.projection
    classes = text_classes(projection.schema)
    return tuple(
        HashedColumn(read=read, text_class=text_class)
        for read, text_class in zip(projection.columns, classes, strict=True)
    )
