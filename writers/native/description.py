"""The library's description of a format and its columns: the bytes that `Format::read` takes.

All rules are in `writers.text.enclosing`; the library receives the marks and their treatment, and
decides nothing itself. Numbers are little-endian, texts UTF-8 behind their length.

Output encodings as the native encoder takes them: tables made of Python's own codecs.

A character has a code here where the codec alone writes it and reads it back unchanged. So bytes
and refusals equal the results of `writers.text.dialects` by construction. Encodings where
neighbours change the bytes of a character are left to the plain encoder.

Masks made ready for the native encoder: what dates, times and timestamps of a column become.

`writers.text.masks` itself tabulates names, cases and paddings here. So the native side only counts
years, days and seconds and joins ready texts and digits.
"""

from __future__ import annotations

import codecs
import encodings
import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from importlib import import_module

import pyarrow as pa
from msgspec.structs import replace

from writers.model import TextFormat
from writers.schema import text_class
from writers.text.dialects import OutputEncoding
from writers.text.enclosing import Enclosing, endings
from writers.text.fixed_width import is_free_text
from writers.text.mask_texts import UNIT_DIGITS, fixed_offset, mask_of, year_range
from writers.text.masks import ERAS, GROUPS, Element, Mask, element_text
from writers.text.text_values import alphabet_of, content_of_field, format_for, plain_type


class Kind(IntEnum):
    """How values lie in memory, as `description.h` numbers it."""

    NONE = 0
    BOOLEAN = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    DECIMAL = 12
    MOMENT = 13
    TEXT32 = 14
    TEXT64 = 15
    TEXT_VIEW = 16
    BINARY32 = 17
    BINARY64 = 18
    BINARY_VIEW = 19
    BINARY_FIXED = 20
    UUID = 21


_INTEGERS = {
    getattr(pa, name.lower())(): Kind[name]
    for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
}
_OTHERS = {
    pa.null(): Kind.NONE,
    pa.bool_(): Kind.BOOLEAN,
    pa.float32(): Kind.FLOAT32,
    pa.float64(): Kind.FLOAT64,
    pa.string(): Kind.TEXT32,
    pa.large_string(): Kind.TEXT64,
    pa.string_view(): Kind.TEXT_VIEW,
    pa.binary(): Kind.BINARY32,
    pa.large_binary(): Kind.BINARY64,
    pa.binary_view(): Kind.BINARY_VIEW,
}
_BINARY_FORMS = {"prefixed-hex": 0, "hex": 1, "base64": 2}
_ENCLOSED, _ESCAPED, _REFUSED = range(3)
_UUID_BYTES = 16


def describe_format(schema: pa.Schema, format: TextFormat) -> tuple[bytes, tuple[Kind | None, ...]]:
    """Describe a format and the kind of each column; None for one that is given as text."""
    # Nothing is enclosed or escaped where places tell the values apart.
    rules = replace(format, enclose="none", escape="none") if format.fixed else format
    enclosing = Enclosing(rules, single=len(schema) == 1)
    columns = [_column(field, format, enclosing) for field in schema]
    charset = b"" if OutputEncoding(format.encoding).is_utf8 else charset_description(format)
    end = (format.delimiter if format.trailing_delimiter else "") + format.eol
    words = (format.null, end, format.decimal_separator, *format.boolean.split("/"))
    fields = (
        struct.pack("<QBBB", place.width, place.right, place.padded, is_free_text(field))
        for place, field in zip(format.fixed, schema, strict=bool(format.fixed))
    )
    description = b"".join(
        (
            *map(_text, (format.delimiter, format.enclosure, *words)),
            struct.pack("<BI", _BINARY_FORMS[format.binary], format.record_length_digits),
            _rules(rules, enclosing),
            _text(charset or b""),
            _list(fields),
            _list(packed for _, packed in columns),
        )
    )
    return description, tuple(kind for kind, _ in columns)


def is_known(format: TextFormat) -> bool:
    return OutputEncoding(format.encoding).is_utf8 or charset_description(format) is not None


