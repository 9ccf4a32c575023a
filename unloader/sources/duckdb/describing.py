"""The tables that a DuckDB file describes: columns and their Arrow types, rowids, partitions.

Other processes cannot write the file while it is open, so all of it has one state. DuckDB has no
access rights.

DuckDB keeps no partitions. A file whose tables are written partition by partition can list them in
a table `unloader_partitions` (table_schema, table_name, partition_name, position, first_rowid,
last_rowid; both rowids inclusive). The map only names ranges and is used only while it covers the
table without gap or overlap: a stale map can cost names, never rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from partition_planner.model import ColumnInfo, PartitionInfo, RowExtent, TableInfo
from unloader.errors import SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import TableSummary
from unloader.selection.listing import ListedTable, Obstacle
from unloader.sources.base import Catalog
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.duckdb.file import relation
from unloader.sources.many_tables import asked_together, described_in_order
from unloader.sources.readings import ColumnReadings
from unloader.sources.statement import qualified, select

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_MAP = "unloader_partitions"

Rows = Callable[..., list[tuple[Any, ...]]]

Mapped = tuple[str, int, int]
"""Name, first and last rowid of a partition."""

logger = logging.getLogger(__name__)

TABLES = (
    "SELECT schema_name, table_name, 'table', estimated_size FROM duckdb_tables() "
    "WHERE NOT internal AND database_name = current_database() UNION ALL "
    "SELECT schema_name, view_name, 'view', NULL FROM duckdb_views() "
    "WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2"
)
COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
    "WHERE NOT internal AND database_name = current_database(){} "
    "ORDER BY schema_name, table_name, column_index"
)
MAP = (
    "SELECT table_schema, table_name, partition_name, first_rowid, last_rowid "
    f"FROM main.{PARTITION_MAP} ORDER BY position"
)
HAS_MAP = (
    "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() "
    f"AND schema_name = 'main' AND lower(table_name) = '{PARTITION_MAP}'"
)

_TYPED_TOGETHER = 32
"""Tables of one query for types. With more tables, planning costs as much as the round trips."""

_Columns = tuple[ColumnReadings, ...]
_Key = tuple[str, str]


def summaries(rows: Rows) -> tuple[TableSummary, ...]:
    """Return tables and views of the file, by schema and name."""
    mapped = mapped_rows(rows)
    return tuple(
        TableSummary(
            schema=schema,
            name=name,
            kind=kind,
            rows=size,
            bytes=None,
            partitions=len(mapped.get((schema, name), ())),
        )
        for schema, name, kind, size in rows(TABLES)
        if name != PARTITION_MAP
    )


def described_tables(
    catalog: Catalog, rows: Rows, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return the description of each table, in the given order.

    A view is described alone, because its columns are known only when DuckDB binds it.

    Args:
        catalog: Describes one table.
        rows: Runs a statement.
        tables: The tables of the listing.
        observe: Called as each slow step begins.
    """
    kinds = {(schema, name): kind for schema, name, kind, _ in rows(TABLES)}
    wanted = [table.key for table in tables if kinds.get(table.key) == "table"]
    # The error of an only table is its obstacle.
    infos = plain_tables(rows, wanted, observe) if len(wanted) > 1 else ()
    return described_in_order(catalog, tables, infos, kinds, observe)


def plain_tables(
    rows: Rows, keys: Sequence[_Key], observe: Observer = silent
) -> Iterator[TableInfo]:
    """Yield the descriptions of tables that are not views.

    If several tables are requested, unreadable tables are left out.

    Raises:
        SourceError: The only table cannot be read.
    """
    observe(PhaseStarted(phase="columns"))
    columns: dict[_Key, list[ColumnInfo]] = {}
    one = len(keys) == 1
    for schema, table, name, kind, nullable in rows(
        COLUMNS.format(" AND schema_name = ? AND table_name = ?" if one else ""),
        keys[0] if one else (),
    ):
        column = ColumnInfo(name=name, native_type=kind, nullable=nullable)
        columns.setdefault((schema, table), []).append(column)
    observe(PhaseStarted(phase="extents"))
    mapped = mapped_rows(rows)
    for key, (count, extent) in asked_together(partial(_extents, rows), keys):
        yield TableInfo(
            schema=key[0],
            name=key[1],
            columns=tuple(columns[key]),
            partitions=_fitting_partitions(mapped.get(key, []), *key, extent),
            rows=count,
            extents=(extent,),
            ranges_from="rowid",
            named_partitions=False,
            row_ranges=True,
        )


