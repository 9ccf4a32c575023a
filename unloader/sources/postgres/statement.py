"""PostgreSQL types, each read so that no value changes, and the statements that read them.

Every value leaves the server through COPY, so what a type's own output function prints is its exact
text. For text outputs, a batch carries this text, so that values and bytes equal COPY's own CSV in
every dialect. Parquet, and a date under a mask, need the value: the text is parsed into an Arrow
type. A value that the type cannot hold (`infinity`, `NaN` in a numeric) is refused by name.

The text of a value that is hashed is what its type's output function prints. A cast to text has the
same for most types, but takes the blanks off a `char(n)`; `concat` takes the output function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import ColumnInfo, NamedPartition, RowRange, Selector, WholeTable
from unloader.model import Extract, ReadColumn, SampledKeys
from unloader.sources import readings
from unloader.sources.statement import (
    Hashing,
    below,
    derived_table,
    limit_clause,
    qualified,
    quoted,
    row_conditions,
    select,
)

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TYPMOD = re.compile(r"\(\d+\)")
_INTEGERS = {"smallint": "int16", "integer": "int32", "bigint": "int64", "oid": "uint32"}
_FLOATS = {"real": "float", "double precision": "double"}
_NUMBERS = {*_INTEGERS, *_FLOATS, "numeric", "money"}
_DATE, _TIMESTAMP, _ZONED = "date", "timestamp without time zone", "timestamp with time zone"
_MASKS: dict[str, readings.Mask] = {_DATE: "date", _TIMESTAMP: "timestamp", _ZONED: "timestamp_tz"}
"""Types whose text may follow a format of the user."""
_ARROW = {
    **_INTEGERS,
    **_FLOATS,
    "boolean": "bool",
    _DATE: "date32[day]",
    _TIMESTAMP: "timestamp[us]",
}
_NATIVE_TEXTS = ("text", "character varying", "character", "name", "xml", "bpchar", '"char"')
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
OBJECT = ("large_object", "oid")
"""Metadata of the field of a column whose OIDs are read as large objects."""
RAW = ("large_object", "raw")
"""Metadata of a column that needs COPY's binary form: the text form has bytes as twice as many
digits, and doubles quotes."""
_AS_ASKED = "exact text, as requested"
_MAX_DECIMAL = 38
"""Digits of decimal128, the widest that DuckDB, Spark and BigQuery read from Parquet."""


def base_type(column: ColumnInfo) -> str:
    """Return the type behind any domains, as `format_type` prints it."""
    return dict(column.attributes).get("base_type", column.native_type)


def is_number(column: ColumnInfo) -> bool:
    return base_type(column).partition("(")[0] in _NUMBERS


@lru_cache(maxsize=1024)  # Tables of a schema have columns in common.
def readings_of(column: ColumnInfo) -> readings.ColumnReadings:
    base, native = base_type(column), column.native_type
    plain = _TYPMOD.sub("", base)
    # For Parquet, under a mask, and where the type has only the server's text.
    value = _value(quoted(column.name), base)
    values = [replace(value, serves=frozenset(("parquet", "masked")), as_text=False)]
    values += [replace(value, serves=readings.TEXT)] if base in _TYPED else []
    types = (("source_type", native), ("base_type", base))[: 1 + (base != native)]
    # Whether the text of a field is a number or moment.
    text_class = "number" if is_number(column) else "moment" if plain in _MASKS else None
    of_text = (*types, ("text_class", text_class)) if text_class else types
    own = [
        replace(each, metadata=of_text if each.output_type == "string" else types)
        for each in (*_texts(column), *values)
    ]
    of_lob = replace(value, serves=frozenset(("lob",)))
    if base == "oid":
        own.append(replace(of_lob, output_type="binary", metadata=(*types, OBJECT)))
    elif base == "bytea":
        raw = quoted(column.name)
        own.append(replace(of_lob, expression=raw, metadata=(*types, RAW)))
    elif value.output_type == "string" and not text_class:
        own.append(replace(of_lob, metadata=(*types, RAW)))
    return readings.ColumnReadings(
        name=column.name,
        source_type=native,
        nullable=column.nullable,
        readings=tuple(own),
        mask=_MASKS.get(plain),
    )


def _texts(column: ColumnInfo) -> Iterator[readings.Reading]:
    base = base_type(column)
    for expression, note, forms in _text_expressions(column):
        for asked in (False, True):
            shown_note = _AS_ASKED if asked else note
            encoded = readings.Reading(
                expression=expression,
                output_type=readings.ENCODED_TYPE,
                serves=frozenset(("encoded",)),
                as_text=asked,
                forms=forms,
                note=shown_note,
            )
            yield encoded
            if base not in _TYPED:
                serves: frozenset[readings.Use] = readings.TEXT if asked else frozenset(("text",))
                yield replace(encoded, output_type="string", serves=serves)
    yield readings.Reading(
        # No option of text applies in Parquet.
        expression=next(sql for sql, _, forms in _text_expressions(column) if forms <= _IN_PARQUET),
        output_type="string",
        serves=frozenset(("parquet",)),
        as_text=True,
        note=_AS_ASKED,
    )


def _text_expressions(column: ColumnInfo) -> list[tuple[str, str, frozenset[str]]]:
    """Return SQL for the text of a column, a note where it is not the server's, and its forms."""
    name, base = quoted(column.name), base_type(column)
    if base == "boolean":
        return [(name + cast, "", frozenset((form,))) for form, cast in _BOOLEAN_CASTS.items()]
    if base == "bytea":
        return [(sql.format(name), "", frozenset((form,))) for form, sql in _BINARY_TEXTS.items()]
    if base == "money":
        return [(f"{name}::numeric", "amount without the currency of the locale", frozenset())]
    if _TYPMOD.sub("", base) == _ZONED:
        # The session is in UTC, so the only + belongs to the offset.
        return [(_utc(name, "+00:00"), "instant in UTC", frozenset())]
    return [(name, "", frozenset())]