def _rules(format: TextFormat, rules: Enclosing) -> bytes:
    """Return what `writers.text.enclosing` does about values that hold marks."""
    backslash, bare, mark = rules.backslash, rules.is_bare, format.enclosure
    protection = _ENCLOSED if not bare else _ESCAPED if backslash else _REFUSED
    enclosed = () if bare else rules.enclosed_escapes if backslash else ((mark, mark * 2),)
    # A backslash before a text that could run into the next mark keeps the two apart.
    runs = rules.after_bare if bare else (format.delimiter,)
    return b"".join(
        (
            struct.pack("<BB", protection, format.escape == "none"),
            _texts(rules.refused),
            _texts(() if bare else rules.enclosed_for),
            _texts(rules.not_bare),
            _texts(rules.forbidden_bare),
            _texts(filter(endings, runs)),
            struct.pack("<B", not backslash and bool(endings(mark))),
            _pairs(enclosed),
            _pairs(rules.bare_escapes if backslash else ()),
            _text(rules.protected_null if backslash else ""),
        )
    )


def _column(field: pa.Field, format: TextFormat, enclosing: Enclosing) -> tuple[Kind | None, bytes]:
    index, stored = Kind.NONE, storage_type(field.type)
    if pa.types.is_dictionary(stored):
        index, stored = _INTEGERS[stored.index_type], storage_type(stored.value_type)
    kind, width, scale = _shape(stored)
    program: bytes | None = b""
    if kind is Kind.MOMENT:
        program = moment_program(stored, format_for(field, format))
    carried = text_class(field)
    shown_otherwise = carried == "number" and format.decimal_separator != "."
    if program is None or carried == "timestamp" or shown_otherwise:
        kind, index, program = None, Kind.NONE, b""
    alphabet = alphabet_of(field, format)
    fixed = struct.pack(
        "<BBiiBBB",
        # Values given as text are described as text; string or large_string is given later.
        Kind.TEXT32 if kind is None else kind,
        Kind.NONE if kind is None else index,
        width,
        scale,
        format.enclose == "all"
        or (format.enclose == "strings" and content_of_field(field) == "text"),
        enclosing.leaves(alphabet),
        any(_may_be(text, field, format, alphabet) for text in enclosing.not_bare),
    )
    return kind, fixed + _text(program)


def storage_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.uuid":
        return storage_type(kind.storage_type)
    return kind


def _shape(kind: pa.DataType) -> tuple[Kind | None, int, int]:
    """Return the kind of a type, and width and scale where it has them."""
    types = pa.types
    if types.is_decimal(kind):
        return Kind.DECIMAL, kind.bit_width // 8, kind.scale
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return Kind.MOMENT, 0, 0
    if isinstance(kind, pa.BaseExtensionType):
        return Kind.UUID, _UUID_BYTES, 0
    if types.is_fixed_size_binary(kind):
        return Kind.BINARY_FIXED, kind.byte_width, 0
    return _INTEGERS.get(kind, _OTHERS.get(kind)), 0, 0


def _may_be(
    text: str, field: pa.Field, format: TextFormat, alphabet: frozenset[str] | None
) -> bool:
    if alphabet is None:
        return True
    if text:
        return set(text) <= alphabet
    kind = plain_type(field.type)
    if content_of_field(field) != "text" or not pa.types.is_temporal(kind):
        return False
    # Only elements that may be empty.
    elements = mask_of(kind, format_for(field, format)).elements
    return all(GROUPS.get(e.kind) == "fraction" or e.text == "" for e in elements)


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def _list(items: Iterable[bytes]) -> bytes:
    packed = tuple(items)
    return struct.pack("<I", len(packed)) + b"".join(packed)


def _texts(texts: Iterable[str]) -> bytes:
    return _list(map(_text, texts))


def _pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return _list(_text(old) + _text(new) for old, new in pairs)


