"""Masks made ready for the native encoder: what dates, times and timestamps of a column become.

Names, cases and paddings are tabulated here by `writers.text.masks` itself, so the native side only
counts years, days and seconds and puts ready texts and digits one behind the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct

from writers.model import TextFormat
from writers.text.civil import UNIT_DIGITS
from writers.text.datetime_texts import fixed_offset, mask_of
from writers.text.mask_texts import year_range
from writers.text.masks import ERAS, GROUPS, Element, Mask, element_text

_VERSION = 1
_KINDS = ("days", "ticks", "time of day")
_TIME_OF_DAY_REFUSED, _YEAR_CHECKED, _ISO_YEAR_CHECKED, _JULIAN_DAY_CHECKED = 1, 2, 4, 8
_LITERAL, _PAIR, _TABLE, _NUMBER, _FRACTION, _TRIMMED = range(6)
_SOURCES = (
    "century", "year of century", "month", "day", "hour", "minute", "second", "era", "year day",
    "week day", "iso week", "iso year", "counted year", "julian day", "day second",
)  # fmt: skip
"""Numbers that the native side knows, in its order."""
_PAIRS = {
    "YYYY": ("century", "year of century"),
    "RRRR": ("century", "year of century"),
    "YY": ("year of century",),
    "RR": ("year of century",),
    "MM": ("month",),
    "DD": ("day",),
    "HH24": ("hour",),
    "MI": ("minute",),
    "SS": ("second",),
}
"""Elements of two digits each of some numbers; the wide ones fill up with zeros."""
_JANUARY = 306
"""Its first day, counted from March 1."""


class _Domain(Struct, frozen=True, kw_only=True):
    """The numbers of a source that has few, and what each is in the element's group."""

    source: str
    numbers: range
    in_group: Callable[[int], int]


def _month_start(month: int) -> int:
    """Return the first day of a month, counted from March 1."""
    return (153 * ((month + 9) % 12) + 2) // 5


_MONTHS = _Domain(source="month", numbers=range(1, 13), in_group=_month_start)
_MONTH_DAYS = _Domain(source="day", numbers=range(1, 32), in_group=lambda day: _JANUARY + day - 1)
_HOURS = _Domain(source="hour", numbers=range(25), in_group=lambda hour: hour * 60)
_DOMAINS = {
    **dict.fromkeys(("MM", "MON", "MONTH", "Q"), _MONTHS),
    **dict.fromkeys(("DD", "W"), _MONTH_DAYS),
    "MI": _Domain(source="minute", numbers=range(60), in_group=int),
}
_GROUP_DOMAINS = {
    "year": _Domain(source="era", numbers=range(2), in_group=int),
    "yearday": _Domain(source="year day", numbers=range(366), in_group=int),
    "weekday": _Domain(source="week day", numbers=range(7), in_group=int),
    "isoweek": _Domain(source="iso week", numbers=range(1, 54), in_group=int),
    "minute": _HOURS,
    "second": _Domain(source="second", numbers=range(60), in_group=int),
}


def moment_program(kind: pa.DataType, format: TextFormat) -> bytes | None:
    """Return what the native side needs to write values of a type as `datetime_texts` does.

    Args:
        kind: A date, a time or a timestamp.
        format: As `writers.text.text_values.format_for` returns it for the column.

    Returns:
        The program, or None where the offset of the column's zone depends on the value.

    Raises:
        FormatError: The format's mask is not one.
    """
    mask = mask_of(kind, format)
    zoned = pa.types.is_timestamp(kind) and not format.moves_to_utc
    zone = kind.tz if zoned else None
    offset = fixed_offset(zone) if zone is not None else 0
    if offset is None or (zone is None and mask.has_zone):
        return None
    unit_digits = _unit_digits(kind)
    shown = b"".join(_element(e, mask, offset, zone or "", unit_digits) for e in mask.elements)
    return _header(kind, format, mask, offset) + shown


def _unit_digits(kind: pa.DataType) -> int:
    if pa.types.is_date(kind):
        return 3 if pa.types.is_date64(kind) else 0
    return UNIT_DIGITS[kind.unit]


def _header(kind: pa.DataType, format: TextFormat, mask: Mask, offset: int) -> bytes:
    groups = {GROUPS.get(element.kind) for element in mask.elements}
    years = year_range(mask)
    checks = _YEAR_CHECKED if years else 0
    if "isoyear" in groups:
        checks |= _ISO_YEAR_CHECKED
    if "julian" in groups:
        checks |= _JULIAN_DAY_CHECKED
    if pa.types.is_date64(kind) and format.date_format is None:
        checks |= _TIME_OF_DAY_REFUSED
    unit_digits = _unit_digits(kind)
    cut = 0
    if pa.types.is_timestamp(kind) and format.fractions == "keep":
        cut = max(unit_digits - mask.fraction_digits, 0)
    shape = 2 if pa.types.is_time(kind) else 0 if pa.types.is_date32(kind) else 1
    wide = kind.bit_width == 64
    first_year = years[0] if years else 0
    return struct.pack("<6B2i", _VERSION, shape, unit_digits, wide, checks, cut, offset, first_year)


def _element(element: Element, mask: Mask, offset: int, zone: str, unit_digits: int) -> bytes:
    group = GROUPS.get(element.kind, "text")
    if group == "text":
        return _literal(element.text)
    if group == "zone":
        return _literal(zone)
    if group == "offset":
        return _literal(element_text(element, offset, mask.has_era))
    if group == "fraction":
        if element.kind == "ISO-FRACTION":
            return _op(_TRIMMED)
        return _op(_FRACTION, digits=unit_digits if element.digits is None else element.digits)
    if group == "julian":
        return _op(_NUMBER, "julian day", pad=7 if element.fill else 0)
    if group == "daysecond":
        return _op(_NUMBER, "day second", pad=5 if element.fill else 0)
    if group == "isoyear":
        return _year("iso year", len(element.kind), element.fill)
    if element.fill and element.kind in _PAIRS:
        return b"".join(_op(_PAIR, source) for source in _PAIRS[element.kind])
    if group == "year" and element.kind not in ERAS and element.kind != "ISO-ERA":
        return _counted_year(element)
    domain = _DOMAINS.get(element.kind) or _GROUP_DOMAINS[group]
    return _table(domain, lambda number: element_text(element, number, mask.has_era))


def _counted_year(element: Element) -> bytes:
    kind, fill = element.kind, element.fill
    if kind == "ISO-YEAR":
        return _op(_NUMBER, "counted year", pad=4)
    if kind == "SYYYY":
        # The sign is what stands in front of the four digits, or of the one.
        digits = 4 if fill else 1
        sign = _table(
            _GROUP_DOMAINS["year"], lambda era: element_text(element, era, False)[:-digits]
        )
        return sign + _op(_NUMBER, "counted year", pad=digits)
    return _year("counted year", {"RRRR": 4, "RR": 2}.get(kind, len(kind)), fill)


def _year(source: str, digits: int, fill: bool) -> bytes:
    return _op(_NUMBER, source, digits=digits, pad=digits if fill else 0)


def _table(domain: _Domain, text_of: Callable[[int], str]) -> bytes:
    texts = (text_of(domain.in_group(number)).encode() for number in domain.numbers)
    return _op(_TABLE, domain.source) + b"".join(bytes([len(text)]) + text for text in texts)


def _literal(text: str) -> bytes:
    data = text.encode()
    return _op(_LITERAL) + struct.pack("<I", len(data)) + data


def _op(code: int, source: str = "century", *, digits: int = 0, pad: int = 0) -> bytes:
    return bytes([code, _SOURCES.index(source), digits, pad])
