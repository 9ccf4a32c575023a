"""What Oracle's data dictionary says of where rows lie: partitions, segments, extents.

ALL_ views show what the user has some right to, USER_ views the user's own, DBA_ views need a
grant. Each question is one statement, however many partitions there are.
"""

from __future__ import annotations

import logging
from typing import Any

from partition_planner.model import PartitionInfo
from unloader.errors import SourceError
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.reading.units import partition_name
from unloader.sources.oracle.tables.dictionary import Relation, integer, statistical_bytes

logger = logging.getLogger(__name__)

PARTITIONS = """
SELECT PARTITION_NAME, SUBPARTITION_COUNT, NUM_ROWS, BLOCKS, AVG_ROW_LEN FROM ALL_TAB_PARTITIONS
WHERE TABLE_OWNER = :owner AND TABLE_NAME = :name ORDER BY PARTITION_POSITION
"""
SUBPARTITIONS = """
SELECT PARTITION_NAME, SUBPARTITION_NAME, NUM_ROWS, BLOCKS, AVG_ROW_LEN FROM ALL_TAB_SUBPARTITIONS
WHERE TABLE_OWNER = :owner AND TABLE_NAME = :name ORDER BY PARTITION_NAME, SUBPARTITION_POSITION
"""
OBJECTS = """
SELECT SUBOBJECT_NAME, DATA_OBJECT_ID FROM {view}
WHERE OWNER = :owner AND OBJECT_NAME = :name AND DATA_OBJECT_ID IS NOT NULL
AND OBJECT_TYPE IN ('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION')
"""
SEGMENTS = """
SELECT PARTITION_NAME, BYTES FROM {view}
WHERE {owner}SEGMENT_NAME = :name
AND SEGMENT_TYPE IN ('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION')
"""
EXTENTS = """
SELECT PARTITION_NAME, RELATIVE_FNO, BLOCK_ID, BLOCKS, BYTES FROM DBA_EXTENTS
WHERE OWNER = :owner AND SEGMENT_NAME = :name
AND SEGMENT_TYPE IN ('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION')
"""


def leaves(session: Session, table: Relation) -> tuple[PartitionInfo, ...]:
    """Return the partitions, or their sub-partitions where they have some, in table order."""
    children: dict[str, list[tuple[Any, ...]]] = {}
    rows = session.run(PARTITIONS, table.binds)
    if any(row[1] for row in rows):
        for parent, *child in session.run(SUBPARTITIONS, table.binds):
            children.setdefault(parent, []).append(tuple(child))
    found: list[PartitionInfo] = []
    for parent, _, *statistics in rows:
        below = children.get(parent)
        for name, *facts in below if below else [(parent, *statistics)]:
            number, blocks, row_length = facts
            found.append(
                PartitionInfo(
                    name=partition_name(parent, name) if below else partition_name(name),
                    kind="subpartition" if below else "partition",
                    position=len(found),
                    rows=integer(number),
                    bytes=statistical_bytes(number, blocks, row_length),
                )
            )
    return tuple(found)


def object_ids(session: Session, table: Relation) -> dict[str | None, int]:
    """Return the segments' numbers, by the name of partition or sub-partition, None for neither.

    A number changes with TRUNCATE, EXCHANGE and MOVE, and rows' addresses have it in them. Of
    another user's table ALL_OBJECTS shows the partitions to whoever may read it, sub-partitions
    only to those who may read any; then they come from DBA_OBJECTS, if the user may see that.
    """
    found = session.run(OBJECTS.format(view="ALL_OBJECTS"), table.binds)
    if not found:
        try:
            found = session.run(OBJECTS.format(view="DBA_OBJECTS"), table.binds)
        except SourceError as error:
            if not session.alive:
                raise
            logger.info("cannot read DBA_OBJECTS: %s", error.message)
    return {part: int(number) for part, number in found}


def segment_bytes(session: Session, table: Relation, view: str) -> dict[str | None, int]:
    """Return what the segments take on disk, by the name of the leaf, None for the table.

    Args:
        session: Of the parent.
        table: The table.
        view: DBA_SEGMENTS, which has those of everybody, or USER_SEGMENTS.
    """
    owner = "OWNER = :owner AND " if view.startswith("DBA") else ""
    binds = table.binds if owner else {"name": table.name}
    sql = SEGMENTS.format(view=view, owner=owner)
    return {part: int(size) for part, size in session.run(sql, binds)}


def extents(session: Session, table: Relation) -> list[tuple[str | None, int, int, int, int]]:
    """Return leaf, relative file, first block, blocks and bytes of every extent, in no order."""
    return [
        (part, int(file), int(block), int(blocks), int(size))
        for part, file, block, blocks, size in session.run(EXTENTS, table.binds)
    ]
