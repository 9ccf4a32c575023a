"""Texts of dates, times and timestamps, whole arrays at a time.

Adjacent elements that depend on the same number (the year, the day of the year, the minute of the
day, ...) share one table of ready texts, so a value costs a few look-ups and one concatenation.
Measured: about a third of `pyarrow.compute.strftime`, which also knows no years past 9999.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import pyarrow as pa
from msgspec import Struct

from writers.arrow_compute import pc
from writers.text.civil import Civil
from writers.text.fixed_texts import fixed_texts
from writers.text.lookup_table import LookupTable, zero_padded
from writers.text.masks import DOMAINS, GROUPS, Element, Mask, element_text
from writers.text.refusals import Place
from writers.text.string_arrays import joined

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
    """Cut a mask into runs; a literal goes into the table of the elements before or behind it."""
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
