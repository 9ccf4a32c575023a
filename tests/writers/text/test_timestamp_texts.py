"""Timestamps carried as text: under any mask they are written as typed ones are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from writers.errors import ValueNotRepresentable
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat
from writers.registry import open_writer
from writers.text.dialects import dialect
from writers.text.text_values import text_of

FIELD = pa.field("t", pa.string(), metadata={"text_class": "timestamp"})
US = 10**6
DAY_US = 86_400 * US
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
moments = st.integers(FIRST_DAY * DAY_US, LAST_DAY * DAY_US + DAY_US - 1)


def written(texts, form=None, **options):
    """The texts of a column under a format."""
    return text_of(pa.array(texts, FIELD.type), FIELD, form or TextFormat(**options)).to_pylist()


def typed(ticks, mask, zone=None):
    """The texts that a typed column of microseconds has under a mask."""
    kind = pa.timestamp("us", zone)
    form = TextFormat(timestamp_format=mask, timestamp_tz_format=mask)
    return text_of(pa.array(ticks, pa.int64()).view(kind), pa.field("t", kind), form).to_pylist()


def refusal(text, **options):
    with pytest.raises(ValueNotRepresentable) as caught:
        written(["2024-01-01 00:00:00", None, text], **options)
    return str(caught.value)


@quick
@given(st.lists(st.none() | moments, max_size=4), st.lists(st.sampled_from(ELEMENTS), min_size=1))
@example([-62_135_596_800 * US - 1, -1, 0], ["YYYY BC", "J"])
def test_masks_say_the_same_as_of_typed_timestamps(ticks, elements):
    """Any year of Oracle's, every element: the text is that of the same typed timestamp."""
    mask = "/".join(elements)
    texts = [text and text.lstrip() for text in typed(ticks, PLAIN)]
    assert written(texts, timestamp_format=mask, timestamp_tz_format="YY") == typed(ticks, mask)


@settings(quick, max_examples=examples(40))
@given(st.lists(moments, min_size=1, max_size=3), st.integers(-15 * 60, 15 * 60))
def test_offsets_are_written_as_of_typed_timestamps(ticks, minutes):
    """TZH, TZM and TZR of a text with an offset are those of the offset as a zone."""
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    zone = f"{sign}{size // 60:02}:{size % 60:02}"
    ticks = [min(max(tick, (FIRST_DAY + 1) * DAY_US), (LAST_DAY - 1) * DAY_US) for tick in ticks]
    texts = [f"{text.lstrip()} {zone}" for text in typed(ticks, PLAIN, zone)]
    for mask in ("SYYYYMMDDHH24MISSFF6TZHTZM", "TZH SYYYY TZR J", "TZM"):
        assert written(texts, timestamp_tz_format=mask) == typed(ticks, mask, zone)


def test_a_region_is_what_tzr_says():
    """TZR writes the region where there is one, else the offset, row by row."""
    texts = [
        "2024-07-01 12:00:00 -04:00[America/New_York]",
        "2024-07-01 12:00:00.5 +05:30",
        None,
    ]
    mask = "HH24:MI:SSXFF2 TZH:TZM TZR"
    assert written(texts, timestamp_tz_format=mask, timestamp_format="YY") == [
        "12:00:00.00 -04:00 America/New_York",
        "12:00:00.50 +05:30 +05:30",
        None,
    ]


def test_without_a_mask_the_text_is_that_of_typed_timestamps():
    """The ISO forms are those of typed columns, and a mask touches only its own kind."""
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
    assert written(texts) == expected
    assert written(texts, timestamp_tz_format="TZH")[:3] == expected[:3]
    assert written(texts, timestamp_format="SYYYY")[3:] == expected[3:]
    assert written([], timestamp_format="YYYY") == []


def test_a_fraction_that_a_dialects_mask_would_cut_is_refused():
    """Where the mask is the dialect's choice a fraction is not lost; a zero one may go."""
    form = dialect("sqlldr-var")
    texts = ["2024-01-31 23:59:59.000000000", "2024-01-31 23:59:59 +02:00"]
    assert written(texts, form) == ["20240131235959", "20240131235959+02:00"]
    with pytest.raises(ValueNotRepresentable, match="column t, row 1: the fraction"):
        written(["2024-01-31 23:59:59.000000001"], form)


def test_a_day_that_only_the_julian_calendar_has():
    """1500-02-29 keeps its fields; what counts days is refused rather than guessed."""
    text = "1500-02-29 12:00:00"
    assert written([text], timestamp_format="DD.MM.YYYY DDD") == ["29.02.1500 060"]
    for mask in ("DAY", "J", "IW", "IYYY", "D"):
        assert "Julian calendar" in refusal(text, timestamp_format=mask)
    assert "not a day of the calendar" in refusal("1900-02-29 00:00:00", timestamp_format="YYYY")


def test_a_year_before_1_needs_a_mask_that_can_tell():
    """YYYY would lose the sign: refused for text and types alike, naming SYYYY; an era will do."""
    text, tick = "-0044-03-15 00:00:00", (1_705_428 - 2_440_588) * DAY_US
    assert typed([tick], PLAIN) == [text + ".000000"]
    for mask in ("YYYY", "YYYY-MM-DD", "SYYYY YYYY", "YY", "RRRR"):
        assert "44 BC does not fit" in refusal(text, timestamp_format=mask)
        with pytest.raises(ValueNotRepresentable, match=r"44 BC does not fit .*SYYYY"):
            typed([tick], mask)
    assert written([text], timestamp_format="SYYYY") == typed([tick], "SYYYY") == ["-0044"]
    assert written([text], timestamp_format="YYYY AD") == typed([tick], "YYYY AD") == ["0044 BC"]


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
    """What is not in the canonical form is not written, with a mask or without."""
    for options in ({}, {"timestamp_format": "YYYY", "timestamp_tz_format": "YYYY"}):
        message = refusal(text, **options)
        assert message.startswith(f"column t, row 3: the text {text!r} is not a timestamp")


@pytest.mark.parametrize(
    "text", ["2023-02-29 00:00:00", "2024-04-31 00:00:00", "0000-01-01 00:00:00"]
)
def test_a_day_that_does_not_exist_is_refused(text):
    """A mask is not fed a day that its month does not have, or the year 0."""
    assert f"{text!r} is not a day of the calendar" in refusal(text, timestamp_format="SYYYY")


def test_parquet_keeps_the_text(tmp_path):
    """In Parquet the column is a string column of the same texts."""
    schema = pa.schema([FIELD])
    spec = OutputSpec(directory=str(tmp_path), format=ParquetFormat(), compression=Compression())
    texts = ["2024-01-31 23:59:59.123456789", None]
    writer = open_writer(spec, schema, "t")
    writer.write(pa.record_batch([pa.array(texts)], schema=schema))
    (file,) = writer.close()
    table = pq.read_table(tmp_path / file.path)
    assert table.column("t").to_pylist() == texts
    assert table.schema.field("t").type == pa.string()


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
