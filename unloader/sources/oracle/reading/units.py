"""The statements that read work units of an Oracle table, word for word as a worker sends them.

A selector is a table, one of its partitions or sub-partitions, a range of ROWIDs or one of keys.
ROWIDs are ordered by segment, file, block and row in the database only: their texts are made here
from numbers and never compared. Ranges are half-open and the outermost ends stay open, so that
together they have every row whatever the extents were said to be.
"""

from __future__ import annotations

from collections.abc import Sequence

from partition_planner.model import (
    KeyRange,
    NamedPartition,
    PartitionInfo,
    RowRange,
    Selector,
    WholeTable,
)
from unloader.model import Extract, Snapshot
from unloader.sources.oracle.snapshot import SCN
from unloader.sources.statement import literal, qualified, quoted, row_conditions

FILE_SHIFT = 32
"""An address is the relative file number, shifted by this, and the number of the block."""

_BLOCK_BITS = 22
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def selector_statement(columns_sql: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of a select list over the rows of one selector, at the extract's snapshot."""
    return _select(columns_sql, relation(extract, selector), _conditions(extract, selector))


def count_statement(extract: Extract, leaf: PartitionInfo | None) -> str:
    """Return the COUNT of all rows of the table or query, or of one leaf of the table.

    It counts no further than to the limit of the rows.
    """
    clause = "" if leaf is None else partition_clause(leaf.kind, leaf.name)
    source, conditions = _relation(extract, clause), row_conditions(extract)
    if extract.limit_rows is None:
        return _select("COUNT(*)", source, conditions)
    return f"SELECT COUNT(*) FROM ({_select('1 AS N', source, [*conditions, *_limit(extract)])})"


def relation(extract: Extract, selector: Selector) -> str:
    """Return what a selector reads from: table and partition, or the query, at the snapshot."""
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

    A name that has the slash itself is put into double quotes, which no name in Oracle can have.
    """
    return "/".join(quoted(level) if "/" in level else level for level in levels)


def last_level(name: str) -> str:
    """Return the last name that `partition_name` put together, as the dictionary has it."""
    if name.endswith('"'):
        return name[name.rindex('"', 0, -1) + 1 : -1]
    return name.rpartition("/")[2]


def partition_clause(kind: str, name: str) -> str:
    """Return what selects one leaf, with a blank before it."""
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
        conditions += _rowid_conditions(selector)
    elif isinstance(selector, KeyRange):
        column = quoted(selector.column)
        ends = ((">=", selector.first), ("<", selector.last))
        conditions += [f"{column} {sign} {key}" for sign, key in ends if key is not None]
    else:
        assert isinstance(selector, (NamedPartition, WholeTable))
    return [*conditions, *row_conditions(extract), *_limit(extract)]


def _limit(extract: Extract) -> list[str]:
    """Return what ends a statement after some rows: those that hold to all other conditions."""
    return [] if extract.limit_rows is None else [f"ROWNUM <= {extract.limit_rows}"]


def _rowid_conditions(selector: RowRange) -> list[str]:
    assert selector.object_id is not None
    ends = ((">=", selector.first), ("<", selector.last))
    return [
        f"ROWID {sign} CHARTOROWID({literal(rowid_text(selector.object_id, address))})"
        for sign, address in ends
        if address is not None
    ]


def _select(columns: str, source: str, conditions: Sequence[str]) -> str:
    text = f"SELECT {columns} FROM {source}"
    return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text
