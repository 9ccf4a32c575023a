"""Records of fixed width: every value in its own bytes, padded with blanks, nothing between them.

A reader cuts a record at known places (`POSITION(1:15)`) and strips the blanks. So a value that
this would change is refused: one that ends in a blank or control character, and one that reads as
NULL. Nothing is ever cut. What a value holds does not matter otherwise; an end of line inside it is
fine, for records are counted in bytes.

How long the texts of a column can be, for records of fixed width.

Years are taken to be 1 to 9999: a value beyond them, where its type has such, is longer than its
field and is refused there. Everything else is the longest that the type or the mask can give.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from fractions import Fraction

import pyarrow as pa

from writers.errors import FormatError
from writers.model import BinaryForm, FixedField, TextFormat
from writers.schema import pc, text_class
from writers.text.dialects import OutputEncoding
from writers.text.enclosing import Pieces
from writers.text.mask_texts import UNIT_DIGITS, mask_of
from writers.text.masks import ISO_DATE, ISO_TIMESTAMP, ISO_TIMESTAMP_TZ, Mask, parse
from writers.text.string_arrays import STRING_LIMIT, Place, value_bytes, with_room
from writers.text.text_values import content_of_field, format_for, plain_type

_BLANK = " "
_ENDS_IN_BLANK = r"[\x00-\x20]\z"
"""What SQL*Loader strips: blanks, tabs and other characters that do not print."""
_ASCII = "".join(map(chr, range(128)))


def record_bytes(format: TextFormat) -> int:
    last = format.fixed[-1]
    return last.start + last.width + len(OutputEncoding(format.encoding).encode(format.eol))


class FixedRecords:
    """Makes records of fixed width out of texts; one field for each column."""

    def __init__(self, schema: pa.Schema, format: TextFormat, encoding: OutputEncoding) -> None:
        if len(format.fixed) != len(schema):
            raise FormatError(
                f"{len(format.fixed)} fields of fixed width do not fit {len(schema)} columns.",
                "give one field for each column.",
            )
        self._fields = [
            _Field(field, is_free_text(column), format, encoding)
            for field, column in zip(format.fixed, schema, strict=True)
        ]
        self._names = schema.names
        self._end = encoding.encode(format.eol)
        self._record_bytes = record_bytes(format)

    def encoded(self, texts: Sequence[pa.Array], first_row: int) -> memoryview:
        """Return the records of columns of texts, null for NULL; at least one row."""
        rows = len(texts[0])
        large = rows * self._record_bytes > STRING_LIMIT
        kind = pa.large_binary() if large else pa.binary()
        cells = [
            pc.cast(field.cells(column, Place(column=name, first_row=first_row)), kind)
            for field, column, name in zip(self._fields, texts, self._names, strict=True)
        ]
        joined = pc.binary_join_element_wise(
            *cells, pa.scalar(self._end, kind), pa.scalar(b"", kind)
        )
        return value_bytes(joined)

    def whole(self, pieces: Pieces, index: int, row: int) -> str:
        """Return a text in pieces as a whole, in no more memory than its field has bytes."""
        width = self._fields[index].width
        parts: list[str] = []
        length = 0
        for piece in pieces():
            parts.append(piece)
            # No encoding has less than a byte for a character.
            length += len(piece)
            if length > width:
                place = Place(column=self._names[index], first_row=row)
                reason = f"the value needs more than the {width} bytes of its field"
                raise place.refusal(0, *_too_wide(place.column, reason))
        return "".join(parts)


class _Field:
    def __init__(
        self, field: FixedField, free_text: bool, format: TextFormat, encoding: OutputEncoding
    ) -> None:
        self.width = field.width
        self._field = field
        self._free_text = free_text
        self._null = format.null
        self._encoding = encoding
        self._blank = encoding.encode(_BLANK)
        self._keeps_ascii = encoding.encode(_ASCII) == _ASCII.encode()

    def cells(self, texts: pa.Array, place: Place) -> pa.Array:
        if self._field.padded:
            texts = pc.ascii_rtrim(texts, _BLANK)
        place.refuse_where(
            pc.equal(texts, self._null),
            f"the value would read as NULL, which is written {self._null!r} and padded with blanks",
            "use another --null",
        )
        if self._free_text:
            place.refuse_where(
                pc.match_substring_regex(texts, _ENDS_IN_BLANK),
                "the value ends in a blank or control character, which a reader of fixed fields "
                "strips",
                "trim it in --query, write delimited text without --fixed, or leave the column "
                "out with --exclude",
            )
        if texts.null_count:
            texts = pc.fill_null(texts, pa.scalar(self._null, texts.type))
        return self._padded(texts, place)

    def _padded(self, texts: pa.Array, place: Place) -> pa.Array:
        data = value_bytes(texts)
        if self._encoding.is_utf8 or (self._keeps_ascii and str(data, "latin-1").isascii()):
            lengths = pc.binary_length(texts)
            self._check_widths(lengths, place)
            # Arrow pads up to a number of bytes, not of characters.
            pad: Callable[..., pa.Array] = pc.ascii_lpad if self._field.right else pc.ascii_rpad
            return pad(with_room(texts, factor=0, more=self.width), self.width, _BLANK)
        encoded = [self._encode(text, index, place) for index, text in enumerate(texts.to_pylist())]
        self._check_widths(pa.array(map(len, encoded), pa.int64()), place)
        return pa.array(map(self._filled, encoded), pa.large_binary())

    def _encode(self, text: str, index: int, place: Place) -> bytes:
        try:
            encoded = self._encoding.encode(text)
            if self._encoding.reads_back(text, encoded):
                return encoded
        except UnicodeError:
            pass
        lacking = next((each for each in text if not self._encoding.holds(each)), "")
        raise place.no_character(index, lacking, self._encoding.name)

    def _filled(self, encoded: bytes) -> bytes:
        blanks = self._blank * ((self.width - len(encoded)) // len(self._blank))
        return blanks + encoded if self._field.right else encoded + blanks

    def _check_widths(self, lengths: pa.Array, place: Place) -> None:
        longest = pc.max(lengths).as_py()
        if longest > self.width:
            wide = pc.greater(lengths, self.width)
            index = pc.index(wide, pa.scalar(True)).as_py()
            length = lengths[index].as_py()
            reason = f"the value needs {length} bytes, but its field has {self.width}"
            raise place.refusal(index, *_too_wide(place.column, reason))


def is_free_text(column: pa.Field) -> bool:
    """Return whether a column's values may end in any character: texts without a mask."""
    free = content_of_field(column) == "text" and not text_class(column)
    return free and not pa.types.is_temporal(plain_type(column.type))


