"""PostgreSQL types: how each is read so that no value changes.

Every value leaves the server through COPY, so what a type's own output function prints
is its exact text. For text outputs, a batch carries this text, so that values and bytes equal
COPY's own CSV in every dialect. Parquet, and a date under a mask, need the value: the text is
parsed into an Arrow type. A value that the type cannot hold (`infinity`, `NaN` in a numeric) is
refused by name, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from partition_planner.model import ColumnInfo
from unloader.sources.readings import (
    ENCODED_TYPE,
    TEXT,
    ColumnReadings,
    Declared,
    Mask,
    Reading,
    Use,
    decimal_digits,
    one_of,
    text_length,
)
from unloader.sources.statement import quoted
from writers.model import TextFormat

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TYPMOD = re.compile(r"\(\d+\)")
_INTEGERS = {"smallint": "int16", "integer": "int32", "bigint": "int64", "oid": "uint32"}
_FLOATS = {"real": "float", "double precision": "double"}
_NUMBERS = {*_INTEGERS, *_FLOATS, "numeric", "money"}
_DATE, _TIMESTAMP, _ZONED = "date", "timestamp without time zone", "timestamp with time zone"
_MASKS: dict[str, Mask] = {_DATE: "date", _TIMESTAMP: "timestamp", _ZONED: "timestamp_tz"}
"""Types whose text may follow a format of the user."""
_TYPED = frozenset({*_INTEGERS, *_FLOATS, "boolean"})
"""Types whose Arrow values have only the server's text."""
_BOOLEAN_CASTS = {"true/false": "::pg_catalog.text", "t/f": "", "1/0": "::integer"}
"""COPY itself prints t and f. Rows are read by the search path of the user, so that functions and
types name their schema; `integer` and `numeric` are words of the grammar."""
_BINARY_TEXTS = {
    "prefixed-hex": "{}",
    "hex": "pg_catalog.encode({}, 'hex')",
    "base64": r"pg_catalog.replace(pg_catalog.encode({}, 'base64'), E'\n', '')",
}
_IN_PARQUET = frozenset(("true/false", "prefixed-hex"))
_AS_ASKED = "exact text, as requested"
_MAX_DECIMAL = 38
"""Digits of decimal128, the widest that DuckDB, Spark and BigQuery read from Parquet."""


def base_type(column: ColumnInfo) -> str:
    """Return the type behind any domains, as `format_type` prints it."""
    return dict(column.attributes).get("base_type", column.native_type)


def is_number(column: ColumnInfo) -> bool:
    return base_type(column).partition("(")[0] in _NUMBERS


def encodable(text: TextFormat) -> bool:
    return (
        text.encoding.lower() in ("utf-8", "utf8")
        and text.escape == "double"
        and text.enclose != "none"
        and len(text.enclosure.encode()) == 1
        and len(text.delimiter.encode()) == 1
        and text.eol == "\n"
        and not text.trailing_delimiter
        and text.record_length_digits == 0
        and text.date_format is None
        and text.timestamp_format is None
        and text.timestamp_tz_format is None
        and text.decimal_separator == "."
        and not set(text.null) & {"\r", "\n", text.delimiter, text.enclosure}
    )


@lru_cache(maxsize=1024)  # Tables of a schema have columns in common.
def readings_of(column: ColumnInfo) -> ColumnReadings:
    base = base_type(column)
    # For Parquet, under a mask, and where the type has only the server's text.
    value = _value(quoted(column.name), base)
    values = [replace(value, serves=frozenset(("parquet", "masked")), as_text=False)]
    values += [replace(value, serves=TEXT)] if base in _TYPED else []
    return ColumnReadings(
        name=column.name,
        source_type=column.native_type,
        nullable=column.nullable,
        readings=tuple(
            replace(each, metadata=_metadata(column, each.output_type))
            for each in (*_texts(column), *values)
        ),
        mask=_MASKS.get(_TYPMOD.sub("", base)),
    )


def _texts(column: ColumnInfo) -> Iterator[Reading]:
    base = base_type(column)
    for expression, note, forms in _text_expressions(column):
        for asked in (False, True):
            shown_note = _AS_ASKED if asked else note
            encoded = Reading(
                expression=expression,
                output_type=ENCODED_TYPE,
                serves=frozenset(("encoded",)),
                as_text=asked,
                forms=forms,
                note=shown_note,
            )
            yield encoded
            if base not in _TYPED:
                serves: frozenset[Use] = TEXT if asked else frozenset(("text",))
                yield replace(encoded, output_type="string", serves=serves)
    yield Reading(
        # No option of text applies in Parquet.
        expression=next(sql for sql, _, forms in _text_expressions(column) if forms <= _IN_PARQUET),
        output_type="string",
        serves=frozenset(("parquet",)),
        as_text=True,
        note=_AS_ASKED,
    )


