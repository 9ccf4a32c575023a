"""Where the rows of a DuckDB table lie, and which partitions its file says it has.

DuckDB keeps no partitions of its own. A file whose tables are laid down partition by partition can
say so in a table `unloader_partitions` (table_schema, table_name, partition_name, position,
first_rowid, last_rowid; both rowids inclusive). The map only names ranges and is used only while it
covers the table without gap or overlap: a stale map can cost names, never rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from partition_planner.model import PartitionInfo, RowExtent
from unloader.errors import SourceError
from unloader.sources.statement import qualified

PARTITION_MAP = "unloader_partitions"

Rows = Callable[..., list[tuple[Any, ...]]]

Mapped = tuple[str, int, int]
"""Name, first and last rowid of a partition."""

logger = logging.getLogger(__name__)


EXTENT = "count(*), min(rowid), max(rowid)"
"""What `counted_extent` is made of."""


def extent_of(rows: Rows, schema: str, name: str) -> tuple[int, RowExtent]:
    """Return the number of rows and the range of rowids; both read from the table itself."""
    return counted_extent(*rows(f"SELECT {EXTENT} FROM {qualified(schema, name)}")[0])


def counted_extent(count: int, first: int | None, last: int | None) -> tuple[int, RowExtent]:
    """Return the number of rows and the range of rowids as they were read."""
    if first is None or last is None:
        return 0, RowExtent(first=0, last=0)
    return int(count), RowExtent(first=int(first), last=int(last) + 1)


def partitions_of(
    rows: Rows, schema: str, name: str, extent: RowExtent
) -> tuple[PartitionInfo, ...]:
    """Return the mapped partitions in order, or none if the map does not fit the table."""
    return fitting_partitions(mapped_rows(rows, schema, name), schema, name, extent)


def fitting_partitions(
    found: list[Mapped], schema: str, name: str, extent: RowExtent
) -> tuple[PartitionInfo, ...]:
    """Return what the map names for a table in order, or nothing if it does not fit the table."""
    if not found:
        return ()
    expected = 0
    for partition, first, last in found:
        if first != expected or last < first - 1:
            logger.warning(
                "the partition map of %s.%s has a gap or an overlap at %s, so it is ignored",
                schema,
                name,
                partition,
            )
            return ()
        expected = last + 1
    if extent.addresses and (extent.first < 0 or extent.last > expected):
        logger.warning(
            "the partition map of %s.%s ends at rowid %s but the table ends at %s, so the map is "
            "ignored",
            schema,
            name,
            expected - 1,
            extent.last - 1,
        )
        return ()
    return tuple(
        PartitionInfo(
            name=str(partition),
            position=position,
            rows=last + 1 - first,
            extents=(RowExtent(first=first, last=last + 1),),
        )
        for position, (partition, first, last) in enumerate(found)
    )


def mapped_rows(rows: Rows, schema: str, name: str) -> list[Mapped]:
    """Return name, first and last rowid of each partition that the map names, unchecked."""
    return all_mapped_rows(rows, "WHERE table_schema = ? AND table_name = ?", (schema, name)).get(
        (schema, name), []
    )


def all_mapped_rows(
    rows: Rows, chosen: str = "", parameters: tuple[object, ...] = ()
) -> dict[tuple[str, str], list[Mapped]]:
    """Return the same of all tables that the map names, by schema and name."""
    found: dict[tuple[str, str], list[Mapped]] = {}
    try:
        for schema, name, partition, first, last in rows(
            "SELECT table_schema, table_name, partition_name, first_rowid, last_rowid "
            f"FROM main.{PARTITION_MAP} {chosen} ORDER BY position",
            parameters,
        ):
            one = (str(partition), int(first), int(last))
            found.setdefault((schema, name), []).append(one)
    except SourceError:
        return {}  # the file has no such map, as most have not
    return found
