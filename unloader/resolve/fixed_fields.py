"""Where each column stands in records of fixed width: decided once, for all workers.

A width comes from the user, from the column's Arrow type and mask, or from the length that the
source's type declares. Anything else has no known width, and the user is asked for it by name.
"""

from __future__ import annotations

import re
from typing import Any

from unloader.errors import UsageError
from unloader.model import FixedWidths, Projection, ReadColumn
from unloader.request.names import Folding, one_column
from writers.model import FixedField, TextFormat
from writers.schema import read_schema, text_class
from writers.text.encoded_widths import most_bytes_of_characters, most_bytes_of_utf8

_BASE_TYPE = b"base_type"
"""Key of an Arrow field's metadata where its type is a domain: the type behind it."""

_DECLARED = re.compile(r"(?P<name>[A-Z0-9_ ]+?) ?\((?P<length>\d+)(?: (?P<unit>BYTE|CHAR))?\)")
_PADDED = frozenset({"CHAR", "CHARACTER", "NCHAR", "BPCHAR"})
_TEXT_TYPES = _PADDED | {
    "CHARACTER VARYING",
    "NVARCHAR",
    "NVARCHAR2",
    "VARCHAR",
    "VARCHAR2",
}
_DECIMAL = re.compile(r"(?:NUMBER|NUMERIC|DECIMAL) ?\((\d+|\*)(?:, ?(-?\d+))?\)")
_MAX_PRECISION = 38
_DIGITS = re.compile(r"TIMESTAMP ?\((\d+)\)")
_INTERVAL_MONTHS = re.compile(r"INTERVAL YEAR ?\((\d+)\) TO MONTH")
_INTERVAL_SECONDS = re.compile(r"INTERVAL DAY ?\((\d+)\) TO SECOND ?\((\d+)\)")
_RAW = re.compile(r"RAW ?\((\d+)\)")
_EXACT_TEXTS = {
    '"CHAR"': 1,
    "HUGEINT": 40,
    "MONEY": 21,
    "ROWID": 18,
    "TIME WITH TIME ZONE": 24,
    "TIME WITHOUT TIME ZONE": 15,
    "UHUGEINT": 39,
    "UUID": 36,
}
"""Types that are read as text of at most so many ASCII characters."""
_NAME_BYTES = 63
"""Of PostgreSQL's `name`, but for one built with another NAMEDATALEN."""


def fixed_fields(
    projection: Projection,
    text: TextFormat,
    widths: FixedWidths,
    *,
    pads_char: bool,
    folding: Folding,
) -> tuple[FixedField, ...]:
    """Return the field of each column of the projection, in its order and without gaps.

    Args:
        projection: Of batches.
        text: Its encoding, masks and forms are used; NULL's text has room in every field whose
            width is not given.
        widths: What the user gave.
        pads_char: The source fills CHAR columns up with blanks.
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
        source_type = _source_type(column, arrow)
        width = given.get(column.name) or _known_width(arrow, source_type, text)
        if width is None:
            unknown.append(column.name)
            continue
        padded = pads_char and _type_name(source_type) in _PADDED
        right = content_of_field(arrow) == "number"
        fields.append(FixedField(start=start, width=width, right=right, padded=padded))
        start += width
    if unknown:
        raise UsageError(
            f"--fixed has no width for {', '.join(unknown)}: the type does not say how long its "
            "values can be",
            f"give --width {unknown[0]}=BYTES, and so on, or leave them out with --exclude",
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


def _known_width(field: Any, source_type: str, text: TextFormat) -> int | None:
    """Return the bytes of the longest value, or of NULL's text where that is longer."""
    width = _declared_bytes(field, source_type, text)
    if width is None:
        longest = _longest_text(field, source_type, text)
        width = None if longest is None else _bytes(longest, text)
    return None if width is None else max(width, _bytes(text.null, text), _bytes(" ", text))


def _declared_bytes(field: Any, source_type: str, text: TextFormat) -> int | None:
    """Return the bytes of a text column's declared length."""
    if str(field.type) != "string" or text_class(field):
        return None
    if source_type == "NAME":
        return most_bytes_of_utf8(text.encoding, _NAME_BYTES)
    match = _DECLARED.fullmatch(source_type)
    if match is None or match["name"] not in _TEXT_TYPES:
        return None
    # A length in bytes is one of the database's encoding, which is UTF-8 as a rule.
    reckon = most_bytes_of_utf8 if match["unit"] == "BYTE" else most_bytes_of_characters
    return reckon(text.encoding, int(match["length"]))


def _longest_text(field: Any, source_type: str, text: TextFormat) -> str | None:
    from writers.text.field_widths import (
        binary_text,
        decimal_text,
        longest_text,
        moment_text,
        timestamp_text,
    )

    carried = text_class(field)
    if carried == "number" and (match := _DECIMAL.fullmatch(source_type)):
        precision = _MAX_PRECISION if match[1] == "*" else int(match[1])
        return decimal_text(precision, int(match[2] or 0), text.decimal_separator)
    if carried == "timestamp":
        found = _DIGITS.match(source_type)
        return timestamp_text(text, digits=int(found[1]) if found else 9, zone=_zone(source_type))
    if carried == "moment":
        return moment_text(zoned=_zone(source_type) is not None, dated=source_type == "DATE")
    if str(field.type) == "binary" and (match := _RAW.fullmatch(source_type)):
        return binary_text(int(match[1]), text.binary)
    if str(field.type) == "string":
        return _exact_text(source_type)
    return longest_text(field, text)


def _exact_text(source_type: str) -> str | None:
    if match := _INTERVAL_MONTHS.fullmatch(source_type):
        return "+" + "9" * int(match[1]) + "-11"
    if match := _INTERVAL_SECONDS.fullmatch(source_type):
        fraction = "." + "9" * int(match[2]) if int(match[2]) else ""
        return "+" + "9" * int(match[1]) + " 23:59:59" + fraction
    length = _EXACT_TEXTS.get(re.sub(r" ?\(\d+\)", "", source_type))
    return None if length is None else "9" * length


def _zone(source_type: str) -> str | None:
    """Return what `timestamp_text` is told of the zone: an offset only, or a region, too."""
    if "LOCAL TIME ZONE" in source_type:
        return "offset"
    return "" if "WITH TIME ZONE" in source_type else None


def _source_type(column: ReadColumn, field: Any) -> str:
    """Return the type that the source declares, in capitals and with single blanks."""
    behind = (field.metadata or {}).get(_BASE_TYPE, b"").decode()
    return " ".join((behind or column.source_type).upper().split())


def _type_name(source_type: str) -> str:
    return source_type.partition("(")[0].strip()


def _bytes(sample: str, text: TextFormat) -> int:
    from writers.text.output_encoding import OutputEncoding

    return len(OutputEncoding(text.encoding).encode(sample))
