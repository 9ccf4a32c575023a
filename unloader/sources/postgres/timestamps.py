"""PostgreSQL's texts of dates and timestamps, infinity and far years included, into Arrow's ticks.

Arrow's own reader knows the years 1 to 9999 of ISO 8601; others are rare and go one by one here.
The calendar of both is the proleptic Gregorian one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_ORDINARY = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?Z?)?$"
_FORM = re.compile(
    r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?Z?)?"
    r"(?P<before> BC)?"
)
_EPOCH_DAYS = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_DAY_MICROSECONDS = 86_400 * 10**6


def parse_timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return dates or timestamps, null for null.

    Args:
        texts: What the server prints, with `Z` for the offset of UTC.
        kind: date32, or a timestamp of microseconds.

    Raises:
        ValueError: A text has no value of the type; its message is the reason.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    odd = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _ORDINARY)), False)
    ordinary = pc.cast(pc.if_else(odd, pa.scalar(None, texts.type), texts), kind)
    if not pc.any(odd).as_py():
        return ordinary
    encoded = pc.filter(texts, odd).dictionary_encode()
    integer = pa.int32() if kind.bit_width == 32 else pa.int64()
    ticks = [_ticks(text, kind) for text in encoded.dictionary.to_pylist()]
    found = pa.array(ticks, integer).take(encoded.indices).view(kind)
    return pc.replace_with_mask(ordinary, odd, found)


def _ticks(text: str, kind: pa.DataType) -> int:
    if text in ("infinity", "-infinity"):
        raise ValueError(f"{text}, which neither Parquet nor a date mask can show")
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}, which is not a date")
    counted = int(match["year"])
    year = 1 - counted if match["before"] else counted
    days = _days(year, int(match["month"]), int(match["day"]))
    if kind.bit_width == 32:
        return days
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    clock = ((hour * 60 + minute) * 60 + second) * 10**6 + fraction
    ticks = days * _DAY_MICROSECONDS + clock
    if ticks >= 2**63:
        raise ValueError(f"{text}, which is outside the range of {kind}")
    return ticks


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01, by Howard Hinnant's `days_from_civil`."""
    year -= month <= 2
    march_day = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + march_day - _EPOCH_DAYS
