"""What Oracle's data dictionary says of where rows lie: partitions, segments, extents.

ALL_ views show what the user has some right to, USER_ views the user's own, DBA_ views need a
grant. Each question is one statement, however many partitions, or tables, it is asked for.
"""

from __future__ import annotations

import logging
from typing import Any

from partition_planner.model import PartitionInfo
from unloader.errors import SourceError
from unloader.sources.oracle.reading.units import partition_name
from unloader.sources.oracle.tables.dictionary import Relation, integer, statistical_bytes
from unloader.sources.oracle.tables.questions import Dictionary, Question

logger = logging.getLogger(__name__)

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


def leaves(dictionary: Dictionary, table: Relation) -> tuple[PartitionInfo, ...]:
    """Return the partitions, or their sub-partitions where they have some, in table order."""
    children: dict[str, list[tuple[Any, ...]]] = {}
    rows = dictionary.rows(PARTITIONS, table.owner, table.name)
    if any(row[1] for row in rows):
        for parent, *child in dictionary.rows(SUBPARTITIONS, table.owner, table.name):
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


def object_ids(dictionary: Dictionary, table: Relation) -> dict[str | None, int]:
    """Return the segments' numbers, by the name of partition or sub-partition, None for neither.

    A number changes with TRUNCATE, EXCHANGE and MOVE, and rows' addresses have it in them. Of
    another user's table ALL_OBJECTS shows the partitions to whoever may read it, sub-partitions
    only to those who may read any; then they come from DBA_OBJECTS, if the user may see that.
    """
    found = dictionary.rows(OBJECTS, table.owner, table.name)
    if not found:
        try:
            found = dictionary.rows(ALL_OF_OBJECTS, table.owner, table.name)
        except SourceError as error:
            if not dictionary.session.alive:
                raise
            logger.info("cannot read DBA_OBJECTS: %s", error.message)
    return {part: int(number) for part, number in found}


def segment_bytes(
    dictionary: Dictionary, table: Relation, question: Question
) -> dict[str | None, int]:
    """Return what the segments take on disk, by the name of the leaf, None for the table.

    Args:
        dictionary: Is asked.
        table: The table.
        question: ALL_SEGMENTS, which has those of everybody, or OWN_SEGMENTS.
    """
    rows = dictionary.rows(question, table.owner, table.name)
    return {part: int(size) for part, size in rows}


def extents(dictionary: Dictionary, table: Relation) -> list[tuple[str | None, int, int, int, int]]:
    """Return leaf, relative file, first block, blocks and bytes of every extent, in no order."""
    return [
        (part, int(file), int(block), int(blocks), int(size))
        for part, file, block, blocks, size in dictionary.rows(EXTENTS, table.owner, table.name)
    ]
