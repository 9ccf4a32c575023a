"""Texts of dates, times, timestamps and intervals in a text format, whole arrays at a time.

Dates, times and timestamps are taken apart by integer arithmetic. The calendar is the proleptic
Gregorian one, for every year that Arrow's 64 bits reach. Days become years by Howard Hinnant's
`civil_from_days`, with the year beginning on March 1 so that a leap day is the last.

Adjacent elements that depend on the same number (the year, the day of the year, the minute of the
day, ...) share one text, which is made once for each different number. Few numbers have a table.

A timestamp with a zone is written in that zone's local time. Arrow's zone data end in 2037 and
keep standard time for ever after (measured: New York in July 2038 is an hour off), so `zoneinfo` is
asked, once for each distinct second. Databases give UTC or fixed offsets, which need neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from msgspec import Struct

from writers.errors import FormatError
from writers.model import TextFormat
from writers.schema import pc
from writers.text.masks import (
    DOMAINS,
    GROUPS,
    ISO_DATE,
    ISO_TIME,
    ISO_TIMESTAMP,
    ISO_TIMESTAMP_TZ,
    Element,
    Mask,
    element_text,
    parse,
)
from writers.text.string_arrays import Place, joined

UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of the fraction of a second by Arrow's time unit."""
DAY_SECONDS = 86_400
_UNIX_EPOCH_JULIAN_DAY = 2_440_588
_ERA_DAYS = 146_097
_ERA_YEARS = 400
_MARCH_1_YEAR_0 = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_ERAS_BEFORE = 10**9
"""Whole eras added so that every dividend is positive; Arrow's seconds reach 3e11 years."""
_ERAS_BEFORE_FIELDS = 13
"""The eras for years given as fields, which begin in -4800."""
_REMEMBERED = 20_000
"""Ready texts of a group, such as years. To make a text takes ten times as long."""
_PLAIN_YEARS = frozenset({"YYYY", "YYY", "YY", "Y", "RR", "RRRR"})
_ALONE = frozenset({"fraction", "julian", "daysecond", "zone"})
_FIXED_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_UTC_NAMES = frozenset({"UTC", "utc", "Etc/UTC", "GMT", "Z"})
_BEFORE_ZONES = int(datetime(1700, 1, 1, tzinfo=UTC).timestamp())
"""Until then, and long after, each zone has its own mean time."""
_CYCLE_SECONDS = 146_097 * DAY_SECONDS
"""400 Gregorian years: whole weeks, after which every rule of a zone repeats."""
_CYCLE_START = int(datetime(2400, 1, 1, tzinfo=UTC).timestamp())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Zone = tuple[pa.Array | str, pa.Array | int]
"""The name that TZR shows and the seconds east of UTC: of each value, or of all."""
Texts = Callable[[pa.Array], pa.Array]


