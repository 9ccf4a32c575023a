"""Texts of dates, times and timestamps, whole arrays at a time.

Adjacent elements that depend on the same number (the year, the day of the year, the minute of the
day, ...) share one table of ready texts, so a value costs a few look-ups and one concatenation.
Measured: about a third of `pyarrow.compute.strftime`, which also knows no years past 9999.

Texts of timestamps whose every row has the same width: cut from Arrow's own ISO text.

Measured for whole seconds: 36 ns a value for Arrow's text and 20 more to put its digits into the
order of a mask, against 350 by tables of fields (`writers.text.mask_texts`), which write everything
else: years before 1 and after 9999, names, days of the week, and what differs in width.

Dates, times and timestamps taken apart by integer arithmetic on whole arrays.

The calendar is the proleptic Gregorian one, for every year that Arrow's 64 bits reach. Days
become years by Howard Hinnant's `civil_from_days`, with the year beginning on March 1 so that a
leap day is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial

import pyarrow as pa
from msgspec import Struct

from writers.schema import pc
from writers.text.masks import DOMAINS, GROUPS, Element, Mask, element_text
from writers.text.string_arrays import (
    STRING_LIMIT,
    LookupTable,
    Place,
    joined,
    value_bytes,
    zero_padded,
)

_UNIX_EPOCH_JULIAN_DAY = 2_440_588
_PLAIN_YEARS = frozenset({"YYYY", "YYY", "YY", "Y", "RR", "RRRR"})


class Zone(Struct, frozen=True, kw_only=True):
    """What a mask may say about the zone of an array."""

    names: pa.Array | str
    """What TZR says: of each value, or of all."""
    offsets: pa.Array | int
    """Seconds east of UTC: of each value, or of all."""


def mask_texts(values: pa.Array, mask: Mask, place: Place, zone: Zone | None = None) -> pa.Array:
    """Return the text of each value under a mask, null for null.

    Args:
        values: Dates, times or timestamps; their fields are taken as they are, local time.
        mask: Without zone elements unless `zone` is given.
        place: Named when a value is refused.
        zone: The zone the values are local to.

    Raises:
        ValueNotRepresentable: A year or an offset does not fit the mask's elements.
    """
    if not len(values):
        return pa.array([], pa.string())
    offset = zone.offsets if zone and isinstance(zone.offsets, int) else None
    if pa.types.is_timestamp(values.type):
        texts = fixed_texts(values, mask, offset)
        if texts is not None:
            return texts
    return civil_texts(Civil(values), values.is_valid(), mask, place, zone)


def civil_texts(
    civil: Civil, valid: pa.Array, mask: Mask, place: Place, zone: Zone | None = None
) -> pa.Array:
    """Return the same as `mask_texts` for fields, at least one row, null where not `valid`."""
    _check(civil, mask, place, zone)
    pieces: list[pa.Array | pa.Scalar] = []
    for run in _compiled(mask):
        pieces.extend(run.pieces(civil, zone))
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        pieces.append(pc.if_else(valid, "", pa.scalar(None, pa.string())))
    if len(pieces) == 1:
        return pieces[0]
    return joined(*pieces)


class _Run(Struct, frozen=True):
    """Adjacent elements that depend on the same number, and the table of their texts."""

    group: str
    elements: tuple[Element, ...]
    table: LookupTable

    def pieces(self, civil: Civil, zone: Zone | None) -> list[pa.Array | pa.Scalar]:
        first = self.elements[0]
        if self.group == "text":
            return [pa.scalar("".join(element.text for element in self.elements))]
        if self.group == "zone":
            names = zone.names if zone else ""
            return [pa.scalar(names) if isinstance(names, str) else names]
        if self.group == "fraction":
            return _fraction_pieces(first, civil)
        if self.group == "julian":
            return _padded(pc.add(civil.days, _UNIX_EPOCH_JULIAN_DAY), 7, first.fill)
        if self.group == "daysecond":
            return _padded(civil.daysecond, 5, first.fill)
        if self.group == "offset":
            offsets = zone.offsets if zone else 0
            if isinstance(offsets, int):
                return [self.table.take(pa.array([offsets]))[0]]
            return [self.table.take(offsets)]
        return [self.table.take(_KEYS[self.group](civil))]


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
def _compiled(mask: Mask) -> tuple[_Run, ...]:
    """Cut a mask into runs; a literal goes into the table of the elements before or after it."""
    runs: list[tuple[str, tuple[Element, ...]]] = []
    for element in mask.elements:
        group = GROUPS.get(element.kind, "text")
        before, elements = runs[-1] if runs else ("", ())
        joins = before and not {group, before} & _ALONE
        if joins and (group == before or "text" in (group, before)):
            runs[-1] = (before if group == "text" else group, (*elements, element))
        else:
            runs.append((group, (element,)))
    return tuple(
        _Run(
            group,
            elements,
            LookupTable(partial(_run_text, elements, mask.has_era), DOMAINS.get(group)),
        )
        for group, elements in runs
    )


def _run_text(elements: tuple[Element, ...], era: bool, number: int) -> str:
    return "".join(element_text(element, number, era) for element in elements)


def _padded(numbers: pa.Array, digits: int, fill: bool) -> list[pa.Array | pa.Scalar]:
    return list(zero_padded(numbers, digits)) if fill else [pc.cast(numbers, pa.string())]


def _fraction_pieces(element: Element, civil: Civil) -> list[pa.Array | pa.Scalar]:
    have = civil.fraction_digits
    trimmed = element.kind == "ISO-FRACTION"
    wanted = have if trimmed or element.digits is None else element.digits
    fraction = civil.fraction
    if not have or not pc.max(fraction).as_py():
        return [] if trimmed else [pa.scalar("0" * wanted)]
    if trimmed:
        digits = joined(".", *zero_padded(fraction, have))
        return [pc.ascii_rtrim(digits, "0.")]
    if wanted < have:
        return list(zero_padded(pc.divide(fraction, 10 ** (have - wanted)), wanted))
    padding = [pa.scalar("0" * (wanted - have))] if wanted > have else []
    return [*zero_padded(fraction, have), *padding]


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


_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""From 0001-01-01 to 9999-12-31, in seconds since 1970."""
_PLACES = {
    **dict.fromkeys(("YYYY", "RRRR", "SYYYY", "ISO-YEAR"), range(4)),
    "YYY": range(1, 4),
    **dict.fromkeys(("YY", "RR"), range(2, 4)),
    "Y": range(3, 4),
    "MM": range(5, 7),
    "DD": range(8, 10),
    "HH24": range(11, 13),
    "MI": range(14, 16),
    "SS": range(17, 19),
}
"""The places of an element's digits in `YYYY-MM-DD HH24:MI:SS`."""
_ISO_BYTES = 19
_SECONDS = pa.timestamp("s")


