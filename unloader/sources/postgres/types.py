"""PostgreSQL types: how each is read so that no value changes.

Every value leaves the server through COPY in CSV form, so what a type's own output function prints
is the exact text of it. Where text is written, a batch carries that very text, so that values and
bytes are those of COPY's own CSV whatever the dialect. Parquet, and a date under a mask, need the
value itself: the text is parsed into an Arrow type, and a value that the type cannot hold
(`infinity`, `NaN` in a numeric) is refused by name, never bent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from partition_planner.model import ColumnInfo
from unloader.model import ReadColumn, Target
from unloader.request.names import matches_any
from unloader.sources.statement import quoted
from writers.model import BinaryForm, BooleanForm, TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TYPMOD = re.compile(r"\(\d+\)")
_INTEGERS = {"smallint": "int16", "integer": "int32", "bigint": "int64", "oid": "uint32"}
_FLOATS = {"real": "float", "double precision": "double"}
_NUMBERS = {*_INTEGERS, *_FLOATS, "numeric", "money"}
_DATE, _TIMESTAMP, _ZONED = "date", "timestamp without time zone", "timestamp with time zone"
_MOMENTS = (_DATE, _TIMESTAMP, _ZONED)
_TYPED = frozenset({*_INTEGERS, *_FLOATS, "boolean"})
"""Types whose Arrow values have the server's text and no other."""
_BOOLEAN_CASTS = {"true/false": "::text", "t/f": "", "1/0": "::integer"}
"""COPY itself prints t and f."""
_MAX_DECIMAL = 38
"""Digits of decimal128, the widest that DuckDB, Spark and BigQuery read from Parquet."""


def base_type(column: ColumnInfo) -> str:
    """Return the type behind any domains, as `format_type` prints it."""
    return dict(column.attributes).get("base_type", column.native_type)


def is_number(column: ColumnInfo) -> bool:
    """Return whether values of the column are numbers, whatever they are carried as."""
    return base_type(column).partition("(")[0] in _NUMBERS


