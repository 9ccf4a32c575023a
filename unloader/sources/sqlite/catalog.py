"""The parent's view of a SQLite file: what is in it, how it is read, how many rows it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

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
from unloader.request.names import no_such_table, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.base import Capabilities, Catalog
from unloader.sources.many_tables import counted_in_union
from unloader.sources.readings import ColumnReadings
from unloader.sources.sqlite import describing
from unloader.sources.sqlite.session import Session
from unloader.sources.sqlite.statement import (
    RESERVATION,
    conditions,
    counted_condition,
    relation_name,
    relation_of,
    sampled_keys,
    selector_statement,
    with_key,
)
from unloader.sources.sqlite.types import readings_of
from unloader.sources.statement import check_condition, derived_table, quoted, select, select_count

QUERY_VIEW = "unloader query"
_SECOND_OF_A_NAME = re.compile(r"(.+):\d+")


class SQLiteCatalog(Catalog):
    """The parent's session; it holds the snapshot until it is closed."""

    capabilities = Capabilities(
        shared_snapshot=True,
        snapshot_outlives_run=True,
        encoded_text=False,
        queries=True,
        conditions=True,
        lists=True,
        describes_many=True,
        samples=True,
        counts_many=True,
        addresses_are_values=True,
        folding="any",
    )

    def __init__(self, session: Session) -> None:
        """Take over an open session."""
        self._session = session
        self._rows = session.rows
        self._checked_where: tuple[str, str] | None = None
        self.server_version = f"SQLite {self._rows('SELECT sqlite_version()')[0][0]}"

    def tables(self) -> tuple[TableSummary, ...]:
        """Return the tables and views of the file by name; all are in the schema `main`."""
        rows = self._rows(
            "SELECT name, CASE WHEN type = 'view' THEN 'view' "
            "WHEN sql LIKE 'CREATE VIRTUAL %' THEN 'virtual table' ELSE 'table' END "
            "FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite^_%' "
            "ESCAPE '^' ORDER BY name"
        )
        analyzed = describing.analyzed_rows(self._rows)
        return tuple(
            TableSummary(
                schema="main",
                name=name,
                kind=kind,
                rows=analyzed.get(name),
                bytes=None,
                partitions=0,
            )
            for name, kind in rows
        )

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        """Return columns, estimates and, for a rowid table, the range of its rowids."""
        found = resolve(
            table,
            self.tables(),
            folding=self.capabilities.folding,
            default_schemas=("main",),
            where=self._session.path,
        )
        name = found.name
        if found.kind != "table":
            observe(PhaseStarted(phase="columns"))
            return TableInfo(
                schema="main",
                name=name,
                columns=describing.derived_columns(self._rows, name, "main"),
                named_partitions=False,
                row_ranges=False,
            )
        info = next(describing.plain_tables(self._rows, [name], observe), None)
        if info is None:
            raise no_such_table(table, (), self.capabilities.folding, self._session.path)
        return info

    def list_tables(self) -> Listing:
        """Return the tables and views of the file."""
        return Listing.of(
            describing.listed_tables(self._rows, self.tables()),
            folding=self.capabilities.folding,
            default_schemas=("main",),
            where=self._session.path,
        )

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Return what is known of many tables, asked for together; views one by one."""
        return describing.described_tables(self, self._rows, tables, observe)

    def address_column(self, table: TableInfo) -> str | None:
        """Return the INTEGER PRIMARY KEY, which is the rowid."""
        return describing.address_column(self._rows, table.name)

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of the query, typed as SQLite types those of a view."""
        view = quoted(QUERY_VIEW)
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self._rows(f"EXPLAIN {query}")
        # In memory: a temporary file would be one more thing that can fail or be left behind.
        self._rows("PRAGMA temp_store = memory")
        self._rows(f"CREATE TEMP VIEW {view} AS SELECT * FROM {derived_table(query)}")
        try:
            columns = describing.derived_columns(self._rows, QUERY_VIEW, "temp")
        finally:
            self._rows(f"DROP VIEW temp.{view}")
        _check_names(columns)
        return TableInfo(
            schema=None, name="query", columns=columns, named_partitions=False, row_ranges=False
        )

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Reserve the right to write until `close`, so that nobody else can commit."""
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=taken_at)
        return Snapshot(kind=RESERVATION, value=self._session.reserve(), taken_at=taken_at)

    def check_snapshot(self) -> None:
        """Check that nobody has written since the file was reserved."""
        if not self._session.intact():
            raise SnapshotGone(
                f"the snapshot is lost: {self._session.path} was written although it was locked",
                "run again; if it is on a network file system, copy it to a local disk first",
            )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return how each column can be read: by its declared type, or as exact text."""
        relation = relation_name(table, query)
        return tuple(readings_of(column, relation) for column in table.columns)

    def check_where(self, extract: Extract) -> None:
        """Let SQLite parse the user's condition."""
        if extract.where is not None:
            check_condition(
                lambda sql: self._rows(f"EXPLAIN {sql}"), relation_of(extract), extract.where
            )

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        """Return the sample of a column's values."""
        return sampled_keys(column, share)

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that reads what a selector stands for, with the key of a sample."""
        return selector_statement(with_key(extract), selector)

    def count(self, extract: Extract) -> int:
        """Return the rows asked for; there are no partitions to be asked for."""
        self._session.add_sampling()
        rows_asked = [*conditions(extract, None), *counted_condition(extract)]
        sql = select_count(relation_of(extract), rows_asked, extract.limit_rows)
        rows = int(self._rows(sql)[0][0])
        self.check_snapshot()
        return rows

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return the rows of many tables, each counted by itself, in few statements."""
        found = counted_in_union(self, self._rows, extracts, relation_of)
        self.check_snapshot()
        return found

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        """Return the rows of some selectors."""
        relation = relation_of(extract)
        rows = sum(
            int(self._rows(select("count(*)", relation, conditions(extract, each)))[0][0])
            for each in selectors
        )
        self.check_snapshot()
        return rows

    def cancel(self) -> None:
        """Interrupt the statement that is running."""
        self._session.cancel()

    def close(self) -> None:
        """Give the reservation back and close the file; never raises."""
        self._session.close()


def _check_names(columns: Sequence[ColumnInfo]) -> None:
    names = {column.name.casefold() for column in columns}
    for column in columns:
        # SQLite calls the second of two columns `a` in a view `a:1`.
        same = _SECOND_OF_A_NAME.fullmatch(column.name)
        if same and same.group(1).casefold() in names:
            raise SourceError(
                f"two columns of the query are named {same.group(1)!r}",
                "give each column a different name with AS",
            )
