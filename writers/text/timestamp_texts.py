"""Timestamps that are carried as text, since no Arrow type holds them, under a text format's masks.

Their one form is `[-]YYYY-MM-DD HH24:MI:SS[.f][ +HH:MM][[Region/Name]]`: a minus for years before
1 (-0001 is 1 BC), 1 to 9 digits of a fraction, and for a zoned one the offset, with the region
directly behind it as in RFC 9557. Without a mask it is written as typed timestamps are: no blank
before the offset, and ` BC` behind years before 1; a mask takes its fields as they are. A
February 29 that only the Julian calendar has is a day here; what counts days (the weekday, the ISO
week, the Julian day) is not written for it.
"""

from __future__ import annotations

import string

import pyarrow as pa
from msgspec import Struct

from writers.arrow_compute import pc
from writers.model import TextFormat
from writers.text.civil import DAY_SECONDS, Civil, CivilFields
from writers.text.datetime_texts import refuse_cut_fraction
from writers.text.mask_texts import Zone, civil_texts
from writers.text.masks import GROUPS, ISO_TIMESTAMP, Mask, parse
from writers.text.refusals import Place

_FORM = (
    r"^(?P<sign>-?)(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])"
    r" (?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?: (?P<direction>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d)"
    r"(?:\[(?P<region>[A-Za-z0-9_+./-]+)\])?)?$"
)
_LETTERS = frozenset(string.ascii_letters + string.digits + "-+:. _/[]")
_FORM_ADVICE = (
    "report this with the column's type, or leave the column out with --exclude; the form is "
    "YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM[TZR]"
)
_SHOWN_CHARACTERS = 60
_GREGORIAN_FROM = 1582
_MARCH_DAYS = (306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275)
"""The first of each month as a day of the year that begins on March 1, from 0."""
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_COUNTS_DAYS = frozenset({"weekday", "isoweek", "isoyear", "julian"})


class _Parsed(Struct, frozen=True, kw_only=True):
    """The fields of texts, null where a text is."""

    civil: CivilFields
    valid: pa.Array
    only_julian: pa.Array
    """Whether the day is February 29 of a year that the Gregorian calendar gives 28 days."""
    zone: Zone