def mapped_rows(rows: Rows) -> dict[_Key, list[Mapped]]:
    """Return name, first and last rowid of each partition that the file's map names, unchecked."""
    found: dict[_Key, list[Mapped]] = {}
    # DuckDB takes 8 ms to refuse a table that is not there: it looks for similar names.
    if rows(HAS_MAP)[0][0]:
        # A table of that name with other columns is not a map.
        with suppress(SourceError):
            for schema, name, partition, first, last in rows(MAP):
                one = (str(partition), int(first), int(last))
                found.setdefault((schema, name), []).append(one)
    return found


def _fitting_partitions(
    found: list[Mapped], schema: str, name: str, extent: RowExtent
) -> tuple[PartitionInfo, ...]:
    """Return a table's partitions in the map, in order; none if the map does not fit the table."""
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


def _extents(rows: Rows, keys: Sequence[_Key]) -> list[tuple[_Key, tuple[int, RowExtent]]]:
    """Return rows and extent of each table, both read from the table itself."""
    sql = " UNION ALL ".join(
        f"SELECT {at}, count(*), min(rowid), max(rowid) FROM {qualified(*key)}"
        for at, key in enumerate(keys)
    )
    return [(keys[at], _counted_extent(*found)) for at, *found in rows(sql)]


def _counted_extent(count: int, first: int | None, last: int | None) -> tuple[int, RowExtent]:
    if first is None or last is None:
        return 0, RowExtent(first=0, last=0)
    return int(count), RowExtent(first=int(first), last=int(last) + 1)


class ReadingTypes:
    """Types by table, asked for when the first of a few tables is needed."""

    def __init__(self, connection: Any) -> None:
        """Take the connection that is asked."""
        self._connection = connection
        self._expected: dict[str, _Columns] = {}
        """Columns by relation: the tables that are probably requested next, in that order."""
        self._known: dict[str, Sequence[pa.DataType]] = {}

    def expect(self, tables: Iterable[TableInfo]) -> None:
        """Note tables whose types will be asked for one after the other."""
        for table in tables:
            columns = tuple(duckdb_types.readings_of(column) for column in table.columns)
            self._expected[qualified(table.schema, table.name)] = columns

    def typed(self, read_from: str, columns: _Columns) -> _Columns:
        """Return the readings of columns with their types.

        Args:
            read_from: A table's name in SQL, or a query in parentheses.
            columns: All columns that are read from it.

        Raises:
            SourceError: DuckDB cannot read them.
        """
        if self._expected.get(read_from) == columns:
            self._ask_many(read_from)
        found = self._known.pop(read_from, None)
        if found is None:
            found = self._types(_nothing_of(read_from, columns))
        return duckdb_types.with_types(columns, found)

    def _ask_many(self, first: str) -> None:
        """Ask for the types of a table and of a few others in one query."""
        others = islice((name for name in self._expected if name != first), _TYPED_TOGETHER - 1)
        names = [first, *others]
        some = {name: self._expected.pop(name) for name in names}
        parts = [f"({_nothing_of(name, columns)})" for name, columns in some.items()]
        try:
            types = iter(self._types(f"SELECT * FROM {', '.join(parts)}"))
        except SourceError:
            return  # Then each is requested separately, and has its own error.
        for name, columns in some.items():
            self._known[name] = [next(types) for column in columns for _ in column.readings]

    def _types(self, sql: str) -> Sequence[pa.DataType]:
        types: Sequence[pa.DataType] = (
            relation(self._connection, sql).to_arrow_reader(1).schema.types
        )
        return types


def _nothing_of(read_from: str, columns: _Columns) -> str:
    items = ", ".join(each.expression for column in columns for each in column.readings)
    return select(items, read_from, ["false"])
