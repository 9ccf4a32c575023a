"""The dictionary's rows about space: segments, extents, files, and how much a table has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oracle_server.data.catalog import CREATED
from oracle_server.data.definitions import Definitions
from oracle_server.data.storage import ABSOLUTE_FILE_OFFSET, BLOCK_BYTES, HEADER_BLOCKS
from oracle_server.data.tables import Segment, Table

Rows = Iterator[dict[str, Any]]


def key_name(table: Table) -> str:
    """Return the name of a table's primary key and its index."""
    return f"PK_{table.name}"


TABLESPACE = "USERS"


def row_bytes(table: Table) -> int:
    """Return a guess at the bytes of a row."""
    for segment in table.segments:
        for row in list(segment.base[:20]) + segment.tail[:20]:
            return sum(len(str(value)) + 1 for value in row if value is not None)
    return 0


def live_rows(segment: Segment) -> int:
    """Return the rows of a segment that are not deleted."""
    gone = sum(1 for versions in segment.changes.values() if versions[-1].died is not None)
    return len(segment) - gone


def block_count(segment: Segment) -> int:
    """Return the blocks of a segment's extents."""
    return sum(extent.blocks for extent in segment.layout.extents)


def measures(table: Table, parts: list[Segment]) -> dict[str, Any]:
    """Return the columns about size that partitions and sub-partitions share."""
    return {
        "TABLESPACE_NAME": TABLESPACE,
        "NUM_ROWS": sum(map(live_rows, parts)),
        "BLOCKS": sum(map(block_count, parts)),
        "AVG_ROW_LEN": row_bytes(table),
        "SEGMENT_CREATED": "YES",
        "COMPRESSION": "DISABLED",
        "LAST_ANALYZED": CREATED,
    }


def _segments(database: Definitions) -> Iterator[tuple[str, str, str | None, str, Segment]]:
    """Yield (owner, name, partition, type, segment) of all that takes space."""
    for table in database.catalog.tables.values():
        index = table.organization == "index"
        if table.organization == "external":
            continue
        name = key_name(table) if index else table.name
        for segment in table.segments:
            kind = "INDEX" if index else "TABLE"
            kind += " SUBPARTITION" if segment.subpartition else ""
            kind += " PARTITION" if segment.partition and not segment.subpartition else ""
            part = segment.subpartition or segment.partition
            yield table.owner, name, part, kind, segment


def extents(database: Definitions) -> Rows:
    """EXTENTS."""
    for owner, name, part, kind, segment in _segments(database):
        for number, extent in enumerate(segment.layout.extents):
            yield {
                "OWNER": owner, "SEGMENT_NAME": name, "PARTITION_NAME": part,
                "SEGMENT_TYPE": kind, "TABLESPACE_NAME": TABLESPACE, "EXTENT_ID": number,
                "FILE_ID": extent.file + ABSOLUTE_FILE_OFFSET, "BLOCK_ID": extent.block,
                "BYTES": extent.blocks * BLOCK_BYTES, "BLOCKS": extent.blocks,
                "RELATIVE_FNO": extent.file,
            }  # fmt: skip
    for number, extent in enumerate(database.storage.others):
        yield {
            "OWNER": "SYS", "SEGMENT_NAME": "OTHER_WORK", "PARTITION_NAME": None,
            "SEGMENT_TYPE": "TABLE", "TABLESPACE_NAME": TABLESPACE, "EXTENT_ID": number,
            "FILE_ID": extent.file + ABSOLUTE_FILE_OFFSET, "BLOCK_ID": extent.block,
            "BYTES": extent.blocks * BLOCK_BYTES, "BLOCKS": extent.blocks,
            "RELATIVE_FNO": extent.file,
        }  # fmt: skip


def segments(database: Definitions) -> Rows:
    """SEGMENTS."""
    for owner, name, part, kind, segment in _segments(database):
        if not segment.layout.extents:
            continue
        first, blocks = segment.layout.extents[0], block_count(segment)
        yield {
            "OWNER": owner, "SEGMENT_NAME": name, "PARTITION_NAME": part, "SEGMENT_TYPE": kind,
            "SEGMENT_SUBTYPE": "ASSM", "TABLESPACE_NAME": TABLESPACE,
            "HEADER_FILE": first.file + ABSOLUTE_FILE_OFFSET,
            "HEADER_BLOCK": first.block + HEADER_BLOCKS - 1, "BYTES": blocks * BLOCK_BYTES,
            "BLOCKS": blocks, "EXTENTS": len(segment.layout.extents), "RELATIVE_FNO": first.file,
        }  # fmt: skip
