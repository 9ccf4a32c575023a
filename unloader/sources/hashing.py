"""Checksums of columns that a database computes: the SQL for them, and its results.

docs/verification.md defines the checksum. For each column a source has SQL for the
text to hash, or reports that SQL cannot make it. The rest is the same for all sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader.model import Extract, ReadColumn
from writers.model import ContentSums, hexadecimal
from writers.schema import text_classes

if TYPE_CHECKING:
    from partition_planner.model import Selector

COLUMNS_TOGETHER = 400
"""Columns that one statement hashes, by two items each and one for the rows: Oracle takes 1,000
items, PostgreSQL 1,664. A table of more columns is read several times, at the same snapshot."""

NO_SQL = "this source has no SQL that makes its text"


class Hashing(Struct, frozen=True, kw_only=True):
    """How one kind of database computes checksums."""

    text: Callable[[ReadColumn, str], str | None]
    """Returns SQL for the text to hash of a column, None if SQL cannot make this text. The second
    argument is the `text_class` of its Arrow field."""
    sum: str
    """SQL of the sum over a text, whose place is `{}`."""
    statement: Callable[[str, Extract, Selector], str]
    """Returns the query of a select list over the rows of a selector."""
    count: str = "count"
    reason: str = NO_SQL

    def texts(self, extract: Extract) -> Iterator[str | None]:
        """Yield the text to hash of each column."""
        projection = extract.projection
        return map(self.text, projection.columns, text_classes(projection.schema))

    def unhashed(self, extract: Extract) -> dict[int, str]:
        texts = enumerate(self.texts(extract))
        return {index: self.reason for index, text in texts if text is None}


class Hasher(Struct, frozen=True, kw_only=True):
    """A session that computes checksums at the snapshot of a run; used by one thread at a time."""

    hashing: Hashing
    rows: Callable[[str], Sequence[Sequence[Any]]]
    cancel: Callable[[], None]
    """Makes the call that another thread waits for raise soon; never raises."""
    close: Callable[[], None]

    def sums(self, extract: Extract, selector: Selector) -> ContentSums:
        """Return the checksums of the rows of a selector; ignore the sums of unhashed columns."""
        count = self.hashing.count
        columns = list(zip(extract.projection.columns, self.hashing.texts(extract), strict=True))
        rows, nulls, sums = 0, [], []
        for start in range(0, len(columns), COLUMNS_TOGETHER):
            some = columns[start : start + COLUMNS_TOGETHER]
            items = [f"{count}(*)"]
            for column, text in some:
                items.append(f"{count}({column.expression})")
                items += [] if text is None else [self.hashing.sum.format(text)]
            statement = self.hashing.statement(", ".join(items), extract, selector)
            (row,) = self.rows(statement)
            values = iter(row)
            rows = int(next(values))
            for _, text in some:
                nulls.append(rows - int(next(values)))
                sums.append(hexadecimal(0 if text is None else int(next(values) or 0)))
        return ContentSums(rows=rows, nulls=tuple(nulls), sums=tuple(sums))
