"""The longest text of each type is not exceeded by the texts of the type's extreme values."""

from __future__ import annotations

import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from writers.model import TextFormat
from writers.text.fixed_width import (
    longest_text,
    most_bytes_of_characters,
    most_bytes_of_utf8,
    timestamp_text,
)
from writers.text.text_values import text_of

EXTREMES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128]),
    (pa.uint8(), [255]),
    (pa.int16(), [-32768]),
    (pa.uint16(), [65535]),
    (pa.int32(), [-(2**31)]),
    (pa.uint32(), [2**32 - 1]),
    (pa.int64(), [-(2**63)]),
    (pa.uint64(), [2**64 - 1]),
    (pa.bool_(), [False, True]),
    (pa.decimal128(38, 0), [-(10**38) + 1]),
    (pa.decimal128(9, 2), [Decimal("-9999999.99")]),
    (pa.decimal128(4, 4), [Decimal("-0.9999")]),
    (pa.decimal128(5, -2), [Decimal("-9999900")]),
    (pa.decimal256(76, 10), [Decimal("-" + "9" * 66 + "." + "9" * 10)]),
    (pa.date32(), [date(9999, 12, 31)]),
    (pa.time32("s"), [time(23, 59, 59)]),
    (pa.time64("us"), [time(23, 59, 59, 999_999)]),
    (pa.timestamp("s"), [datetime(9999, 12, 31, 23, 59, 59)]),
    (pa.timestamp("ms"), [datetime(9999, 12, 31, 23, 59, 59, 999_000)]),
    (pa.timestamp("us"), [datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    (pa.timestamp("us", "UTC"), [datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    (pa.timestamp("ns"), [999_999_999]),
    (pa.binary(7), [b"\xff" * 7]),
]


def lengths(kind: pa.DataType, values: list[Any], format: TextFormat) -> tuple[int, int]:
    """Return the length of the longest text by the type, and of the longest of these values."""
    field = pa.field("c", kind)
    longest = longest_text(field, format)
    assert longest is not None
    array = pa.array(values, kind)
    return len(longest), max(map(len, text_of(array, field, format).to_pylist()))


@pytest.mark.parametrize(("kind", "values"), EXTREMES, ids=lambda value: str(value)[:24])
def test_a_type_is_as_wide_as_its_widest_value(kind: pa.DataType, values: list[Any]) -> None:
    """Not a byte less, and not a byte more."""
    room, needed = lengths(kind, values, TextFormat())
    assert room == needed


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_no_float_is_wider_than_its_type(kind: pa.DataType) -> None:
    """Denormal, great, small and long ones, infinities and NaN."""
    code, size = ("<f", 4) if kind == pa.float32() else ("<d", 8)
    patterns = [
        bytes([a, b, c] * 3)[: size - 2] for a in (0, 1, 255) for b in (7, 77) for c in (3,)
    ]
    ends = [
        bytes([low, high]) for low in (0, 1, 15, 127, 160, 239) for high in (0, 56, 128, 184, 255)
    ]
    values = [struct.unpack(code, start + end)[0] for start in patterns for end in ends]
    room, needed = lengths(kind, [*values, float("-inf"), -1.2345678901234567e-308], TextFormat())
    assert needed <= room <= needed + 2


MASKS = (
    "YYYYMMDDHH24MISS",
    'FMDAY, DD MONTH YYYY "um" HH12:MI:SS AM',
    "Day DD Month RRRR DDD D IYYY-IW WW W Q J",
    "DY DD MON SYYYY AD HH A.M. SSSSS",
    "YYYY-MM-DD HH24:MI:SS.FF",
    "HH24:MI:SSXFF3 B.C. YYYY FF9",
)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_mask_is_as_wide_as_its_widest_moment(mask: str, unit: str) -> None:
    """Wednesdays in September are the longest days, and no day is longer than its field."""
    kind = pa.timestamp(unit)
    format = TextFormat(timestamp_format=mask, fractions="mask")
    fraction = 0 if unit == "s" else 999_999
    days = [
        datetime(2024, month, day, 22, 59, 59, fraction)
        for month in range(1, 13)
        for day in range(1, 29)
    ]
    room, needed = lengths(kind, days, format)
    assert room == needed


def test_the_mask_for_dates_and_the_zone_count() -> None:
    """A date with a time follows --date-format; an offset has six characters."""
    day = pa.field("d", pa.timestamp("s"), metadata={"text_class": "date"})
    assert longest_text(day, TextFormat(date_format="DD.MM.YY")) == "DD.MM.YY"
    zoned = pa.field("t", pa.timestamp("s", "UTC"))
    assert longest_text(zoned, TextFormat()) == "9999-MM-DD 23:MI:SS+14:00"
    odd = pa.field("t", pa.timestamp("s", "Europe/Berlin"))
    assert len(longest_text(odd, TextFormat()) or "") == len("0999-01-01 00:53:28+00:53:28")


def test_timestamps_carried_as_text_follow_their_masks() -> None:
    """Where a region may be part of the text nothing is known."""
    format = TextFormat(timestamp_tz_format="YYYYMMDDHH24MISSTZH:TZM")
    assert timestamp_text(TextFormat(), digits=9, zone=None) == "9999-MM-DD 23:MI:SS." + "9" * 9
    assert len(timestamp_text(TextFormat(), digits=7, zone="offset") or "") == 33
    assert timestamp_text(TextFormat(), digits=7, zone="") is None
    assert len(timestamp_text(format, digits=7, zone="") or "") == 20
    region = TextFormat(timestamp_tz_format="YYYY TZR")
    assert timestamp_text(region, digits=7, zone="") is None


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-16-le", "utf-32", "gb18030", "cp932", "euc_jp", "big5", "latin-1", "cp1251"],
)
def test_no_text_takes_more_bytes_than_reckoned(encoding: str) -> None:
    """Neither by its characters nor by its bytes of UTF-8; some text takes as many."""
    held = []
    for number in (*range(32, 0x3000, 3), *range(0x3000, 0xD800, 97), 0xFF71, 0x1D11E):
        try:
            held.append(
                (chr(number), len(chr(number).encode(encoding.replace("utf-32", "utf-32-le"))))
            )
        except UnicodeEncodeError:
            continue
    for character, size in held:
        assert size <= most_bytes_of_characters(encoding, 1), character
        assert size <= most_bytes_of_utf8(encoding, len(character.encode()))
    assert max(size for _, size in held) == most_bytes_of_characters(encoding, 1)