_WHOLE = {
    "utf-8": 0,
    "utf-8-sig": 0,
    "utf-16": 1,
    "utf-16-le": 1,
    "utf-16-be": 2,
    "utf-32": 3,
    "utf-32-le": 3,
    "utf-32-be": 4,
}
"""Encodings of all of Unicode by arithmetic, and their numbers in `charsets.h`."""
_TABLE = 5
_MULTIBYTE = frozenset(
    {
        "big5",
        "cp932",
        "cp949",
        "cp950",
        "euc_jp",
        "euc_kr",
        "gb18030",
        "gb2312",
        "gbk",
        "johab",
        "shift_jis",
    }
)
"""Encodings with a separate code for each character. In the JIS X 0213 family and Big5-HKSCS two
characters can share a code, and ISO 2022 has states."""
_FOUR_BYTE_LINEAR = "gb18030"
"""Characters beyond the first plane have codes that C++ computes."""
_JOINING = {"euc_kr": "\u3164"}
"""Characters that a codec takes, on reading, for the beginning of others."""

_CODE_BYTES = 4
_PAGE = 256
_FIRST_PLANE = 0x10000
_SURROGATES = range(0xD800, 0xE000)
_NO_CODE = b""


def charset_description(format: TextFormat) -> bytes | None:
    """Return what `Charset::make` takes for the format's encoding, None where it is not for C++.

    The substitute plays no part: it has to be in a value before that is enclosed or escaped. A
    `Charset` stops at a character without a code, and the plain encoder, which then takes the
    batch, substitutes or refuses it. The largest, GB 18030, takes about 30 ms, once a process.
    """
    return _described(codecs.lookup(format.encoding).name)


@lru_cache(maxsize=8)
def _described(codec: str) -> bytes | None:
    if codec in _WHOLE:
        return bytes([_WHOLE[codec]])
    if codec in _MULTIBYTE:
        first_plane = (chr(code) for code in range(_FIRST_PLANE) if code not in _SURROGATES)
        characters = [each for each in first_plane if each not in _JOINING.get(codec, "")]
    elif _is_single_byte(codec):
        characters = sorted(set(bytes(range(_PAGE)).decode(codec, "ignore")))
    else:
        return None
    codes = {character: _code(character, codec) for character in characters}
    return _table(codes, linear=codec == _FOUR_BYTE_LINEAR)


def _is_single_byte(codec: str) -> bool:
    if codec == "ascii":
        return True
    try:
        module = import_module(f"encodings.{encodings.normalize_encoding(codec)}")
    except ImportError:
        return False
    return len(getattr(module, "decoding_table", "")) == _PAGE


def _code(character: str, codec: str) -> bytes:
    try:
        code = character.encode(codec)
        is_kept = len(code) <= _CODE_BYTES and code.decode(codec) == character
        return code if is_kept else _NO_CODE
    except UnicodeError:
        return _NO_CODE


