"""Texts of Arrow's dates, times, timestamps and intervals in a text format.

A timestamp with a zone is written in that zone's local time. Arrow's zone data end in 2037 and
keep standard time for ever after (measured: New York in July 2038 is an hour off), so offsets
from 2037 on are asked of `zoneinfo`, once for each distinct instant.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from writers.errors import FormatError
from writers.model import TextFormat
from writers.schema import pc
from writers.text.mask_texts import DAY_SECONDS, UNIT_DIGITS, Zone, floor_divide, mask_texts
from writers.text.masks import ISO_DATE, ISO_TIME, ISO_TIMESTAMP, ISO_TIMESTAMP_TZ, Mask, parse
from writers.text.string_arrays import Place

_FIXED_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_UTC_NAMES = frozenset({"UTC", "utc", "Etc/UTC", "GMT", "Z"})
_ZONES_KNOWN_UNTIL = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())
_CYCLE_SECONDS = 146_097 * DAY_SECONDS
"""400 Gregorian years: whole weeks, after which every rule of a zone repeats."""
_CYCLE_START = int(datetime(2400, 1, 1, tzinfo=UTC).timestamp())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mask_of(kind: pa.DataType, format: TextFormat) -> Mask:
    if pa.types.is_time(kind):
        return ISO_TIME
    if pa.types.is_date(kind):
        return parse(format.date_format) if format.date_format is not None else ISO_DATE
    if kind.tz is None:
        mask, iso = format.timestamp_format, ISO_TIMESTAMP
    else:
        mask = format.timestamp_tz_format
        iso = ISO_TIMESTAMP if format.utc else ISO_TIMESTAMP_TZ
    return parse(mask) if mask is not None else iso


def check_mask(kind: pa.DataType, format: TextFormat, column: str) -> None:
    """Refuse a mask with a time zone for a type without one, and an unknown zone."""
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    if zone is None and mask_of(kind, format).has_zone:
        raise FormatError(
            f"the date format for column {column} has a time zone element, but the column has no "
            "zone.",
            "remove TZH, TZM and TZR from --date-format and --timestamp-format.",
        )
    if zone is not None and fixed_offset(zone) is None:
        _zone_info(zone)


def datetime_texts(values: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    """Return the text of dates, times or timestamps, null for null."""
    kind = values.type
    mask = mask_of(kind, format)
    if pa.types.is_timestamp(kind):
        if format.fractions == "keep":
            digits = UNIT_DIGITS[kind.unit]
            refuse_cut_fraction(values.view(pa.int64()), digits, mask, place)
        if kind.tz is not None:
            if format.moves_to_utc:
                # pyarrow looks zones up in a database that does not have all of our names.
                return mask_texts(values.view(pa.timestamp(kind.unit)), mask, place)
            local, offsets = _local(values, place)
            return mask_texts(local, mask, place, Zone(names=kind.tz, offsets=offsets))
    elif pa.types.is_time(kind):
        _check_time(values, place)
    elif pa.types.is_date64(kind) and format.date_format is None:
        time_of_day = floor_divide(values.view(pa.int64()), DAY_SECONDS * 1000)[1]
        place.refuse_where(
            pc.not_equal(time_of_day, 0),
            "the date has a time of day",
            "write it with a --date-format that has HH24:MI:SS",
        )
    return mask_texts(values, mask, place)


def refuse_cut_fraction(ticks: pa.Array, digits: int, mask: Mask, place: Place) -> None:
    """Make sure that a mask shows all of every fraction, whose unit has that many digits."""
    cut = digits - mask.fraction_digits
    if cut <= 0:
        return
    left_out = floor_divide(ticks, 10**cut)[1]
    place.refuse_where(
        pc.not_equal(left_out, 0),
        "the fraction of a second has more digits than its date format",
        "add FF to --timestamp-format and --timestamp-tz-format, or leave it out with --exclude",
    )


def _check_time(values: pa.Array, place: Place) -> None:
    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    day = DAY_SECONDS * 10 ** UNIT_DIGITS[values.type.unit]
    place.refuse_where(
        pc.or_(pc.less(ticks, 0), pc.greater(ticks, day)),
        "the time is not within a day",
        "leave the column out with --exclude",
    )


def fixed_offset(zone: str) -> int | None:
    """Return the seconds east of UTC of a zone that is a fixed offset or UTC, else None."""
    if zone in _UTC_NAMES:
        return 0
    if match := _FIXED_OFFSET.fullmatch(zone):
        seconds = int(match[2]) * 3600 + int(match[3]) * 60
        return -seconds if match[1] == "-" else seconds
    return None


@lru_cache(maxsize=64)
def _zone_info(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise FormatError(
            f"the time zone {zone!r} is unknown to this system.",
            "install its time zone data (the package tzdata).",
        ) from None


def _local(values: pa.Array, place: Place) -> tuple[pa.Array, pa.Array | int]:
    """Return the local times, without a zone, and their offsets in seconds."""
    unit, zone = values.type.unit, values.type.tz
    instants = values.view(pa.int64())
    offsets: pa.Array | int | None = fixed_offset(zone)
    if offsets is None:
        offsets = _named_offsets(values)
    if isinstance(offsets, int) and offsets == 0:
        return instants.view(pa.timestamp(unit)), 0
    shift = pc.multiply(offsets, 10 ** UNIT_DIGITS[unit])
    try:
        local = pc.add_checked(instants, shift)
    except pa.ArrowInvalid:
        local = pc.add(instants, shift)
        wrapped = pc.xor(pc.less(local, instants), pc.less(shift, 0))
        moved = pc.and_(wrapped, pc.not_equal(shift, 0))
        place.refuse_where(
            moved, f"its local time in {zone} is out of range", "unload the column in UTC"
        )
    return local.view(pa.timestamp(unit)), offsets


def _named_offsets(values: pa.Array) -> pa.Array:
    unit, zone = values.type.unit, values.type.tz
    _zone_info(zone)
    instants = values.view(pa.int64())
    per_second = 10 ** UNIT_DIGITS[unit]
    seconds = floor_divide(instants, per_second)[0]
    far = pc.greater_equal(seconds, _ZONES_KNOWN_UNTIL)
    if not pc.any(far).as_py():
        return _arrow_offsets(values, per_second)
    encoded = pc.filter(seconds, far).dictionary_encode()
    found = pa.array([_far_offset(zone, s) for s in encoded.dictionary.to_pylist()], pa.int64())
    near = pc.if_else(far, pa.scalar(0, values.type), values)
    return pc.replace_with_mask(
        _arrow_offsets(near, per_second), pc.fill_null(far, False), found.take(encoded.indices)
    )


def _arrow_offsets(values: pa.Array, per_second: int) -> pa.Array:
    local = pc.local_timestamp(values).view(pa.int64())
    return pc.divide(pc.subtract(local, values.view(pa.int64())), per_second)


def _far_offset(zone: str, seconds: int) -> int:
    if seconds >= _CYCLE_START:
        seconds = _CYCLE_START + (seconds - _CYCLE_START) % _CYCLE_SECONDS
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(_zone_info(zone)).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def duration_texts(values: pa.Array) -> pa.Array:
    """Return durations in ISO 8601, such as PT49H0.5S; a duration does not use days."""
    digits = UNIT_DIGITS[values.type.unit]
    ticks = values.view(pa.int64()).to_pylist()
    return pa.array(
        [None if t is None else "P" + (_clock(t, digits) or "T0S") for t in ticks], pa.string()
    )


def interval_texts(values: pa.Array) -> pa.Array:
    """Return month-day-nanosecond intervals in ISO 8601, each part with its own sign."""
    return pa.array([None if v is None else _interval(*v) for v in values.to_pylist()], pa.string())


def _interval(months: int, days: int, nanoseconds: int) -> str:
    years = abs(months) // 12 * (1 if months > 0 else -1)
    parts = ((years, "Y"), (months - 12 * years, "M"), (days, "D"))
    text = "".join(f"{number}{letter}" for number, letter in parts if number)
    return "P" + (text + _clock(nanoseconds, 9) or "0D")


def _clock(ticks: int, digits: int) -> str:
    sign = "-" if ticks < 0 else ""
    seconds, fraction = divmod(abs(ticks), 10**digits)
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{sign}{hours}H" if hours else ""
    text += f"{sign}{minutes}M" if minutes else ""
    if rest or fraction:
        tail = f".{fraction:0{digits}}".rstrip("0") if fraction else ""
        text += f"{sign}{rest}{tail}S"
    return f"T{text}" if text else ""
