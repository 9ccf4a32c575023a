"""The SQL by which PostgreSQL computes checksums of columns, see `unloader.sources.hashing`.

A value's text is what its type's output function prints, as COPY has it. A cast to text has the
same for most types, but takes the blanks off a `char(n)`; `concat` takes the output function.
"""

from __future__ import annotations

import re

from unloader.sources.hashing import HashedColumn, Hashing, SqlHasher
from unloader.sources.postgres.selectors import selector_statement
from unloader.sources.postgres.session import Session

_INTEGER = re.compile(r"u?int\d+")


def _text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    if kind == "string":
        return _string(column)
    if _INTEGER.fullmatch(kind) or kind in ("bool", "date32[day]", "timestamp[us]"):
        return f"({value})::text"
    if kind.startswith("decimal128"):
        return f"trim_scale({value})::text"
    if kind in ("float", "double"):
        send = "float4send" if kind == "float" else "float8send"
        return f"CASE WHEN {value} = 'NaN' THEN 'NaN' ELSE encode({send}({value}), 'hex') END"
    if kind == "binary":
        return f"decode({value}, 'hex')"
    if kind == "timestamp[us, tz=UTC]":
        return f"replace({value}, 'Z', '+00:00')"
    return None


def _string(column: HashedColumn) -> str:
    value, native = column.expression, column.read.source_type
    if native == "text" or native.startswith("character varying"):
        return f"({value})::text"
    # A composite of NULLs is none, yet IS NULL.
    shown = f"CASE WHEN num_nulls({value}) = 0 THEN concat({value}) END"
    if column.text_class != "number":
        return shown
    plain = f"strpos({shown}, '.') > 0 AND strpos({shown}, 'e') = 0"
    return (
        f"CASE WHEN {plain} THEN rtrim(rtrim({shown}, '0'), '.') "
        f"WHEN {shown} = '-0' THEN '0' ELSE {shown} END"
    )


HASHING = Hashing(
    text=_text,
    sum="sum(('x' || left(md5({}), 16))::bit(64)::bigint)",
    statement=selector_statement,
)


def hasher_of(session: Session) -> SqlHasher:
    """Return what computes checksums in a session inside the run's snapshot."""
    return SqlHasher(hashing=HASHING, rows=session.rows, cancel=session.cancel, close=session.close)
