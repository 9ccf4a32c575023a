"""Ranges of the column that `--split-by` names: the keys between them, and their conditions.

Each range but the outermost has two keys as its ends, so a row without a key is in none of them.
Rows without a key are below all others here: the key `NULLS` ends their range.

No row is lost in any order of the database. A row is not below the start of the first range, and
not above the end of the last range. So some key is the first that the row is below, and the range
that ends there has the row. Keys in a wrong order would read a row twice. The count after the run
finds that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec.structs import replace

from partition_planner.model import KeyRange, KeySample, TableInfo
from unloader.errors import SourceError
from unloader.sources.statement import literal

KeyKind = Literal["number", "text"]
"""How a key is written in a statement: bare, or in quotes, as dates are, too."""

NULLS = "null"
"""The key that is above the rows without a key and below all others."""

_MARKS: dict[KeyKind, str] = {"number": "n", "text": "t"}
_SAFE: dict[KeyKind, re.Pattern[str]] = {
    "number": re.compile(r"-?\d{1,40}(\.\d{1,40})?"),
    # Databases differ in how a literal has a quote, a backslash or a control character.
    "text": re.compile(r"(?!0000)[^'\\\x00-\x1f\x7f-\x9f{}?]{1,200}"),
}
"""Keys that every database reads alike. A key that is not one of them divides nothing."""

MOST_KEYS = 255
_SPARSE = 8
"""Numbers for each row up to which ranges of equal width have about equally many rows."""


def condition(key: str, selector: KeyRange) -> str:
    """Return the SQL of a range of the column `key`, a quoted name; empty for all rows."""
    first, last = selector.first, selector.last
    if first is None:
        if last is None:
            return ""
        is_null = f"{key} IS NULL"
        return is_null if last == NULLS else f"({key} < {_literal(last)} OR {is_null})"
    above = "" if first == NULLS else f"{key} >= {_literal(first)}"
    if last is None:
        return above or f"{key} IS NOT NULL"
    below = f"{key} < {_literal(last)}"
    return f"{above} AND {below}" if above else below


def _literal(key: str) -> str:
    return key[1:] if key.startswith(_MARKS["number"]) else literal(key[1:])


def with_ranges(
    info: TableInfo,
    column: str,
    kind: KeyKind,
    ask: Callable[[str], list[tuple[Any, ...]]],
    *,
    key: str,
    relation: str,
    text: Callable[[str], str],
    only: str,
    ascii_only: bool,
) -> TableInfo:
    """Return a table with its number of rows and the keys that divide it.

    `key` is the quoted name of the column; `text` returns SQL for the text of a value, and `only`
    is a condition for values that may be keys, if not empty. With `ascii_only`, other keys divide
    nothing. Whole numbers that are dense are divided evenly between the smallest and the largest.
    Other keys are found by a sort in the database.
    """
    where = f"{key} IS NOT NULL{f' AND {only}' if only else ''}"
    try:
        ((rows, filled),) = ask(f"SELECT count(*), count({key}) FROM {relation}")
        most = min(MOST_KEYS, int(filled) - 1)
        keys: list[str] = []
        low, span = "", 0
        if kind == "number" and most > 0:
            ends = f"{text(f'min({key})')}, {text(f'max({key})')}"
            ((low, high),) = ask(f"SELECT {ends} FROM {relation} WHERE {where}")
            span = _span(low, high)
        if 0 < span <= _SPARSE * int(filled):
            steps = min(most, span)
            keys = [str(int(low) + span * step // (steps + 1)) for step in range(1, steps + 1)]
            keys = list(dict.fromkeys(each for each in keys if int(each) > int(low)))
        elif most > 0:
            numbered = (
                f"SELECT {key} AS k, ntile({most + 1}) OVER (ORDER BY {key}) AS n "
                f"FROM {relation} WHERE {where}"
            )
            found = ask(f"SELECT n, {text('min(k)')} FROM ({numbered}) s GROUP BY n ORDER BY n")
            keys = [str(value) for _, value in found[1:]]
    except SourceError as error:
        if error.retryable:
            raise
        raise type(error)(
            f"{info.label} cannot be divided by its column {column}: {error.message}",
            "name another column of numbers, dates or texts with --split-by, or leave it out",
        ) from error
    # A driver may have converted other texts.
    usable = (each for each in keys if each.isascii() or not ascii_only)
    marked = [_MARKS[kind] + each for each in usable if _SAFE[kind].fullmatch(each)]
    if int(rows) > int(filled):
        marked.insert(0, NULLS)
    sample = KeySample(column=column, keys=tuple(marked)) if marked else None
    return replace(info, rows=int(rows), keys=sample, row_ranges=True, ranges_from="--split-by")


def _span(low: Any, high: Any) -> int:
    """Return how far apart two whole numbers are; 0 for other values."""
    try:
        return int(high) - int(low)
    except (TypeError, ValueError):
        return 0


def conditions(key: Callable[[str], str], selector: object) -> Iterator[str]:
    """Yield the condition of a selector, if it is a range of keys; `key` quotes a name."""
    if isinstance(selector, KeyRange):
        found = condition(key(selector.column), selector)
        if found:
            yield found