def _too_wide(column: str, reason: str) -> tuple[str, str]:
    hint = f"give the column more bytes with --width {column}=BYTES, or leave it out with --exclude"
    return reason, hint


_WIDE = {
    **dict.fromkeys(("euc_jis_2004", "euc_jisx0213", "euc_jp"), (3, Fraction(3, 2))),
    "gb18030": (4, Fraction(2)),
}
"""Bytes of a character, and bytes that one byte of UTF-8 becomes: letters of two bytes there can
have three or four here."""
_ESCAPED = 9
"""A character of ISO 2022 between two changes of state."""


def most_bytes_of_characters(encoding: str, count: int) -> int:
    """Return the most bytes of characters, without Python's EUC-KR of Hangul outside KS X 1001."""
    codec = codecs.lookup(encoding).name
    if codec.startswith("utf-"):
        return 4 * count
    if codec.startswith("iso2022"):
        return _ESCAPED * count
    if codec in _WIDE:
        return _WIDE[codec][0] * count
    # 1 for a set of single bytes, 2 for one where bytes go by two.
    return (1 if len(bytes(range(256)).decode(codec, "replace")) == 256 else 2) * count


def most_bytes_of_utf8(encoding: str, count: int) -> int:
    codec = codecs.lookup(encoding).name
    if codec.startswith("utf-16"):
        return 2 * count
    if codec.startswith("utf-32"):
        return 4 * count
    if codec.startswith("iso2022"):
        return _ESCAPED * count
    grown = _WIDE.get(codec, (1, Fraction(1)))[1] * count
    return -(-grown.numerator // grown.denominator)


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
    """Return the longest text that a column's value can have by its type, if that is known."""
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
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        return _mask_text(mask, UNIT_DIGITS.get(getattr(kind, "unit", ""), 0), zone)
    separator = format.decimal_separator
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


def decimal_text(precision: int, scale: int, separator: str) -> str:
    """Return the longest text of a decimal; a negative scale is zeros before the point."""
    if scale <= 0:
        return "-" + "9" * (precision - scale)
    return "-" + "9" * max(precision - scale, 1) + separator + "9" * scale


def binary_text(size: int, form: BinaryForm) -> str:
    if form == "base64":
        return "=" * (-(-size // 3) * 4)
    return ("\\x" if form == "prefixed-hex" else "") + "f" * (2 * size)


def timestamp_text(format: TextFormat, *, digits: int, zone: str | None) -> str | None:
    """Return the longest text of timestamps that are carried as text, with digits of a fraction.

    `zone` is None for none; otherwise any text if it is an offset, empty where it
    can be a region, too. None where the name of a region is a part of the text.
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


def _mask_text(mask: Mask, unit_digits: int, zone: str | None) -> str:
    texts = []
    for element in mask.elements:
        kind = element.kind
        if kind == "text":
            texts.append(element.text)
        elif kind == "FF":
            texts.append("9" * (unit_digits if element.digits is None else element.digits))
        elif kind == "ISO-FRACTION":
            texts.append("." + "9" * unit_digits if unit_digits else "")
        elif kind == "ISO-OFFSET":
            texts.append(_ODD_OFFSET if zone and "/" in zone else _OFFSET)
        elif kind == "TZR":
            texts.append(zone or "")
        else:
            texts.append(_LONGEST.get(kind, kind))
    return "".join(texts)
