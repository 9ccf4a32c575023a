"""How long the texts of a column can be, for records of fixed width.

Years are taken to be 1 to 9999: a value beyond them, where its type has such, is longer than its
field and is refused there. Everything else is the longest that the type or the mask can give.
"""

from __future__ import annotations

import pyarrow as pa

from writers.model import BinaryForm, TextFormat
from writers.schema import text_class
from writers.text.civil import UNIT_DIGITS
from writers.text.datetime_texts import mask_of
from writers.text.masks import ISO_DATE, ISO_TIMESTAMP, ISO_TIMESTAMP_TZ, Mask, parse
from writers.text.text_values import format_for, plain_type

_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_UINT64_DIGITS = 20
_DOUBLE_BITS = 64
_MICROSECOND_DIGITS = 6
_FLOAT_DIGITS = (9, 17)
"""Most digits of the shortest text that reads back as a float or double."""
_EXPONENTS = ("e-45", "e-308")
_UUID_TEXT = "00000000-0000-0000-0000-000000000000"
_LONGEST = {
    "MONTH": "September",
    "DAY": "Wednesday",
    "DY": "Wed",
    "SYYYY": "-9999",
    "ISO-YEAR": "9999",
    "ISO-ERA": "",
    "HH24": "23",
    "HH12": "12",
    "J": "5373484",
    "TZH": "+14",
    "TZM": "00",
    "D": "7",
}
"""Of elements whose texts are not as long as the element itself."""
_OFFSET = "+14:00"
_ODD_OFFSET = "+00:53:28"
"""Of zones with a name, which had seconds in their offsets before they were unified."""


def longest_text(field: pa.Field, format: TextFormat) -> str | None:
    """Return a text of the greatest length that a value of a column can have.

    Args:
        field: Numbers, timestamps and dates that are carried as text have no length by their type.
        format: Masks, decimal separator and the forms of booleans and binary are used.

    Returns:
        None where the type says nothing of it, as with text.
    """
    kind = plain_type(field.type)
    if text_class(field) in ("number", "timestamp", "moment"):
        return None
    if pa.types.is_null(kind):
        return ""
    if pa.types.is_boolean(kind):
        return max(format.boolean.split("/"), key=len)
    if pa.types.is_fixed_size_binary(kind):
        return binary_text(kind.byte_width, format.binary)
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return _UUID_TEXT
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        mask = mask_of(kind, format_for(field, format))
        return _mask_text(mask, UNIT_DIGITS.get(getattr(kind, "unit", ""), 0), _zone_of(kind))
    return _number_text(kind, format.decimal_separator)


def decimal_text(precision: int, scale: int, separator: str) -> str:
    """Return the longest text of a decimal; a negative scale is zeros before the point."""
    if scale <= 0:
        return "-" + "9" * (precision - scale)
    return "-" + "9" * max(precision - scale, 1) + separator + "9" * scale


def binary_text(size: int, form: BinaryForm) -> str:
    """Return the longest text of so many bytes."""
    if form == "base64":
        return "=" * (-(-size // 3) * 4)
    return ("\\x" if form == "prefixed-hex" else "") + "f" * (2 * size)


def timestamp_text(format: TextFormat, *, digits: int, zone: str | None) -> str | None:
    """Return the longest text of timestamps that are carried as text.

    Args:
        format: Its masks are used.
        digits: Of a second's fraction, at most.
        zone: None for those without one; otherwise any text if it is an offset only, empty where
            it can be a region, too.

    Returns:
        None where the name of a region is a part of the text.
    """
    given = format.timestamp_format if zone is None else format.timestamp_tz_format
    iso = ISO_TIMESTAMP if zone is None else ISO_TIMESTAMP_TZ
    mask = iso if given is None else parse(given)
    shows_region = given is None or any(element.kind == "TZR" for element in mask.elements)
    if zone == "" and shows_region:
        return None
    # A mask's FF shows nine digits of these, however many the column has.
    return _mask_text(mask, 9 if given is not None else digits, zone and _OFFSET)


def moment_text(*, zoned: bool, dated: bool) -> str:
    """Return the longest text of dates and timestamps carried as final text, six digits at most."""
    iso = ISO_DATE if dated else ISO_TIMESTAMP_TZ if zoned else ISO_TIMESTAMP
    return _mask_text(iso, _MICROSECOND_DIGITS, _OFFSET if zoned else None)


def _zone_of(kind: pa.DataType) -> str | None:
    return kind.tz if pa.types.is_timestamp(kind) else None


def _number_text(kind: pa.DataType, separator: str) -> str | None:
    if pa.types.is_unsigned_integer(kind):
        return "9" * (_UINT64_DIGITS if kind.bit_width == 64 else _INTEGER_DIGITS[kind.bit_width])
    if pa.types.is_integer(kind):
        return "-" + "9" * _INTEGER_DIGITS[kind.bit_width]
    if pa.types.is_decimal(kind):
        return decimal_text(kind.precision, kind.scale, separator)
    if pa.types.is_floating(kind):
        double = kind.bit_width == _DOUBLE_BITS
        return "-9" + separator + "9" * (_FLOAT_DIGITS[double] - 1) + _EXPONENTS[double]
    return None


def _mask_text(mask: Mask, unit_digits: int, zone: str | None) -> str:
    return "".join(
        _element_text(element.kind, element.text, element.digits, unit_digits, zone)
        for element in mask.elements
    )


def _element_text(
    kind: str, text: str, digits: int | None, unit_digits: int, zone: str | None
) -> str:
    if kind == "text":
        return text
    if kind == "FF":
        return "9" * (unit_digits if digits is None else digits)
    if kind == "ISO-FRACTION":
        return "." + "9" * unit_digits if unit_digits else ""
    if kind == "ISO-OFFSET":
        return _ODD_OFFSET if zone and "/" in zone else _OFFSET
    if kind == "TZR":
        return zone or ""
    return _LONGEST.get(kind, kind)
