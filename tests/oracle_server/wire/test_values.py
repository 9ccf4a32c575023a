"""Encoders of every Oracle type: against bytes of real servers and an independent decoder."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.reply import Reply, fields, number
from oracle_server.data.moments import shifted
from oracle_server.model import DaySecond, Moment, Type, YearMonth
from oracle_server.wire.oracle_values import (
    cell,
    decode_moment,
    decode_number,
    encode_date,
    encode_number,
    encode_timestamp,
    encode_timestamp_tz,
)

QUICK = settings(max_examples=examples(150), deadline=None)


@st.composite
def numbers(draw: st.DrawFn) -> Decimal:
    """Return what NUMBER holds: up to 38 digits anywhere, at most 40 in pairs."""
    digits = draw(
        st.text("0123456789", min_size=1, max_size=38).filter(lambda text: text.strip("0"))
    )
    exponent = draw(st.integers(-130, 125 - len(digits)))
    sign = draw(st.sampled_from(("", "-")))
    return Decimal(f"{sign}{digits}E{exponent}")


moments = st.builds(
    Moment,
    year=st.one_of(st.integers(-4712, -1), st.integers(1, 9999)),
    month=st.integers(1, 12),
    day=st.integers(1, 28),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    second=st.integers(0, 59),
    nanos=st.integers(0, 999_999_999),
    zone=st.none(),
)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (0, "80"),
        (1, "c102"),
        (100, "c202"),
        (101, "c20202"),
        (1516, "c21011"),
        (1000000, "c402"),
        (Decimal("1234567.89"), "c402182e445a"),
        (12345678901234, "c70d23394f5b0d23"),
        (Decimal("12.34"), "c10d23"),
        (Decimal("0.25"), "c01a"),
        (-42, "3e3b66"),
        (-1000000, "3b6466"),
        (Decimal("-99.99"), "3e020266"),
        (Decimal("-0.25"), "3f4c66"),
        (Decimal("-3.14"), "3e625766"),
    ],
)
def test_number_recorded(value: int | Decimal, recorded: str) -> None:
    """NUMBER has the bytes recorded from 19c and 23ai servers."""
    assert encode_number(value).hex() == recorded


@pytest.mark.parametrize(
    ("value", "published"),
    [
        (Decimal("1E-130"), "8002"),
        (Decimal("-1E-130"), "7f6466"),
        (Decimal("9.99E125"), "ff645b"),
        (-(10**38 - 1), "2c" + "02" * 19 + "66"),
        (int("9" * 40), "d4" + "64" * 20),
        (-int("9" * 40), "2b" + "02" * 20),
        (Decimal("-0." + "9" * 40), "3f" + "02" * 20),
    ],
)
def test_number_edges(value: int | Decimal, published: str) -> None:
    """The ends of NUMBER's range and 40 digits fit; a negative of 20 pairs has no end byte."""
    assert number(encode_number(value)) == value
    assert encode_number(value).hex() == published


@QUICK
@given(numbers())
def test_number_exact(value: Decimal) -> None:
    """Every NUMBER is exact to its last digit, read by both decoders."""
    data = encode_number(value)
    assert number(data) == value
    assert decode_number(data) == value


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (Moment(2024, 1, 2, 3, 4, 5), "787c0102040506"),
        (Moment(1988, 12, 31, 23, 59, 58), "77bc0c1f183c3b"),
        (Moment(2024, 1, 2, 3, 4, 5, 123456000), "787c0102040506075bca00"),
        (Moment(1988, 12, 31, 23, 59, 58, 999999000), "77bc0c1f183c3b3b9ac618"),
        (Moment(-4712, 1, 1), "35580101010101"),
    ],
)
def test_moment_recorded(value: Moment, recorded: str) -> None:
    """DATE and TIMESTAMP have the bytes recorded from servers, the first day the published ones."""
    assert encode_timestamp(value).hex() == recorded


@QUICK
@given(moments)
def test_moment_exact(value: Moment) -> None:
    """Every moment keeps all its fields, BC years included, and a zero fraction takes 7 bytes."""
    data = encode_timestamp(value)
    assert fields(data) == tuple(value)[:7]
    assert decode_moment(data) == value
    assert len(data) == (11 if value.nanos else 7)
    assert fields(encode_date(value))[:6] == tuple(value)[:6]


