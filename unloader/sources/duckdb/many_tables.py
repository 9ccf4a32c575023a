"""All tables of a DuckDB file at once: the list of them, and many described together.

Nobody can write the file while it is open, so all of it is of one state. There are no rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from partition_planner.model import ColumnInfo, PartitionInfo, RowExtent, TableInfo
from unloader.errors import SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import TableSummary
from unloader.selection.listing import ListedTable, Obstacle
from unloader.sources.base import Catalog
from unloader.sources.duckdb import layout
from unloader.sources.duckdb.layout import Rows
from unloader.sources.many_tables import GONE, described_or_obstacle, quoted_name
from unloader.sources.statement import qualified, quoted

TABLES = (
    "SELECT schema_name, table_name, 'table', estimated_size FROM duckdb_tables() "
    "WHERE NOT internal AND database_name = current_database() UNION ALL "
    "SELECT schema_name, view_name, 'view', NULL FROM duckdb_views() "
    "WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2"
)
COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
    "WHERE NOT internal AND database_name = current_database() "
    "ORDER BY schema_name, table_name, column_index"
)

TOGETHER = 100
"""Tables whose rows one statement counts; measured, more of them take no less time each."""

_Key = tuple[str, str]


def summaries(rows: Rows) -> tuple[TableSummary, ...]:
    """Return tables and views of the file, by schema and name."""
    found = rows(TABLES)
    mapped = _mapped_rows(rows, found)
    return tuple(
        TableSummary(
            schema=schema,
            name=name,
            kind=kind,
            rows=size,
            bytes=None,
            partitions=len(mapped.get((schema, name), ())),
        )
        for schema, name, kind, size in found
        if name != layout.PARTITION_MAP
    )


def described_tables(
    catalog: Catalog, rows: Rows, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return what is known of each table, in their order.

    A view is described by itself: what columns it has turns out only where DuckDB binds it.

    Args:
        catalog: Describes one table by itself.
        rows: Runs a statement.
        tables: Of the listing.
        observe: Called as each slow step begins.
    """
    observe(PhaseStarted(phase="columns"))
    columns = _columns(rows)
    observe(PhaseStarted(phase="extents"))
    found = rows(TABLES)
    kinds = {(schema, name): kind for schema, name, kind, _ in found}
    wanted = [table.key for table in tables if kinds.get(table.key) == "table"]
    extents = dict(_extents(rows, wanted))
    mapped = _mapped_rows(rows, found)
    made: list[TableInfo | Obstacle] = []
    for table in tables:
        key = table.key
        if key not in kinds:
            made.append(GONE)
            continue
        if key not in extents:
            made.append(described_or_obstacle(catalog, quoted_name(*key), observe))
            continue
        count, extent = extents[key]
        parts = layout.fitting_partitions(mapped.get(key, []), *key, extent)
        made.append(
            described(*key, columns=columns[key], rows=count, extent=extent, partitions=parts)
        )
    return tuple(made)


def described(
    schema: str,
    name: str,
    *,
    columns: tuple[ColumnInfo, ...],
    rows: int,
    extent: RowExtent,
    partitions: tuple[PartitionInfo, ...],
) -> TableInfo:
    """Return what follows from a table's columns and from where its rows lie."""
    return TableInfo(
        schema=schema,
        name=name,
        columns=columns,
        partitions=partitions,
        rows=rows,
        extents=(extent,),
        ranges_from="rowid",
        named_partitions=False,
        row_ranges=True,
    )


def _mapped_rows(rows: Rows, found: Iterable[tuple[Any, ...]]) -> dict[_Key, list[layout.Mapped]]:
    """Return what the map of partitions names, if it is among the tables.

    DuckDB takes 8 ms to refuse a table that is not there: it looks for names that are like it.
    """
    has_map = any(
        schema == "main" and name.casefold() == layout.PARTITION_MAP for schema, name, *_ in found
    )
    return layout.all_mapped_rows(rows) if has_map else {}


def _columns(rows: Rows) -> dict[_Key, tuple[ColumnInfo, ...]]:
    """Return the columns of all tables, as DESCRIBE of a query for all of them has them."""
    found: dict[_Key, list[ColumnInfo]] = {}
    all_nullable: bool | None = None
    for schema, table, name, kind, nullable in rows(COLUMNS):
        if not nullable:
            if all_nullable is None:
                all_nullable = _forgets_constraints(rows, schema, table, name)
            nullable = all_nullable
        column = ColumnInfo(name=name, native_type=kind, nullable=nullable)
        found.setdefault((schema, table), []).append(column)
    return {key: tuple(some) for key, some in found.items()}


def _forgets_constraints(rows: Rows, schema: str, table: str, column: str) -> bool:
    """Return whether DESCRIBE takes a column that may not be NULL for one that may.

    That depends on the version of DuckDB, and a table is described alone by DESCRIBE.
    """
    (found,) = rows(f"DESCRIBE SELECT {quoted(column)} FROM {qualified(schema, table)}")
    return bool(found[2] == "YES")


def _extents(rows: Rows, keys: Sequence[_Key]) -> Iterator[tuple[_Key, tuple[int, RowExtent]]]:
    """Yield rows and extent of each table that can be read."""
    for start in range(0, len(keys), TOGETHER):
        some = keys[start : start + TOGETHER]
        try:
            yield from _together(rows, some)
        except SourceError:
            # One cannot be read. Which it is, and why, its own description says.
            for key in some:
                try:
                    yield from _together(rows, (key,))
                except SourceError:
                    continue


def _together(rows: Rows, keys: Iterable[_Key]) -> list[tuple[_Key, tuple[int, RowExtent]]]:
    known = list(keys)
    sql = " UNION ALL ".join(
        f"SELECT {at}, {layout.EXTENT} FROM {qualified(*key)}" for at, key in enumerate(known)
    )
    return [(known[at], layout.counted_extent(*found)) for at, *found in rows(sql)]