class _Layout(Struct, frozen=True, kw_only=True):
    """A text by bytes: constants, and the bytes that are copied over them."""

    constants: bytes
    copied: tuple[tuple[int, int], ...]
    """Place in the text, and in Arrow's ISO text."""
    is_iso: bool
    """Whether the text is Arrow's ISO text."""


def fixed_texts(values: pa.Array, mask: Mask, offset: int | None) -> pa.Array | None:
    """Return the text of each timestamp under a mask, null for null.

    Args:
        values: Timestamps of any unit without a zone, local time, at least one.
        mask: Its TZR is not written here.
        offset: Seconds east of UTC, None without an offset or without one for all.

    Returns:
        A string array; None where a text of fixed width does not do.
    """
    bounds = pc.min_max(values.view(pa.int64())).as_py()
    unit_digits = UNIT_DIGITS[values.type.unit]
    ticks = 10**unit_digits
    if bounds["min"] is None or (
        bounds["min"] < _FIRST_SECOND * ticks or bounds["max"] >= (_LAST_SECOND + 1) * ticks
    ):
        return None
    try:
        # Refuses fractions. Most columns of the finer units have none.
        whole = values.cast(_SECONDS)
    except pa.ArrowInvalid:
        if any(element.kind == "ISO-FRACTION" for element in mask.elements):
            return _trimmed_texts(values, mask, offset)
        return _fixed_texts(values, mask, offset, unit_digits)
    return _fixed_texts(whole, mask, offset, unit_digits)


