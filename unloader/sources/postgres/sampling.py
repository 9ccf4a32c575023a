"""The SQL by which PostgreSQL chooses the rows of a sample of keys.

`unloader.sources.sampling` says which these are.
"""

from __future__ import annotations

import re

from partition_planner.model import ColumnInfo
from unloader.model import SampledKeys
from unloader.sources.postgres.types import base_type
from unloader.sources.sampling import below
from unloader.sources.statement import quoted

_PLAIN = {
    "smallint", "integer", "bigint", "oid", "uuid",
    "text", "character varying", "character", "bpchar", "name", '"char"',
}  # fmt: skip
"""Types whose cast to text is the key's; that of a `character` has no blanks at its end."""
_LENGTH = re.compile(r"\(.*\)")


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they are no keys."""
    text = _text(quoted(column.name), _LENGTH.sub("", base_type(column)))
    if text is None:
        return None
    # Bytes have one order; that of texts is the collation's.
    filled = f"CASE WHEN {text} OPERATOR(pg_catalog.<>) '' THEN {text} END"
    hashed = f"pg_catalog.sha256(pg_catalog.convert_to({filled}, 'UTF8'))"
    most = f"pg_catalog.decode('{below(share)}', 'hex')"
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"{hashed} OPERATOR(pg_catalog.<) {most}",
    )


def _text(value: str, kind: str) -> str | None:
    if kind in _PLAIN:
        return f"{value}::pg_catalog.text"
    if kind == "numeric":
        return f"pg_catalog.trim_scale({value})::pg_catalog.text"
    if kind == "bytea":
        return f"pg_catalog.encode({value}, 'hex')"
    return None
