"""Oracle masks on dates and timestamps, whether typed or carried as text."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.text.dialects import dialect
from writers.text.masks import parse
from writers.text.text_values import text_of

DAY_US = 86_400 * 10**6


def written(values, mask, kind=None):
    """Texts of datetimes, or of raw ticks of an Arrow type, under a mask."""
    kind = kind or pa.timestamp("us")
    plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    raw = all(isinstance(v, int) or v is None for v in values)
    array = pa.array(values, plain).view(kind) if raw else pa.array(values, kind)
    form = TextFormat(date_format=mask, timestamp_format=mask, timestamp_tz_format=mask)
    return text_of(array, pa.field("c", kind), form).to_pylist()


def one(value, mask, kind=None):
    return written([value], mask, kind)[0]


def days_from_civil(year, month, day):
    """Days since 1970-01-01 by counting whole 400-year cycles, then Python's own calendar."""
    cycles = (year - 2000) // 400
    return (date(year - 400 * cycles, month, day) - date(1970, 1, 1)).days + cycles * 146_097


SINGLE = {
    "YYYY": "{0:%Y}", "MM": "{0:%m}", "DD": "{0:%d}", "HH24": "{0:%H}", "HH12": "{0:%I}",
    "HH": "{0:%I}", "MI": "{0:%M}", "SS": "{0:%S}", "FF6": "{0:%f}", "DDD": "{0:%j}",
    "MONTH": "{0:%B}", "DY": "{0:%a}", "DAY": "{0:%A}", "MON": "{0:%b}", "AM": "{0:%p}",
    "IW": "{0:%V}", "IYYY": "{0:%G}",
}  # fmt: skip
"""Elements that Python's strftime knows as well."""


def by_python(value, element):
    text = SINGLE[element].format(value)
    if element in ("YYYY", "IYYY"):
        return text.rjust(4, "0")
    if element in ("MONTH", "DAY"):
        return text.upper().ljust(9)
    return text.upper() if element in ("MON", "DY") else text


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.none() | st.datetimes(min_value=datetime(1, 1, 8)), max_size=5),
    st.lists(st.sampled_from(sorted(SINGLE)), min_size=1, max_size=6),
)
def test_elements_agree_with_python(values, elements):
    """Any row of elements gives what Python's calendar gives, null for null."""
    expected = [None if v is None else "/".join(by_python(v, e) for e in elements) for v in values]
    assert written(values, "/".join(elements)) == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(-4712, 9999), st.integers(1, 12), st.integers(1, 28), st.integers(0, DAY_US - 1))
def test_every_year_of_oracle(year, month, day, time_us):
    """Signed years, Julian days and weekdays are right from 4713 BC to 9999."""
    days = days_from_civil(year, month, day)
    counted = f" {year:04}" if year > 0 else f"-{1 - year:04}"
    if days + 2_440_588 < 0:
        return
    text = one(days * DAY_US + time_us, "SYYYY MM DD J D SSSSS")
    seconds = time_us // 10**6
    weekday = (days + 4) % 7 + 1
    assert text == f"{counted} {month:02} {day:02} {days + 2_440_588:07} {weekday} {seconds:05}"


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ("YYY YY Y RRRR RR", "024 24 4 2024 24"),
        ("IYYY IYY IY I IW", "2024 024 24 4 09"),
        ("Q WW W D J", "1 09 5 5 2460370"),
        ("MON Mon mon MONTH|Month|month|", "FEB Feb feb FEBRUARY |February |february |"),
        ("DAY|Day|day|DY Dy dy", "THURSDAY |Thursday |thursday |THU Thu thu"),
        ("HH12:MI:SS AM am Am A.M. a.m. PM p.m.", "05:04:09 PM pm Pm P.M. p.m. PM p.m."),
        ("AD ad A.D. BC b.c.", "AD ad A.D. AD a.d."),
        ("SSSSS", "61449"),
        ("FF FF1 FF2 FF3 FF4 FF5 FF6 FF7 FF8 FF9",
         "070800 0 07 070 0708 07080 070800 0708000 07080000 070800000"),
        ("SSXFF3", "09.070"),
        ('YYYY-MM-DD"T"HH24:MI:SS.FF6', "2024-02-29T17:04:09.070800"),
        ('"""quoted"', "quoted"),
        ("yyyy-mm-dd hh24:mi:ss", "2024-02-29 17:04:09"),
        ("FMDD Month, YYYY", "29 February, 2024"),
        ("FMMM/FMMM FMHH24:MI:SS DDD", "2/02 17:4:9 60"),
        ("FMSYYYY|FMSYYYY", "2024| 2024"),
        ("DD.MM_YYYY;HH24,MI#", "29.02_2024;17,04#"),
        ('"only text"', "only text"),
    ],
)  # fmt: skip
def test_mask_texts(mask, text):
    """Each element, its case, FM, literals and punctuation, for 2024-02-29 17:04:09.0708."""
    value = datetime(2024, 2, 29, 17, 4, 9, 70_800)
    assert written([value, None], mask) == [text, None]


