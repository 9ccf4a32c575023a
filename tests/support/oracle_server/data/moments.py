"""Arithmetic of Oracle's dates: Julian before 1582-10-15, Gregorian from then on, no year 0."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from oracle_server.model import DaySecond, Moment, OracleError

DAY_NANOS = 86_400 * 10**9
_GREGORIAN_START = 2_299_161
_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d{2})$")


def day_number(year: int, month: int, day: int) -> int:
    """Return the Julian day of a date as Oracle has it; years below 0 are BC."""
    astronomical = year + 1 if year < 0 else year
    before = (14 - month) // 12
    shifted = astronomical + 4800 - before
    days = day + (153 * (month + 12 * before - 3) + 2) // 5 + 365 * shifted + shifted // 4
    gregorian = days - shifted // 100 + shifted // 400 - 32045
    return gregorian if gregorian >= _GREGORIAN_START else days - 32083


def date_of(number: int) -> tuple[int, int, int]:
    """Return the year, month and day of a Julian day."""
    if number >= _GREGORIAN_START:
        days = number + 32044
        century = (4 * days + 3) // 146097
        days -= 146097 * century // 4
    else:
        days, century = number + 32082, 0
    shifted = (4 * days + 3) // 1461
    days -= 1461 * shifted // 4
    month = (5 * days + 2) // 153
    year = 100 * century + shifted - 4800 + month // 10
    day = days - (153 * month + 2) // 5 + 1
    return (year if year > 0 else year - 1), month + 3 - 12 * (month // 10), day


def day_count(year: int, month: int) -> int:
    """Return the number of the last day of a month; 31 also for October 1582."""
    if month == 2:
        astronomical = year + 1 if year < 0 else year
        leap = astronomical % 4 == 0 and (
            astronomical % 100 != 0 or astronomical % 400 == 0 or year < 1582
        )
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


def nanos_of(moment: Moment) -> int:
    """Return the nanoseconds since the start of Julian day 0, by the fields as they stand."""
    days = day_number(moment.year, moment.month, moment.day)
    seconds = (days * 24 + moment.hour) * 3600 + moment.minute * 60 + moment.second
    return seconds * 10**9 + moment.nanos


def moment_of(nanos: int, zone: str | None = None) -> Moment:
    days, rest = divmod(nanos, DAY_NANOS)
    seconds, fraction = divmod(rest, 10**9)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return Moment(*date_of(days), hour, minute, second, fraction, zone)


def shifted(moment: Moment, nanos: int) -> Moment:
    return moment_of(nanos_of(moment) + nanos, moment.zone)


def region(zone: str) -> ZoneInfo | None:
    """Return the rules of a region, or None for a fixed offset.

    Raises:
        OracleError: ORA-01882 for an unknown region.
    """
    if _OFFSET.match(zone):
        return None
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OracleError(1882, "timezone region not found") from error


def offset_seconds(moment: Moment) -> int:
    """Return how far a moment's zone is ahead of UTC; standard time in an hour that comes twice."""
    zone = moment.zone or "+00:00"
    rules = region(zone)
    if rules is None:
        return fixed_offset(zone)
    return int(_zoned(moment, rules).utcoffset().total_seconds())  # type: ignore[union-attr]


def fixed_offset(zone: str) -> int:
    """Return the seconds of an offset such as `-05:30`."""
    match = _OFFSET.match(zone)
    if match is None:
        raise OracleError(1882, "timezone region not found")
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds


def _zoned(moment: Moment, rules: ZoneInfo) -> datetime:
    year = min(max(moment.year, 2), 9998)
    day = min(moment.day, day_count(year, moment.month))
    fields = (moment.hour, moment.minute, moment.second)
    wall = datetime(year, moment.month, day, *fields, tzinfo=rules)
    return wall.replace(fold=1)


def in_utc(moment: Moment) -> Moment:
    """Return the same instant with the fields of UTC and no zone."""
    return moment_of(nanos_of(moment) - offset_seconds(moment) * 10**9)


def at_zone(utc: Moment, zone: str) -> Moment:
    rules = region(zone)
    if rules is None:
        seconds = fixed_offset(zone)
    else:
        year = min(max(utc.year, 2), 9998)
        day = min(utc.day, day_count(year, utc.month))
        fields = (utc.hour, utc.minute, utc.second)
        instant = datetime(year, utc.month, day, *fields, tzinfo=UTC)
        offset = instant.astimezone(rules).utcoffset() or timedelta()
        seconds = int(offset.total_seconds())
    return moment_of(nanos_of(utc) + seconds * 10**9, zone)


def now() -> Moment:
    at = datetime.now(UTC)
    fields = (at.year, at.month, at.day, at.hour, at.minute, at.second)
    return Moment(*fields, at.microsecond * 1000, "+00:00")


def difference(later: Moment, earlier: Moment) -> DaySecond:
    """Return how long after `earlier` another moment is."""
    return DaySecond(_instant(later) - _instant(earlier))


def _instant(moment: Moment) -> int:
    return nanos_of(moment) - (offset_seconds(moment) * 10**9 if moment.zone else 0)


def ordered(moment: Moment) -> int:
    """Return a number by which moments sort as Oracle compares them."""
    return _instant(moment)
