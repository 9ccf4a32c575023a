"""The SQL by which DuckDB computes checksums of columns, see `unloader.sources.hashing`."""

from __future__ import annotations

import re
from typing import Any

from unloader.sources.duckdb.file import translated
from unloader.sources.duckdb.statement import selector_statement
from unloader.sources.hashing import HashedColumn, Hashing, SqlHasher

_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_INTEGER = re.compile(r"u?int\d+")


def _text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    shown = f"CAST({value} AS VARCHAR)"
    if kind in ("string", "bool", "time64[us]") or _INTEGER.fullmatch(kind):
        return shown
    if kind == "binary":
        return value
    if kind in ("float", "double"):
        bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
        return f"CASE WHEN isnan({value}) THEN 'NaN' ELSE {bits} END"
    if match := _DECIMAL.fullmatch(kind):
        return decimal_text(shown, int(match[1]), int(match[2]))
    if kind == "date32[day]":
        return f"replace({shown}, ' (BC)', ' BC')"
    if kind.startswith("timestamp["):
        return _timestamp(shown, zoned="tz=" in kind)
    return None


def decimal_text(shown: str, precision: int, scale: int) -> str:
    """Return SQL for the digits of a decimal without zeros at the end, from its text."""
    if not scale:
        return shown
    trimmed = f"rtrim(rtrim({shown}, '0'), '.')"
    if scale < precision:
        return trimmed
    # Such a number comes without a digit before the point.
    return f"CASE WHEN {trimmed} IN ('', '-') THEN '0' ELSE replace({trimmed}, '.', '0.') END"


def _timestamp(shown: str, *, zoned: bool) -> str:
    """Return the text with the offset and the era behind it; the connection is in UTC."""
    if zoned:
        shown = f"regexp_replace({shown}, '[+]00$', '+00:00')"
    return (
        f"CASE WHEN contains({shown}, ' (BC)') THEN replace({shown}, ' (BC)', '') || ' BC' "
        f"ELSE {shown} END"
    )


HASHING = Hashing(
    text=_text,
    sum="sum(CAST('0x' || left(md5({}), 16) AS UBIGINT))",
    statement=selector_statement,
)


def hasher_of(connection: Any) -> SqlHasher:
    """Return what computes checksums in a further connection; DuckDB uses all cores."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        try:
            found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        except Exception as error:
            raise translated(error) from error
        return found

    return SqlHasher(
        hashing=HASHING, rows=rows, cancel=connection.interrupt, close=connection.close
    )