@pytest.mark.parametrize(
    ("mask", "position"),
    [
        ("YYYY-XX-DD?", None), ("YYYY-ZZ", 6), ("YEAR", 2), ("DDTH", 3), ("DDSP", 3), ("CC", 1),
        ("SYEAR", 1), ("Y,YYY", 1), ("RM", 1), ("TS", 1), ("YYYY年", 5), ('YYYY"open', 5),
        ("HH24:MI:SS\n", 11), ("DL", 2), ("TZD", 1), ("FX", 1), ("YYYYMMDDT", 9),
    ],
)  # fmt: skip
def test_unknown_elements_are_named_with_their_position(mask, position):
    """Unknown and unsupported elements are refused; positions count from 1."""
    if position is None:
        parse(mask)  # X is the decimal point
        return
    with pytest.raises(FormatError, match=f"at position {position}. Next: "):
        parse(mask)


@pytest.mark.parametrize("mask", ["YYYY", "RRRR", "YYY", "YY", "Y", "RR", "DD YY", "IYYY"])
@pytest.mark.parametrize("year", [0, -43, 10_000])
def test_years_outside_the_mask_are_refused_by_row(mask, year):
    """A year before 1 or after 9999 is refused where its sign or digits would be lost."""
    far = days_from_civil(year, 6, 15) * DAY_US
    # The ISO year has no name for those before 1.
    said = f"{1 - year} BC" if year < 1 and mask != "IYYY" else year
    with pytest.raises(ValueNotRepresentable, match=f"column c, row 3: .* {said} .*Next: "):
        written([0, None, far, 0], mask)


def test_years_before_1_are_told_apart():
    """SYYYY has a minus and YYYY BC the era; a year 0 does not exist."""
    for year, signed, counted in [(0, "-0001", "0001 BC"), (-43, "-0044", "0044 BC")]:
        value = days_from_civil(year, 3, 15) * DAY_US
        assert one(value, "SYYYY-MM-DD") == f"{signed}-03-15"
        assert one(value, "YYYY AD") == counted
        assert one(value, "FMYYYY b.c.") == f"{int(counted[:4])} b.c."
    assert one(0, "YYYY BC") == "1970 AD"


@pytest.mark.parametrize(("unit", "digits"), [("s", 0), ("ms", 3), ("us", 6), ("ns", 9)])
def test_fractions_of_every_unit(unit, digits):
    """FFn has n digits of the value, zeros beyond the unit's; FF has the digits of the unit."""
    ticks = [-1, 0, 1, 10**digits + 7, -(10**digits) * 86_400 * 3 - 5]
    for n in range(1, 10):
        got = written(ticks, f"SSSSS.FF{n}", pa.timestamp(unit))
        for tick, text in zip(ticks, got, strict=True):
            seconds, fraction = divmod(tick, 10**digits)
            expected = f"{fraction:0{digits}}"[: digits or None] if digits else ""
            assert text == f"{seconds % 86_400:05}." + expected[:n].ljust(n, "0")
    got = written([5], "FF", pa.timestamp(unit))
    assert got == ["5".rjust(digits, "0") if digits else ""]


def test_dates_have_no_time():
    """Time elements of a date are zeros."""
    assert one(date(2024, 1, 31), "YYYYMMDDHH24MISSFF3", pa.date32()) == "20240131000000000"


def test_zone_elements():
    """TZH, TZM and TZR show the column's zone; half hours west keep their sign."""
    mask = "YYYY-MM-DD HH24:MI TZH:TZM TZR"
    noon = 12 * 3600 * 10**6
    for zone, text in [
        ("UTC", "1970-01-01 12:00 +00:00 UTC"),
        ("-00:30", "1970-01-01 11:30 -00:30 -00:30"),
        ("+0545", "1970-01-01 17:45 +05:45 +0545"),
        ("Asia/Tokyo", "1970-01-01 21:00 +09:00 Asia/Tokyo"),
    ]:
        assert written([noon, None], mask, pa.timestamp("us", zone)) == [text, None]


def test_offsets_with_seconds_do_not_fit_tzm():
    """Local mean time has seconds that TZH:TZM would drop: refused."""
    kind = pa.timestamp("s", "Europe/Paris")
    with pytest.raises(ValueNotRepresentable, match="row 2: its offset in the zone Europe/Paris"):
        written([0, -3_000_000_000], "HH24:MI TZH:TZM", kind)


