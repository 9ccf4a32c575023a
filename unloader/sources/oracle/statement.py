"""The statements that read an Oracle table: work units, snapshots and checksums.

A selector is a table, one of its partitions or sub-partitions, a range of ROWIDs or a range of
keys. ROWIDs are ordered by segment, file, block and row in the database only: their texts are made
here from numbers and never compared. Ranges are half-open and the outermost ends stay open. So
together they have every row, even if the extents were wrong.

All workers read at one SCN. No session holds it: the database can read at it while its undo reaches
back. So a later process can read at it, too. A standby that is open for reading also gives an SCN.

STANDARD_HASH accepts no LOB and no LONG, and it hashes bytes of the database's character set: text
is compared only with AL32UTF8. It may hash NULL, so the statements leave NULLs out.

A column is one item of the SELECT list, except a LOB: a small value is fetched with its row, a
large one only by its place. A value of length 0 would be fetched as NULL, so the length is another
item.

The versions of the driver with exact Arrow batches are known from tests: tables that repeat values,
NULLs and whole rows on both sides of every batch boundary, as Arrow and as tuples, in batches of 1,
2, 3, 7 and 1000 rows. 26.1.0 is exact. 26.0.0 loses rows of dates and crashes on decimals
(python-oracledb issues 605 and 606). 4.0.1 also crashes on a column with only NULLs (597).
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from functools import lru_cache, partial
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
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Consistency, Extract, ReadColumn, Snapshot
from unloader.sources.base import SHARES
from unloader.sources.oracle.session import Session
from unloader.sources.oracle.types import (
    ROWID,
    Form,
    form_of,
    fraction_digits,
    moment_text,
    number_text,
    parse_native,
)
from unloader.sources.statement import (
    Hashing,
    literal,
    qualified,
    quoted,
    row_conditions,
    select,
)

FILE_SHIFT = 32
"""An address is the relative file number, shifted by this, and the number of the block."""

_BLOCK_BITS = 22
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def selector_statement(columns_sql: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of a select list over the rows of one selector, at the extract's snapshot."""
    return select(columns_sql, relation(extract, selector), _conditions(extract, selector))


def count_statement(extract: Extract, leaf: PartitionInfo | None) -> str:
    """Return the COUNT of the table or query, or of one leaf, as far as the limit of the rows."""
    clause = "" if leaf is None else partition_clause(leaf.kind, leaf.name)
    source, conditions = _relation(extract, clause), row_conditions(extract)
    if extract.limit_rows is None:
        return select("COUNT(*)", source, conditions)
    return f"SELECT COUNT(*) FROM ({select('1 AS N', source, [*conditions, *_limit(extract)])})"


def relation(extract: Extract, selector: Selector) -> str:
    if selector.partition is None or isinstance(selector, WholeTable):
        return _relation(extract, "")
    return _relation(extract, partition_clause(selector.kind, selector.partition))


def _relation(extract: Extract, clause: str) -> str:
    at = as_of(extract.snapshot)
    if extract.query is not None:
        return query_relation(extract.query) + at
    return qualified(extract.table.schema, extract.table.name) + clause + at


def query_relation(query: str) -> str:
    """Return a query as a table expression; the newline ends a trailing `--` comment."""
    return f"({query.strip().rstrip(';')}\n)"


def as_of(snapshot: Snapshot | None) -> str:
    """Return the clause that reads at a snapshot, with a blank before it; empty without one."""
    return f" AS OF SCN {int(snapshot.value)}" if snapshot and snapshot.kind == SCN else ""


def partition_name(*levels: str) -> str:
    """Return the name of a leaf: `PARTITION` or `PARTITION/SUBPARTITION`.

    A name with a slash is put into double quotes, which no name in Oracle can have.
    """
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


def _conditions(extract: Extract, selector: Selector) -> list[str]:
    conditions = []
    if isinstance(selector, RowRange):
        assert selector.object_id is not None
        ends = ((">=", selector.first), ("<", selector.last))
        conditions += [
            f"ROWID {sign} CHARTOROWID({literal(rowid_text(selector.object_id, address))})"
            for sign, address in ends
            if address is not None
        ]
    elif isinstance(selector, KeyRange):
        column = quoted(selector.column)
        keys = ((">=", selector.first), ("<", selector.last))
        conditions += [f"{column} {sign} {key}" for sign, key in keys if key is not None]
    else:
        assert isinstance(selector, (NamedPartition, WholeTable))
    return [*conditions, *row_conditions(extract), *_limit(extract)]


def _limit(extract: Extract) -> list[str]:
    """Return the condition that limits the rows; it counts rows that meet all other conditions."""
    return [] if extract.limit_rows is None else [f"ROWNUM <= {extract.limit_rows}"]


SCN = "scn"

logger = logging.getLogger(__name__)


SCN_GRANT = "GRANT SELECT ON SYS.V_$DATABASE"
SCN_QUERIES = {
    "V$DATABASE": "SELECT CURRENT_SCN FROM V$DATABASE",
    "DBMS_FLASHBACK": "SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER FROM DUAL",
    "TIMESTAMP_TO_SCN": "SELECT TIMESTAMP_TO_SCN(SYSTIMESTAMP) FROM DUAL",
}
"""In the order they are tried, exact ones first. The last may lie up to three seconds back, the
grain of the database's table of times; that is as consistent, but a table made or altered within
them cannot be read."""


