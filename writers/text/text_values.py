"""The canonical text of every Arrow type, before any enclosing or escaping.

Fast for the usual types: whole columns through `pyarrow.compute`. Intervals, base64 and the odd
float go value by value.

Nested values as compact JSON (RFC 8259), built column by column.

Numbers keep every digit; NaN and the infinities, which JSON has not, are strings. Characters
outside ASCII stay as they are. Dates, times, intervals, binary values and UUIDs are strings of
their canonical text. A map with text keys is an object in the order of its entries, any other an
array of [key,value] pairs.

Timestamps that are carried as text, since no Arrow type holds them, under a text format's masks.

Their one form is `[-]YYYY-MM-DD HH24:MI:SS[.f][ +HH:MM][[Region/Name]]`. A minus marks years before
1 (-0001 is 1 BC), and a fraction has 1 to 9 digits. A zoned one has the offset, and the region
directly after it as in RFC 9557. Without a mask it is written as typed timestamps are: no blank
before the offset, and ` BC` behind years before 1; a mask takes its fields as they are. A February
29 that only the Julian calendar has is a day here; what counts days (the weekday, the ISO week, the
Julian day) is not written for it.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Literal

import pyarrow as pa
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.schema import has_infinities, pc, text_class
from writers.text.mask_texts import (
    DAY_SECONDS,
    Civil,
    Zone,
    check_mask,
    datetime_texts,
    duration_texts,
    interval_texts,
    mask_of,
    mask_texts,
    refuse_cut_fraction,
)
from writers.text.masks import GROUPS, ISO_TIMESTAMP, Mask, parse
from writers.text.number_texts import LETTERS as INFINITY_LETTERS
from writers.text.number_texts import decimal_texts, float_texts, infinite_texts
from writers.text.string_arrays import (
    STRING_LIMIT,
    Place,
    binary_texts,
    compact,
    joined,
    uuid_texts,
    value_bytes,
    without_views,
)

Content = Literal["number", "boolean", "text"]

_ISO_INSIDE_JSON = TextFormat()
_NUMBER_LETTERS = frozenset(string.digits + "+-einfatyNI")
_MOMENT_LETTERS = frozenset(string.digits + "+-:. BC") | INFINITY_LETTERS


def text_of(
    array: pa.Array, field: pa.Field, format: TextFormat, *, first_row: int = 1
) -> pa.Array:
    """Return the text of each value, null for null, string or large_string.

    Text stays as it is, except numbers and timestamps carried as text (`text_class` in the field's
    metadata), which follow the decimal separator and the masks. Booleans have the format's words.
    Floats have PostgreSQL's shortest round-trip form. Decimals have all digits of their scale and
    no exponent. Dates and times follow the format's masks. Durations and intervals are ISO 8601.
    Nested values are compact JSON with ISO dates and `.` for decimals. Dictionaries are decoded,
    extension types written as their storage (UUIDs in canonical form). Rows are counted from
    `first_row` on, the row of the first value within the work unit.
    """
    place = Place(column=field.name, first_row=first_row)
    own = format_for(field, format)
    if has_infinities(field):
        zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
        mask = own.timestamp_tz_format if zoned else own.timestamp_format
        masked = (own.date_format if pa.types.is_date(field.type) else mask) is not None
        return infinite_texts(array, lambda finite: _text(finite, own, place), place, masked=masked)
    texts = _text(array, own, place)
    if text_class(field) == "timestamp":
        return timestamp_texts(texts, format, place)
    if text_class(field) == "number" and format.decimal_separator != ".":
        return pc.replace_substring(texts, ".", format.decimal_separator)
    return texts


def format_for(field: pa.Field, format: TextFormat) -> TextFormat:
    """Return the format of one column: dates with a time of day arrive as timestamps."""
    if text_class(field) == "date" and format.date_format is not None:
        return replace(format, timestamp_format=format.date_format)
    return format


def check_field(field: pa.Field, format: TextFormat) -> None:
    """Make sure that the type of a column can be written as text."""
    kind = plain_type(field.type)
    if pa.types.is_union(kind) or not _has_text(kind):
        raise FormatError(
            f"column {field.name} has the type {field.type}, which has no text form.",
            "convert it in the query, or leave the column out with --exclude.",
        )
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        check_mask(kind, format_for(field, format), field.name)
    if pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            check_field(kind.field(index).with_name(field.name), _ISO_INSIDE_JSON)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return what a dictionary, run-end-encoded or extension type holds; UUIDs stay."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not _is_uuid(kind):
        return plain_type(kind.storage_type)
    return kind


def content_of_field(field: pa.Field) -> Content:
    return "number" if text_class(field) == "number" else content_of(field.type)


def content_of(kind: pa.DataType) -> Content:
    kind = plain_type(kind)
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "text"


def alphabet_of(field: pa.Field, format: TextFormat) -> frozenset[str] | None:
    """Return characters that every text of a column is made of, or None when it can hold any."""
    if text_class(field) == "timestamp":
        found = _LETTERS
        for mask in (format.timestamp_format, format.timestamp_tz_format):
            if mask is not None:
                # A region's name has ASCII letters alone, so only the mask's other elements matter.
                elements = tuple(e for e in parse(mask).elements if e.kind != "TZR")
                found |= Mask(elements=elements).alphabet() or frozenset()
        return found
    if text_class(field) == "moment":
        return _MOMENT_LETTERS
    kind = plain_type(field.type)
    if pa.types.is_boolean(kind):
        return frozenset(format.boolean)
    if content_of(kind) == "number":
        return _NUMBER_LETTERS | {format.decimal_separator}
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        letters = mask_of(kind, format_for(field, format)).alphabet()
        return letters | INFINITY_LETTERS if letters and has_infinities(field) else letters
    return None


def _is_uuid(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def _has_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_null(kind)
        or types.is_nested(kind)
        or content_of(kind) != "text"
        or _is_text(kind)
        or _is_binary(kind)
        or _is_uuid(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
        or kind == pa.month_day_nano_interval()
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _text(array: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return _dictionary_text(array, format, place)
    if types.is_run_end_encoded(kind):
        if types.is_string_view(kind.value_type) or types.is_binary_view(kind.value_type):
            runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, without_views(array.values))
            array = runs.slice(array.offset, len(array))
        return _text(pc.run_end_decode(array), format, place)
    if isinstance(kind, pa.BaseExtensionType):
        return uuid_texts(array.storage) if _is_uuid(kind) else _text(array.storage, format, place)
    if types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if _is_text(kind):
        return compact(without_views(array) if types.is_string_view(kind) else array)
    if types.is_boolean(kind):
        return pc.if_else(array, *format.boolean.split("/"))
    if types.is_integer(kind):
        return pc.cast(array, pa.string())
    if types.is_decimal(kind) or types.is_floating(kind):
        texts = decimal_texts(array) if types.is_decimal(kind) else float_texts(array)
        separator = format.decimal_separator
        return texts if separator == "." else pc.replace_substring(texts, ".", separator)
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return datetime_texts(array, format, place)
    if _is_binary(kind):
        return binary_texts(array, format.binary)
    if types.is_nested(kind) and not types.is_union(kind):
        return _nested_text(array, format, place)
    if types.is_duration(kind):
        return duration_texts(array)
    if kind == pa.month_day_nano_interval():
        return interval_texts(array)
    raise FormatError(f"column {place.column} has the type {kind}, which has no text form.")


def _dictionary_text(array: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    types = pa.types
    # A dictionary may hold a refused value without using it, so decode then.
    if content_of(array.type) == "text" and not _is_text(plain_type(array.type)):
        if types.is_binary_view(array.type.value_type):
            # Arrow cannot take from views.
            words = without_views(array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, words)
        return _text(array.dictionary_decode(), format, place)
    texts = _text(array.dictionary, format, place)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest * len(array) > STRING_LIMIT:
        texts = pc.cast(texts, pa.large_string())
    return texts.take(array.indices)


def _nested_text(array: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    inside = TextFormat(binary=format.binary)

    def scalar(values: pa.Array) -> tuple[pa.Array, bool]:
        return _text(values, inside, place), content_of(values.type) != "text"

    try:
        texts = _json(array, scalar)
    except ValueNotRepresentable:
        # The error counts inner values; find the row.
        for index in range(len(array)):
            try:
                _json(array.slice(index, 1), scalar)
            except ValueNotRepresentable as inner:
                reason = "a value inside it cannot be written (" + str(inner).partition(": ")[2]
                raise place.refusal(
                    index, reason.partition(". Next")[0] + ")", "leave it out with --exclude"
                ) from None
        raise
    if array.null_count:
        texts = pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type))
    return compact(texts)


_JSON_SHORT = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}

_Scalar = Callable[[pa.Array], tuple[pa.Array, bool]]
"""Gives the text of values that are not nested, and whether JSON takes it without quotes."""


def _json(values: pa.Array, scalar: _Scalar) -> pa.Array:
    """Return the JSON of each value as large_string; a null is the text `null`."""
    kind = values.type
    if pa.types.is_struct(kind):
        texts = _struct_json(values, scalar)
    elif pa.types.is_map(kind):
        texts = _map_json(values, scalar)
    elif pa.types.is_nested(kind):
        texts = joined("[", _list_json(values, _json(values.flatten(), scalar)), "]")
    else:
        texts, bare = scalar(values)
        texts = pc.cast(texts, pa.large_string())
        if bare:
            special = pc.match_substring_regex(texts, "^(NaN|-?Infinity)$")
            texts = pc.if_else(special, joined('"', texts, '"'), texts)
        else:
            texts = joined('"', _json_escaped(texts), '"')
    if not values.null_count and not texts.null_count:
        return texts
    return pc.fill_null(pc.if_else(values.is_valid(), texts, pa.scalar(None, texts.type)), "null")


def _struct_json(values: pa.Array, scalar: _Scalar) -> pa.Array:
    pieces: list[pa.Array | str] = []
    # Flattened, so that all values under a null struct are null, too.
    for field, child in zip(values.type, values.flatten(), strict=True):
        name = _json_escaped(pa.array([field.name]))[0].as_py()
        pieces += [f'{"," if pieces else ""}"{name}":', _json(child, scalar)]
    if not pieces:
        return pa.array(["{}"] * len(values), pa.large_string())
    return joined("{", *pieces, "}")


def _map_json(values: pa.Array, scalar: _Scalar) -> pa.Array:
    kind = values.type
    pair = pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])
    lists = values.cast(pa.list_(pair))
    pairs = lists.flatten()
    keys, items = (_json(pairs.field(index), scalar) for index in (0, 1))
    if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
        return joined("{", _list_json(lists, joined(keys, ":", items)), "}")
    return joined("[", _list_json(lists, joined("[", keys, ",", items, "]")), "]")


def _list_json(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Join with commas the texts of each list's elements; null lists have no elements here."""
    lengths = pc.cast(pc.fill_null(pc.list_value_length(lists), 0), pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return pc.binary_join(
        pa.LargeListArray.from_arrays(offsets, elements), pa.scalar(",", elements.type)
    )


def _json_escaped(texts: pa.Array) -> pa.Array:
    data = bytes(value_bytes(texts))
    # The backslash first: the other replacements bring new ones.
    for character in ("\\", '"'):
        if character.encode() in data:
            texts = pc.replace_substring(texts, character, "\\" + character)
    for code in sorted(code for code in set(data) if code < 0x20):
        text = _JSON_SHORT.get(chr(code), f"\\u{code:04x}")
        texts = pc.replace_substring(texts, chr(code), text)
    return texts


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


def timestamp_texts(texts: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    """Return each timestamp under the mask for its kind, null for null.

    Zoned ones follow `timestamp_tz_format`, the others `timestamp_format`. Where the format moves
    zoned ones to UTC, they are written as ISO 8601 without an offset. A text that is not a
    timestamp of the form above is refused, and shown.
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
    civil, only_julian, (_, offsets) = _parse(texts, place)
    place.refuse_where(
        only_julian,
        "the day exists only in the Julian calendar and cannot be moved to UTC",
        "write its offset with --timestamp-tz-format 'YYYY-MM-DD HH24:MI:SS.FF9TZH:TZM'",
    )
    seconds = pc.add(pc.multiply(civil.days, DAY_SECONDS), civil.daysecond)
    moved = Civil.of(pc.subtract(seconds, offsets).view(pa.timestamp("s")))
    moved = replace(moved, fraction=civil.fraction, fraction_digits=9)
    return mask_texts(moved, ISO_TIMESTAMP, place)


def _iso(texts: pa.Array, *, zoned: bool) -> pa.Array:
    """Return texts as typed timestamps are written without a mask."""
    if zoned:
        texts = pc.replace_substring_regex(texts, r" ([+-])", r"\1")
    if pc.any(pc.starts_with(texts, "-")).as_py():
        texts = pc.replace_substring_regex(texts, r"^-(.*)$", r"\1 BC")
    return texts


def _masked(
    texts: pa.Array, mask: Mask, format: TextFormat, place: Place, *, zoned: bool
) -> pa.Array:
    if mask.has_zone and not zoned:
        raise place.refusal(
            0,
            "the date format has a time zone element, but the value has no zone",
            "remove TZH, TZM and TZR from --timestamp-format",
        )
    civil, only_julian, zone = _parse(texts, place)
    if format.fractions == "keep":
        refuse_cut_fraction(civil.fraction, 9, mask, place)
    if _COUNTS_DAYS & {GROUPS.get(element.kind) for element in mask.elements}:
        place.refuse_where(
            only_julian,
            "the day exists only in the Julian calendar, but its date format counts days",
            "do not use D, DAY, DY, J, IW or IYYY in the date format",
        )
    return mask_texts(civil, mask, place, zone if zoned else None)


def _parse(texts: pa.Array, place: Place) -> tuple[Civil, pa.Array, Zone]:
    """Return fields and zones, and which texts are a February 29 of the Julian calendar alone."""
    fields = pc.extract_regex(texts, _FORM)

    def number(name: str) -> pa.Array:
        # Only a zone may be absent, and then it is empty.
        return pc.cast(pc.ascii_lpad(fields.field(name), 2, "0"), pa.int64())

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
    civil = Civil.of_fields(
        year=year,
        march_day=pc.add(march_days, pc.subtract(day, 1)),
        daysecond=pc.add(seconds("hour", "minute"), number("second")),
        fraction=pc.cast(digits, pa.int64()),
    )
    direction, region = fields.field("direction"), fields.field("region")
    names = joined(direction, fields.field("hours"), ":", fields.field("minutes"))
    size = seconds("hours", "minutes")
    zone = (
        pc.if_else(pc.equal(region, ""), names, region),
        pc.if_else(pc.equal(direction, "-"), pc.negate(size), size),
    )
    return civil, only_julian, zone


def _month_days(year: pa.Array, month: pa.Array, day: pa.Array) -> tuple[pa.Array, pa.Array]:
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