def encodable(text: TextFormat | None) -> bool:
    """Return whether COPY can write this dialect to the byte."""
    return (
        text is not None
        and text.encoding.lower() in ("utf-8", "utf8")
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


def encoded_column(column: ColumnInfo, text: TextFormat, target: Target) -> ReadColumn:
    """Return how COPY renders a column in exactly the form our own encoder would give it."""
    return _rendered(column, text, target, "text")


def _rendered(column: ColumnInfo, text: TextFormat, target: Target, output_type: str) -> ReadColumn:
    """Return how the server renders a column as the text that is written."""
    expression, note = _text_expression(column, text.binary, text.boolean)
    if matches_any(column.name, target.as_text):
        note = "exact text, as asked for"
    return _column(column, expression, output_type, note)


def _text_expression(
    column: ColumnInfo, binary: BinaryForm, boolean: BooleanForm
) -> tuple[str, str]:
    """Return SQL for the text of a column in our form, and a note where it is not the server's."""
    name, base = quoted(column.name), base_type(column)
    if base == "boolean":
        return name + _BOOLEAN_CASTS[boolean], ""
    if base == "money":
        return f"{name}::numeric", "amount without the currency of the locale"
    if base == "bytea":
        return _binary_text(name, binary), ""
    if _is_zoned(base):
        # The session is in UTC, so the only + is that of the offset.
        return f"replace({name}::text, '+00', '+00:00')", "instant in UTC"
    return name, ""


def arrow_column(column: ColumnInfo, target: Target) -> ReadColumn:
    """Return how a column is read into batches; `output_type` is the name of its Arrow type."""
    name, base = quoted(column.name), base_type(column)
    as_text = matches_any(column.name, target.as_text)
    if target.text is not None and base not in _TYPED and (as_text or not _mask(base, target.text)):
        return _rendered(column, target.text, target, "string")
    if target.text is None and as_text:
        expression, _ = _text_expression(column, "prefixed-hex", "true/false")
        return _column(column, expression, "string", "exact text, as asked for")
    if base in _INTEGERS:
        return _column(column, name, _INTEGERS[base], "")
    if base in _FLOATS:
        return _column(column, name, _FLOATS[base], "")
    if base == "boolean":
        return _column(column, name, "bool", "")
    if base.startswith("numeric"):
        return _numeric(column, name, base)
    if base == "money":
        note = "amount without the currency of the locale, exact text"
        return _column(column, f"{name}::numeric", "string", note)
    if base == "bytea":
        return _column(column, f"encode({name}, 'hex')", "binary", "")
    return _temporal_or_text(column, name, base)


def _mask(base: str, text: TextFormat) -> str | None:
    """Return the mask that values of a type are written under, None where they follow none."""
    kind = _TYPMOD.sub("", base)
    masks = {
        _DATE: text.date_format,
        _TIMESTAMP: text.timestamp_format,
        _ZONED: text.timestamp_tz_format,
    }
    return masks.get(kind)


def _numeric(column: ColumnInfo, name: str, base: str) -> ReadColumn:
    match = _NUMERIC.fullmatch(base)
    if match is None:
        return _column(column, name, "string", "numeric without precision: exact text")
    precision, scale = int(match.group(1)), int(match.group(2))
    if precision > _MAX_DECIMAL or scale > precision or scale < 0:
        return _column(column, name, "string", "does not fit decimal(38): exact text")
    return _column(column, name, f"decimal128({precision}, {scale})", "")


def _temporal_or_text(column: ColumnInfo, name: str, base: str) -> ReadColumn:
    plain = _TYPMOD.sub("", base)
    if plain == _DATE:
        return _column(column, name, "date32[day]", "")
    if plain == _TIMESTAMP:
        return _column(column, name, "timestamp[us]", "")
    if plain == _ZONED:
        note = "instant in UTC"
        return _column(column, f"replace({name}::text, '+00', 'Z')", "timestamp[us, tz=UTC]", note)
    if plain == "time without time zone":
        # Arrow's time ends before midnight, PostgreSQL's at 24:00:00.
        return _column(column, name, "string", "exact text")
    native = plain in ("text", "character varying", "character", "name", "xml", "bpchar", '"char"')
    return _column(column, name, "string", "" if native else "exact text")


def _is_zoned(base: str) -> bool:
    return _TYPMOD.sub("", base) == _ZONED


def _binary_text(name: str, binary: BinaryForm) -> str:
    if binary == "hex":
        return f"encode({name}, 'hex')"
    if binary == "base64":
        return rf"replace(encode({name}, 'base64'), E'\n', '')"
    return name


def _column(column: ColumnInfo, expression: str, output_type: str, note: str) -> ReadColumn:
    return ReadColumn(
        name=column.name,
        source_type=column.native_type,
        expression=expression,
        output_type=output_type,
        nullable=column.nullable,
        lossless=True,
        note=note,
    )


def arrow_schema(columns: tuple[tuple[ColumnInfo, ReadColumn], ...]) -> pa.Schema:
    """Return the schema of the batches; numbers carried as text are marked for the encoder."""
    import pyarrow as pa

    named = {
        "bool": pa.bool_(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint32": pa.uint32(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date32[day]": pa.date32(),
        "timestamp[us]": pa.timestamp("us"),
        "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    fields = []
    for info, column in columns:
        kind = named.get(column.output_type)
        if kind is None:
            precision, scale = re.findall(r"\d+", column.output_type.partition("(")[2])
            kind = pa.decimal128(int(precision), int(scale))
        metadata = {"source_type": info.native_type}
        if base_type(info) != info.native_type:
            metadata["base_type"] = base_type(info)
        if column.output_type == "string" and is_number(info):
            metadata["text_class"] = "number"
        if column.output_type == "string" and _TYPMOD.sub("", base_type(info)) in _MOMENTS:
            metadata["text_class"] = "moment"
        fields.append(pa.field(column.name, kind, metadata=metadata))
    return pa.schema(fields)
