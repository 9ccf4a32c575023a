"""The canonical text of every Arrow type, before any enclosing or escaping.

Fast for the usual types: whole columns through `pyarrow.compute`. Intervals, base64 and the odd
float go value by value.
"""

from __future__ import annotations

import string
from functools import partial
from typing import Literal

import pyarrow as pa
from msgspec.structs import replace

from writers.arrow_compute import pc
from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.schema import has_infinities, text_class
from writers.text.binary_texts import binary_texts, uuid_texts
from writers.text.datetime_texts import (
    check_mask,
    datetime_texts,
    duration_texts,
    interval_texts,
    mask_of,
)
from writers.text.infinities import LETTERS as INFINITY_LETTERS
from writers.text.infinities import infinite_texts
from writers.text.json_texts import json_texts
from writers.text.number_texts import decimal_texts, float_texts
from writers.text.refusals import Place
from writers.text.string_arrays import STRING_LIMIT, compact, without_views
from writers.text.timestamp_texts import timestamp_alphabet, timestamp_texts

Content = Literal["number", "boolean", "text"]

_ISO_INSIDE_JSON = TextFormat()
_NUMBER_LETTERS = frozenset(string.digits + "+-einfatyNI")
_MOMENT_LETTERS = frozenset(string.digits + "+-:. BC") | INFINITY_LETTERS


def text_of(
    array: pa.Array, field: pa.Field, format: TextFormat, *, first_row: int = 1
) -> pa.Array:
    r"""Return the text of each value, null for null.

    Text stays as it is, but for numbers and timestamps carried as text (`text_class` in the field's
    metadata), which follow the decimal separator and the masks; booleans have the format's words;
    floats are PostgreSQL's shortest round-trip form; decimals have all digits of their scale and no
    exponent; dates and times follow the format's masks; durations and intervals are ISO 8601;
    nested values compact JSON with ISO dates and `.` for decimals. Dictionaries are decoded,
    extension types written as their storage (UUIDs in canonical form).

    Args:
        array: Values of the field's type; a slice is fine.
        field: Names the column in errors.
        format: Masks, decimal separator and binary form are used.
        first_row: Row of the first value within the work unit, from 1.

    Returns:
        A string array, or a large_string one where 32-bit offsets may not reach.

    Raises:
        ValueNotRepresentable: A value does not fit its mask.
        FormatError: The type has no text.
    """
    place = Place(column=field.name, first_row=first_row)
    own = format_for(field, format)
    if has_infinities(field):
        masked = _is_masked(field.type, own)
        return infinite_texts(array, lambda finite: _text(finite, own, place), place, masked=masked)
    texts = _text(array, own, place)
    if text_class(field) == "timestamp":
        return timestamp_texts(texts, format, place)
    if text_class(field) == "number" and format.decimal_separator != ".":
        return pc.replace_substring(texts, ".", format.decimal_separator)
    return texts


def format_for(field: pa.Field, format: TextFormat) -> TextFormat:
    """Return the format as it applies to one column.

    Dates with a time of day arrive as timestamps; their `text_class` is `date`, and they follow the
    mask for dates where there is one.
    """
    if text_class(field) == "date" and format.date_format is not None:
        return replace(format, timestamp_format=format.date_format)
    return format


def check_field(field: pa.Field, format: TextFormat) -> None:
    """Make sure that the type of a column can be written as text.

    Raises:
        FormatError: It cannot, or its mask asks for a time zone it has not.
    """
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
    """Return which kind of content `enclose="strings"` takes a column for."""
    return "number" if text_class(field) == "number" else content_of(field.type)


def content_of(kind: pa.DataType) -> Content:
    """Return which kind of content values of a type are."""
    kind = plain_type(kind)
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "text"


def alphabet_of(field: pa.Field, format: TextFormat) -> frozenset[str] | None:
    """Return characters that every text of a column is made of, or None when it can hold any."""
    if text_class(field) == "timestamp":
        return timestamp_alphabet(format)
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


def _is_masked(kind: pa.DataType, format: TextFormat) -> bool:
    if pa.types.is_date(kind):
        return format.date_format is not None
    mask = format.timestamp_format if kind.tz is None else format.timestamp_tz_format
    return mask is not None


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
        return _text(pc.run_end_decode(_runs_without_views(array)), format, place)
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


def _runs_without_views(array: pa.Array) -> pa.Array:
    """Return run-end-encoded values that Arrow can decode, which it cannot where they are views."""
    kind = array.type.value_type
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        return array
    runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, without_views(array.values))
    return runs.slice(array.offset, len(array))


def _dictionary_text(array: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    types = pa.types
    # A value that is refused may stand in a dictionary without being used, so decode then.
    if content_of(array.type) == "text" and not _is_text(plain_type(array.type)):
        if types.is_binary_view(array.type.value_type):
            # Arrow cannot take from views.
            words = without_views(array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, words)
        return _text(array.dictionary_decode(), format, place)
    texts = _text(array.dictionary, format, place)
    return _taken(texts, array.indices)


def _taken(texts: pa.Array, indices: pa.Array) -> pa.Array:
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest * len(indices) > STRING_LIMIT:
        texts = pc.cast(texts, pa.large_string())
    return texts.take(indices)


def _nested_text(array: pa.Array, format: TextFormat, place: Place) -> pa.Array:
    scalar = partial(_json_scalar, form=format, place=place)
    try:
        texts = json_texts(array, scalar)
    except ValueNotRepresentable:
        # The error counts inner values; find the row.
        for index in range(len(array)):
            try:
                json_texts(array.slice(index, 1), scalar)
            except ValueNotRepresentable as inner:
                reason = "a value inside it cannot be written (" + str(inner).partition(": ")[2]
                raise place.refusal(
                    index, reason.partition(". Next")[0] + ")", "leave it out with --exclude"
                ) from None
        raise
    if array.null_count:
        texts = pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type))
    return compact(texts)


def _json_scalar(array: pa.Array, *, form: TextFormat, place: Place) -> tuple[pa.Array, bool]:
    inside = TextFormat(binary=form.binary)
    return _text(array, inside, place), content_of(array.type) != "text"
