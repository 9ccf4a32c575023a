"""The statements that read an Oracle table: work units, snapshots and checksums.

A selector is a table, one of its partitions or sub-partitions, a range of ROWIDs or a range of
keys. ROWIDs are ordered by segment, file, block and row in the database only: their texts are made
here from numbers and never compared. Ranges are half-open and the outermost ends stay open, so
together they have every row, even if the extents were wrong.

All workers read at one SCN, which a standby also gives. No session holds it: a later process can
read at it while the database's undo reaches back.

STANDARD_HASH accepts no LOB and no LONG, and hashes bytes of the database's character set: text is
compared only with AL32UTF8. It may hash NULL, so the statements leave NULLs out.

A column is one item of the SELECT list, except a LOB: its value if small, else its place, and its
length, since a value of length 0 would be fetched as NULL.

Versions of the driver were tested with values, NULLs and rows that repeat on both sides of every
batch boundary. 26.1.0 makes exact Arrow batches. 26.0.0 loses rows of dates and crashes on decimals
(python-oracledb issues 605 and 606); 4.0.1 also crashes on a column with only NULLs (597).
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version
from typing import Literal

from msgspec import Struct

from partition_planner.model import (
    KeyRange,
    NamedPartition,
    PartitionInfo,
    RowRange,
    Selector,
    WholeTable,
)
from unloader.model import Extract, ReadColumn, Snapshot
from unloader.sources.base import SHARES
from unloader.sources.oracle import types
from unloader.sources.statement import Hashing, literal, qualified, quoted, row_conditions, select

FILE_SHIFT = 32
"""An address is the relative file number, shifted by this, and the number of the block."""

_BLOCK_BITS = 22
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def selector_statement(columns_sql: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of a select list over the rows of one selector, at the extract's snapshot."""
    conditions = []
    if isinstance(selector, RowRange):
        assert selector.object_id is not None
        conditions = [
            f"ROWID {sign} CHARTOROWID({literal(rowid_text(selector.object_id, address))})"
            for sign, address in ((">=", selector.first), ("<", selector.last))
            if address is not None
        ]
    elif isinstance(selector, KeyRange):
        conditions = [
            f"{quoted(selector.column)} {sign} {key}"
            for sign, key in ((">=", selector.first), ("<", selector.last))
            if key is not None
        ]
    else:
        assert isinstance(selector, (NamedPartition, WholeTable))
    conditions += row_conditions(extract)
    if extract.limit_rows is not None:
        # It counts rows that meet all other conditions.
        conditions.append(f"ROWNUM <= {extract.limit_rows}")
    return select(columns_sql, relation(extract, selector), conditions)


def count_statement(extract: Extract, leaf: PartitionInfo | None) -> str:
    """Return the COUNT of the table or query, or of one leaf, as far as the limit of the rows."""
    source, conditions = relation(extract, leaf), row_conditions(extract)
    if extract.limit_rows is None:
        return select("COUNT(*)", source, conditions)
    rows = select("1 AS N", source, [*conditions, f"ROWNUM <= {extract.limit_rows}"])
    return f"SELECT COUNT(*) FROM ({rows})"


def relation(extract: Extract, part: Selector | PartitionInfo | None) -> str:
    """Return the table or query that is read, with its partition and snapshot."""
    at = as_of(extract.snapshot)
    if extract.query is not None:
        return query_relation(extract.query) + at
    clause = ""
    if isinstance(part, PartitionInfo):
        clause = partition_clause(part.kind, part.name)
    elif part is not None and not isinstance(part, WholeTable) and part.partition is not None:
        clause = partition_clause(part.kind, part.partition)
    return qualified(extract.table.schema, extract.table.name) + clause + at


def query_relation(query: str) -> str:
    """Return a query as a table expression; the newline ends a trailing `--` comment."""
    return f"({query.strip().rstrip(';')}\n)"


def as_of(snapshot: Snapshot | None) -> str:
    """Return the clause that reads at a snapshot, with a blank before it; empty without one."""
    return f" AS OF SCN {int(snapshot.value)}" if snapshot and snapshot.kind == SCN else ""


def partition_name(*levels: str) -> str:
    """Return a leaf's name, `PARTITION/SUBPARTITION`; a level with a slash is in double quotes."""
    return "/".join(quoted(level) if "/" in level else level for level in levels)


