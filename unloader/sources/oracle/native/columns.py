"""Which columns the native fetch decodes, by what the driver says that the server described."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.native.library import Description
from writers.text.mask_texts import UNIT_DIGITS

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.reading.fetch import FetchPlan, Item

TEXT, WIDE_TEXT, BYTES, INT32, INT64, DECIMAL, MOMENT, FLOAT, DOUBLE = range(9)
"""Kinds of columns: `Kind` in `columns.h`."""

_TEXTS = {
    "DB_TYPE_VARCHAR": TEXT,
    "DB_TYPE_CHAR": TEXT,
    "DB_TYPE_NVARCHAR": WIDE_TEXT,
    "DB_TYPE_NCHAR": WIDE_TEXT,
}
_MOMENTS = ("DB_TYPE_DATE", "DB_TYPE_TIMESTAMP")
_INTEGERS = {"int32": (INT32, 9), "int64": (INT64, 18)}
"""An Arrow type, its kind, and the digits that it surely holds."""
_REALS = {
    ("DB_TYPE_BINARY_FLOAT", "float"): FLOAT,
    ("DB_TYPE_BINARY_DOUBLE", "double"): DOUBLE,
}
_LEFT = frozenset({"LONG", "LONG RAW", "BOOLEAN"})
"""Types with other framing, which the driver keeps."""
_DECIMAL_TYPE = re.compile(r"decimal128\((\d+), (\d+)\)")
_TIMESTAMP_TYPE = re.compile(r"timestamp\[(s|ms|us|ns)\]")

_NUMBER_BYTES = 22
_MOMENT_BYTES = 11
_CHARACTER_BYTES = 4
"""Of UTF-8 at most; the described size counts bytes of the database's character set."""


def descriptions(
    described: Sequence[oracledb.FetchInfo], items: Sequence[Item]
) -> list[Description] | None:
    """Return what the library has to know of each column, None if one is not for it.

    Args:
        described: The columns as the server described them, in the order of the SELECT list.
        items: What was asked for, in the same order.
    """
    if len(described) != len(items):
        return None
    found = [
        _description(column, item.fetched) if item.part == "value" else None
        for column, item in zip(described, items, strict=True)
    ]
    known = [one for one in found if one is not None]
    return known if len(known) == len(items) and known else None


def sorts_of(plan: FetchPlan) -> list[str]:
    """Return the sort of each column fetched, such as `NUMBER as decimal128`."""
    return [
        f"{parse_native(plan.columns[item.column].source_type).name} as "
        f"{item.fetched.partition('(')[0]}"
        for item in plan.items
    ]


def may_be_native(plan: FetchPlan) -> bool:
    """Tell whether columns can all be for the native fetch; what the server describes decides."""
    return all(
        item.part == "value"
        and item.form not in ("lob", "document")
        and parse_native(plan.columns[item.column].source_type).name not in _LEFT
        for item in plan.items
    )


def _description(column: oracledb.FetchInfo, fetched: str) -> Description | None:
    name = column.type_code.name
    size = column.internal_size or 0
    if name in _TEXTS:
        # Without a size there is no byte of the column in any row.
        if fetched != "string" or not size:
            return None
        characters = column.display_size or size
        limit = _CHARACTER_BYTES * max(size, characters)
        return Description(kind=_TEXTS[name], limit=limit)
    if name == "DB_TYPE_RAW":
        return Description(kind=BYTES, limit=size) if fetched == "binary" and size else None
    if name == "DB_TYPE_NUMBER":
        return _number(fetched)
    if name in _MOMENTS:
        found = _TIMESTAMP_TYPE.fullmatch(fetched)
        if found is None:
            return None
        return Description(kind=MOMENT, places=UNIT_DIGITS[found[1]], limit=_MOMENT_BYTES)
    kind = _REALS.get((name, fetched))
    return None if kind is None else Description(kind=kind, limit=8)


def _number(fetched: str) -> Description | None:
    if fetched in _INTEGERS:
        kind, digits = _INTEGERS[fetched]
        return Description(kind=kind, digits=digits, limit=_NUMBER_BYTES)
    found = _DECIMAL_TYPE.fullmatch(fetched)
    if found is None:
        return None
    return Description(
        kind=DECIMAL, digits=int(found[1]), places=int(found[2]), limit=_NUMBER_BYTES
    )