@QUICK
@given(moments, st.integers(-899, 899))
def test_offset(value: Moment, minutes: int) -> None:
    """A zone's offset is stored beside the fields in UTC, and comes back as it was."""
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    data = encode_timestamp_tz(value._replace(zone=zone))
    assert len(data) == 13
    assert fields(data)[7] == minutes
    utc = shifted(value, -60 * minutes * 10**9)
    assert fields(data)[:7] == tuple(utc)[:7]
    assert decode_moment(data) == value._replace(zone=zone)


def test_region() -> None:
    """A region has its bit, and the fields are in UTC; of an hour that came twice it is the second."""
    data = encode_timestamp_tz(Moment(2024, 10, 27, 2, 30, zone="Europe/Berlin"))
    assert data[11] & 0x80
    assert fields(data[:7])[:5] == (2024, 10, 27, 1, 30)


@pytest.mark.parametrize(
    ("value", "utc"),
    [
        (Moment(1582, 10, 15, 1, zone="+02:00"), (1582, 10, 4, 23)),
        (Moment(1, 1, 1, zone="+01:00"), (-1, 12, 31, 23)),
        (Moment(1500, 2, 28, 23, zone="-01:00"), (1500, 2, 29, 0)),
        (Moment(1900, 2, 28, 23, zone="-01:00"), (1900, 3, 1, 0)),
    ],
)
def test_zone_calendar(value: Moment, utc: tuple[int, ...]) -> None:
    """UTC across midnight follows Oracle's calendar: Julian days, the gap, no year 0."""
    assert fields(encode_timestamp_tz(value))[:4] == utc


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("BINARY_DOUBLE", 2.5, "c004000000000000"),
        ("BINARY_DOUBLE", -1.5, "4007ffffffffffff"),
        ("BINARY_DOUBLE", -0.0, "7fffffffffffffff"),
        ("BINARY_DOUBLE", 0.0, "8000000000000000"),
        ("BINARY_DOUBLE", math.inf, "fff0000000000000"),
        ("BINARY_DOUBLE", -math.inf, "000fffffffffffff"),
        ("BINARY_DOUBLE", math.nan, "fff8000000000000"),
        ("BINARY_FLOAT", 0.5, "bf000000"),
        ("BINARY_FLOAT", -2.0, "3fffffff"),
        ("BINARY_FLOAT", math.nan, "ffc00000"),
        ("BOOLEAN", True, "0101"),
        ("BOOLEAN", False, "00"),
        ("RAW", bytes(range(4)), "00010203"),
        ("VARCHAR2", "é\U0001f600", "c3a9f09f9880"),
        ("NVARCHAR2", "é\U0001f600", "00e9d83dde00"),
        ("CHAR", "ab   ", "6162202020"),
        ("INTERVAL YEAR TO MONTH", YearMonth(-14), "7fffffff3a"),
        ("INTERVAL DAY TO SECOND", DaySecond(-1), "800000003c3c3c7fffffff"),
        ("INTERVAL DAY TO SECOND", DaySecond(86_400_000_000_001), "800000013c3c3c80000001"),
    ],
)
def test_scalars(name: str, value: object, data: str) -> None:
    """Scalars are a length and their bytes; doubles as recorded from a server."""
    content = bytes.fromhex(data)
    assert cell(Type(name=name), value) == bytes((len(content),)) + content


@QUICK
@given(st.integers(-(10**18), 10**18), st.integers(-(10**10), 10**10))
def test_intervals(nanos: int, months: int) -> None:
    """Intervals of either sign are exact."""
    day_second = cell(Type(name="INTERVAL DAY TO SECOND"), DaySecond(nanos))
    assert Reply(day_second).cell("INTERVAL DAY TO SECOND") == nanos
    year_month = cell(Type(name="INTERVAL YEAR TO MONTH"), YearMonth(months))
    assert Reply(year_month).cell("INTERVAL YEAR TO MONTH") == months
