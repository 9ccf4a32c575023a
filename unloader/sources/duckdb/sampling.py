"""The SQL by which DuckDB chooses the rows of a sample of keys, see `unloader.sources.sampling`."""

from __future__ import annotations

import re

from partition_planner.model import ColumnInfo
from unloader.model import SampledKeys
from unloader.sources.duckdb.hashing import decimal_text
from unloader.sources.sampling import below
from unloader.sources.statement import literal, quoted

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_INTEGER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT|U?INTEGER")


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they are no keys."""
    text = _text(quoted(column.name), column.native_type)
    if text is None:
        return None
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"sha256(nullif({text}, '')) < {literal(below(share))}",
    )


def _text(value: str, kind: str) -> str | None:
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
