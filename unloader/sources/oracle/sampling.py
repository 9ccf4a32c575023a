"""The SQL by which Oracle chooses the rows of a sample of keys, see `unloader.sources.sampling`.

STANDARD_HASH hashes bytes of the database's character set, so the keys of a text with other letters
than those of ASCII are the same as on other sources where that is AL32UTF8.
"""

from __future__ import annotations

from partition_planner.model import ColumnInfo
from unloader.model import SampledKeys
from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.columns.types import number_text
from unloader.sources.oracle.hashing import plain_digits
from unloader.sources.sampling import below
from unloader.sources.statement import quoted


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they are no keys."""
    text = _text(quoted(column.name), parse_native(column.native_type).name)
    if text is None:
        return None
    # The hash of NULL is that of an empty text.
    hashed = f"STANDARD_HASH({text}, 'SHA256') < HEXTORAW('{below(share).upper()}')"
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"{text} IS NOT NULL AND {hashed}",
    )


def _text(value: str, kind: str) -> str | None:
    if kind in ("NUMBER", "FLOAT"):
        return plain_digits(number_text(value))
    return {
        "VARCHAR2": value,
        "NVARCHAR2": f"TO_CHAR({value})",
        "CHAR": f"RTRIM({value})",
        "NCHAR": f"RTRIM(TO_CHAR({value}))",
        "RAW": f"LOWER(RAWTOHEX({value}))",
    }.get(kind)