def _value(name: str, base: str) -> readings.Reading:
    """Return the column's values under an Arrow type."""
    plain = _TYPMOD.sub("", base)
    if plain in _ARROW:
        return readings.Reading(expression=name, output_type=_ARROW[plain])
    if base == "bytea":
        return readings.Reading(expression=_BINARY_TEXTS["hex"].format(name), output_type="binary")
    if plain == _ZONED:
        instant = _utc(name, "Z")
        return readings.Reading(
            expression=instant, output_type="timestamp[us, tz=UTC]", note="instant in UTC"
        )
    expression = name
    # Arrow's time ends before midnight, PostgreSQL's at 24:00:00, so that is exact text, too.
    note = "" if plain in _NATIVE_TEXTS else "exact text"
    if base == "money":
        expression = f"{name}::numeric"
        note = "amount without the currency of the locale, exact text"
    elif base.startswith("numeric"):
        note = "numeric without precision: exact text"
        if match := _NUMERIC.fullmatch(base):
            precision, scale = int(match[1]), int(match[2])
            if precision <= _MAX_DECIMAL and 0 <= scale <= precision:
                return readings.Reading(
                    expression=name, output_type=f"decimal128({precision}, {scale})"
                )
            note = "does not fit decimal(38): exact text"
    return readings.Reading(expression=expression, output_type="string", note=note)


def _utc(name: str, offset: str) -> str:
    return f"pg_catalog.replace({name}::pg_catalog.text, '+00', '{offset}')"


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


def declared(source_type: str) -> readings.Declared:
    if source_type == "NAME":
        return readings.Declared(utf8_bytes=_NAME_BYTES)
    if source_type == "DATE":
        return readings.Declared(dated=True)
    if source_type.startswith("TIMESTAMP"):
        return readings.Declared(zone="offset" if "WITH TIME ZONE" in source_type else None)
    return (
        readings.text_length(source_type, _TEXTS, _PADDED)
        or readings.decimal_digits(source_type)
        or readings.one_of(source_type, _LONGEST)
    )


