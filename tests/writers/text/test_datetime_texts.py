"""Default (ISO 8601) texts of dates, times, timestamps, durations and intervals."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.text.text_values import check_field, text_of

DAY_US = 86_400 * 10**6
CYCLE_US = 146_097 * DAY_US


def texts(ticks, kind):
    plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    array = pa.array(ticks, plain).view(kind)
    return text_of(array, pa.field("c", kind), TextFormat()).to_pylist()


def iso(value):
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


@settings(max_examples=examples(100), deadline=None)
@given(st.datetimes(), st.integers(-700, 700))
def test_years_repeat_every_400(value, cycles):
    """Far years, and those before 1, are the years 400 apart with their number shifted."""
    year = value.year + 400 * cycles
    ticks = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) + cycles * CYCLE_US
    if abs(ticks) >= 2**63:
        return
    rest = iso(value)[4:]
    expected = f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"
    assert texts([ticks], pa.timestamp("us")) == [expected]


@pytest.mark.parametrize(
    ("kind", "ticks", "text"),
    [
        (pa.date32(), 0, "1970-01-01"),
        (pa.date32(), -735_160, "0044-03-15 BC"),
        (pa.date32(), -719_163, "0001-12-31 BC"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), 2**31 - 1, "5881580-07-11"),
        (pa.date32(), -(2**31), "5877642-06-23 BC"),
        (pa.date64(), -86_400_000, "1969-12-31"),
        (pa.timestamp("s"), -1, "1969-12-31 23:59:59"),
        (pa.timestamp("ms"), -1, "1969-12-31 23:59:59.999"),
        (pa.timestamp("ns"), -1, "1969-12-31 23:59:59.999999999"),
        (pa.timestamp("ns"), 2**63 - 1, "2262-04-11 23:47:16.854775807"),
        (pa.timestamp("ns"), -(2**63), "1677-09-21 00:12:43.145224192"),
        (pa.timestamp("us"), 2**63 - 1, "294247-01-10 04:00:54.775807"),
        (pa.timestamp("us"), -719_163 * DAY_US, "0001-12-31 00:00:00 BC"),
        (pa.timestamp("s"), 2**63 - 1, "292277026596-12-04 15:30:07"),
        (pa.timestamp("us", "UTC"), 500_000, "1970-01-01 00:00:00.5+00:00"),
        (pa.timestamp("us", "UTC"), -719_163 * DAY_US, "0001-12-31 00:00:00+00:00 BC"),
        (pa.timestamp("s", "-03:30"), 0, "1969-12-31 20:30:00-03:30"),
        (pa.timestamp("s", "Europe/Paris"), -3_000_000_000, "1874-12-07 18:49:21+00:09:21"),
        (pa.time32("s"), 86_399, "23:59:59"),
        (pa.time32("ms"), 1, "00:00:00.001"),
        (pa.time64("us"), 86_400_000_000, "24:00:00"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.duration("s"), 0, "PT0S"),
        (pa.duration("s"), 49 * 3600, "PT49H"),
        (pa.duration("us"), -3_661_500_000, "PT-1H-1M-1.5S"),
        (pa.duration("ns"), -1, "PT-0.000000001S"),
    ],
)
def test_edges(kind, ticks, text):
    """Both ends of every type, the turn of the era, and zones."""
    assert texts([ticks, None], kind) == [text, None]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((14, 3, 14_706_500_000_000), "P1Y2M3DT4H5M6.5S"),
        ((-14, 3, -14_706_500_000_000), "P-1Y-2M3DT-4H-5M-6.5S"),
        ((0, 0, 0), "P0D"),
        ((0, -1, 0), "P-1D"),
        ((0, 0, 100 * 3600 * 10**9), "PT100H"),
        (None, None),
    ],
)
def test_intervals_keep_each_sign(interval, text):
    """Months, days and nanoseconds are not mixed."""
    array = pa.array([interval], pa.month_day_nano_interval())
    assert text_of(array, pa.field("c", array.type), TextFormat()).to_pylist() == [text]


ZONES = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Etc/GMT+3"]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.none() | st.datetimes(datetime(1850, 1, 2), datetime(9998, 1, 1)), max_size=5),
    st.sampled_from(ZONES),
)
def test_zones_are_those_of_the_system(values, zone):
    """Local time and offset are zoneinfo's in every year, summer time after 2037 included."""
    array = pa.array(values, pa.timestamp("us")).view(pa.timestamp("us", zone))
    got = text_of(array, pa.field("c", array.type), TextFormat()).to_pylist()
    local = [v and v.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)) for v in values]
    assert [t and datetime_of(t) for t in got] == [
        v and (v.replace(tzinfo=None), v.utcoffset()) for v in local
    ]


def datetime_of(text):
    """Take a written timestamp apart into local time and offset."""
    sign = max(text.rfind("+"), text.rfind("-"))
    hours, minutes, *seconds = text[sign + 1 :].split(":")
    offset = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds[0]) if seconds else 0
    )
    local, _, fraction = text[:sign].partition(".")
    when = datetime.strptime(local, "%Y-%m-%d %H:%M:%S").replace(
        microsecond=int(fraction.ljust(6, "0")) if fraction else 0
    )
    return when, -offset if text[sign] == "-" else offset


def test_unknown_zone_is_refused_before_any_row():
    """A zone the system does not know is named."""
    with pytest.raises(FormatError, match="'Mars/Olympus' is unknown"):
        check_field(pa.field("c", pa.timestamp("us", "Mars/Olympus")), TextFormat())


@pytest.mark.parametrize(
    ("kind", "ticks", "words"),
    [
        (pa.date64(), 1, "has a time of day"),
        (pa.time32("s"), -1, "not within a day"),
        (pa.time64("us"), DAY_US + 1, "not within a day"),
        (pa.timestamp("us", "+01:00"), 2**63 - 1, "out of range"),
        (pa.timestamp("us", "Asia/Tokyo"), 2**63 - 1, "out of range"),
        (pa.timestamp("ns", "America/New_York"), -(2**63), "out of range"),
    ],
)
def test_values_outside_their_type_are_refused(kind, ticks, words):
    """A value that has no exact text is refused with its row."""
    with pytest.raises(ValueNotRepresentable, match=f"column c, row 3: .*{words}"):
        texts([0, None, ticks], kind)
