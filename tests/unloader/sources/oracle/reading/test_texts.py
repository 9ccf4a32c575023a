"""Texts of numbers, dates and zones as an Oracle database makes them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from unloader.sources.oracle.reading.arrow import (
    MomentRefused,
    parse_moments,
)

CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The Gregorian calendar repeats after these."""


def shown(value: datetime, digits: int) -> str:
    """Return a moment as `TO_CHAR` shows it with SYYYY."""
    fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""
    return f" {value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}"


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.datetimes() | st.none(), max_size=40), st.sampled_from([0, 3, 6]))
def test_moments_become_the_ticks_of_their_fields(
    values: list[datetime | None], digits: int
) -> None:
    """Every moment from the year 1 to 9999 becomes what Python's calendar makes of its fields."""
    texts = pa.array([None if v is None else shown(v, digits) for v in values], pa.string())
    kept = 10 ** (6 - digits)
    expected = [
        None if v is None else v.replace(microsecond=v.microsecond // kept * kept) for v in values
    ]
    assert parse_moments(texts, pa.timestamp("us")).to_pylist() == expected


@settings(deadline=None, max_examples=examples(50))
@given(st.dates(min_value=date(CYCLE_YEARS * 12 + 1, 1, 1), max_value=date(9512, 12, 31)))
def test_years_before_christ_follow_the_gregorian_cycle(later: date) -> None:
    """Days before the year 1 lie whole cycles of 400 years before the ones that Python knows."""
    year = later.year - 24 * CYCLE_YEARS
    sign, counted = ("-", 1 - year) if year < 1 else (" ", year)
    if counted > 4712:
        return
    text = f"{sign}{counted:04d}-{later:%m-%d} 00:00:00"
    expected = ((later - date(1970, 1, 1)).days - 24 * CYCLE_DAYS) * 86400
    assert parse_moments(pa.array([text]), pa.timestamp("s")).view(pa.int64()).to_pylist() == [
        expected
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" 1500-02-29 00:00:00", "not a day of the Gregorian calendar"),
        (" 2023-02-29 00:00:00", "not a day of the Gregorian calendar"),
        (" 0000-00-00 00:00:00", "impossible year"),
        ("-0000-01-01 00:00:00", "impossible year"),
        (" 2024-00-10 00:00:00", "impossible month"),
        (" 2024-01-00 00:00:00", "not a day"),
        (" 2024-01-01 24:00:00", "impossible time"),
        (" 2024-01-01 00:00:60", "impossible time"),
        ("rubbish", "not a date"),
    ],
)
def test_what_is_no_moment_is_refused(text: str, reason: str) -> None:
    """The first text without a timestamp is named with its place."""
    texts = pa.array([None, " 2024-01-01 00:00:00", text, text])
    with pytest.raises(MomentRefused) as refused:
        parse_moments(texts, pa.timestamp("s"))
    assert refused.value.index == 2
    assert refused.value.text == text.strip()
    assert reason in refused.value.reason


def test_nanoseconds_end_where_their_type_does() -> None:
    """The last nanosecond that 64 bits count is kept; the next one is refused, not wrapped."""
    kind = pa.timestamp("ns", "UTC")
    last = " 2262-04-11 23:47:16.854775807"
    early = " 1677-09-21 00:12:44.000000001"
    ticks = parse_moments(pa.array([last, early]), kind).view(pa.int64()).to_pylist()
    since = datetime(1677, 9, 21, 0, 12, 44, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert ticks == [2**63 - 1, since // timedelta(seconds=1) * 10**9 + 1]
    for text in (
        " 2262-04-11 23:47:16.854775808",
        " 2262-04-11 23:47:17.000000000",
        " 1677-09-21 00:12:43.000000000",
        " 3844-11-27 03:57:31.123456789",
        "-0044-03-15 00:00:00.000000000",
    ):
        with pytest.raises(MomentRefused, match=text.strip()):
            parse_moments(pa.array([text]), kind)
