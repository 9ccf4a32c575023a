"""Timestamps cut from Arrow's ISO text: the same texts as those made from tables of fields."""

from __future__ import annotations

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from writers.errors import ValueNotRepresentable
from writers.model import TextFormat
from writers.text.civil import Civil
from writers.text.mask_texts import Zone, civil_texts, fixed_texts
from writers.text.masks import ISO_TIMESTAMP, ISO_TIMESTAMP_TZ, parse
from writers.text.refusals import Place
from writers.text.text_values import text_of

PLACE = Place(column="c")
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ELEMENTS = [
    "YYYY", "SYYYY", "RRRR", "YYY", "YY", "RR", "Y", "MM", "DD", "HH24", "MI", "SS", "FF", "FF1",
    "FF3", "FF6", "FF9", '"日T"', "FMMM", "MON", "AD", "DDD", "TZH", ":TZM", "-",
]  # fmt: skip
SECONDS = st.integers(-62_135_596_800, 253_402_300_799) | st.integers(-70 * 10**9, 270 * 10**9)

quick = settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def columns(draw):
    """Timestamps of one unit, with or without fractions, nulls among them; maybe a slice."""
    unit = draw(st.sampled_from(sorted(TICKS)))
    ticks = TICKS[unit]
    seconds = st.integers(-9 * 10**9, 9 * 10**9) if unit == "ns" else SECONDS
    fraction = st.just(0) | st.integers(0, ticks - 1)
    value = st.none() | st.builds(lambda s, f: s * ticks + f, seconds, fraction)
    values = draw(st.lists(value, min_size=1, max_size=5))
    before = draw(st.integers(0, 2))
    array = pa.array([7] * before + values, pa.int64()).view(pa.timestamp(unit))
    return array.slice(before)


@quick
@given(
    columns(),
    st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=8).map('""'.join).map(parse)
    | st.sampled_from([ISO_TIMESTAMP, ISO_TIMESTAMP_TZ, parse("YYYY-MM-DD HH24:MI:SS.FF6")]),
    st.sampled_from([0, 19_800, -1_800, 62]),
)
@example(pa.array([0, None], pa.timestamp("us")), parse("SS.FF"), 0)
@example(pa.array([-1], pa.timestamp("us")), parse("YYYY-MM-DD HH24:MI:SS.FF6"), 0)
def test_texts_are_those_made_from_tables(values, mask, offset):
    """Where a fixed width does, the texts are the tables' for every unit, mask and offset."""
    found = fixed_texts(values, mask, offset)
    zone = Zone(names="x", offsets=offset)
    try:
        expected = civil_texts(Civil(values), values.is_valid(), mask, PLACE, zone).to_pylist()
    except ValueNotRepresentable:
        expected = None
    assert found is None or found.to_pylist() == expected


@pytest.mark.parametrize("unit", sorted(TICKS))
@pytest.mark.parametrize("mask", ["YYYYMMDDHH24MISS", "YYYY-MM-DD HH24:MI:SS", "DD.MM.YYSSFF3"])
def test_usual_columns_are_cut(unit, mask):
    """Digits in any order, with and without fractions, in years 1 to 9999 take the quick way."""
    last = 9_000_000_000 if unit == "ns" else 253_402_300_799
    first = -9_000_000_000 if unit == "ns" else -62_135_596_800
    array = pa.array([first, None, 0, last], pa.timestamp("s")).cast(pa.timestamp(unit))
    assert fixed_texts(array, parse(mask), None) is not None
    # One second further there are no four digits, or the sign would be lost.
    if unit != "ns":
        for beyond in (first - 1, last + 1):
            far = pa.array([0, beyond], pa.timestamp("s")).cast(pa.timestamp(unit))
            assert fixed_texts(far, parse(mask), None) is None


def test_fractions_that_are_all_zero_keep_their_digits():
    """FF shows as many digits as the unit has, FF9 nine, though every one is zero."""
    field = pa.field("c", pa.timestamp("us"))
    for mask, expected in {"SS.FF": "00.000000", "FF9 MI": "000000000 00", "FF2SS": "0000"}.items():
        form = TextFormat(timestamp_format=mask)
        assert text_of(pa.array([0], field.type), field, form).to_pylist() == [expected]


def test_a_fraction_is_written_as_far_as_it_goes():
    """In ISO form each value ends at its last digit that is not 0, whatever the others need."""
    field = pa.field("c", pa.timestamp("us", "+01:00"))
    ticks = [0, None, 500_000, -1, 10, 60_000_000]
    texts = text_of(pa.array(ticks, pa.int64()).view(field.type), field, TextFormat()).to_pylist()
    assert texts == [
        "1970-01-01 01:00:00+01:00",
        None,
        "1970-01-01 01:00:00.5+01:00",
        "1970-01-01 00:59:59.999999+01:00",
        "1970-01-01 01:00:00.00001+01:00",
        "1970-01-01 01:01:00+01:00",
    ]