def _trimmed_texts(values: pa.Array, mask: Mask, offset: int | None) -> pa.Array | None:
    """Return the texts of a mask whose fraction is as long as it needs to be."""
    unit_digits = UNIT_DIGITS[values.type.unit]
    place = [element.kind for element in mask.elements].index("ISO-FRACTION")
    front, behind = mask.elements[:place], mask.elements[place + 1 :]
    after = [_constant(element, 0, offset) for element in behind]
    point = Element(kind="text", text=".")
    fraction = (*front, point, Element(kind="FF"))
    # Wrong for the values with a fraction, which are not taken from it.
    whole = values.cast(_SECONDS, safe=False)
    short = _fixed_texts(whole, Mask(elements=front), offset, unit_digits)
    long = _fixed_texts(values, Mask(elements=fraction), offset, unit_digits)
    if short is None or long is None or None in after:
        return None
    exact = pc.equal(whole.cast(values.type), values)
    texts = pc.if_else(exact, short, pc.ascii_rtrim(long, "0"))
    suffix = "".join(text for text in after if text)
    return joined(texts, suffix) if suffix else texts


def _fixed_texts(
    values: pa.Array, mask: Mask, offset: int | None, unit_digits: int
) -> pa.Array | None:
    digits = UNIT_DIGITS[values.type.unit]
    layout = _layout(mask, digits, unit_digits, offset)
    if layout is None or len(layout.constants) * len(values) > STRING_LIMIT:
        return None
    texts = _texts(values, layout, len(_iso_constants(digits)))
    if texts is None or not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _texts(values: pa.Array, layout: _Layout, iso_bytes: int) -> pa.Array | None:
    if values.null_count:
        values = values.fill_null(pa.scalar(0, values.type))
    iso = values.cast(pa.string())
    width, rows = len(layout.constants), len(values)
    data = bytes(value_bytes(iso))
    if len(data) != rows * iso_bytes:
        return None
    if layout.is_iso:
        return iso
    text = bytearray(layout.constants * rows)
    for place, source in layout.copied:
        text[place::width] = data[source::iso_bytes]
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(text)])
    # Not cast to a string, which would look at every byte again.
    return pa.Array.from_buffers(pa.string(), rows, fixed.cast(pa.binary()).buffers())


@lru_cache(maxsize=64)
def _layout(mask: Mask, digits: int, unit_digits: int, offset: int | None) -> _Layout | None:
    """Return the layout of a mask, or None.

    Args:
        mask: Any.
        digits: Of the fractions in the ISO text.
        unit_digits: The digits of the column's unit; digits missing in the ISO text are 0.
        offset: As for `fixed_texts`.
    """
    constants = b""
    copied: list[tuple[int, int]] = []
    for element in mask.elements:
        text = _constant(element, unit_digits, offset)
        if text is None:
            return None
        # A blank precedes a year of Oracle's SYYYY.
        start = len(constants) + (element.kind == "SYYYY")
        places = _places(element, digits, unit_digits)
        copied += [(start + index, place) for index, place in enumerate(places)]
        constants += text.encode()
    if not copied:
        return None
    in_place = all(place == source for place, source in copied)
    is_iso = in_place and constants == _iso_constants(digits)
    return _Layout(constants=constants, copied=tuple(copied), is_iso=is_iso)


def _iso_constants(digits: int) -> bytes:
    return b"0000-00-00 00:00:00" + (b"." + b"0" * digits if digits else b"")


def _places(element: Element, digits: int, unit_digits: int) -> range:
    """Return which bytes of the ISO text an element shows."""
    if element.kind == "FF":
        shown = min(digits, _fraction_digits(element, unit_digits))
        return range(_ISO_BYTES + 1, _ISO_BYTES + 1 + shown)
    return _PLACES.get(element.kind, range(0))


def _fraction_digits(element: Element, unit_digits: int) -> int:
    return unit_digits if element.digits is None else element.digits


def _constant(element: Element, unit_digits: int, offset: int | None) -> str | None:
    """Return an element's text with zeros for digits, None if its width may differ."""
    if element.kind == "text":
        return element.text
    if element.kind in ("ISO-ERA", "ISO-FRACTION"):
        return ""
    if element.kind == "FF":
        return "0" * _fraction_digits(element, unit_digits)
    if element.kind in _PLACES and element.fill:
        return (" " if element.kind == "SYYYY" else "") + "0" * len(_PLACES[element.kind])
    if GROUPS[element.kind] != "offset" or offset is None:
        return None
    # An offset with seconds is refused where they cannot be written.
    return element_text(element, offset, era=False) if offset % 60 == 0 else None


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
        """Seconds since midnight."""
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
        """Days since 1970-01-01."""
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