def current_scn(session: Session) -> tuple[int, bool] | None:
    """Return the present SCN and whether it is exact, None if the user may not know it."""
    for name, sql in SCN_QUERIES.items():
        found = session.allowed(partial(session.value, sql))
        if isinstance(found, SourceError):
            logger.info("%s does not give the SCN: %s", name, found.message)
        elif found is not None:
            return int(found), name != "TIMESTAMP_TO_SCN"
    return None


def take_snapshot(
    session: Session, user: str, consistency: Consistency, wanted: int | None
) -> Snapshot:
    """Return the SCN to read at, or none for the consistency `none`.

    Whether undo reaches back to a wanted SCN turns out on reading. `SnapshotGone` where it is in
    the future; `SourceError` where the user may not know the SCN.
    """
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    if consistency == "none":
        return Snapshot(kind="none", value="", taken_at=taken_at)
    found = current_scn(session)
    if wanted is not None:
        if found is not None and found[1] and wanted > found[0]:
            # An SCN of an earlier run is in the future if the database was set back since.
            raise SnapshotGone(
                f"SCN {wanted} is in the future: the database is at {found[0]}",
                "give --scn a number that the database has reached, or leave --scn out",
            )
        return Snapshot(kind=SCN, value=str(wanted), taken_at=taken_at)
    if found is None:
        raise SourceError(
            f"{user} may not read the current SCN, so the workers cannot share one snapshot",
            f"ask a DBA to run {SCN_GRANT} TO {user}, or run with --consistency none",
        )
    return Snapshot(kind=SCN, value=str(found[0]), taken_at=taken_at)


def check_readable(session: Session, user: str, relation: str, at: str, owner_hint: str) -> None:
    """Return if the user may read a relation as of the snapshot; no row is read.

    `at` is the AS OF clause with a blank before it. `owner_hint` is the table as a GRANT names it;
    empty for a query.
    """
    try:
        session.run(f"SELECT 1 FROM {relation}{at} WHERE 1 = 0")
    except SourceError as error:
        refused = any(code in error.message for code in ("ORA-01031", "ORA-41900", "ORA-00942"))
        if not at or not session.alive or not refused:
            raise
        session.run(f"SELECT 1 FROM {relation} WHERE 1 = 0")
        grant = (
            f"ask its owner to run GRANT FLASHBACK ON {owner_hint} TO {user}"
            if owner_hint
            else f"GRANT FLASHBACK to {user} on each of its tables that belongs to another user"
        )
        raise SourceError(
            f"{user} may not read {owner_hint or 'the query'} as of an SCN: {error.message}",
            f"{grant}, or run with --consistency none",
        ) from error


_INTEGER = re.compile(r"int\d+")
_REALS = {"BINARY_FLOAT": "float", "BINARY_DOUBLE": "double"}
_NOT_NUMBERS = ("7fc00000", "ffc00000", "7ff8000000000000", "fff8000000000000")
_NATIONAL = ("NCHAR", "NVARCHAR2")
CHARACTER_SET = "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'"
UTF_8 = "AL32UTF8"


def _text(column: ReadColumn, text_class: str) -> str | None:
    kind, value = column.output_type, column.expression
    native = parse_native(column.source_type)
    if kind == "string":
        return _string(column, text_class)
    if _INTEGER.fullmatch(kind) or kind.startswith("decimal128"):
        return plain_digits(number_text(value))
    if kind in ("float", "double"):
        if _REALS.get(native.name) != kind:
            return None
        bits = f"LOWER(RAWTOHEX(UTL_RAW.CAST_FROM_{native.name}({value})))"
        pairs = ", ".join(f"'{each}', 'NaN'" for each in _NOT_NUMBERS)
        return f"DECODE({bits}, {pairs}, {bits})"
    if kind.startswith("timestamp["):
        text = moment_text(value, native)
        return _moment(value, text, fraction_digits(native), utc="tz=" in kind)
    if kind == "binary":
        return value if native.name == "RAW" else None
    if kind == "bool":
        return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
    return None


def _string(column: ReadColumn, text_class: str) -> str | None:
    form, value = form_of(column), column.expression
    native = parse_native(column.source_type)
    if form == "number":
        return plain_digits(value)
    if text_class == "timestamp" and form in ("moment", "utc"):
        return _moment(value, value, fraction_digits(native), utc=form == "utc")
    if form == "plain" and native.name != "LONG":
        return f"TO_CHAR({value})" if native.name in _NATIONAL else value
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
    """The requested way; the reader may choose another one."""
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
    """Return the plan that fetches an extract, with moments as themselves or as text."""
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
        expression, form = moment_text(expression, parse_native(column.source_type)), "moment"
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
    """Return the rows of one fetch: as many as suit rows of usual width, fewer of wide ones.

    A batch of the widest rows takes a few times `batch_bytes`.
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