FIELD = pa.field("t", pa.string(), metadata={"text_class": "timestamp"})
US = 10**6
DAY_OF_MICROSECONDS = 86_400 * US
FIRST_DAY, LAST_DAY = -2_440_588, 2_932_896
"""4713 BC-11-24, the Julian day 0, to 9999-12-31, in days since 1970."""
ELEMENTS = [
    "SYYYY", "YYYY BC", "FMSYYYY", "MM", "MON", "Month", "DD", "DDD", "DY", "Day", "D", "J", "Q",
    "W", "WW", "IW", "HH24", "HH12", "PM", "MI", "SS", "SSSSS", "FF1", "FF3", "FF6", '"T"',
]  # fmt: skip
PLAIN = "SYYYY-MM-DD HH24:MI:SS.FF6"
quick = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
moments = st.integers(
    FIRST_DAY * DAY_OF_MICROSECONDS, LAST_DAY * DAY_OF_MICROSECONDS + DAY_OF_MICROSECONDS - 1
)


def written_as_text(texts, form=None, **options):
    """The texts of a column under a format."""
    return text_of(pa.array(texts, FIELD.type), FIELD, form or TextFormat(**options)).to_pylist()


def typed(ticks, mask, zone=None):
    """The texts that a typed column of microseconds has under a mask."""
    kind = pa.timestamp("us", zone)
    form = TextFormat(timestamp_format=mask, timestamp_tz_format=mask)
    return text_of(pa.array(ticks, pa.int64()).view(kind), pa.field("t", kind), form).to_pylist()


def refusal(text, **options):
    with pytest.raises(ValueNotRepresentable) as caught:
        written_as_text(["2024-01-01 00:00:00", None, text], **options)
    return str(caught.value)


@quick
@given(st.lists(st.none() | moments, max_size=4), st.lists(st.sampled_from(ELEMENTS), min_size=1))
@example([-62_135_596_800 * US - 1, -1, 0], ["YYYY BC", "J"])
def test_masks_say_the_same_as_of_typed_timestamps(ticks, elements):
    """Any year of Oracle's, every element: the text equals the same typed timestamp."""
    mask = "/".join(elements)
    texts = [text and text.lstrip() for text in typed(ticks, PLAIN)]
    assert written_as_text(texts, timestamp_format=mask, timestamp_tz_format="YY") == typed(
        ticks, mask
    )


@settings(quick, max_examples=examples(40))
@given(st.lists(moments, min_size=1, max_size=3), st.integers(-15 * 60, 15 * 60))
def test_offsets_are_written_as_of_typed_timestamps(ticks, minutes):
    """TZH, TZM and TZR of a text with an offset show the offset as a zone."""
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    zone = f"{sign}{size // 60:02}:{size % 60:02}"
    ticks = [
        min(max(tick, (FIRST_DAY + 1) * DAY_OF_MICROSECONDS), (LAST_DAY - 1) * DAY_OF_MICROSECONDS)
        for tick in ticks
    ]
    texts = [f"{text.lstrip()} {zone}" for text in typed(ticks, PLAIN, zone)]
    for mask in ("SYYYYMMDDHH24MISSFF6TZHTZM", "TZH SYYYY TZR J", "TZM"):
        assert written_as_text(texts, timestamp_tz_format=mask) == typed(ticks, mask, zone)


def test_a_region_is_what_tzr_says():
    """TZR writes the region where there is one, else the offset, row by row."""
    texts = ["2024-07-01 12:00:00 -04:00[America/New_York]", "2024-07-01 12:00:00.5 +05:30", None]
    mask = "HH24:MI:SSXFF2 TZH:TZM TZR"
    assert written_as_text(texts, timestamp_tz_format=mask, timestamp_format="YY") == [
        "12:00:00.00 -04:00 America/New_York",
        "12:00:00.50 +05:30 +05:30",
        None,
    ]


def test_without_a_mask_the_text_is_that_of_typed_timestamps():
    """The ISO forms equal typed columns, and a mask touches only its own kind."""
    texts = [
        "2024-02-29 23:59:59.123456789",
        "-4712-01-01 00:00:00",
        "1500-02-29 00:00:00.1",
        "9999-12-31 00:00:00 -00:30",
        "2024-02-29 00:00:00.000000001 +01:00[Europe/Berlin]",
        None,
    ]
    expected = [
        texts[0],
        "4712-01-01 00:00:00 BC",
        texts[2],
        "9999-12-31 00:00:00-00:30",
        "2024-02-29 00:00:00.000000001+01:00[Europe/Berlin]",
        None,
    ]
    assert written_as_text(texts) == expected
    assert written_as_text(texts, timestamp_tz_format="TZH")[:3] == expected[:3]
    assert written_as_text(texts, timestamp_format="SYYYY")[3:] == expected[3:]
    assert written_as_text([], timestamp_format="YYYY") == []


