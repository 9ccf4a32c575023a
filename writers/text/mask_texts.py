"""Texts of dates, times and timestamps, whole arrays at a time.

Adjacent elements that depend on the same number (the year, the day of the year, the minute of the
day, ...) share one text, which is made once for each different number. Few numbers have a table.

Dates, times and timestamps taken apart by integer arithmetic on whole arrays.

The calendar is the proleptic Gregorian one, for every year that Arrow's 64 bits reach. Days
become years by Howard Hinnant's `civil_from_days`, with the year beginning on March 1 so that a
leap day is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import pyarrow as pa
from msgspec import Struct

from writers.schema import pc
from writers.text.masks import DOMAINS, GROUPS, Element, Mask, element_text
from writers.text.string_arrays import Place, joined

_UNIX_EPOCH_JULIAN_DAY = 2_440_588
_REMEMBERED = 20_000
"""Ready texts of a group, such as years. To make a text takes ten times as long."""
_PLAIN_YEARS = frozenset({"YYYY", "YYY", "YY", "Y", "RR", "RRRR"})


class Zone(Struct, frozen=True, kw_only=True):
    names: pa.Array | str
    """What TZR says: of each value, or of all."""
    offsets: pa.Array | int
    """Seconds east of UTC: of each value, or of all."""


def mask_texts(values: pa.Array, mask: Mask, place: Place, zone: Zone | None = None) -> pa.Array:
    """Return the text of each value under a mask, null for null; `values` are local to `zone`.

    Raises:
        ValueNotRepresentable: A year or an offset does not fit the mask's elements.
    """
    if not len(values):
        return pa.array([], pa.string())
    return civil_texts(Civil(values), values.is_valid(), mask, place, zone)


def civil_texts(
    civil: Civil, valid: pa.Array, mask: Mask, place: Place, zone: Zone | None = None
) -> pa.Array:
    """Return the same as `mask_texts` for fields, at least one row, null where not `valid`."""
    _check(civil, mask, place, zone)
    pieces: list[pa.Array | pa.Scalar] = []
    for group, elements, texts in _compiled(mask):
        pieces += _pieces(group, elements, texts, civil, zone)
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        pieces.append(pc.if_else(valid, "", pa.scalar(None, pa.string())))
    if len(pieces) == 1:
        return pieces[0]
    return joined(*pieces)


_KEYS: dict[str, Callable[[Civil], pa.Array]] = {
    "year": lambda civil: civil.year_parts[0],
    "monthday": lambda civil: civil.year_parts[1],
    "yearday": lambda civil: civil.yearday,
    "weekday": lambda civil: civil.weekday,
    "isoyear": lambda civil: civil.iso_week_parts[0],
    "isoweek": lambda civil: civil.iso_week_parts[1],
    "minute": lambda civil: civil.minute_parts[0],
    "second": lambda civil: civil.minute_parts[1],
}
_ALONE = frozenset({"fraction", "julian", "daysecond", "zone"})


@lru_cache(maxsize=64)
def _compiled(
    mask: Mask,
) -> tuple[tuple[str, tuple[Element, ...], Callable[[pa.Array], pa.Array]], ...]:
    """Cut a mask into groups of adjacent elements that depend on the same number.

    A literal goes into the table of the elements before or after it.
    """
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


def _texts_of(
    group: str, elements: tuple[Element, ...], mask: Mask
) -> Callable[[pa.Array], pa.Array]:
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
    group: str,
    elements: tuple[Element, ...],
    texts: Callable[[pa.Array], pa.Array],
    civil: Civil,
    zone: Zone | None,
) -> list[pa.Array | pa.Scalar]:
    first = elements[0]
    if group == "text":
        return [pa.scalar("".join(element.text for element in elements))]
    if group == "zone":
        names = zone.names if zone else ""
        return [pa.scalar(names) if isinstance(names, str) else names]
    if group == "fraction":
        return _fraction_pieces(first, civil)
    if group == "julian":
        return [_padded(pc.add(civil.days, _UNIX_EPOCH_JULIAN_DAY), 7, first.fill)]
    if group == "daysecond":
        return [_padded(civil.daysecond, 5, first.fill)]
    if group == "offset":
        offsets = zone.offsets if zone else 0
        if isinstance(offsets, int):
            return [texts(pa.array([offsets]))[0]]
        return [texts(offsets)]
    return [texts(_KEYS[group](civil))]


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
        _check_range(civil.year_parts[0], *years, "year", place)
    if "isoyear" in groups:
        _check_range(civil.iso_week_parts[0], 1, 9999, "ISO year", place)
    if "julian" in groups:
        days = pc.add(civil.days, _UNIX_EPOCH_JULIAN_DAY)
        _check_range(days, 0, 9_999_999, "Julian day", place)
    if kinds & {"TZH", "TZM"} and zone is not None:
        offsets = pa.array([zone.offsets]) if isinstance(zone.offsets, int) else zone.offsets
        minutes = pc.multiply(pc.divide(offsets, 60), 60)
        place.refuse_where(
            pc.not_equal(offsets, minutes),
            f"its offset in the zone {zone.names} has seconds, which TZH:TZM cannot show",
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


UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of the fraction of a second by Arrow's time unit."""
DAY_SECONDS = 86_400
_ERA_DAYS = 146_097
_ERA_YEARS = 400
_MARCH_1_YEAR_0 = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_ERAS_BEFORE = 10**9
"""Whole eras added so that every dividend is positive; Arrow's seconds reach 3e11 years."""