class Civil(Struct, frozen=True, kw_only=True):
    """The calendar and clock fields of an array: int64, null where the value is."""

    days: pa.Array
    """Since 1970-01-01."""
    year: pa.Array
    """Astronomical: 0 is 1 BC."""
    march_day: pa.Array
    """The day of the year that began on March 1, from 0."""
    daysecond: pa.Array
    fraction: pa.Array
    """Ticks since the last whole second."""
    fraction_digits: int

    @classmethod
    def of(cls, values: pa.Array) -> Civil:
        """Return the fields of dates, times or timestamps; a zone is ignored (they are UTC)."""
        kind = values.type
        is_date32 = pa.types.is_date32(kind)
        unit = "ms" if pa.types.is_date64(kind) else "s" if is_date32 else kind.unit
        digits = UNIT_DIGITS[unit]
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        days = ticks = pc.cast(values.view(width), pa.int64())
        nothing = pc.multiply(ticks, 0)
        if is_date32:
            ticks = nothing
        elif pa.types.is_time(kind):
            # Not divided, since 24:00 differs from 00:00.
            days = nothing
        else:
            days, ticks = floor_divide(ticks, DAY_SECONDS * 10**digits)
        daysecond, fraction = _divide(ticks, 10**digits) if digits else (ticks, nothing)
        year, march_day = _year_parts(days)
        return cls(
            days=days,
            year=year,
            march_day=march_day,
            daysecond=daysecond,
            fraction=fraction,
            fraction_digits=digits,
        )

    @classmethod
    def of_fields(
        cls, *, year: pa.Array, march_day: pa.Array, daysecond: pa.Array, fraction: pa.Array
    ) -> Civil:
        """Return the same of known fields: years from -4800 on, nanoseconds."""
        before_march = pc.cast(pc.greater_equal(march_day, 306), pa.int64())
        years = pc.add(pc.subtract(year, before_march), _ERAS_BEFORE_FIELDS * _ERA_YEARS)
        leap_days = pc.add(
            pc.subtract(pc.divide(years, 4), pc.divide(years, 100)), pc.divide(years, _ERA_YEARS)
        )
        days = pc.add(pc.add(pc.multiply(years, 365), leap_days), march_day)
        return cls(
            days=pc.subtract(days, _ERAS_BEFORE_FIELDS * _ERA_DAYS + _MARCH_1_YEAR_0),
            year=year,
            march_day=march_day,
            daysecond=daysecond,
            fraction=fraction,
            fraction_digits=9,
        )

    @property
    def yearday(self) -> pa.Array:
        """Days since January 1."""
        return _yearday(self.year, self.march_day)

    def week_parts(self) -> tuple[pa.Array, pa.Array]:
        """Return the year and week of ISO 8601: that of Thursday."""
        since_monday = floor_divide(pc.add(self.days, 3), 7)[1]
        year, march_day = _year_parts(pc.add(pc.subtract(self.days, since_monday), 3))
        return year, pc.add(_divide(_yearday(year, march_day), 7)[0], 1)


_NUMBERS: dict[str, Callable[[Civil], pa.Array]] = {
    "year": lambda civil: civil.year,
    "monthday": lambda civil: civil.march_day,
    "yearday": lambda civil: civil.yearday,
    "weekday": lambda civil: floor_divide(pc.add(civil.days, 4), 7)[1],
    "isoyear": lambda civil: civil.week_parts()[0],
    "isoweek": lambda civil: civil.week_parts()[1],
    "minute": lambda civil: _divide(civil.daysecond, 60)[0],
    "second": lambda civil: _divide(civil.daysecond, 60)[1],
}
"""The number that the elements of a group depend on, as `GROUPS` has them."""


def mask_texts(civil: Civil, mask: Mask, place: Place, zone: Zone | None = None) -> pa.Array:
    """Return texts of fields local to `zone`; refuse a year or an offset that does not fit."""
    if not len(civil.days):
        return pa.array([], pa.string())
    _check(civil, mask, place, zone)
    pieces: list[pa.Array | pa.Scalar] = []
    for group, elements, texts in _compiled(mask):
        pieces += _pieces(group, elements, texts, civil, zone)
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        pieces.append(pc.if_else(civil.days.is_valid(), "", pa.scalar(None, pa.string())))
    return pieces[0] if len(pieces) == 1 else joined(*pieces)


@lru_cache(maxsize=64)
def _compiled(mask: Mask) -> tuple[tuple[str, tuple[Element, ...], Texts], ...]:
    """Cut a mask into elements that depend on the same number; literals go with a neighbour."""
    runs: list[tuple[str, tuple[Element, ...]]] = []
    for element in mask.elements:
        group = GROUPS.get(element.kind, "text")
        before, elements = runs[-1] if runs else ("", ())
        joins = before and not {group, before} & _ALONE
        if joins and (group == before or "text" in (group, before)):
            runs[-1] = (before if group == "text" else group, (*elements, element))
        else:
            runs.append((group, (element,)))

    return tuple((group, elements, _texts_of(group, elements, mask)) for group, elements in runs)


