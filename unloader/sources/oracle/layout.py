"""The places of an Oracle table's rows, as far as the user's rights show them.

The order of attempts: the extents in DBA_EXTENTS; a sample of the blocks, which needs only the
right to read the table; partitions without details; the whole table. An index-organized table has
no ROWIDs of a segment, so its keys are sampled. A sample has a fixed seed: while the table does not
change, two plans are the same. The statements write nothing and work on a standby.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import ColumnInfo, KeySample, PartitionInfo, RowExtent, coalesced
from unloader.errors import SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.sources.oracle.dictionary import (
    BLOCK_BYTES,
    KEY_COLUMN,
    Dictionary,
    Question,
    Relation,
    integer,
    statistical_bytes,
)
from unloader.sources.oracle.session import Session
from unloader.sources.oracle.statement import (
    FILE_SHIFT,
    last_level,
    partition_clause,
    partition_name,
)
from unloader.sources.oracle.types import parse_native
from unloader.sources.statement import literal, qualified, quoted

_TABLES = "('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION')"

PARTITIONS = Question(
    select="PARTITION_NAME, SUBPARTITION_COUNT, NUM_ROWS, BLOCKS, AVG_ROW_LEN",
    view="ALL_TAB_PARTITIONS",
    owner="TABLE_OWNER",
    order="PARTITION_POSITION",
)
SUBPARTITIONS = Question(
    select="PARTITION_NAME, SUBPARTITION_NAME, NUM_ROWS, BLOCKS, AVG_ROW_LEN",
    view="ALL_TAB_SUBPARTITIONS",
    owner="TABLE_OWNER",
    order="PARTITION_NAME, SUBPARTITION_POSITION",
)
OBJECTS, ALL_OF_OBJECTS = (
    Question(
        select="SUBOBJECT_NAME, DATA_OBJECT_ID",
        view=view,
        name="OBJECT_NAME",
        where=f"DATA_OBJECT_ID IS NOT NULL AND OBJECT_TYPE IN {_TABLES}",
    )
    for view in ("ALL_OBJECTS", "DBA_OBJECTS")
)
OWN_SEGMENTS, ALL_SEGMENTS = (
    Question(
        select="PARTITION_NAME, BYTES",
        view=view,
        owner=owner,
        name="SEGMENT_NAME",
        where=f"SEGMENT_TYPE IN {_TABLES}",
    )
    for view, owner in (("USER_SEGMENTS", None), ("DBA_SEGMENTS", "OWNER"))
)
EXTENTS = Question(
    select="PARTITION_NAME, RELATIVE_FNO, BLOCK_ID, BLOCKS, BYTES",
    view="DBA_EXTENTS",
    name="SEGMENT_NAME",
    where=f"SEGMENT_TYPE IN {_TABLES}",
)

MAX_SAMPLED = 64

MUCH_ABOVE_MEAN = 2
"""Of more than `MAX_SAMPLED` parts, only parts larger than the mean by this factor are sampled, as
idle workers would wait for them."""

SMALL_BYTES = 16 * BLOCK_BYTES
"""Guess: a part below it is not worth a statement."""


class Layout(Struct, frozen=True, kw_only=True):
    """A table's leaf partitions and their sizes; an unpartitioned table is one part."""

    parts: tuple[PartitionInfo, ...]
    """In table order. The table itself where `partitioned` is False; its name is then empty."""
    partitioned: bool
    ranges_from: str | None = None
    missing: tuple[str, ...] = ()
    """What a better layout would take, a sentence each."""


