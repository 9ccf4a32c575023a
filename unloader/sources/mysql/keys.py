"""Keys that divide a table into ranges of about equally many rows, found without a scan.

MySQL has no sample of rows. It estimates how many rows a range of an index has, by a look at the
first and last pages of the range. So the range with the most rows is halved, again and again: a
value between its two ends is computed, and the next key of the table is the border.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

from msgspec import Struct

from unloader.sources.mysql.session import Session
from unloader.sources.mysql.statement import key_literal, key_text, name_of
from unloader.sources.statement import quoted

_TRIES = 64
"""How often a range is looked at where no key is between its middle and its end: a key may be as
far from the others as a number of 64 bits can be."""

_SURROGATES = range(0xD800, 0xE000)
"""Code points without a character."""


class _Range(Struct, order=True):
    """Keys from `first` to below `last`; the heap has the largest first."""

    less_rows: int
    first: str
    last: str
    low: str
    high: str
    """Where keys are looked for, within the two ends."""
    tries: int = 0


def ends(column: str, key_type: str, relation: str) -> str:
    """Return a query of the texts of the first and the last key of a table."""
    items = (key_text(key_type, f"{end}({quoted(column)})") for end in ("MIN", "MAX"))
    return f"SELECT {', '.join(f'CAST({each} AS CHAR)' for each in items)} FROM {relation}"


def dividing_keys(
    session: Session, relation: str, column: str, key_type: str, most: int
) -> tuple[str, ...]:
    """Return at most `most` keys in the order of the index; one with many rows may repeat."""
    value, between = quoted(column), middle_of(key_type)
    ((lowest, highest),) = session.rows(ends(column, key_type, relation))
    if lowest is None or lowest == highest:
        return ()

    def condition(first: str, last: str) -> str:
        low, high = (key_literal(key_type, each) for each in (first, last))
        return f"FROM {relation} FORCE INDEX (PRIMARY) WHERE {value} >= {low} AND {value} < {high}"

    def rows_in(first: str, last: str) -> int:
        return session.estimate(f"SELECT {value} {condition(first, last)}")

    heap = [_Range(-rows_in(lowest, highest), lowest, highest, lowest, highest)]
    whole: list[_Range] = []
    while heap and len(heap) + len(whole) <= most:
        found = heapq.heappop(heap)
        middle = between(found.low, found.high)
        if middle is None or found.tries > _TRIES or found.less_rows >= -1:
            whole.append(found)
            continue
        limits = (
            f"{condition(middle, found.last)} AND {value} > {key_literal(key_type, found.first)}"
        )
        border = session.value(
            f"SELECT CAST({key_text(key_type, f'MIN({value})')} AS CHAR) {limits}"
        )
        if border is None:
            again = _Range(
                found.less_rows, found.first, found.last, found.low, middle, found.tries + 1
            )
            heapq.heappush(heap, again)
            continue
        for first, last, low, high in (
            (found.first, border, found.low, middle),
            (border, found.last, border, found.high),
        ):
            heapq.heappush(heap, _Range(-rows_in(first, last), first, last, low, high))
    return _borders([*heap, *whole], lowest, most)


def _borders(ranges: list[_Range], lowest: str, most: int) -> tuple[str, ...]:
    """Return the border at which each equal share of the rows begins."""
    following = {each.first: each for each in ranges}
    total, found, passed = -sum(each.less_rows for each in ranges), list[str](), 0
    at: _Range | None = following[lowest]
    while at is not None:
        passed -= at.less_rows
        after = following.get(at.last)
        if after is not None:
            begun = passed * (most + 1) // max(1, total)
            found += [after.first] * (min(begun, most) - len(found))
        at = after
    return tuple(found)


def middle_of(key_type: str) -> Callable[[str, str], str | None]:
    """Return a function of the text between two keys, or of None if they are neighbours."""
    name = name_of(key_type)
    if name in ("date", "datetime", "timestamp"):
        return _middle_moment
    if name in ("binary", "varbinary"):
        return _middle_bytes
    return _middle_text if name in ("char", "varchar") else _middle_number


def _middle_number(low: str, high: str) -> str | None:
    first, last = Decimal(low), Decimal(high)
    middle = str((first + last) / 2) if "." in low else str((int(low) + int(high)) // 2)
    return middle if first < Decimal(middle) < last else None


def _middle_moment(low: str, high: str) -> str | None:
    try:
        first, last = datetime.fromisoformat(low), datetime.fromisoformat(high)
    except ValueError:
        return None  # A date of zeros.
    middle = first + (last - first) / 2
    text = str(middle) if " " in low else str(date(middle.year, middle.month, middle.day))
    return text if low < text < high else None


def _middle_bytes(low: str, high: str) -> str | None:
    width = max(len(low), len(high)) // 2 + 1
    first, last = (bytes.fromhex(each).ljust(width, b"\0") for each in (low, high))
    middle = (int.from_bytes(first) + int.from_bytes(last)) // 2
    return middle.to_bytes(width).hex().upper()


def _middle_text(low: str, high: str) -> str | None:
    """Return a text between two others, in the order of code points, with one more digit.

    The order of the column may be another one: then ranges are less even.
    """
    at = 0
    while at < len(low) and at < len(high) and low[at] == high[at]:
        at += 1
    first = ord(low[at]) if at < len(low) else ord(" ")
    last = ord(high[at]) if at < len(high) else ord("~")
    if abs(last - first) > 1:
        middle = (first + last) // 2
        return low[:at] + chr(middle if middle not in _SURROGATES else _SURROGATES.stop)
    # The two characters are neighbours, so the next character of the first text is raised.
    rest = ord(low[at + 1]) if at + 1 < len(low) else ord(" ")
    return low[: at + 1] + chr((rest + ord("~")) // 2) if rest < ord("~") - 1 else None