def _texts_of(group: str, elements: tuple[Element, ...], mask: Mask) -> Texts:
    """Return the function from the numbers of a group to the texts of its elements."""

    @lru_cache(maxsize=_REMEMBERED)
    def text(number: int) -> str:
        return "".join(element_text(element, number, mask.has_era) for element in elements)

    def each_once(numbers: pa.Array) -> pa.Array:
        encoded = numbers.dictionary_encode()
        made = pa.array(map(text, encoded.dictionary.to_pylist()), pa.string())
        return made.take(encoded.indices)

    if group not in DOMAINS:
        return each_once
    first, last = DOMAINS[group]
    table = pa.array(map(text, range(first, last + 1)), pa.string())
    return lambda numbers: table.take(pc.subtract(numbers, first))


def _pieces(
    group: str, elements: tuple[Element, ...], texts: Texts, civil: Civil, zone: Zone | None
) -> list[pa.Array | pa.Scalar]:
    first = elements[0]
    if group == "text":
        return [pa.scalar("".join(element.text for element in elements))]
    if group == "zone":
        names = zone[0] if zone else ""
        return [pa.scalar(names) if isinstance(names, str) else names]
    if group == "fraction":
        return _fraction_pieces(first, civil)
    if group == "julian":
        return [_padded(pc.add(civil.days, _UNIX_EPOCH_JULIAN_DAY), 7, first.fill)]
    if group == "daysecond":
        return [_padded(civil.daysecond, 5, first.fill)]
    if group == "offset":
        offsets = zone[1] if zone else 0
        if isinstance(offsets, int):
            return [texts(pa.array([offsets]))[0]]
        return [texts(offsets)]
    return [texts(_NUMBERS[group](civil))]


def _padded(numbers: pa.Array, digits: int, fill: bool) -> pa.Array:
    texts = pc.cast(numbers, pa.string())
    return pc.ascii_lpad(texts, digits, "0") if fill else texts


def _fraction_pieces(element: Element, civil: Civil) -> list[pa.Array | pa.Scalar]:
    have = civil.fraction_digits
    trimmed = element.kind == "ISO-FRACTION"
    wanted = have if trimmed or element.digits is None else element.digits
    if not have or not pc.max(civil.fraction).as_py():
        return [] if trimmed else [pa.scalar("0" * wanted)]
    digits = _padded(civil.fraction, have, fill=True)
    if trimmed:
        return [pc.ascii_rtrim(joined(".", digits), "0.")]
    if wanted <= have:
        return [pc.utf8_slice_codeunits(digits, 0, wanted)]
    return [digits, pa.scalar("0" * (wanted - have))]


def year_range(mask: Mask) -> tuple[int, int] | None:
    """Return the first and the last year that a mask can show, None if it shows every year."""
    kinds = {element.kind for element in mask.elements}
    if not kinds & (_PLAIN_YEARS | {"SYYYY"}):
        return None
    return -9998 if mask.has_era or not kinds & _PLAIN_YEARS else 1, 9999


def _check(civil: Civil, mask: Mask, place: Place, zone: Zone | None) -> None:
    kinds = {element.kind for element in mask.elements}
    groups = {GROUPS.get(kind, "text") for kind in kinds}
    if years := year_range(mask):
        _check_range(civil.year, *years, "year", place)
    if "isoyear" in groups:
        _check_range(civil.week_parts()[0], 1, 9999, "ISO year", place)
    if "julian" in groups:
        days = pc.add(civil.days, _UNIX_EPOCH_JULIAN_DAY)
        _check_range(days, 0, 9_999_999, "Julian day", place)
    if kinds & {"TZH", "TZM"} and zone is not None:
        names, offsets = zone
        offsets = pa.array([offsets]) if isinstance(offsets, int) else offsets
        minutes = pc.multiply(pc.divide(offsets, 60), 60)
        place.refuse_where(
            pc.not_equal(offsets, minutes),
            f"its offset in the zone {names} has seconds, which TZH:TZM cannot show",
            "leave out --timestamp-tz-format (ISO form)",
        )