def last_level(name: str) -> str:
    """Return the last name that `partition_name` put together, as the dictionary has it."""
    if name.endswith('"'):
        return name[name.rindex('"', 0, -1) + 1 : -1]
    return name.rpartition("/")[2]


def partition_clause(kind: str, name: str) -> str:
    return f" {kind.upper()} ({quoted(last_level(name))})"


def rowid_text(object_id: int, address: int) -> str:
    """Return the ROWID of the first row in a block, as 18 characters.

    The ten bits of a file and the 22 of a block make one number of 32 bits. In a bigfile tablespace
    the only file is 1024, which those ten bits hold as 0, and the block may need all 32.
    """
    file, block = address >> FILE_SHIFT, address & ((1 << FILE_SHIFT) - 1)
    place = ((file << _BLOCK_BITS) + block) & ((1 << 32) - 1)
    numbers = (object_id, place >> _BLOCK_BITS, place & ((1 << _BLOCK_BITS) - 1), 0)
    return "".join(
        _DIGITS[number >> 6 * digit & 63]
        for number, width in zip(numbers, (6, 3, 6, 3), strict=True)
        for digit in reversed(range(width))
    )


SCN = "scn"

_INTEGER = re.compile(r"int\d+")
_REALS = {"BINARY_FLOAT": "float", "BINARY_DOUBLE": "double"}
_NOT_NUMBERS = ("7fc00000", "ffc00000", "7ff8000000000000", "fff8000000000000")
_NATIONAL = ("NCHAR", "NVARCHAR2")
CHARACTER_SET = "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'"
UTF_8 = "AL32UTF8"


def _text(column: ReadColumn, text_class: str) -> str | None:
    kind, value = column.output_type, column.expression
    native = types.parse_native(column.source_type)
    if kind == "string":
        form = types.form_of(column)
        if form == "number":
            return plain_digits(value)
        if text_class == "timestamp" and form in ("moment", "utc"):
            return _moment(value, value, types.fraction_digits(native), utc=form == "utc")
        if form != "plain" or native.name == "LONG":
            return None
        return f"TO_CHAR({value})" if native.name in _NATIONAL else value
    if _INTEGER.fullmatch(kind) or kind.startswith("decimal128"):
        return plain_digits(types.number_text(value))
    if kind in ("float", "double"):
        if _REALS.get(native.name) != kind:
            return None
        bits = f"LOWER(RAWTOHEX(UTL_RAW.CAST_FROM_{native.name}({value})))"
        pairs = ", ".join(f"'{each}', 'NaN'" for each in _NOT_NUMBERS)
        return f"DECODE({bits}, {pairs}, {bits})"
    if kind.startswith("timestamp["):
        text = types.moment_text(value, native)
        return _moment(value, text, types.fraction_digits(native), utc="tz=" in kind)
    if kind == "binary":
        return value if native.name == "RAW" else None
    if kind == "bool":
        return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
    return None


def plain_digits(text: str) -> str:
    """Return SQL for a number of TM9 with its zero before the point."""
    return f"SUBSTR(REPLACE(REPLACE('x' || {text}, 'x.', 'x0.'), 'x-.', 'x-0.'), 2)"


def _moment(value: str, text: str, digits: int, *, utc: bool) -> str:
    """Return SQL for a date and time, then the era, without zeros at the fraction's end."""
    if digits:
        text = f"RTRIM(RTRIM({text}, '0'), '.')"
    zone = "+00:00" if utc else ""
    return (
        f"CASE WHEN {value} IS NULL THEN NULL "
        f"WHEN SUBSTR({text}, 1, 1) = '-' THEN SUBSTR({text}, 2) || '{zone} BC' "
        f"ELSE LTRIM({text}) || '{zone}' END"
    )


HASHING = Hashing(
    text=_text,
    sum=(
        "SUM(CASE WHEN {0} IS NOT NULL THEN TO_NUMBER(SUBSTR(RAWTOHEX(STANDARD_HASH({0}, 'MD5')), "
        "1, 16), 'XXXXXXXXXXXXXXXX') END)"
    ),
    statement=selector_statement,
    reason="STANDARD_HASH cannot make its checksum",
)


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
    expression: str
    fetched: str
    """The Arrow type asked of the driver."""
    column: int
    """Index of the column it belongs to."""
    form: types.Form
    part: Part = "value"


