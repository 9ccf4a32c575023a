"""SQL that the sources share: identifiers, select lists, conditions, samples of keys, checksums.

Only the key decides whether it is in a sample, so rows that refer to each other by the key are
sampled together, in each run and source (docs/subsets.md). The text of a number is its decimal
digits without redundant zeros. The text of a CHAR has no padding. A UUID and the hexadecimal digits
of bytes are in lower case. A row whose key is NULL or empty is in no sample.

docs/verification.md defines the checksum of a column. A source has SQL for the text to hash of each
column, or reports that SQL cannot make it. The rest is the same for all sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from partition_planner.model import ColumnInfo, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, ReadColumn
from writers.model import ContentSums, hexadecimal
from writers.schema import text_classes

PARTLY_READABLE = "the user may read only some columns of {}, and no others are written"


def quoted(name: str) -> str:
    """Return an identifier in double quotes, as the SQL standard escapes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a character literal, as the SQL standard escapes it."""
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str | None, name: str) -> str:
    """Return `"schema"."name"`, or the name alone."""
    return f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)


def derived_table(query: str) -> str:
    """Return a query as a table expression; the newline ends a trailing `--` comment."""
    return f"({query.strip().rstrip(';')}\n) AS query"


def relation_of(extract: Extract) -> str:
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


def row_conditions(extract: Extract) -> list[str]:
    """Return what holds for all rows asked for, apart from partitions: `--where`, the sample."""
    # The newline ends a trailing `--` comment.
    found = [f"({extract.where}\n)"] if extract.where else []
    if extract.keys is not None and extract.keys.condition:
        found.append(extract.keys.condition)
    return found


def select_list(columns: Sequence[ReadColumn]) -> str:
    """Return `expression AS "name"` for each column; a plain column stands alone."""
    return ", ".join(
        column.expression
        if column.expression == quoted(column.name)
        else f"{column.expression} AS {quoted(column.name)}"
        for column in columns
    )


def select(columns: str, relation: str, conditions: Sequence[str]) -> str:
    text = f"SELECT {columns} FROM {relation}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text


def limit_clause(limit_rows: int | None) -> str:
    """Return the clause that limits a SELECT to `limit_rows` rows, with a blank before it."""
    return "" if limit_rows is None else f" LIMIT {limit_rows}"


def select_count(
    relation: str, conditions: Sequence[str], limit_rows: int | None, count: str = "count(*)"
) -> str:
    """Return a SELECT of the number of rows, which counts no further than to a limit."""
    if limit_rows is None:
        return select(count, relation, conditions)
    rows = select("1", relation, conditions) + limit_clause(limit_rows)
    return f"SELECT {count} FROM ({rows}) AS counted"


def query_table(columns: Sequence[ColumnInfo]) -> TableInfo:
    return TableInfo(
        schema=None, name="query", columns=tuple(columns), named_partitions=False, row_ranges=False
    )


def check_distinct(names: Sequence[str]) -> None:
    """Raise `SourceError` if two columns of a query share a name."""
    for name in names:
        if names.count(name) > 1:
            raise SourceError(
                f"two columns of the query are named {name!r}",
                "give each column a different name with AS",
            )


def check_condition(explain: Callable[[str], object], relation: str, where: str) -> None:
    """Let the database parse the user's condition, bare and in its parentheses.

    The bare check is needed: `a) OR (b` would close the parentheses and read rows of other units.
    `explain` has one statement planned without running it. `SourceError` has the database's words.
    """
    for wanted in (f"{where}\n", f"({where}\n)"):
        try:
            explain(select("1", relation, [wanted]))
        except SourceError as error:
            hint = "give --where one condition over the table's columns"
            raise not_accepted(f"--where {where}", error, hint) from error


def not_accepted(given: str, error: SourceError, hint: str) -> SourceError:
    """Return the database's error on SQL of the user as an error of the option `given`.

    A lost connection or snapshot is returned unchanged. A better hint of the database wins.
    """
    if error.retryable or isinstance(error, SnapshotGone):
        return error
    usual = error.hint == error.usual_hint
    return type(error)(
        f"the database does not accept {given}: {error.message}", hint if usual else error.hint
    )


_DIGITS = 8
"""Hexadecimal digits of the hash that count: a share is exact to 1 in 4 billion."""


def below(share: float) -> str:
    """Return the upper bound of a sampled key's SHA-256, as its first hexadecimal digits."""
    buckets: int = 16**_DIGITS
    return f"{max(1, int(share * buckets)):0{_DIGITS}x}"


def is_sampled(text: bytes | None, share: float) -> bool:
    """Return whether a key, as text in UTF-8, is in a sample."""
    return bool(text) and hashlib.sha256(text or b"").hexdigest() < below(share)


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