def _check_range(numbers: pa.Array, low: int, high: int, what: str, place: Place) -> None:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= low and bounds["max"] <= high):
        return
    bad = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    index = pc.index(bad, pa.scalar(True)).as_py()
    number = numbers[index].as_py()
    said = f"{1 - number} BC" if what == "year" and number < 1 else number
    elements = "use SYYYY or an era (BC) in the date format, " if number < 1 else ""
    advice = (
        f"{elements}write the column as exact text with --as-text {place.column}, or leave it out "
        "with --exclude"
    )
    raise place.refusal(index, f"the {what} {said} does not fit its date format", advice)


def floor_divide(values: pa.Array, divisor: int) -> tuple[pa.Array, pa.Array]:
    """Return quotients rounded down and remainders of 0 or more; `values` are int64."""
    quotient, remainder = _divide(values, divisor)
    # Arrow rounds towards zero: -1 where that was up. It ignores a shift by all 63 bits, and the
    # remainder is far below 2**62.
    borrow = pc.shift_right(remainder, 62)
    return pc.add(quotient, borrow), pc.add(remainder, pc.bit_wise_and(borrow, divisor))


def _divide(values: pa.Array, divisor: int) -> tuple[pa.Array, pa.Array]:
    quotient = pc.divide(values, divisor)
    return quotient, pc.subtract(values, pc.multiply(quotient, divisor))


def _year_parts(days: pa.Array) -> tuple[pa.Array, pa.Array]:
    shift = _MARCH_1_YEAR_0 + _ERAS_BEFORE * _ERA_DAYS
    quarters = pc.add(pc.multiply(days, 4), 4 * shift + 3)
    century, rest = _divide(quarters, _ERA_DAYS)
    in_century = pc.bit_wise_or(rest, 3)
    year, rest = _divide(in_century, 1461)
    march_day = pc.shift_right(rest, 2)
    years = pc.add(pc.multiply(century, 100), year)
    after_december = pc.cast(pc.greater_equal(march_day, 306), pa.int64())
    return pc.add(pc.subtract(years, _ERAS_BEFORE * _ERA_YEARS), after_december), march_day


def _yearday(year: pa.Array, march_day: pa.Array) -> pa.Array:
    centuries, of_century = floor_divide(year, 100)
    of_four = pc.bit_wise_and(pc.if_else(pc.equal(of_century, 0), centuries, year), 3)
    leap = pc.cast(pc.equal(of_four, 0), pa.int64())
    return pc.if_else(
        pc.greater_equal(march_day, 306),
        pc.subtract(march_day, 306),
        pc.add(pc.add(march_day, 59), leap),
    )


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
                return mask_texts(Civil.of(values.view(pa.timestamp(kind.unit))), mask, place)
            local, offsets = _local(values, place)
            return mask_texts(Civil.of(local), mask, place, (kind.tz, offsets))
    elif pa.types.is_time(kind):
        ticks = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        day = DAY_SECONDS * 10 ** UNIT_DIGITS[kind.unit]
        place.refuse_where(
            pc.or_(pc.less(ticks, 0), pc.greater(ticks, day)),
            "the time is not within a day",
            "leave the column out with --exclude",
        )
    elif pa.types.is_date64(kind) and format.date_format is None:
        time_of_day = floor_divide(values.view(pa.int64()), DAY_SECONDS * 1000)[1]
        place.refuse_where(
            pc.not_equal(time_of_day, 0),
            "the date has a time of day",
            "write it with a --date-format that has HH24:MI:SS",
        )
    return mask_texts(Civil.of(values), mask, place)


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
    there = _zone_info(values.type.tz)
    seconds = floor_divide(values.view(pa.int64()), 10 ** UNIT_DIGITS[values.type.unit])[0]
    encoded = seconds.dictionary_encode()
    known = (
        min(max(second, _BEFORE_ZONES), _CYCLE_START + (second - _CYCLE_START) % _CYCLE_SECONDS)
        for second in encoded.dictionary.to_pylist()
    )
    local = ((_EPOCH + timedelta(seconds=second)).astimezone(there) for second in known)
    offsets = (each.utcoffset() or timedelta() for each in local)
    found = pa.array([int(each.total_seconds()) for each in offsets], pa.int64())
    return found.take(encoded.indices)


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
