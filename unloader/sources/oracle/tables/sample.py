"""Samples of a table: blocks that have rows, keys in their order. Only the database reads them.

A sample always draws the same, by its seed, as long as the table does not change: a plan made
twice is the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from partition_planner.model import ColumnInfo, KeySample, PartitionInfo, RowExtent
from partition_planner.table import coalesced
from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.reading.units import FILE_SHIFT, partition_clause
from unloader.sources.oracle.tables.dictionary import BLOCK_BYTES, Relation
from unloader.sources.statement import literal, qualified, quoted

SAMPLED_BLOCKS = 2048
"""Blocks that all samples of a table touch together: with 64 workers 8 for each of their units."""

SAMPLED_KEYS = 2048

ENOUGH = 4
"""A sample of a share of that is enough, where sizes are not known exactly."""

FIRST_PERCENT = 0.001
GROWTH = 8
"""Where a size is a guess, small samples come first and grow: a sample of a tenth of a table that
is a thousand times as large as its statistics say would cost more than the unload."""

LEAST_PERCENT, MOST_PERCENT = 0.000001, 99.999999
"""The bounds that SAMPLE takes."""

MAX_LITERAL = 1000
"""Characters of a text key: a literal has room for 4,000 bytes, four for a character."""

_KEY_TYPES = ("NUMBER", "FLOAT", "VARCHAR2", "DATE", "TIMESTAMP")


def sample_blocks(
    session: Session,
    table: Relation,
    parts: Sequence[PartitionInfo],
    percent: float | None,
    *,
    exact: bool,
) -> dict[str, PartitionInfo]:
    """Return the parts with some of their blocks as extents, by name.

    Each part is sampled at the same rate. One whose size was not known gets an estimate.

    Args:
        session: Of the parent.
        table: The table.
        parts: Those worth a statement.
        percent: Of the blocks, by what is known of the size; None if nothing is.
        exact: That size is no guess.

    Raises:
        SourceError: The database refused.
    """
    if percent is None:
        percent = FIRST_PERCENT
    elif not exact:
        percent /= GROWTH * GROWTH
    while True:
        percent = min(max(percent, LEAST_PERCENT), MOST_PERCENT)
        found = {part.name: _blocks(session, table, part, percent) for part in parts}
        total = sum(len(blocks) for blocks in found.values())
        if exact or total * ENOUGH >= SAMPLED_BLOCKS or percent == MOST_PERCENT:
            return {part.name: _with_blocks(part, found[part.name], percent) for part in parts}
        percent *= GROWTH


def _blocks(
    session: Session, table: Relation, part: PartitionInfo, percent: float
) -> list[tuple[int, int]]:
    """Return (segment, address) of the sampled blocks of a part that have rows."""
    rows = session.run(
        "SELECT DISTINCT DBMS_ROWID.ROWID_OBJECT(ROWID), DBMS_ROWID.ROWID_RELATIVE_FNO(ROWID), "
        f"DBMS_ROWID.ROWID_BLOCK_NUMBER(ROWID) FROM {_relation(table, part)} "
        f"SAMPLE BLOCK ({percent:.6f}) SEED (1)"
    )
    return [(int(segment), (int(file) << FILE_SHIFT) + int(block)) for segment, file, block in rows]


def _with_blocks(
    part: PartitionInfo, found: list[tuple[int, int]], percent: float
) -> PartitionInfo:
    objects = {segment for segment, _ in found}
    size = part.bytes
    if size is None:
        size = round(len(found) / percent * 100) * BLOCK_BYTES
    if len(objects) != 1 or part.object_id not in (None, *objects):
        return replace(part, bytes=size)  # Nothing found, or moved meanwhile.
    blocks = (RowExtent(first=address, last=address + 1) for _, address in found)
    return replace(part, bytes=size, extents=coalesced(blocks), object_id=objects.pop())


def can_be_key(column: ColumnInfo) -> bool:
    """Return whether values of the column can stand in a statement exactly."""
    return parse_native(column.native_type).name in _KEY_TYPES


def sample_keys(
    session: Session, table: Relation, parts: Sequence[PartitionInfo], column: ColumnInfo
) -> dict[str, KeySample]:
    """Return keys in the database's order, by the name of the part; without any where they fail.

    Args:
        session: Of the parent.
        table: An index-organized table.
        parts: Those worth a statement; their rows are known.
        column: The first one of its primary key.

    Raises:
        SourceError: The database refused.
    """
    rows = sum(part.rows or 0 for part in parts)
    percent = min(max(SAMPLED_KEYS / rows * 100, LEAST_PERCENT), MOST_PERCENT)
    found = {}
    for part in parts:
        keys = _keys(session, table, part, column, percent)
        if keys:
            found[part.name] = KeySample(column=column.name, keys=keys)
    return found


def _keys(
    session: Session, table: Relation, part: PartitionInfo, column: ColumnInfo, percent: float
) -> tuple[str, ...]:
    name = quoted(column.name)
    with session.translating(), session.cursor() as cursor:
        cursor.arraysize = cursor.prefetchrows = SAMPLED_KEYS
        cursor.execute(
            f"SELECT {name} FROM {_relation(table, part)} SAMPLE ({percent:.6f}) SEED (1) "
            f"ORDER BY {name}",
            fetch_decimals=True,
        )
        try:
            values = [value for (value,) in cursor]
        except ValueError:
            # A date before the year 1, which Python has not.
            return ()
    step = -(-len(values) // SAMPLED_KEYS) or 1
    texts = (key_literal(value) for value in values[::step])
    return tuple(text for text in texts if text is not None)


def key_literal(value: Any) -> str | None:
    """Return SQL for a key, None for a text that no literal can hold.

    A fraction of a second finer than Python's is cut off: a boundary between keys need not be one.
    """
    if isinstance(value, datetime):
        text = f"{value.year:04d}-{value:%m-%d %H:%M:%S}"
        if value.microsecond:
            text += f".{value.microsecond:06d}"
            return f"TO_TIMESTAMP({literal(text)},'SYYYY-MM-DD HH24:MI:SS.FF6')"
        return f"TO_DATE({literal(text)},'SYYYY-MM-DD HH24:MI:SS')"
    if isinstance(value, (int, Decimal)):
        return str(value)
    fits = isinstance(value, str) and "\0" not in value and len(value) <= MAX_LITERAL
    return literal(value) if fits else None


def _relation(table: Relation, part: PartitionInfo) -> str:
    name = qualified(table.owner, table.name)
    return name + (partition_clause(part.kind, part.name) if part.name else "")