def _text_expressions(column: ColumnInfo) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield SQL for the text of a column, a note where it is not the server's, and its forms."""
    name, base = quoted(column.name), base_type(column)
    if base == "boolean":
        for boolean, cast in _BOOLEAN_CASTS.items():
            yield name + cast, "", frozenset((boolean,))
    elif base == "bytea":
        for binary in _BINARY_TEXTS:
            yield _BINARY_TEXTS[binary].format(name), "", frozenset((binary,))
    elif base == "money":
        yield f"{name}::numeric", "amount without the currency of the locale", frozenset()
    elif _TYPMOD.sub("", base) == _ZONED:
        # The session is in UTC, so the only + belongs to the offset.
        yield _utc(name, "+00:00"), "instant in UTC", frozenset()
    else:
        yield name, "", frozenset()


def _value(name: str, base: str) -> Reading:
    """Return the column's values under an Arrow type."""
    if base in _INTEGERS:
        return Reading(expression=name, output_type=_INTEGERS[base])
    if base in _FLOATS:
        return Reading(expression=name, output_type=_FLOATS[base])
    if base == "boolean":
        return Reading(expression=name, output_type="bool")
    if base.startswith("numeric"):
        match = _NUMERIC.fullmatch(base)
        if match is None:
            note = "numeric without precision: exact text"
            return Reading(expression=name, output_type="string", note=note)
        precision, scale = int(match.group(1)), int(match.group(2))
        if precision > _MAX_DECIMAL or scale > precision or scale < 0:
            note = "does not fit decimal(38): exact text"
            return Reading(expression=name, output_type="string", note=note)
        return Reading(expression=name, output_type=f"decimal128({precision}, {scale})")
    if base == "money":
        note = "amount without the currency of the locale, exact text"
        return Reading(expression=f"{name}::numeric", output_type="string", note=note)
    if base == "bytea":
        return Reading(expression=_BINARY_TEXTS["hex"].format(name), output_type="binary")
    plain = _TYPMOD.sub("", base)
    if plain == _DATE:
        return Reading(expression=name, output_type="date32[day]")
    if plain == _TIMESTAMP:
        return Reading(expression=name, output_type="timestamp[us]")
    if plain == _ZONED:
        return Reading(
            expression=_utc(name, "Z"),
            output_type="timestamp[us, tz=UTC]",
            note="instant in UTC",
        )
    # Arrow's time ends before midnight, PostgreSQL's at 24:00:00, so that is exact text, too.
    native = plain in ("text", "character varying", "character", "name", "xml", "bpchar", '"char"')
    return Reading(expression=name, output_type="string", note="" if native else "exact text")


def _utc(name: str, offset: str) -> str:
    return f"pg_catalog.replace({name}::pg_catalog.text, '+00', '{offset}')"


def _metadata(column: ColumnInfo, output_type: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of the Arrow field: types, and whether its text is a number or moment."""
    base = base_type(column)
    found = {"source_type": column.native_type}
    if base != column.native_type:
        found["base_type"] = base
    if output_type == "string" and is_number(column):
        found["text_class"] = "number"
    if output_type == "string" and _TYPMOD.sub("", base) in _MASKS:
        found["text_class"] = "moment"
    return tuple(found.items())


_TEXTS = ("CHARACTER VARYING", "VARCHAR", "CHARACTER", "CHAR", "BPCHAR")
_PADDED = ("CHARACTER", "CHAR", "BPCHAR")
_NAME_BYTES = 63
"""Length of PostgreSQL's `name`, except in a server built with another NAMEDATALEN."""
_LONGEST = {
    '"CHAR"': 1,
    "MONEY": 21,
    "TIME WITH TIME ZONE": 24,
    "TIME WITHOUT TIME ZONE": 15,
    "UUID": 36,
}


def declared(source_type: str) -> Declared:
    if source_type == "NAME":
        return Declared(utf8_bytes=_NAME_BYTES)
    if source_type == "DATE":
        return Declared(dated=True)
    if source_type.startswith("TIMESTAMP"):
        return Declared(zone="offset" if "WITH TIME ZONE" in source_type else None)
    return (
        text_length(source_type, _TEXTS, _PADDED)
        or decimal_digits(source_type)
        or one_of(source_type, _LONGEST)
    )
