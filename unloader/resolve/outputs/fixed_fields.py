"""Where each column stands in records of fixed width: decided once, for all workers.

A width comes from the user, from the column's Arrow type and mask, or from the length that the
source's type declares. Anything else has no known width, and the user is asked for it by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unloader.errors import UsageError
from unloader.model import FixedWidths, Projection, ReadColumn
from unloader.request.names import Folding, one_column
from unloader.sources.readings import Declared
from writers.model import FixedField, TextFormat
from writers.schema import read_schema, text_class
from writers.text.encoded_widths import most_bytes_of_characters, most_bytes_of_utf8

_BASE_TYPE = b"base_type"
"""Key of an Arrow field's metadata where its type is a domain: the type behind it."""


def fixed_fields(
    projection: Projection,
    text: TextFormat,
    widths: FixedWidths,
    *,
    declared: Callable[[str], Declared],
    folding: Folding,
) -> tuple[FixedField, ...]:
    """Return the field of each column of the projection, in its order and without gaps.

    Args:
        projection: Of batches.
        text: Its encoding, masks and forms are used; NULL's text has room in every field whose
            width is not given.
        widths: What the user gave.
        declared: What the source's types say of the length of their values.
        folding: What the source makes of a plain name.

    Raises:
        UsageError: Columns have no known width (all are named), or a width is for no column.
    """
    from writers.text.text_values import content_of_field

    given = _given(widths, [column.name for column in projection.columns], folding)
    schema = read_schema(projection.schema)
    fields: list[FixedField] = []
    unknown: list[str] = []
    start = 0
    for column, arrow in zip(projection.columns, schema, strict=True):
        length = declared(_source_type(column, arrow))
        width = given.get(column.name) or _known_width(arrow, length, text)
        if width is None:
            unknown.append(column.name)
            continue
        right = content_of_field(arrow) == "number"
        fields.append(FixedField(start=start, width=width, right=right, padded=length.padded))
        start += width
    if unknown:
        raise UsageError(
            f"--fixed has no width for {', '.join(unknown)}: the type does not limit the length "
            "of the values",
            f"give --width {unknown[0]}=BYTES and one --width for each other column, or leave "
            "the columns out with --exclude",
        )
    return tuple(fields)


def _given(widths: FixedWidths, names: list[str], folding: Folding) -> dict[str, int]:
    given: dict[str, int] = {}
    for wanted, width in widths.given:
        name = one_column(names, wanted, folding)
        if name in given:
            raise UsageError(f"--width names {name!r} twice", "name each column once")
        given[name] = width
    return given


def _known_width(field: Any, declared: Declared, text: TextFormat) -> int | None:
    """Return the bytes of the longest value, or of NULL's text where that is longer."""
    width = _declared_bytes(field, declared, text)
    if width is None:
        longest = _longest_text(field, declared, text)
        width = None if longest is None else _bytes(longest, text)
    return None if width is None else max(width, _bytes(text.null, text), _bytes(" ", text))


def _declared_bytes(field: Any, declared: Declared, text: TextFormat) -> int | None:
    """Return the bytes of a text column's declared length."""
    if str(field.type) != "string" or text_class(field):
        return None
    if declared.utf8_bytes is not None:
        return most_bytes_of_utf8(text.encoding, declared.utf8_bytes)
    if declared.characters is not None:
        return most_bytes_of_characters(text.encoding, declared.characters)
    return None


def _longest_text(field: Any, declared: Declared, text: TextFormat) -> str | None:
    from writers.text.field_widths import (
        binary_text,
        decimal_text,
        longest_text,
        moment_text,
        timestamp_text,
    )

    carried = text_class(field)
    if carried == "number" and declared.digits is not None:
        return decimal_text(*declared.digits, text.decimal_separator)
    if carried == "timestamp":
        zone = None if declared.zone is None else "" if declared.zone == "region" else "offset"
        return timestamp_text(text, digits=declared.second_digits, zone=zone)
    if carried == "moment":
        return moment_text(zoned=declared.zone is not None, dated=declared.dated)
    if str(field.type) == "binary" and declared.binary_bytes is not None:
        return binary_text(declared.binary_bytes, text.binary)
    if str(field.type) == "string":
        return declared.longest or None
    return longest_text(field, text)


def _source_type(column: ReadColumn, field: Any) -> str:
    """Return the type that the source declares, in capitals and with single blanks."""
    behind = (field.metadata or {}).get(_BASE_TYPE, b"").decode()
    return " ".join((behind or column.source_type).upper().split())


def _bytes(sample: str, text: TextFormat) -> int:
    from writers.text.output_encoding import OutputEncoding

    return len(OutputEncoding(text.encoding).encode(sample))
