"""The items of a worker's SELECT list, and how the driver fetches their rows.

A column is one item, except a LOB: a small value is fetched with its row, a large one only by its
place. A value of length 0 would be fetched as NULL, so the length is another item.

The versions of the driver with exact Arrow batches are known from tests: tables that repeat values,
NULLs and whole rows on both sides of every batch boundary, as Arrow and as tuples, in batches of 1,
2, 3, 7 and 1000 rows. 26.1.0 is exact. 26.0.0 loses rows of dates and crashes on decimals
(python-oracledb issues 605 and 606). 4.0.1 also crashes on a column with only NULLs (597).
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version
from typing import Literal

from msgspec import Struct

from unloader.model import Extract, ReadColumn
from unloader.sources.base import SHARES
from unloader.sources.oracle.types import ROWID, Form, form_of, moment_text, parse_native

Part = Literal["value", "length", "rowid", "locator"]
FetchedAs = Literal["arrow", "tuples", "native"]

INLINE_UNITS = 32 * 1024
"""Characters (UTF-16 units) or bytes up to which a LOB comes with its row."""
MIN_ROWS = 16
_LONGS = ("LONG", "LONG RAW")
_USUAL_LOB_BYTES = 8 * 1024
"""A guess for LOBs, LONGs and documents, which have no declared length."""
_NO_LENGTH = 128
"""More than numbers and dates ever take, in bytes."""


class Item(Struct, frozen=True, kw_only=True):
    """One item of the SELECT list."""

    expression: str
    fetched: str
    """The Arrow type asked of the driver."""
    column: int
    """Index of the column it belongs to."""
    form: Form
    part: Part = "value"


class FetchPlan(Struct, frozen=True, kw_only=True):
    """How the rows of an extract are fetched."""

    items: tuple[Item, ...]
    fetched_as: FetchedAs
    """The requested way; `Route` in `reading.reader` may choose another one."""
    columns: tuple[ReadColumn, ...]

    @property
    def select_list(self) -> str:
        return ", ".join(item.expression for item in self.items)

    @property
    def sees_moments(self) -> bool:
        """Whether the driver itself makes dates, which it cannot of all that Oracle stores."""
        return any(item.fetched.startswith("timestamp") for item in self.items)

    @property
    def has_lobs(self) -> bool:
        """Whether a value may be elsewhere than in its row."""
        return any(item.part == "length" for item in self.items)


def fetch_plan(extract: Extract, *, moments_as_text: bool = False) -> FetchPlan:
    """Return the plan that fetches the projection of an extract.

    Args:
        moments_as_text: Fetch dates and timestamps as the database's text of them.
    """
    rowid = extract.query is None and not any(
        dict(column.attributes).get(ROWID) == "no" for column in extract.table.columns
    )
    columns = extract.projection.columns
    items = tuple(
        item
        for index, column in enumerate(columns)
        for item in _items(column, index, rowid=rowid, moments_as_text=moments_as_text)
    )
    asked = extract.source.session.fetch
    fetched_as: FetchedAs = ordinary_fetch() if asked == "auto" else asked
    if any(item.part == "locator" for item in items):
        fetched_as = "tuples"
    return FetchPlan(items=items, fetched_as=fetched_as, columns=columns)


def select_columns(extract: Extract) -> str:
    """Return the SELECT list of a unit's statement, as workers send it first."""
    return fetch_plan(extract).select_list


def ordinary_fetch() -> Literal["arrow", "tuples"]:
    return "arrow" if arrow_is_exact(driver_version()) else "tuples"


def _items(
    column: ReadColumn, index: int, *, rowid: bool, moments_as_text: bool
) -> tuple[Item, ...]:
    form, output = form_of(column), column.output_type
    if form == "lob":
        return _lob_items(column, index, rowid=rowid)
    expression, fetched = column.expression, "string"
    if form == "hex":
        fetched = "binary"
    elif form == "boolean":
        fetched = "bool"
    elif form == "real":
        fetched = "float" if column.source_type == "BINARY_FLOAT" else "double"
    elif form == "plain" and output.startswith("timestamp") and moments_as_text:
        expression, form = moment_text(column), "moment"
    elif form == "plain":
        fetched = output.partition(", tz")[0].rstrip("]") + "]" if ", tz" in output else output
    return (Item(expression=expression, fetched=fetched, column=index, form=form),)


def _lob_items(column: ReadColumn, index: int, *, rowid: bool) -> tuple[Item, ...]:
    lob = column.expression
    # Not DBMS_LOB.GETLENGTH: hardened databases take that package away from PUBLIC, and a call of
    # PL/SQL costs more. LENGTH is the same number, 0 where the LOB is empty, and knows BLOBs too.
    length = f"LENGTH({lob})"
    fetched = "binary" if column.source_type == "BLOB" else "string"
    where = "ROWIDTOCHAR(ROWID)" if rowid else lob
    parts: tuple[tuple[Part, str, str], ...] = (
        ("value", f"CASE WHEN {length} <= {INLINE_UNITS} THEN {lob} END", fetched),
        ("length", length, "int64"),
        (
            "rowid" if rowid else "locator",
            f"CASE WHEN {length} > {INLINE_UNITS} THEN {where} END",
            "string",
        ),
    )
    return tuple(
        Item(expression=expression, fetched=kind, column=index, form="lob", part=part)
        for part, expression, kind in parts
    )


def batch_rows(plan: FetchPlan, usual_rows: int, batch_bytes: int) -> int:
    """Return the rows of one fetch.

    Args:
        usual_rows: The number of rows that suits rows of usual width.
        batch_bytes: What a batch should take; even of the widest rows it takes a few times that.
    """
    widest = sum(_widest_bytes(plan.columns[item.column], item) for item in plan.items)
    lobs = sum(
        item.part == "value"
        and (item.form in ("lob", "document") or plan.columns[item.column].source_type in _LONGS)
        for item in plan.items
    )
    rows = min(usual_rows, SHARES * batch_bytes // widest)
    if lobs:
        rows = min(rows, batch_bytes // (lobs * _USUAL_LOB_BYTES))
    return max(MIN_ROWS, rows)


def _widest_bytes(column: ReadColumn, item: Item) -> int:
    native = parse_native(column.source_type)
    if item.part != "value" or item.fetched not in ("string", "binary"):
        return _NO_LENGTH
    if re.fullmatch(r"N?VARCHAR2|N?CHAR|RAW|UROWID", native.name):
        length = native.first or 4000
        return length * (4 if native.in_chars else 1)
    return _NO_LENGTH


VERIFIED = ((26, 1), (26, 2))
"""From the first on, and before the second."""

NATIVE = frozenset({"26.1.0"})
"""Versions with which the native fetch was tried: it leans on how the driver reads its socket."""


@lru_cache(maxsize=1)
def driver_version() -> str:
    return version("oracledb")


def arrow_is_exact(installed: str) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    return VERIFIED[0] <= numbers < VERIFIED[1]


def native_is_exact(installed: str) -> bool:
    """Return whether the native fetch was tried with a driver version, and found exact."""
    return installed in NATIVE


def driver_warning(installed: str) -> str | None:
    if arrow_is_exact(installed):
        return None
    first, last = (".".join(map(str, ends)) for ends in VERIFIED)
    return (
        f"python-oracledb {installed} is not a version with tested Arrow batches ({first} to "
        f"before {last}), so rows are fetched as tuples, which is slower. "
        f'Install one with: pip install "oracledb>={first},<{last}"'
    )