def _table(codes: dict[str, bytes], *, linear: bool) -> bytes:
    """Return the form that `charsets.cpp` reads: a header, the number of each page, the pages."""
    known = {ord(character): code for character, code in codes.items() if code}
    used = sorted({number // _PAGE for number in known})
    numbers = bytearray(2 * _PAGE)
    pages = bytearray()
    for place, page in enumerate(used, 1):
        numbers[2 * page : 2 * page + 2] = place.to_bytes(2, "little")
        held = [known.get(page * _PAGE + index, _NO_CODE) for index in range(_PAGE)]
        pages += bytes(map(len, held))
        pages += b"".join(code.ljust(_CODE_BYTES, b"\0") for code in held)
    keeps_ascii = all(known.get(number) == bytes([number]) for number in range(128))
    # Bytes a byte of UTF-8 may become: two of them make the four of a linear code's two letters.
    growth = max(
        -(-len(code) // (1 if number < 0x80 else 2 if number < 0x800 else 3))
        for number, code in known.items()
    )
    header = bytes([_TABLE, keeps_ascii, linear, growth, *len(used).to_bytes(2, "little")])
    return header + numbers + pages


_VERSION = 1
_TIME_OF_DAY_REFUSED, _YEAR_CHECKED, _ISO_YEAR_CHECKED, _JULIAN_DAY_CHECKED = 1, 2, 4, 8
_LITERAL, _PAIR, _LOOKUP, _NUMBER, _FRACTION, _TRIMMED = range(6)
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


_Domain = tuple[str, range, Callable[[int], int]]
_DOMAINS: dict[str, _Domain] = {
    # The first day of a month, counted from March 1.
    **dict.fromkeys(
        ("MM", "MON", "MONTH", "Q"),
        ("month", range(1, 13), lambda month: (153 * ((month + 9) % 12) + 2) // 5),
    ),
    **dict.fromkeys(("DD", "W"), ("day", range(1, 32), lambda day: _JANUARY + day - 1)),
    "MI": ("minute", range(60), int),
    "year": ("era", range(2), int),
    "yearday": ("year day", range(366), int),
    "weekday": ("week day", range(7), int),
    "isoweek": ("iso week", range(1, 54), int),
    "minute": ("hour", range(25), lambda hour: hour * 60),
    "second": ("second", range(60), int),
}
"""For an element or a group of them: a source of few numbers, these, and each in the group."""


def moment_program(kind: pa.DataType, format: TextFormat) -> bytes | None:
    """Return the program of `datetime_texts`; None where a zone's offset depends on the value.

    `format` is as `writers.text.text_values.format_for` returns it for the column.
    """
    mask = mask_of(kind, format)
    zoned = pa.types.is_timestamp(kind) and not format.moves_to_utc
    zone = kind.tz if zoned else None
    offset = fixed_offset(zone) if zone is not None else 0
    if offset is None or (zone is None and mask.has_zone):
        return None
    wide_date = pa.types.is_date64(kind)
    unit_digits = 3 if wide_date else 0
    if not pa.types.is_date(kind):
        unit_digits = UNIT_DIGITS[kind.unit]
    groups = {GROUPS.get(element.kind) for element in mask.elements}
    years = year_range(mask)
    checks = (
        _YEAR_CHECKED * bool(years)
        | _ISO_YEAR_CHECKED * ("isoyear" in groups)
        | _JULIAN_DAY_CHECKED * ("julian" in groups)
        | _TIME_OF_DAY_REFUSED * (wide_date and format.date_format is None)
    )
    cut = 0
    if pa.types.is_timestamp(kind) and format.fractions == "keep":
        cut = max(unit_digits - mask.fraction_digits, 0)
    shape = 2 if pa.types.is_time(kind) else 0 if pa.types.is_date32(kind) else 1
    numbers = (_VERSION, shape, unit_digits, kind.bit_width == 64, checks, cut)
    header = struct.pack("<6B2i", *numbers, offset, years[0] if years else 0)
    shown = (_element(e, mask, offset, zone or "", unit_digits) for e in mask.elements)
    return header + b"".join(shown)


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
    kind, fill = element.kind, element.fill
    if group == "julian":
        return _op(_NUMBER, "julian day", pad=7 if fill else 0)
    if group == "daysecond":
        return _op(_NUMBER, "day second", pad=5 if fill else 0)
    if fill and kind in _PAIRS:
        return b"".join(_op(_PAIR, source) for source in _PAIRS[kind])
    if kind == "ISO-YEAR":
        return _op(_NUMBER, "counted year", pad=4)
    if kind == "SYYYY":
        # The sign is the text before the four digits, or before the one digit.
        digits = 4 if fill else 1
        sign = _lookup(_DOMAINS["year"], lambda era: element_text(element, era, False)[:-digits])
        return sign + _op(_NUMBER, "counted year", pad=digits)
    if group == "isoyear" or (group == "year" and kind not in ERAS and kind != "ISO-ERA"):
        source = "iso year" if group == "isoyear" else "counted year"
        digits = {"RRRR": 4, "RR": 2}.get(kind, len(kind))
        return _op(_NUMBER, source, digits=digits, pad=digits if fill else 0)
    domain = _DOMAINS.get(kind) or _DOMAINS[group]
    return _lookup(domain, lambda number: element_text(element, number, mask.has_era))


def _lookup(domain: _Domain, text_of: Callable[[int], str]) -> bytes:
    source, numbers, in_group = domain
    texts = (text_of(in_group(number)).encode() for number in numbers)
    return _op(_LOOKUP, source) + b"".join(bytes([len(text)]) + text for text in texts)


def _literal(text: str) -> bytes:
    data = text.encode()
    return _op(_LITERAL) + struct.pack("<I", len(data)) + data


def _op(code: int, source: str = "century", *, digits: int = 0, pad: int = 0) -> bytes:
    return bytes([code, _SOURCES.index(source), digits, pad])