def lay_out(
    asked: Dictionary,
    table: Relation,
    columns: Sequence[ColumnInfo],
    user: str,
    observe: Observer = silent,
) -> Layout:
    """Return the parts of a table, with extents or keys as far as they can be known."""
    whole = PartitionInfo(name="", position=0, rows=table.rows, bytes=table.bytes)
    if not (table.has_rowids or table.is_index):
        return Layout(parts=(whole,), partitioned=False)
    observe(PhaseStarted(phase="partitions"))
    # The partitions, or their sub-partitions where they have some, in table order.
    children: dict[str, list[tuple[Any, ...]]] = {}
    rows = asked.rows(PARTITIONS, table.owner, table.name)
    if any(row[1] for row in rows):
        for parent, *child in asked.rows(SUBPARTITIONS, table.owner, table.name):
            children.setdefault(parent, []).append(tuple(child))
    found_leaves: list[PartitionInfo] = []
    for parent, _, *statistics in rows:
        below = children.get(parent)
        for name, *facts in below if below else [(parent, *statistics)]:
            number, blocks, row_length = facts
            found_leaves.append(
                PartitionInfo(
                    name=partition_name(parent, name) if below else partition_name(name),
                    kind="subpartition" if below else "partition",
                    position=len(found_leaves),
                    rows=integer(number),
                    bytes=statistical_bytes(number, blocks, row_length),
                )
            )
    leaves = tuple(found_leaves)
    layout = Layout(parts=leaves or (whole,), partitioned=bool(leaves))
    observe(PhaseStarted(phase="extents"))
    if table.is_index:
        return _by_keys(asked, table, layout, columns)
    ids = object_ids(asked, table)
    layout = replace(
        layout, parts=tuple(replace(part, object_id=ids.get(_leaf(part))) for part in layout.parts)
    )
    found = asked.rows_or_error(EXTENTS, table.owner, table.name)
    if isinstance(found, SourceError):
        return _by_sample(asked, table, layout, user, "DBA_EXTENTS")
    if not ids:
        # Extents are of no use without the segments' numbers, which sampled rows have in them.
        return _by_sample(asked, table, layout, user, "DBA_OBJECTS")
    extents: dict[str | None, list[RowExtent]] = {}
    sizes: dict[str | None, int] = {}
    for leaf, file, block, blocks, size in found:
        first = (int(file) << FILE_SHIFT) + int(block)
        extents.setdefault(leaf, []).append(RowExtent(first=first, last=first + int(blocks)))
        sizes[leaf] = sizes.get(leaf, 0) + int(size)
    parts = tuple(
        replace(
            part,
            bytes=sizes.get(_leaf(part), 0),
            extents=coalesced(extents.get(_leaf(part), ())) if part.object_id is not None else (),
        )
        for part in layout.parts
    )
    return replace(layout, parts=parts, ranges_from="DBA_EXTENTS")


def _leaf(part: PartitionInfo) -> str | None:
    return last_level(part.name) if part.name else None