def test_a_fraction_that_a_dialects_mask_would_cut_is_refused():
    """Where the mask is the dialect's choice a fraction is not lost; a zero one may go."""
    form = dialect("sqlldr-var")
    texts = ["2024-01-31 23:59:59.000000000", "2024-01-31 23:59:59 +02:00"]
    assert written_as_text(texts, form) == ["20240131235959", "20240131235959+02:00"]
    with pytest.raises(ValueNotRepresentable, match="column t, row 1: the fraction"):
        written_as_text(["2024-01-31 23:59:59.000000001"], form)


def test_a_day_that_only_the_julian_calendar_has():
    """1500-02-29 keeps its fields; what counts days is refused rather than guessed."""
    text = "1500-02-29 12:00:00"
    assert written_as_text([text], timestamp_format="DD.MM.YYYY DDD") == ["29.02.1500 060"]
    for mask in ("DAY", "J", "IW", "IYYY", "D"):
        assert "Julian calendar" in refusal(text, timestamp_format=mask)
    assert "not a day of the calendar" in refusal("1900-02-29 00:00:00", timestamp_format="YYYY")


def test_a_year_before_1_needs_a_mask_that_can_tell():
    """YYYY would lose the sign: refused for text and types alike, naming SYYYY; an era will do."""
    text, tick = "-0044-03-15 00:00:00", (1_705_428 - 2_440_588) * DAY_OF_MICROSECONDS
    assert typed([tick], PLAIN) == [text + ".000000"]
    for mask in ("YYYY", "YYYY-MM-DD", "SYYYY YYYY", "YY", "RRRR"):
        assert "44 BC does not fit" in refusal(text, timestamp_format=mask)
        with pytest.raises(ValueNotRepresentable, match=r"44 BC does not fit .*SYYYY"):
            typed([tick], mask)
    assert written_as_text([text], timestamp_format="SYYYY") == typed([tick], "SYYYY") == ["-0044"]
    assert (
        written_as_text([text], timestamp_format="YYYY AD")
        == typed([tick], "YYYY AD")
        == ["0044 BC"]
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", " 2024-01-01 00:00:00", "2024-01-01", "2024-01-01T00:00:00",
        "2024-13-01 00:00:00", "2024-01-32 00:00:00", "2024-01-01 24:00:00", "2024-01-01 00:00:60",
        "2024-01-01 00:00:00.", "2024-01-01 00:00:00.1234567890", "2024-01-01 00:00:00+01:00",
        "2024-01-01 00:00:00 Z", "2024-01-01 00:00:00 +01:00 [Europe/Berlin]",
        "2024-01-01 00:00:00[Europe/Berlin]", "2024-01-01 00:00:00\n", "12024-01-01 00:00:00",
    ],
)  # fmt: skip
def test_other_text_is_refused_by_name_and_value(text):
    """Text in another form is not written, with a mask or without."""
    for options in ({}, {"timestamp_format": "YYYY", "timestamp_tz_format": "YYYY"}):
        message = refusal(text, **options)
        assert message.startswith(f"column t, row 3: the text {text!r} is not a timestamp")


@pytest.mark.parametrize(
    "text", ["2023-02-29 00:00:00", "2024-04-31 00:00:00", "0000-01-01 00:00:00"]
)
def test_a_day_that_does_not_exist_is_refused(text):
    """A mask is not fed a day that its month does not have, or the year 0."""
    assert f"{text!r} is not a day of the calendar" in refusal(text, timestamp_format="SYYYY")


def test_dates_with_a_time_of_day_follow_the_mask_for_dates():
    """A timestamp marked as a date takes the date mask, and the timestamp mask only without one."""
    marked = pa.field("d", pa.timestamp("s"), metadata={"text_class": "date"})
    plain = pa.field("t", pa.timestamp("s"))
    values = pa.array([0, -62_135_596_800], pa.timestamp("s"))
    both = TextFormat(date_format="YYYYMMDDHH24MISS", timestamp_format="HH24:MI")
    assert text_of(values, marked, both).to_pylist() == ["19700101000000", "00010101000000"]
    assert text_of(values, plain, both).to_pylist() == ["00:00", "00:00"]
    one = TextFormat(timestamp_format="HH24:MI")
    assert text_of(values, marked, one).to_pylist() == ["00:00", "00:00"]