def timestamp_texts(texts: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    """Return each timestamp under the mask for its kind, null for null.

    Zoned ones follow `timestamp_tz_format`, the others `timestamp_format`. Where the format moves
    zoned ones to UTC, they are written as ISO 8601 without an offset.

    Args:
        texts: string or large_string, of the form above.
        format: Its masks and `fractions` are used.
        place: Named, with the text, when one is refused.

    Raises:
        ValueNotRepresentable: A text is no timestamp, or does not fit its mask.
    """
    matches = pc.match_substring_regex(texts, _FORM)
    _refuse(texts, pc.invert(matches), place, "is not a timestamp in canonical form")
    result = texts
    for zoned, mask in ((True, format.timestamp_tz_format), (False, format.timestamp_format)):
        chosen = pc.equal(pc.match_substring_regex(texts, r" [+-]"), zoned)
        if mask is None and not (zoned and format.moves_to_utc):
            result = pc.if_else(pc.fill_null(chosen, False), _iso(texts, zoned=zoned), result)
            continue
        rows = pc.indices_nonzero(chosen)
        if len(rows):
            found = texts.take(rows)
            if mask is None:
                written = _in_utc(found, place.at(rows))
            else:
                written = _masked(found, parse(mask), format, place.at(rows), zoned=zoned)
            chosen = pc.fill_null(chosen, False)
            result = pc.replace_with_mask(result, chosen, pc.cast(written, result.type))
    return result


def _in_utc(texts: pa.Array, place: Place) -> pa.Array:
    parsed = _parse(texts, place)
    place.refuse_where(
        parsed.only_julian,
        "the day exists only in the Julian calendar and cannot be moved to UTC",
        "write its offset with --timestamp-tz-format 'YYYY-MM-DD HH24:MI:SS.FF9TZH:TZM'",
    )
    seconds = pc.subtract(
        pc.add(pc.multiply(parsed.civil.days, DAY_SECONDS), parsed.civil.daysecond),
        parsed.zone.offsets,
    )
    fields = Civil(seconds.view(pa.timestamp("s")))
    year, march_day = fields.year_parts
    moved = CivilFields(
        year=year,
        march_day=march_day,
        daysecond=fields.daysecond,
        fraction=parsed.civil.fraction,
    )
    return civil_texts(moved, parsed.valid, ISO_TIMESTAMP, place, None)


def _iso(texts: pa.Array, *, zoned: bool) -> pa.Array:
    """Return texts as typed timestamps are written without a mask."""
    if zoned:
        texts = pc.replace_substring_regex(texts, r" ([+-])", r"\1")
    if pc.any(pc.starts_with(texts, "-")).as_py():
        texts = pc.replace_substring_regex(texts, r"^-(.*)$", r"\1 BC")
    return texts


def timestamp_alphabet(format: TextFormat) -> frozenset[str] | None:
    """Return characters that every text of `timestamp_texts` is made of, None if any."""
    letters = _LETTERS
    for mask in (format.timestamp_format, format.timestamp_tz_format):
        if mask is not None:
            # A region's name is of our own letters, so the mask's other elements are what counts.
            elements = tuple(e for e in parse(mask).elements if e.kind != "TZR")
            letters |= Mask(elements=elements).alphabet() or frozenset()
    return letters


def _masked(
    texts: pa.Array, mask: Mask, format: TextFormat, place: Place, *, zoned: bool
) -> pa.Array:
    if mask.has_zone and not zoned:
        raise place.refusal(
            0,
            "the date format has a time zone element, but the value has no zone",
            "remove TZH, TZM and TZR from --timestamp-format",
        )
    parsed = _parse(texts, place)
    if format.fractions == "keep":
        refuse_cut_fraction(parsed.civil.fraction, 9, mask, place)
    if _COUNTS_DAYS & {GROUPS.get(element.kind) for element in mask.elements}:
        place.refuse_where(
            parsed.only_julian,
            "the day exists only in the Julian calendar, but its date format counts days",
            "do not use D, DAY, DY, J, IW or IYYY in the date format",
        )
    return civil_texts(parsed.civil, parsed.valid, mask, place, parsed.zone if zoned else None)


def _parse(texts: pa.Array, place: Place) -> _Parsed:
    fields = pc.extract_regex(texts, _FORM)

    def number(name: str) -> pa.Array:
        return pc.cast(fields.field(name), pa.int64())

    def seconds(hours: str, minutes: str) -> pa.Array:
        return pc.add(pc.multiply(number(hours), 3600), pc.multiply(number(minutes), 60))

    counted, month, day = number("year"), pc.subtract(number("month"), 1), number("day")
    before = pc.equal(fields.field("sign"), "-")
    year = pc.if_else(before, pc.subtract(1, counted), counted)
    longest, only_julian = _month_days(year, month, day)
    bad = pc.or_(pc.equal(counted, 0), pc.greater(day, longest))
    _refuse(texts, bad, place, "is not a day of the calendar")
    digits = pc.ascii_rpad(fields.field("fraction"), 9, "0")
    march_days = pa.array(_MARCH_DAYS, pa.int64()).take(month)
    return _Parsed(
        civil=CivilFields(
            year=year,
            march_day=pc.add(march_days, pc.subtract(day, 1)),
            daysecond=pc.add(seconds("hour", "minute"), number("second")),
            fraction=pc.cast(digits, pa.int64()),
        ),
        valid=texts.is_valid(),
        only_julian=only_julian,
        zone=_zone(fields),
    )


def _zone(fields: pa.StructArray) -> Zone:
    direction, hours, minutes = (fields.field(n) for n in ("direction", "hours", "minutes"))
    separator = pa.scalar("", direction.type)
    colon = pa.scalar(":", direction.type)
    offset_texts = pc.binary_join_element_wise(direction, hours, colon, minutes, separator)
    region = fields.field("region")
    size = pc.add(
        pc.multiply(pc.cast(pc.ascii_lpad(hours, 2, "0"), pa.int64()), 3600),
        pc.multiply(pc.cast(pc.ascii_lpad(minutes, 2, "0"), pa.int64()), 60),
    )
    return Zone(
        names=pc.if_else(pc.equal(region, ""), offset_texts, region),
        offsets=pc.if_else(pc.equal(direction, "-"), pc.negate(size), size),
    )


def _month_days(year: pa.Array, month: pa.Array, day: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the days of each month, and where the day is one that only Julian years have."""
    fourth = pc.equal(pc.bit_wise_and(year, 3), 0)
    century = pc.equal(pc.multiply(pc.divide(year, 100), 100), year)
    fourth_century = pc.equal(pc.multiply(pc.divide(year, 400), 400), year)
    gregorian = pc.and_(fourth, pc.or_(pc.invert(century), fourth_century))
    leap = pc.or_(gregorian, pc.and_(fourth, pc.less(year, _GREGORIAN_FROM)))
    february = pc.equal(month, 1)
    more = pc.cast(pc.and_(february, leap), pa.int64())
    longest = pc.add(pa.array(_MONTH_DAYS, pa.int64()).take(month), more)
    last = pc.and_(february, pc.equal(day, 29))
    return longest, pc.and_(last, pc.invert(gregorian))


def _refuse(texts: pa.Array, bad: pa.Array, place: Place, what: str) -> None:
    index = pc.index(bad, pa.scalar(True)).as_py()
    if index >= 0:
        # Shown, unlike other values: it is not what its column says it is.
        text = texts[index].as_py()[:_SHOWN_CHARACTERS]
        raise place.refusal(index, f"the text {text!r} {what}", _FORM_ADVICE)
