"""The SQL by which PostgreSQL computes checksums of columns, see `unloader.sources.hashing`.

A value's text is what its type's output function prints, as COPY has it. A cast to text has the
same for most types, but takes the blanks off a `char(n)`; `concat` takes the output function.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from unloader.errors import UnloaderError
from unloader.model import Extract
from unloader.sources.hashing import HashedColumn, Hashing
from unloader.sources.postgres.selectors import selector_statement
from unloader.sources.postgres.session import Session
from writers.model import ContentSums

if TYPE_CHECKING:
    from partition_planner.model import Selector

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


HASHING = Hashing(text=_text, sum="sum(('x' || left(md5({}), 16))::bit(64)::bigint)")


class PostgresHasher:
    """A session inside the run's snapshot."""

    def __init__(self, session: Session) -> None:
        """Take over a session."""
        self._session = session

    def sums(self, extract: Extract, selector: Selector) -> ContentSums:
        """Return the checksums of the rows of a selector."""
        sql = selector_statement(HASHING.items(extract), extract, selector)
        (row,) = self._session.rows(sql)
        return HASHING.result(tuple(row), extract)

    def cancel(self) -> None:
        """Have the server cancel the query that is running."""
        self._session.cancel()

    def close(self) -> None:
        """Close the session."""
        with suppress(UnloaderError):
            self._session.close()
