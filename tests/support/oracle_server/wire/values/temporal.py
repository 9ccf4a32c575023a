"""DATE, the TIMESTAMPs and the INTERVALs as their bytes, without a length.

Years run from -4712 to 9999 without a year 0.
"""

from __future__ import annotations

import zlib

from oracle_server.data.moments import in_utc, offset_seconds, region, shifted
from oracle_server.model import DaySecond, Moment, YearMonth

_MIDDLE = 0x80000000
"""Zero of the four-byte fields of intervals."""
_OFFSET = 60
"""Zero of their one-byte fields."""
_ZONE_HOUR = 20
"""Zero of the hours of a zone."""
_REGION = 0x80
"""Bit that says the zone is a region, not an offset."""
_SECOND = 1_000_000_000


def encode_date(value: Moment) -> bytes:
    """Return the 7 bytes of a DATE; what is below the second is not in it."""
    sign = -1 if value.year < 0 else 1
    century, year = divmod(abs(value.year), 100)
    return bytes(
        (
            100 + sign * century,
            100 + sign * year,
            value.month,
            value.day,
            value.hour + 1,
            value.minute + 1,
            value.second + 1,
        )
    )


def encode_timestamp(value: Moment) -> bytes:
    """Return the 11 bytes of a TIMESTAMP, 7 if it has no fraction, as real servers do."""
    return encode_date(value) + (value.nanos.to_bytes(4, "big") if value.nanos else b"")


def encode_timestamp_tz(value: Moment) -> bytes:
    """Return the 13 bytes of a TIMESTAMP WITH TIME ZONE: fields in UTC, then the zone.

    A region is written with its bit set and an id that stands for its name only within this server.
    """
    if region(value.zone or "+00:00") is None:
        minutes = offset_seconds(value) // 60
        sign = -1 if minutes < 0 else 1
        hours, minutes = divmod(abs(minutes), 60)
        tail = bytes((_ZONE_HOUR + sign * hours, _OFFSET + sign * minutes))
    else:
        number = 1 + zlib.crc32((value.zone or "").encode()) % 0x1FFF
        tail = bytes((_REGION | number >> 6, (number & 0x3F) << 2))
    return encode_date(in_utc(value)) + value.nanos.to_bytes(4, "big") + tail


def encode_year_month(value: YearMonth) -> bytes:
    """Return the 5 bytes of an INTERVAL YEAR TO MONTH; both fields have the interval's sign."""
    sign = -1 if value.months < 0 else 1
    years, months = divmod(abs(value.months), 12)
    return (_MIDDLE + sign * years).to_bytes(4, "big") + bytes((_OFFSET + sign * months,))


def encode_day_second(value: DaySecond) -> bytes:
    """Return the 11 bytes of an INTERVAL DAY TO SECOND; every field has the interval's sign."""
    sign = -1 if value.nanos < 0 else 1
    seconds, nanos = divmod(abs(value.nanos), _SECOND)
    days, clock = divmod(seconds, 86400)
    return b"".join(
        (
            (_MIDDLE + sign * days).to_bytes(4, "big"),
            bytes(_OFFSET + sign * part for part in (clock // 3600, clock // 60 % 60, clock % 60)),
            (_MIDDLE + sign * nanos).to_bytes(4, "big"),
        )
    )


def decode_moment(data: bytes) -> Moment:
    """Return what 7, 11 or 13 bytes stand for, which is how binds arrive.

    Thirteen bytes have an offset as their zone (a client sends no region).
    """
    nanos = int.from_bytes(data[7:11], "big") if len(data) > 7 else 0
    year = 100 * (data[0] - 100) + data[1] - 100
    value = Moment(year, data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1, nanos)
    if len(data) < 13:
        return value
    minutes = 60 * (data[11] - _ZONE_HOUR) + data[12] - _OFFSET
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return shifted(value, 60 * minutes * _SECOND)._replace(zone=zone)


def decode_year_month(data: bytes) -> YearMonth:
    """Return the value of an INTERVAL YEAR TO MONTH's bytes."""
    return YearMonth(12 * (int.from_bytes(data[:4], "big") - _MIDDLE) + data[4] - _OFFSET)


def decode_day_second(data: bytes) -> DaySecond:
    """Return the value of an INTERVAL DAY TO SECOND's bytes."""
    days = int.from_bytes(data[:4], "big") - _MIDDLE
    hours, minutes, seconds = (byte - _OFFSET for byte in data[4:7])
    nanos = int.from_bytes(data[7:11], "big") - _MIDDLE
    return DaySecond((((24 * days + hours) * 60 + minutes) * 60 + seconds) * _SECOND + nanos)