_ERAS_BEFORE_FIELDS = 13
"""The eras for years given as fields, which begin in -4800."""


class Civil:
    """The calendar and clock fields of an array, each computed when first asked for.

    Takes date32, date64, time32, time64 and timestamps; a zone is ignored (the fields are UTC). All
    fields are int64 and null where the value is.
    """

    def __init__(self, values: pa.Array) -> None:
        kind = values.type
        self._is_date32 = bool(pa.types.is_date32(kind))
        self._is_time = bool(pa.types.is_time(kind))
        unit = "ms" if pa.types.is_date64(kind) else "s" if self._is_date32 else kind.unit
        self.fraction_digits = UNIT_DIGITS[unit]
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        self._ticks = pc.cast(values.view(width), pa.int64())

    @cached_property
    def _day_parts(self) -> tuple[pa.Array, pa.Array]:
        """Days since 1970-01-01 and ticks of the day."""
        if self._is_date32:
            return self._ticks, pc.multiply(self._ticks, 0)
        if self._is_time:
            # Not divided, since 24:00 differs from 00:00.
            return pc.multiply(self._ticks, 0), self._ticks
        return floor_divide(self._ticks, DAY_SECONDS * 10**self.fraction_digits)

    @cached_property
    def _second_parts(self) -> tuple[pa.Array, pa.Array]:
        """Seconds of the day and ticks of the second."""
        ticks = self._day_parts[1]
        if self.fraction_digits == 0:
            return ticks, pc.multiply(ticks, 0)
        return _divide(ticks, 10**self.fraction_digits)

    @property
    def days(self) -> pa.Array:
        """Days since 1970-01-01."""
        return self._day_parts[0]

    @property
    def daysecond(self) -> pa.Array:
        return self._second_parts[0]

    @property
    def fraction(self) -> pa.Array:
        """Ticks since the last whole second."""
        return self._second_parts[1]

    @cached_property
    def minute_parts(self) -> tuple[pa.Array, pa.Array]:
        """Minutes since midnight and seconds of the minute."""
        return _divide(self.daysecond, 60)

    @cached_property
    def year_parts(self) -> tuple[pa.Array, pa.Array]:
        """Astronomical year, and the day of the year that began on March 1, from 0."""
        return _year_parts(self.days)

    @cached_property
    def yearday(self) -> pa.Array:
        """Days since January 1."""
        return _yearday(*self.year_parts)

    @cached_property
    def weekday(self) -> pa.Array:
        """Days since Sunday."""
        return floor_divide(pc.add(self.days, 4), 7)[1]

    @cached_property
    def iso_week_parts(self) -> tuple[pa.Array, pa.Array]:
        """ISO 8601 year and week: the year and week of the week's Thursday."""
        since_monday = floor_divide(pc.add(self.days, 3), 7)[1]
        year, march_day = _year_parts(pc.add(pc.subtract(self.days, since_monday), 3))
        return year, pc.add(_divide(_yearday(year, march_day), 7)[0], 1)


class CivilFields(Civil):
    """The same of fields that are known already.

    Args:
        year: Astronomical years from -4800 on, int64 as all others.
        march_day: Day of the year that began on March 1, from 0.
        daysecond: Seconds since midnight.
        fraction: Nanoseconds since the last whole second.
    """

    def __init__(
        self, *, year: pa.Array, march_day: pa.Array, daysecond: pa.Array, fraction: pa.Array
    ) -> None:
        self.fraction_digits = 9
        self.__dict__["year_parts"] = year, march_day
        self.__dict__["_second_parts"] = daysecond, fraction

    @property
    def days(self) -> pa.Array:
        return self._days

    @cached_property
    def _days(self) -> pa.Array:
        year, march_day = self.year_parts
        before_march = pc.cast(pc.greater_equal(march_day, 306), pa.int64())
        years = pc.add(pc.subtract(year, before_march), _ERAS_BEFORE_FIELDS * _ERA_YEARS)
        leap_days = pc.add(
            pc.subtract(pc.divide(years, 4), pc.divide(years, 100)), pc.divide(years, _ERA_YEARS)
        )
        days = pc.add(pc.add(pc.multiply(years, 365), leap_days), march_day)
        return pc.subtract(days, _ERAS_BEFORE_FIELDS * _ERA_DAYS + _MARCH_1_YEAR_0)


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