EXPORTED = "exported-snapshot"
SNAPSHOT_VALUE = re.compile(r"(?P<number>[0-9A-F]+(?:-[0-9A-F]+)+) state=(?P<state>[0-9a-f]{16})")


class CopyDialect(Struct, frozen=True, kw_only=True):
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    force_quote: tuple[str, ...] | bool = False
    """Columns whose every value but NULL is quoted; True is all."""


class TextForm(Struct, frozen=True, kw_only=True):
    r"""The CSV form that rows of COPY's text form are converted to.

    The text form takes an eighth less of the server's CPU. `libpq/src/text_form.cpp` converts a row
    into the bytes that the server would have sent in the CSV form. Source: "File Formats" on the
    page of COPY in PostgreSQL's manual, and CopyAttributeOutText and CopyAttributeOutCSV in its
    copyto.c, whose rules are the same in all versions from 10 to 18: also that `\\.` is quoted
    where it is all of a row, though from 18 on it ends no CSV file any more.

    Delimiter, quote and NULL are ASCII, have no end of line, and differ from each other.
    """

    delimiter: bytes
    quote: bytes
    null: bytes
    forced: tuple[bool, ...]
    """For each column (at least one): whether every value except NULL is quoted."""


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        for compared, block in ((">=", selector.first), ("<", selector.last)):
            if block is not None:
                row = f"'({block},0)'::pg_catalog.tid"
                conditions.append(f"ctid OPERATOR(pg_catalog.{compared}) {row}")
    else:
        assert isinstance(selector, (NamedPartition, WholeTable)), (
            "the source describes only these kinds"
        )
    conditions += row_conditions(extract)
    rows = select(columns, relation_of(extract, selector), conditions)
    return rows + limit_clause(extract.limit_rows)


def relation_of(extract: Extract, selector: Selector) -> str:
    """Return what a selector reads from; a partition answers to the name of its table."""
    if extract.query is not None:
        return derived_table(extract.query)
    name = relation_name(extract, selector)
    if is_alone(selector):
        # ONLY, for the table itself may be among its partitions where children inherit from it.
        return f"ONLY {name} AS {quoted(extract.table.name)}"
    return f"ONLY {name}" if isinstance(selector, RowRange) else name


def in_binary_form(column: ReadColumn, *, raw: bool) -> ReadColumn:
    """Return a column as the binary form has it: bytes, or the text that COPY would print."""
    value = column.expression
    if raw and column.output_type == "binary":
        return column
    shown = f"({value})::pg_catalog.text"
    if column.source_type != "text" and not column.source_type.startswith("character varying"):
        shown = printed(value)
    return replace(column, expression=shown)


def printed(value: str) -> str:
    """Return SQL for the text that the output function of a value's type prints."""
    # A composite of NULLs is not NULL, yet IS NULL.
    is_value = f"pg_catalog.num_nulls({value}) OPERATOR(pg_catalog.=) 0"
    return f"CASE WHEN {is_value} THEN pg_catalog.concat({value}) END"


def is_alone(selector: Selector) -> bool:
    return isinstance(selector, (NamedPartition, RowRange)) and bool(selector.relation)


def reads_others(extract: Extract) -> bool:
    """Return whether functions may be called for the rows, which may read other relations.

    The session keeps the lock of every relation that it has read until its transaction ends. So it
    is checked then that none has changed since the snapshot. The parent locks ordinary tables, and
    only policies call functions for their rows.
    """
    is_plain = extract.query is None and extract.where is None and extract.table.row_ranges
    return not is_plain or extract.source.session.enable_row_security


def relation_name(extract: Extract, selector: Selector) -> str:
    if isinstance(selector, (NamedPartition, RowRange)) and selector.relation:
        return qualified(*selector.relation)
    return qualified(extract.table.schema, extract.table.name)


