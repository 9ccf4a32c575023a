"""The statements over a selector's rows, word for word as a worker sends them.

Among them are the checksums of columns, see `unloader.sources.hashing`, and the rows of a sample of
keys, see `unloader.sources.statement`. The text of a value that is hashed is what its type's output
function prints, as COPY has it. A cast to text has the same for most types, but takes the blanks
off a `char(n)`; `concat` takes the output function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import ColumnInfo, NamedPartition, RowRange, Selector, WholeTable
from unloader.model import Extract, ReadColumn, SampledKeys
from unloader.sources.hashing import Hashing
from unloader.sources.postgres.types import base_type
from unloader.sources.statement import (
    below,
    derived_table,
    limit_clause,
    literal,
    qualified,
    quoted,
    row_conditions,
    select,
)


class CopyDialect(Struct, frozen=True, kw_only=True):
    """The options of COPY's CSV form."""

    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    force_quote: tuple[str, ...] | bool = False
    """Columns whose every value but NULL is quoted; True is all."""


class TextForm(Struct, frozen=True, kw_only=True):
    """The CSV form that rows of COPY's text form are converted to.

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


def is_alone(selector: Selector) -> bool:
    """Return whether a selector reads from a partition by its own name."""
    return isinstance(selector, (NamedPartition, RowRange)) and bool(selector.relation)


def reads_only_one(selector: Selector) -> bool:
    return isinstance(selector, RowRange) or is_alone(selector)


def reads_others(extract: Extract) -> bool:
    """Return whether functions may be called for the rows, which read relations of their own.

    The session keeps the lock of every relation that it has read, directly or in a function, until
    its transaction ends. So it is checked then that none of them has changed since the snapshot.
    The parent locks ordinary tables, and only policies call functions for their rows.
    """
    is_plain = extract.query is None and extract.where is None and extract.table.row_ranges
    return not is_plain or extract.source.session.enable_row_security


def relation_name(extract: Extract, selector: Selector) -> str:
    if isinstance(selector, (NamedPartition, RowRange)) and selector.relation:
        return qualified(*selector.relation)
    return qualified(extract.table.schema, extract.table.name)


_ARROW_INTEGER = re.compile(r"u?int\d+")


def _hashed_text(column: ReadColumn, text_class: str) -> str | None:
    kind, value = column.output_type, column.expression
    if kind == "string":
        return _string(column, text_class)
    if _ARROW_INTEGER.fullmatch(kind) or kind in ("bool", "date32[day]", "timestamp[us]"):
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


def _string(column: ReadColumn, text_class: str) -> str:
    value, native = column.expression, column.source_type
    if native == "text" or native.startswith("character varying"):
        return f"({value})::pg_catalog.text"
    # A composite of NULLs is not NULL, yet IS NULL.
    is_value = f"pg_catalog.num_nulls({value}) OPERATOR(pg_catalog.=) 0"
    shown = f"CASE WHEN {is_value} THEN pg_catalog.concat({value}) END"
    if text_class != "number":
        return shown
    point, exponent = (f"pg_catalog.strpos({shown}, '{each}')" for each in ".e")
    plain = f"{point} OPERATOR(pg_catalog.>) 0 AND {exponent} OPERATOR(pg_catalog.=) 0"
    trimmed = f"pg_catalog.rtrim(pg_catalog.rtrim({shown}, '0'), '.')"
    return (
        f"CASE WHEN {plain} THEN {trimmed} "
        f"WHEN {shown} OPERATOR(pg_catalog.=) '-0' THEN '0' ELSE {shown} END"
    )


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
    text = _key_text(quoted(column.name), _LENGTH.sub("", base_type(column)))
    if text is None:
        return None
    # Bytes have one order; the order of texts depends on the collation.
    filled = f"CASE WHEN {text} OPERATOR(pg_catalog.<>) '' THEN {text} END"
    hashed = f"pg_catalog.sha256(pg_catalog.convert_to({filled}, 'UTF8'))"
    most = f"pg_catalog.decode('{below(share)}', 'hex')"
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"{hashed} OPERATOR(pg_catalog.<) {most}",
    )


def _key_text(value: str, kind: str) -> str | None:
    if kind in _PLAIN:
        return f"{value}::pg_catalog.text"
    if kind == "numeric":
        return f"pg_catalog.trim_scale({value})::pg_catalog.text"
    if kind == "bytea":
        return f"pg_catalog.encode({value}, 'hex')"
    return None


def text_form(dialect: CopyDialect, columns: Sequence[str]) -> TextForm | None:
    """Return how the text form is turned into a dialect; None where the server has to write it.

    A dialect that the server would refuse is left to the server.
    """
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


def copy_statement(sql: str, dialect: CopyDialect | None) -> str:
    if dialect is None:
        return f"COPY ({sql}) TO STDOUT (FORMAT text)"
    options = ["FORMAT csv", f"DELIMITER {literal(dialect.delimiter)}"]
    options += [f"NULL {literal(dialect.null)}", f"QUOTE {literal(dialect.quote)}"]
    if isinstance(dialect.force_quote, tuple):
        if dialect.force_quote:
            options.append(f"FORCE_QUOTE ({', '.join(map(quoted, dialect.force_quote))})")
    elif dialect.force_quote:
        options.append("FORCE_QUOTE *")
    return f"COPY ({sql}) TO STDOUT ({', '.join(options)})"