class FetchPlan(Struct, frozen=True, kw_only=True):
    items: tuple[Item, ...]
    fetched_as: FetchedAs
    """The requested way; the reader may choose another one."""
    columns: tuple[ReadColumn, ...]

    @property
    def select_list(self) -> str:
        return ", ".join(item.expression for item in self.items)

    @property
    def sees_moments(self) -> bool:
        """Whether the driver itself makes dates, which it cannot of all that Oracle stores."""
        return any(item.fetched.startswith("timestamp") for item in self.items)


def fetch_plan(extract: Extract, *, moments_as_text: bool = False) -> FetchPlan:
    """Return the plan that fetches an extract, with moments as themselves or as text."""
    rowid = extract.query is None and not any(
        dict(column.attributes).get(types.ROWID) == "no" for column in extract.table.columns
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


def ordinary_fetch() -> Literal["arrow", "tuples"]:
    return "arrow" if arrow_is_exact(driver_version()) else "tuples"


def _items(
    column: ReadColumn, index: int, *, rowid: bool, moments_as_text: bool
) -> tuple[Item, ...]:
    form, output, expression = types.form_of(column), column.output_type, column.expression
    if form == "lob":
        # Not DBMS_LOB.GETLENGTH: hardened databases take that package away from PUBLIC, and a call
        # of PL/SQL costs more. LENGTH is the same number, 0 where the LOB is empty, and knows BLOBs
        # too.
        length = f"LENGTH({expression})"
        fetched = "binary" if column.source_type == "BLOB" else "string"
        where = "ROWIDTOCHAR(ROWID)" if rowid else expression
        inline = f"CASE WHEN {length} <= {INLINE_UNITS} THEN {expression} END"
        place = f"CASE WHEN {length} > {INLINE_UNITS} THEN {where} END"
        parts: tuple[tuple[Part, str, str], ...] = (
            ("value", inline, fetched),
            ("length", length, "int64"),
            ("rowid" if rowid else "locator", place, "string"),
        )
        return tuple(
            Item(expression=sql, fetched=kind, column=index, form=form, part=part)
            for part, sql, kind in parts
        )
    fetched = "string"
    if form == "hex":
        fetched = "binary"
    elif form == "boolean":
        fetched = "bool"
    elif form == "real":
        fetched = "float" if column.source_type == "BINARY_FLOAT" else "double"
    elif form == "plain" and output.startswith("timestamp") and moments_as_text:
        expression, form = (
            types.moment_text(expression, types.parse_native(column.source_type)),
            "moment",
        )
    elif form == "plain":
        fetched = output.partition(", tz")[0].rstrip("]") + "]" if ", tz" in output else output
    return (Item(expression=expression, fetched=fetched, column=index, form=form),)


def batch_rows(plan: FetchPlan, usual_rows: int, batch_bytes: int) -> int:
    """Return the rows of one fetch; a batch of the widest rows takes a few times `batch_bytes`."""
    widest = lobs = 0
    for item in plan.items:
        column = plan.columns[item.column]
        native = types.parse_native(column.source_type)
        width = _NO_LENGTH
        if item.part == "value":
            lobs += item.form in ("lob", "document") or column.source_type in _LONGS
            sized = re.fullmatch(r"N?VARCHAR2|N?CHAR|RAW|UROWID", native.name)
            if sized and item.fetched in ("string", "binary"):
                width = (native.first or 4000) * (4 if native.in_chars else 1)
        widest += width
    rows = min(usual_rows, SHARES * batch_bytes // widest)
    if lobs:
        rows = min(rows, batch_bytes // (lobs * _USUAL_LOB_BYTES))
    return max(MIN_ROWS, rows)


VERIFIED = ((26, 1), (26, 2))
"""From the first on, and before the second."""

NATIVE = frozenset({"26.0.1", "26.1.0"})
"""Versions with which the native fetch was tried: it leans on how the driver reads its socket."""


@lru_cache(maxsize=1)
def driver_version() -> str:
    return version("oracledb")


def arrow_is_exact(installed: str) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    return VERIFIED[0] <= numbers < VERIFIED[1]


def driver_warning(installed: str) -> str | None:
    if arrow_is_exact(installed):
        return None
    first, last = (".".join(map(str, ends)) for ends in VERIFIED)
    return (
        f"python-oracledb {installed} is not a version with tested Arrow batches ({first} to "
        f"before {last}), so rows are fetched as tuples, which is slower. "
        f'Install one with: pip install "oracledb>={first},<{last}"'
    )
