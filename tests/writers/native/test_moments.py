"""Native texts of dates, times and timestamps: those of the plain functions, byte for byte."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from amounts import amount, examples
from encoders.native_texts import is_program, native_moments
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also

from writers.errors import ValueNotRepresentable
from writers.model import TextFormat
from writers.native.moments import moment_program
from writers.text.datetime_texts import datetime_texts
from writers.text.masks import GROUPS
from writers.text.refusals import Place

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST, LAST = -62_135_596_800, 253_402_300_800
"""Seconds from 1970 to the first one of the year 1, and to the end of the year 9999."""
DAY = 86_400
COMPACT = "YYYYMMDDHH24MISS"
ELEMENTS = sorted(name for name in GROUPS if not name.startswith("ISO-") and name != "FF")
ZONED = frozenset({"TZH", "TZM", "TZR"})
quick = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def form(mask, **options):
    return TextFormat(date_format=mask, timestamp_format=mask, timestamp_tz_format=mask, **options)


def column(ticks, kind):
    return pa.array(ticks, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def plain(array, format):
    """Texts by the plain function, None for what it refuses."""
    try:
        return datetime_texts(array, format, Place(column="c")).to_pylist()
    except ValueNotRepresentable:
        if len(array) == 1:
            return [None]
        middle = len(array) // 2
        return plain(array.slice(0, middle), format) + plain(array.slice(middle), format)


def check(array, format):
    found, expected = native_moments(array, format), plain(array, format)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


def clamped(ticks):
    return max(-(2**63), min(2**63 - 1, ticks))


def edge_ticks(unit):
    """Ends of the 64 bits and of the years 1 to 9999, the turn of 1970, the year 0, and near."""
    per = TICKS[unit]
    marks = [-(2**63), 2**63 - 1, 0, FIRST * per, LAST * per, (FIRST - 366 * DAY) * per]
    marks += [(FIRST - 9999 * 365 * DAY) * per, -(DAY * per), 951_782_400 * per]
    return [clamped(mark + by) for mark in marks for by in (-per, -2, -1, 0, 1, 2, per)]


def ticks_of(unit):
    """Any tick of a unit: those of the usual years above all, with and without fractions."""
    per = TICKS[unit]
    usual = st.integers(FIRST - 10**8, LAST + 10**8) | st.integers(-(10**9), 3 * 10**9)
    fraction = st.just(0) | st.integers(0, per - 1) | st.integers(0, 999).map(lambda n: n % per)
    some = st.builds(lambda s, f: clamped(s * per + f), usual, fraction)
    return some | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(edge_ticks(unit))


def masks(zoned):
    """Masks of any elements in any case, FM, literals and fractions."""
    elements = [name for name in ELEMENTS if zoned or name not in ZONED]
    cased = st.sampled_from(elements).flatmap(
        lambda name: st.sampled_from([name, name.lower(), name.capitalize()])
    )
    fractions = st.sampled_from(["FF", *(f"FF{digits}" for digits in range(1, 10))])
    other = st.sampled_from(["-", "X", " ", "/", '"T"', '"日é"', '"' + 60 * "=" + '"'])
    usual = st.sampled_from(["YYYY", "MM", "DD", "HH24", "MI", "SS"])
    part = cased | usual | usual | fractions | other
    switched = st.builds(lambda fm, text: "FM" + text if fm else text, st.booleans(), part)
    parts = st.lists(switched, min_size=1, max_size=9)
    return parts.map('""'.join)


@st.composite
def columns(draw):
    """A column of any type with any mask that fits it, and how fractions are treated."""
    shape = draw(st.sampled_from(["timestamp", "timestamp", "date32", "date64"]))
    unit = draw(st.sampled_from(sorted(TICKS)))
    zone = draw(st.sampled_from([None, "UTC", "+05:45", "-00:30", "-1100", "+99:99"]))
    if shape == "date32":
        kind, value = (
            pa.date32(),
            st.integers(-(2**31), 2**31 - 1) | st.integers(-(10**6), 3 * 10**6),
        )
    elif shape == "date64":
        days = st.integers(-(10**6), 3 * 10**6).map(lambda day: day * DAY * 1000)
        kind, value = pa.date64(), days | ticks_of("ms")
    else:
        kind, value = pa.timestamp(unit, zone), ticks_of(unit)
    mask = draw(st.none() | masks(shape == "timestamp" and zone is not None))
    fractions = draw(st.sampled_from(["mask", "keep"]))
    values = draw(st.lists(value, min_size=1, max_size=12))
    return column(values, kind), form(mask, fractions=fractions)


@quick
@given(columns())
@example((column(edge_ticks("us"), pa.timestamp("us")), form("FMSYYYY BC FMIYYY IW WW J SSSSS")))
@example((column(edge_ticks("s"), pa.timestamp("s", "+99:99")), form("SYYYY AD TZH:TZM TZR")))
@example((column(edge_ticks("ms"), pa.date64()), form("B.C. DAY Day MONTH FMMonth Q D W DDD")))
def test_any_mask(drawn):
    """Masks of any elements, over every type and the whole of its range, refusals included."""
    check(*drawn)


@pytest.mark.parametrize("unit", sorted(TICKS))
@pytest.mark.parametrize("zone", [None, *also(OTHER_ROUTES, "UTC", "-00:30")])
@pytest.mark.parametrize("mask", [None, COMPACT, "DD.MM.YY HH24:MI:SSXFF3", "SYYYYMMDD FF9 AD"])
def test_usual_masks(unit, zone, mask):
    """Masks of one layout, at every edge and over the usual years."""
    chance = random.Random(f"{unit} {zone} {mask}")
    per = TICKS[unit]
    seconds = [
        chance.randrange(-(10**9), 9 * 10**9) for _ in range(amount("UNLOADER_TEST_TIMES", 30, 300))
    ]
    ticks = [s * per + chance.choice((0, chance.randrange(per))) for s in seconds]
    for fractions in ("mask", "keep"):
        check(column([*edge_ticks(unit), *ticks], pa.timestamp(unit, zone)),
              form(mask, fractions=fractions))  # fmt: skip


@pytest.mark.parametrize(
    "mask", [None, "YYYYMMDD", "DDD WW IYYY IW J", "Dy DAY D MON Month FMMM FMDD Q W"]
)
def test_every_day_of_centuries(mask):
    """Days from 1899 on, one in 61 or in 9 of them; all about the years 1, 0 and -4712, and 9999.

    Nine divides neither a year nor a week: each day of both is among them.
    """
    step = amount("UNLOADER_TEST_DAYS_APART", 61, 9)
    about = amount("UNLOADER_TEST_DAYS_ABOUT", 10, 300)
    turns = (-719_162, -719_528, 2_932_896, -2_440_588)
    near = [day + by for day in turns for by in range(-about, about)]
    check(column([*range(-26_000, 50_000, step), *near], pa.date32()), form(mask))


@pytest.mark.parametrize("unit", sorted(TICKS))
def test_every_minute_of_a_day(unit):
    """Times of day, 24:00 and what is outside, and the clock of a timestamp."""
    per = TICKS[unit]
    kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    seconds = [minute * 60 + minute % 60 for minute in range(1440)]
    outside = [-1, -per, DAY * per, DAY * per + 1, 2 ** (kind.bit_width - 1) - 1]
    check(column([s * per + s % per for s in seconds] + outside, kind), form(None))
    clock = form("HH24:MI:SS.FF4 HH12 a.m. PM HH FMHH24 FMMI SS SSSSS")
    check(column([s * per for s in seconds], pa.timestamp(unit)), clock)


def test_named_zones_are_left_to_the_plain_side():
    """A zone whose offset depends on the value has no program, and neither has a wrong mask."""
    assert moment_program(pa.timestamp("us", "Europe/Paris"), TextFormat()) is None
    assert moment_program(pa.timestamp("us"), form("HH24 TZH")) is None


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_malformed_programs_are_refused(data):
    """Bytes that are not a program never crash the library."""
    program = moment_program(pa.timestamp("us"), form("YYYY-MON-DD FF3 J"))
    cut = data.draw(st.integers(0, len(program)))
    assert not is_program(program[: min(cut, 13)])
    is_program(program[:cut] + data.draw(st.binary(max_size=20)))
    at = data.draw(st.integers(0, len(program) - 1))
    is_program(program[:at] + data.draw(st.binary(min_size=1, max_size=1)) + program[at + 1 :])
    assert not is_program(struct.pack("<6B2i", 2, *program[1:6], 0, 0))
