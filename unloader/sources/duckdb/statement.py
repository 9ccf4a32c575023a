"""The statements over a selector's rows, the same in parent and workers.

Among them are the checksums of columns, see `unloader.sources.hashing`, and the rows of a sample of
keys, see `unloader.sources.sampling`.
"""

from __future__ import annotations

import re
from typing import Any

from partition_planner.model import ColumnInfo, RowRange, Selector, WholeTable
from unloader.model import Extract, SampledKeys
from unloader.sources.duckdb.file import translated
from unloader.sources.hashing import HashedColumn, Hashing, SqlHasher
from unloader.sources.sampling import below
from unloader.sources.statement import (
    derived_table,
    limit_clause,
    literal,
    qualified,
    quoted,
    row_conditions,
    select,
)


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of `columns` over the rows of one selector."""
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        if selector.first is not None:
            conditions.append(f"rowid >= {selector.first}")
        if selector.last is not None:
            conditions.append(f"rowid < {selector.last}")
    else:
        assert isinstance(selector, WholeTable), "the source describes only these kinds"
    conditions += row_conditions(extract)
    return select(columns, relation_of(extract), conditions) + limit_clause(extract.limit_rows)


def relation_of(extract: Extract) -> str:
    """Return the table expression that holds the rows."""
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


_ARROW_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_ARROW_INTEGER = re.compile(r"u?int\d+")


def _hashed_text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    shown = f"CAST({value} AS VARCHAR)"
    if kind in ("string", "bool", "time64[us]") or _ARROW_INTEGER.fullmatch(kind):
        return shown
    if kind == "binary":
        return value
    if kind in ("float", "double"):
        bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
        return f"CASE WHEN isnan({value}) THEN 'NaN' ELSE {bits} END"
    if match := _ARROW_DECIMAL.fullmatch(kind):
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
    text=_hashed_text,
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


_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_INTEGER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT|U?INTEGER")


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they are no keys."""
    text = _key_text(quoted(column.name), column.native_type)
    if text is None:
        return None
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"sha256(nullif({text}, '')) < {literal(below(share))}",
    )


def _key_text(value: str, kind: str) -> str | None:
    shown = f"CAST({value} AS VARCHAR)"
    if kind == "VARCHAR":
        return value
    if kind == "UUID" or kind.startswith("ENUM(") or _INTEGER.fullmatch(kind):
        return shown
    if kind == "BLOB":
        return f"lower(hex({value}))"
    if match := _DECIMAL.fullmatch(kind):
        return decimal_text(shown, int(match[1]), int(match[2]))
    return None