def _hashed_text(column: ReadColumn, text_class: str) -> str | None:
    kind, value = column.output_type, column.expression
    if kind == "string":
        native = column.source_type
        if native == "text" or native.startswith("character varying"):
            return f"({value})::pg_catalog.text"
        shown = printed(value)
        if text_class != "number":
            return shown
        point, exponent = (f"pg_catalog.strpos({shown}, '{each}')" for each in ".e")
        plain = f"{point} OPERATOR(pg_catalog.>) 0 AND {exponent} OPERATOR(pg_catalog.=) 0"
        trimmed = f"pg_catalog.rtrim(pg_catalog.rtrim({shown}, '0'), '.')"
        return (
            f"CASE WHEN {plain} THEN {trimmed} "
            f"WHEN {shown} OPERATOR(pg_catalog.=) '-0' THEN '0' ELSE {shown} END"
        )
    if re.fullmatch(r"u?int\d+", kind) or kind in ("bool", "date32[day]", "timestamp[us]"):
        return f"({value})::pg_catalog.text"
    if kind.startswith("decimal128"):
        return f"pg_catalog.trim_scale({value})::pg_catalog.text"
    if kind in ("float", "double"):
        send = "pg_catalog.float4send" if kind == "float" else "pg_catalog.float8send"
        bits = f"pg_catalog.encode({send}({value}), 'hex')"
        return f"CASE WHEN {value} OPERATOR(pg_catalog.=) 'NaN' THEN 'NaN' ELSE {bits} END"
    if kind == "binary":
        return f"pg_catalog.decode({value}, 'hex')"
    if kind == "timestamp[us, tz=UTC]":
        return f"pg_catalog.replace({value}, 'Z', '+00:00')"
    return None


def _in_utf8(column: ReadColumn, text_class: str) -> str | None:
    """Return SQL for the UTF-8 of a text, in a database that has another encoding."""
    text = _hashed_text(column, text_class)
    if text is None or column.output_type != "string":
        return text  # Of ASCII, or bytes.
    return f"pg_catalog.convert_to({text}, 'UTF8')"


_DIGITS = "'x' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.md5({}), 16)"

HASHING = Hashing(
    text=_hashed_text,
    count="pg_catalog.count",
    sum=f"pg_catalog.sum(({_DIGITS})::bit(64)::bigint)",
    statement=selector_statement,
)
HASHING_IN_UTF8 = replace(HASHING, text=_in_utf8)


_PLAIN = {
    "smallint", "integer", "bigint", "oid", "uuid",
    "text", "character varying", "character", "bpchar", "name", '"char"',
}  # fmt: skip
"""Types whose cast to text gives the key's text. The cast removes the blanks at the end of a
`character`."""
_LENGTH = re.compile(r"\(.*\)")


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    value, kind = quoted(column.name), _LENGTH.sub("", base_type(column))
    if kind in _PLAIN:
        text = f"{value}::pg_catalog.text"
    elif kind == "numeric":
        text = f"pg_catalog.trim_scale({value})::pg_catalog.text"
    elif kind == "bytea":
        text = f"pg_catalog.encode({value}, 'hex')"
    else:
        return None
    # Bytes have one order; the order of texts depends on the collation.
    filled = f"CASE WHEN {text} OPERATOR(pg_catalog.<>) '' THEN {text} END"
    hashed = f"pg_catalog.sha256(pg_catalog.convert_to({filled}, 'UTF8'))"
    most = f"pg_catalog.decode('{below(share)}', 'hex')"
    condition = f"{hashed} OPERATOR(pg_catalog.<) {most}"
    return SampledKeys(column=column.name, share=share, text=text, condition=condition)


def text_form(dialect: CopyDialect, columns: Sequence[str]) -> TextForm | None:
    """Return how the text form is turned into a dialect; None where the server has to write it."""
    marks, null = (dialect.delimiter, dialect.quote), dialect.null
    if (
        not columns
        or not all(len(each) == 1 and each.isascii() and each not in "\0\r\n" for each in marks)
        or marks[0] == marks[1]
        or not null.isascii()
        or set(null) & {*marks, "\0", "\r", "\n"}
    ):
        return None
    force = dialect.force_quote
    forced = tuple(each in force if isinstance(force, tuple) else force for each in columns)
    delimiter, quote = (each.encode() for each in marks)
    return TextForm(delimiter=delimiter, quote=quote, null=null.encode(), forced=forced)
