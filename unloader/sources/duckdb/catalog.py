"""The parent's view of a DuckDB file: what is in it, how it is read, how many rows it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from partition_planner.model import ColumnInfo, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    SampledKeys,
    Snapshot,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.names import matching_partitions, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.base import Capabilities, Catalog
from unloader.sources.duckdb import describing
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.duckdb.describing import ReadingTypes
from unloader.sources.duckdb.file import OpenFile, translated
from unloader.sources.duckdb.statement import (
    HASHING,
    hasher_of,
    relation_of,
    sampled_keys,
    selector_statement,
)
from unloader.sources.hashing import Hasher
from unloader.sources.many_tables import counted_in_union
from unloader.sources.readings import ColumnReadings
from unloader.sources.statement import (
    check_condition,
    check_distinct,
    derived_table,
    qualified,
    row_conditions,
    select_count,
    select_list,
)

FILE = "read-only-file"
"""The kind of a snapshot here."""


class DuckDBCatalog(Catalog):
    """The parent's connection; while it is open no other process can write the file."""

    capabilities = Capabilities(
        shared_snapshot=True,
        snapshot_outlives_run=True,
        encoded_text=False,
        queries=True,
        conditions=True,
        hashes=True,
        lists=True,
        describes_many=True,
        samples=True,
        counts_many=True,
        folding="any",
    )

    def __init__(self, file: OpenFile) -> None:
        """Take over an open file."""
        self._connection = file.connection
        self._path = file.path
        self._identity = file.identity
        self._reading_types = ReadingTypes(file.connection)
        self.server_version = (
            f"DuckDB {self._rows('SELECT library_version FROM pragma_version()')[0][0]}"
        )

    def tables(self) -> tuple[TableSummary, ...]:
        """Return tables and views of the file, by schema and name."""
        return describing.summaries(self._rows)

    def list_tables(self) -> Listing:
        """Return tables and views of the file."""
        return Listing.of(
            [ListedTable.of(table) for table in self.tables()],
            folding=self.capabilities.folding,
            default_schemas=("main",),
            where=str(self._path),
        )

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Return what is known of many tables, asked for together; views one by one."""
        made = describing.described_tables(self, self._rows, tables, observe)
        self._reading_types.expect(each for each in made if isinstance(each, TableInfo))
        return made

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        """Return columns, rowid extent and, where the file maps them, partitions."""
        found = resolve(
            table,
            self.tables(),
            folding=self.capabilities.folding,
            default_schemas=("main",),
            where=str(self._path),
        )
        schema, name = found.schema or "main", found.name
        if found.kind == "table":
            (info,) = describing.plain_tables(self._rows, [(schema, name)], observe)
            return info
        observe(PhaseStarted(phase="columns"))
        columns = self._columns(f"SELECT * FROM {qualified(schema, name)}")
        return TableInfo(
            schema=schema, name=name, columns=columns, named_partitions=False, row_ranges=False
        )

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of the query."""
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self._explain(query)
        # Bare again: as a table the query has its second `a` renamed. DuckDB ignores case in names.
        check_distinct([row[0].casefold() for row in self._rows(f"DESCRIBE {query}")])
        columns = self._columns(f"SELECT * FROM {derived_table(query)}")
        return TableInfo(
            schema=None, name="query", columns=columns, named_partitions=False, row_ranges=False
        )

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Return the identity of the file, which nobody can write while we have it open."""
        return Snapshot(
            kind=FILE,
            value=self._identity,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def check_snapshot(self) -> None:
        """Check that the file is still the one we opened."""
        if not self._path.is_file():
            raise SnapshotGone(
                f"{self._path} does not exist any more", "restore the file and run again"
            )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return how each column can be read; their types are what DuckDB says of the result."""
        columns = tuple(duckdb_types.readings_of(column) for column in table.columns)
        read_from = derived_table(query) if query else qualified(table.schema, table.name)
        return self._reading_types.typed(read_from, columns)

    def check_where(self, extract: Extract) -> None:
        """Let DuckDB plan the user's condition."""
        if extract.where is not None:
            check_condition(self._explain, relation_of(extract), extract.where)

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        """Return the sample of a column's values."""
        return sampled_keys(column, share)

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that reads what a selector stands for."""
        return selector_statement(select_list(extract.projection.columns), extract, selector)

    def count(self, extract: Extract) -> int:
        """Return the rows asked for: by partition, where some were, as the file maps them now."""
        conditions = row_conditions(extract)
        if extract.partitions:
            conditions.append(f"({' OR '.join(self._rows_asked(extract)) or 'false'})")
        counted = self._rows(select_count(relation_of(extract), conditions, extract.limit_rows))
        return int(counted[0][0])

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return the rows of many tables, each counted by itself, in few statements."""
        return counted_in_union(self, self._rows, extracts, relation_of)

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        """Return the rows of some selectors."""
        return sum(
            int(self._rows(selector_statement("count(*)", extract, selector))[0][0])
            for selector in selectors
        )

    def _rows_asked(self, extract: Extract) -> Iterator[str]:
        """Yield a condition for each partition asked for, on the rows that the map says it has."""
        key = (extract.table.schema or "main", extract.table.name)
        ranges = describing.mapped_rows(self._rows).get(key, [])
        asked = matching_partitions((name for name, _, _ in ranges), extract.partitions)
        for name, first, last in ranges:
            if name in asked:
                yield f"rowid BETWEEN {first} AND {last}"

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        """Return the columns that DuckDB cannot hash."""
        return HASHING.unhashed(extract)

    def open_hasher(self, extract: Extract) -> Hasher:
        """Open another connection to the same open file."""
        return hasher_of(self._connection.cursor())

    def cancel(self) -> None:
        """Interrupt the query that is running."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _explain(self, sql: str) -> None:
        # DuckDB runs all statements of a text; more than one here is never what was meant.
        try:
            single = len(self._connection.extract_statements(sql)) == 1
        except Exception as error:
            raise translated(error) from error
        if not single:
            raise SourceError("it contains more than one statement", "give one without a semicolon")
        self._rows(f"EXPLAIN {sql}")

    def _columns(self, query: str) -> tuple[ColumnInfo, ...]:
        rows = self._rows(f"DESCRIBE {query}")
        check_distinct([row[0] for row in rows])
        return tuple(
            ColumnInfo(name=row[0], native_type=row[1], nullable=row[2] == "YES") for row in rows
        )

    def _rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return list(self._connection.execute(sql, list(parameters)).fetchall())
        except Exception as error:
            raise translated(error) from error
