"""The SQL by which PostgreSQL computes checksums of columns, see `unloader.sources.hashing`.

A value's text is what its type's output function prints, as COPY has it. A cast to text has the
same for most types, but takes the blanks off a `char(n)`; `concat` takes the output function.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from unloader.sources.hashing import HashedColumn, Hashing, SqlHasher
from unloader.sources.postgres.selectors import selector_statement
from unloader.sources.postgres.session import Session

_INTEGER = re.compile(r"u?int\d+")


def _text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    if kind == "string":
        return _string(column)
    if _INTEGER.fullmatch(kind) or kind in ("bool", "date32[day]", "timestamp[us]"):
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


def _string(column: HashedColumn) -> str:
    value, native = column.expression, column.read.source_type
    if native == "text" or native.startswith("character varying"):
        return f"({value})::pg_catalog.text"
    # A composite of NULLs is not NULL, yet IS NULL.
    is_value = f"pg_catalog.num_nulls({value}) OPERATOR(pg_catalog.=) 0"
    shown = f"CASE WHEN {is_value} THEN pg_catalog.concat({value}) END"
    if column.text_class != "number":
        return shown
    point, exponent = (f"pg_catalog.strpos({shown}, '{each}')" for each in ".e")
    plain = f"{point} OPERATOR(pg_catalog.>) 0 AND {exponent} OPERATOR(pg_catalog.=) 0"
    trimmed = f"pg_catalog.rtrim(pg_catalog.rtrim({shown}, '0'), '.')"
    return (
        f"CASE WHEN {plain} THEN {trimmed} "
        f"WHEN {shown} OPERATOR(pg_catalog.=) '-0' THEN '0' ELSE {shown} END"
    )


def _in_utf8(column: HashedColumn) -> str | None:
    """Return SQL for the UTF-8 of a text, in a database that has another encoding."""
    text = _text(column)
    if text is None or column.kind != "string":
        return text  # Of ASCII, or bytes.
    return f"pg_catalog.convert_to({text}, 'UTF8')"


_DIGITS = "'x' OPERATOR(pg_catalog.||) pg_catalog.left(pg_catalog.md5({}), 16)"

HASHING = Hashing(
    text=_text,
    count="pg_catalog.count",
    sum=f"pg_catalog.sum(({_DIGITS})::bit(64)::bigint)",
    statement=selector_statement,
)


def hasher_of(session: Session) -> SqlHasher:
    """Return what computes checksums in a session inside the run's snapshot."""
    # What is in SQL_ASCII has no encoding that the server knows, and comes as it is.
    plain = session.value("SHOW server_encoding") in ("UTF8", "SQL_ASCII")

    def rows(sql: str) -> list[Any]:
        with session.users_path():
            return session.rows(sql)

    return SqlHasher(
        hashing=HASHING if plain else replace(HASHING, text=_in_utf8),
        rows=rows,
        cancel=session.cancel,
        close=session.close,
    )