def _by_sample(
    asked: Dictionary, table: Relation, layout: Layout, user: str, better: str
) -> Layout:
    """Return parts with sampled blocks; `better` is the view that would spare the samples."""
    missing = [
        f"SELECT on SYS.{better} is missing, so the places of rows are known only from sampled "
        f"blocks: GRANT SELECT ON SYS.{better} TO {user}"
    ]
    question = OWN_SEGMENTS if table.owner == user else ALL_SEGMENTS
    sizes: dict[str | None, int] = {}
    segments = asked.rows_or_error(question, table.owner, table.name)
    if not isinstance(segments, SourceError):
        sizes = {part: int(size) for part, size in segments}
    else:
        missing.append(
            "SELECT on SYS.DBA_SEGMENTS is missing, so sizes come from the statistics: GRANT "
            f"SELECT ON SYS.DBA_SEGMENTS TO {user}"
        )
    parts = layout.parts
    if sizes:
        parts = tuple(replace(part, bytes=sizes.get(_leaf(part), 0)) for part in parts)
    # Only parts that idle workers might wait for are sampled; without sizes, all of a short list.
    known = [part.bytes for part in parts if part.bytes is not None]
    chosen = parts if len(parts) <= MAX_SAMPLED else ()
    if known and len(parts) > 1:
        least = SMALL_BYTES
        if len(parts) > MAX_SAMPLED:
            least = max(least, MUCH_ABOVE_MEAN * sum(known) // len(known))
        large = [part for part in parts if part.bytes is not None and part.bytes >= least]
        chosen = tuple(sorted(large, key=lambda part: -(part.bytes or 0))[:MAX_SAMPLED])
    total = sum(part.bytes or 0 for part in chosen)
    percent = SAMPLED_BLOCKS * BLOCK_BYTES / total * 100 if total else None
    found = asked.session.allowed(
        partial(_sample_blocks, asked.session, table, chosen, percent, exact=bool(sizes))
    )
    if isinstance(found, SourceError):
        missing[0] = (
            f"blocks cannot be sampled ({found.message}), so only whole partitions are read: "
            f"GRANT SELECT ON SYS.{better} TO {user}"
        )
        return replace(layout, parts=parts, missing=tuple(missing))
    parts = tuple(found.get(part.name, part) for part in parts)
    origin = "SAMPLE BLOCK" if any(part.extents for part in parts) else None
    return replace(layout, parts=parts, ranges_from=origin, missing=tuple(missing))


def _by_keys(
    asked: Dictionary, table: Relation, layout: Layout, columns: Sequence[ColumnInfo]
) -> Layout:
    key = asked.rows(KEY_COLUMN, table.owner, table.name)
    name = key[0][0] if key else None
    column = next((each for each in columns if each.name == name), None)
    if column is None or parse_native(column.native_type).name not in _KEY_TYPES:
        what = "is not visible" if column is None else f"begins with {column.native_type}"
        missing = f"the table is read as a whole or by partition, because its primary key {what}"
        return replace(layout, missing=(missing,))
    known = [part for part in layout.parts if part.rows]
    if not known:
        missing = (
            "the table has no statistics, so its keys are not sampled: "
            f"DBMS_STATS.GATHER_TABLE_STATS('{table.owner}', '{table.name}')"
        )
        return replace(layout, missing=(missing,))
    chosen = sorted(known, key=lambda part: -(part.rows or 0))[:MAX_SAMPLED]
    rows = sum(part.rows or 0 for part in chosen)
    percent = min(max(SAMPLED_KEYS / rows * 100, LEAST_PERCENT), MOST_PERCENT)
    keys: dict[str, KeySample] = {}
    for part in chosen:
        texts = asked.session.allowed(
            partial(_keys, asked.session, table, part, quoted(column.name), percent)
        )
        if isinstance(texts, SourceError):
            refused = (
                f"keys cannot be sampled ({texts.message}), so the table has no ranges of keys"
            )
            return replace(layout, missing=(refused,))
        if texts:
            keys[part.name] = KeySample(column=column.name, keys=texts)
    parts = tuple(replace(part, keys=keys.get(part.name)) for part in layout.parts)
    return replace(layout, parts=parts, ranges_from=f"SAMPLE of key {column.name}")


def _sample_blocks(
    session: Session,
    table: Relation,
    parts: Sequence[PartitionInfo],
    percent: float | None,
    *,
    exact: bool,
) -> dict[str, PartitionInfo]:
    """Return the parts with some of their blocks as extents, by name.

    Each part is sampled at the same rate: `percent` of its blocks, from the known size, None if it
    is unknown. A part whose size was not known gets an estimate. `exact`: sizes are not estimates.
    """
    percent = FIRST_PERCENT if percent is None else percent if exact else percent / GROWTH**2
    while True:
        percent = min(max(percent, LEAST_PERCENT), MOST_PERCENT)
        found = {
            part.name: session.run(
                "SELECT DISTINCT DBMS_ROWID.ROWID_OBJECT(ROWID), "
                "DBMS_ROWID.ROWID_RELATIVE_FNO(ROWID), DBMS_ROWID.ROWID_BLOCK_NUMBER(ROWID) "
                f"FROM {_relation(table, part)} SAMPLE BLOCK ({percent:.6f}) SEED (1)"
            )
            for part in parts
        }
        total = sum(len(blocks) for blocks in found.values())
        if exact or total * ENOUGH >= SAMPLED_BLOCKS or percent == MOST_PERCENT:
            break
        percent *= GROWTH
    made = {}
    for part in parts:
        blocks = found[part.name]
        objects = {int(segment) for segment, _, _ in blocks}
        size = part.bytes
        if size is None:
            size = round(len(blocks) / percent * 100) * BLOCK_BYTES
        made[part.name] = replace(part, bytes=size)
        # Otherwise nothing was found, or the part was moved meanwhile.
        if len(objects) == 1 and part.object_id in (None, *objects):
            addresses = [(int(file) << FILE_SHIFT) + int(block) for _, file, block in blocks]
            extents = coalesced(RowExtent(first=at, last=at + 1) for at in addresses)
            made[part.name] = replace(part, bytes=size, extents=extents, object_id=objects.pop())
    return made


def _keys(
    session: Session, table: Relation, part: PartitionInfo, name: str, percent: float
) -> tuple[str, ...]:
    """Return keys of a part in the database's order; none where Python has not their values."""
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
    return tuple(filter(None, map(key_literal, values[::step])))


def _relation(table: Relation, part: PartitionInfo) -> str:
    name = qualified(table.owner, table.name)
    return name + (partition_clause(part.kind, part.name) if part.name else "")


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

MAX_LITERAL = 1000
"""Characters of a text key: a literal has room for 4,000 bytes, four for a character."""

_KEY_TYPES = ("NUMBER", "FLOAT", "VARCHAR2", "DATE", "TIMESTAMP")


def key_literal(value: Any) -> str | None:
    """Return SQL for a key, cut to microseconds; None for a text that no literal can hold."""
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


def object_ids(dictionary: Dictionary, table: Relation) -> dict[str | None, int]:
    """Return the segments' numbers, by the name of partition or sub-partition, None for neither.

    TRUNCATE, EXCHANGE and MOVE change a number, and ROWIDs contain it. Of another user's table,
    ALL_OBJECTS shows sub-partitions only to a user who may read any table. DBA_OBJECTS is read
    instead, if the user may see it.
    """
    found = dictionary.rows(OBJECTS, table.owner, table.name)
    if not found:
        all_of = dictionary.rows_or_error(ALL_OF_OBJECTS, table.owner, table.name)
        found = [] if isinstance(all_of, SourceError) else all_of
    return {part: int(number) for part, number in found}
