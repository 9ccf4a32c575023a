"""All tables of a SQLite file at once: the list of them, and many described together.

While the file is reserved nobody can change it, so all of it is of one state. There are no rights.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from partition_planner.model import ColumnInfo, RowExtent, TableInfo
from unloader.errors import SourceError, TransientSourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import TableSummary
from unloader.selection.listing import ListedTable, Obstacle
from unloader.sources.base import Catalog
from unloader.sources.many_tables import GONE, described_or_obstacle, quoted_name
from unloader.sources.sqlite import layout
from unloader.sources.sqlite.layout import Column, Rows
from unloader.sources.statement import qualified, quoted

LISTS_TABLES = sqlite3.sqlite_version_info >= (3, 37)
"""`pragma_table_list` tells tables without a rowid, STRICT ones, and those that serve another."""

NAMES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
)
FACTS = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'"
COLUMNS = (
    'SELECT t.name, c.name, c.type, c."notnull", c.pk, c.hidden FROM sqlite_master t '
    "JOIN pragma_table_xinfo(t.name, 'main') c WHERE t.type = 'table' ORDER BY t.name, c.cid"
)
KEYS_APART = (
    "SELECT DISTINCT t.name FROM sqlite_master t JOIN pragma_index_list(t.name, 'main') i "
    "WHERE t.type = 'table' AND i.origin = 'pk'"
)
"""Tables whose primary key has an index of its own."""

TOGETHER = 100
"""Tables whose ends one statement asks for; SQLite takes 500 parts of a compound SELECT."""


def listed_tables(rows: Rows, tables: Sequence[TableSummary]) -> list[ListedTable]:
    """Return the tables of the file; one that holds what another is made of is the system's."""
    shadows: set[str] = set()
    if LISTS_TABLES:
        shadows = {name for name, kind, _, _ in rows(FACTS) if kind == "shadow"}
    return [ListedTable.of(table, system=table.name in shadows) for table in tables]


def described_tables(
    catalog: Catalog, rows: Rows, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return what is known of each table, in their order.

    A view is described by itself, as rows of it are read for that.

    Args:
        catalog: Describes one table by itself.
        rows: Runs a statement.
        tables: Of the listing.
        observe: Called as each slow step begins.
    """
    there = {name for (name,) in rows(NAMES)}
    infos: dict[str, TableInfo] = {}
    if LISTS_TABLES:
        wanted = {table.name for table in tables if table.kind == "table"} & there
        infos = {info.name: info for info in _infos(rows, sorted(wanted), observe)}
    made: list[TableInfo | Obstacle] = []
    for table in tables:
        info = infos.get(table.name)
        if info is not None:
            made.append(info)
        elif table.name not in there:
            made.append(GONE)
        else:
            made.append(described_or_obstacle(catalog, quoted_name("main", table.name), observe))
    return tuple(made)


def described(
    name: str,
    columns: tuple[ColumnInfo, ...],
    *,
    rows: int | None,
    size: int | None,
    rowid: str | None,
    extent: RowExtent | None,
) -> TableInfo:
    """Return what follows from a table's columns and from where its rows lie.

    Args:
        name: Of the table.
        columns: As they are read.
        rows: As of the last ANALYZE.
        size: In bytes.
        rowid: A name by which its rowid can be asked for, None where there is none.
        extent: The range of its rowids.
    """
    return TableInfo(
        schema="main",
        name=name,
        columns=columns,
        rows=rows,
        bytes=size,
        extents=(extent,) if extent is not None else (),
        ranges_from="rowid" if rowid else None,
        named_partitions=False,
        row_ranges=rowid is not None,
    )


def _infos(rows: Rows, names: Sequence[str], observe: Observer) -> Iterator[TableInfo]:
    """Yield what is known of the tables that can be read."""
    observe(PhaseStarted(phase="columns"))
    facts = {name: (wr, strict) for name, _, wr, strict in rows(FACTS)}
    indexed = {name for (name,) in rows(KEYS_APART)}
    columns: dict[str, list[Column]] = {}
    for name, *column in rows(COLUMNS):
        columns.setdefault(name, []).append(layout.column(*column))
    rowids: dict[str, str] = {}
    for name in names:
        without_rowid, _ = facts[name]
        rowid = None if without_rowid else layout.free_rowid_name(columns[name])
        if rowid is not None:
            rowids[name] = rowid
    observe(PhaseStarted(phase="extents"))
    extents = dict(_extents(rows, rowids))
    analyzed, sizes = layout.analyzed_rows(rows), layout.all_bytes(rows)
    for name in names:
        if name in rowids and name not in extents:
            continue  # what is wrong with it its own description says
        shown = [each for each in columns[name] if not layout.is_hidden(each)]
        _, strict = facts[name]
        yield described(
            name,
            layout.table_columns_of(
                shown,
                rowid=rowids.get(name),
                strict=bool(strict),
                indexed_key=name in indexed,
            ),
            rows=analyzed.get(name),
            size=sizes(name),
            rowid=rowids.get(name),
            extent=extents.get(name),
        )


def _extents(rows: Rows, rowids: dict[str, str]) -> Iterator[tuple[str, RowExtent]]:
    names = list(rowids)
    for start in range(0, len(names), TOGETHER):
        some = names[start : start + TOGETHER]
        try:
            yield from _ends(rows, some, rowids)
        except TransientSourceError:
            raise
        except SourceError:
            for name in some:
                try:
                    yield from _ends(rows, [name], rowids)
                except TransientSourceError:
                    raise
                except SourceError:
                    continue


def _ends(rows: Rows, names: Sequence[str], rowids: dict[str, str]) -> list[tuple[str, RowExtent]]:
    """Return the range of rowids of each table, from both ends of its tree."""
    # A query of its own for each end: SQLite walks the whole table where one asks for both.
    sql = " UNION ALL ".join(
        f"SELECT {at}, "
        + ", ".join(
            f"(SELECT {end}({quoted(name)}.{rowids[name]}) FROM {qualified('main', name)})"
            for end in ("min", "max")
        )
        for at, name in enumerate(names)
    )
    return [(names[at], layout.extent(first, last)) for at, first, last in rows(sql)]
