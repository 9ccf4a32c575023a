"""Texts of timestamps whose every row has the same width: cut from Arrow's own ISO text.

Measured for whole seconds: 36 ns a value for Arrow's text and 20 more to put its digits into the
order of a mask, against 350 by tables of fields (`writers.text.mask_texts`), which write everything
else: years before 1 and after 9999, names, days of the week, and what differs in width.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from msgspec import Struct

from writers.arrow_compute import pc
from writers.text.civil import UNIT_DIGITS
from writers.text.masks import GROUPS, Element, Mask, element_text
from writers.text.string_arrays import STRING_LIMIT, joined, value_bytes

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
"""Where the digits of an element stand in `YYYY-MM-DD HH24:MI:SS`."""
_ISO_BYTES = 19
_SECONDS = pa.timestamp("s")


class _Layout(Struct, frozen=True, kw_only=True):
    """A text by bytes: constants, and what is copied over them."""

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
        offset: Seconds east of UTC, None if there is none or not one for all.

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
    """Return the layout of a mask, None if it has none.

    Args:
        mask: Any.
        digits: Of the fractions in the ISO text.
        unit_digits: The same of the column's unit; what is not in the ISO text is 0.
        offset: As for `fixed_texts`.
    """
    constants = b""
    copied: list[tuple[int, int]] = []
    for element in mask.elements:
        text = _constant(element, unit_digits, offset)
        if text is None:
            return None
        # A year of Oracle's SYYYY stands behind a blank.
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
    # What has seconds is refused where they cannot be written.
    return element_text(element, offset, era=False) if offset % 60 == 0 else None
