"""SQLite: a database file, reserved against writers by the parent and read by every worker.

The parent uses Python's own `sqlite3`, a worker the ADBC driver, which fills Arrow arrays in C.
Each has a separate SQLite library. One process must not use both while the reservation is held;
`session` explains why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from partition_planner.model import ColumnInfo, Piece, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError, UnloaderError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    SampledKeys,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.locations import UrlForm
from unloader.request.names import no_such_table, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.base import SHARES, Capabilities, Catalog, ReadAgain, Source
from unloader.sources.file_state import FileAtSnapshot, database_path, kept_header_of
from unloader.sources.many_tables import counted_in_union
from unloader.sources.readings import ColumnReadings, Declared, one_of, text_length
from unloader.sources.registry import missing_driver
from unloader.sources.sqlite import describing
from unloader.sources.sqlite import types as sqlite_types
from unloader.sources.sqlite.session import (
    BUSY_SECONDS,
    Session,
    database_state,
    database_uri,
    driver_error,
    state_while_read,
)
from unloader.sources.sqlite.statement import (
    RESERVATION,
    TOO_WIDE,
    Stretch,
    chosen,
    conditions,
    counted_condition,
    in_rowid_order,
    relation_name,
    relation_of,
    sample_statement,
    sampled_keys,
    searches,
    selector_statement,
    with_key,
)
from unloader.sources.sqlite.types import readings_of
from unloader.sources.statement import check_condition, derived_table, quoted, select, select_count
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa


MAX_BATCH_ROWS = 8192
"""More rows do not help: 1 M rows of five columns take 0.6 s with 1024 rows and with 65536. Fewer
rows limit the memory if the rows after the sampled rows are wider."""
SAMPLED_ROWS = 256
UNKNOWN_ROW_BYTES = 1024
"""Guess, where a sample could cost as much as the whole: views and queries."""
NARROWER = 32
"""A batch gets this part of its rows where a row is too wide for the others in memory."""
FIRST_STRETCH_ROWS = 256
"""Read with fewer rows a batch before wide rows are taken for over; twice as many each time."""
_BATCH_ROWS = "adbc.sqlite.query.batch_rows"


_TEXTS = (
    "CHAR",
    "CHARACTER",
    "CHARACTER VARYING",
    "NCHAR",
    "NVARCHAR",
    "NVARCHAR2",
    "VARCHAR",
    "VARCHAR2",
)
"""Types of text that are declared with a length."""


class SQLiteSource(Source):
    """SQLite files, by `sqlite:///absolute/path.db`."""

    scheme = "sqlite"
    summary = "SQLite database file: sqlite:///abs/path.db"
    url = UrlForm(written="sqlite:///PATH", what="file")
    extra = "sqlite"
    driver = "adbc-driver-sqlite"
    one_machine = "its locks do not stop processes on other machines from writing the file"

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the file itself: without writes, a new reservation has the same state."""
        return spec if kind == RESERVATION else None

    def declared(self, source_type: str) -> Declared:
        """Return the length that a type declares, though SQLite does not hold values to it."""
        return text_length(source_type, _TEXTS) or one_of(source_type, {"UUID": 36})

    def load(self) -> None:
        """Import ADBC's driver, and the library for its batches."""
        import adbc_driver_sqlite  # noqa: F401
        import pyarrow  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> SQLiteCatalog:
        """Open the file in the parent, which does without the workers' driver."""
        for module in ("adbc_driver_manager", "adbc_driver_sqlite"):
            if find_spec(module) is None:
                raise missing_driver(ModuleNotFoundError(name=module), self.extra)
        return SQLiteCatalog(Session(database_path(spec)))

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> SQLiteReader:
        """Open the file in a worker, in the state that the parent has reserved."""
        path = database_path(spec)
        reserved = None
        if snapshot is not None and snapshot.kind == RESERVATION:
            reserved = state_while_read(snapshot.value)

        def state() -> str:
            return state_while_read(database_state(path, kept_header_of))

        return SQLiteReader(path, FileAtSnapshot(path, state, reserved))


class SQLiteReader:
    """A worker's read-only connection."""

    def __init__(self, path: str, file: FileAtSnapshot) -> None:
        """Open the file.

        Raises:
            ConfigError: The driver is missing.
            SnapshotGone: It is another file than the parent has reserved.
            SourceError: The file cannot be opened.
        """
        try:
            # Not its `dbapi`, which imports polars and pandas where they are installed.
            from adbc_driver_manager import AdbcConnection
            from adbc_driver_sqlite import connect
        except ImportError as error:
            raise missing_driver(error, "sqlite") from error
        self._path = path
        self._file = file
        self._statement: Any = None
        self._rows: Any = None
        self._one_by_one = False
        """A view or query has a wide row: its rows come one by one."""
        with _driver_errors(path):
            self._database = connect(database_uri(path, "ro"))
            # It commits each statement: a transaction would keep a unit's locks until the next one.
            self._connection = AdbcConnection(self._database)
        try:
            self._values(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
            file.check_opened()
        except SourceError:
            self.close()
            raise

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the piece's rows in batches of about `batch_bytes`, estimated from a sample.

        For any sample, a batch takes at most `SHARES` times that, or it is one row.
        """
        schema = read_schema(extract.projection.schema)
        try:
            with self._file.read():
                found = self._bounded(with_key(extract), piece.selector, batch_bytes)
                for batch in chosen(found, extract):
                    if batch.num_rows:
                        yield sqlite_types.conform(batch, extract.projection.columns, schema)
                    del batch
        except SourceError as error:
            raise self._refusal(extract, piece.selector, error) from error

    def close(self) -> None:
        """Close the connection; never raises."""
        self._end_statement()
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):
            self._database.close()

    def _bounded(
        self, extract: Extract, selector: Selector, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selector's rows; each stretch of wide ones with fewer in a batch."""
        usual = rows = 1 if self._one_by_one else self._batch_rows(extract, selector, batch_bytes)
        done, stretch_rows, longest = 0, None, FIRST_STRETCH_ROWS
        while True:
            widest = SHARES * batch_bytes // rows if rows > 1 else None
            stretch = Stretch(skip=done, rows=stretch_rows, widest_bytes=widest)
            before = done
            try:
                for batch in self._stream(selector_statement(extract, selector, stretch), rows):
                    done += batch.num_rows
                    yield batch
                    del batch
            except SourceError as error:
                if rows == 1 or TOO_WIDE not in error.message:
                    raise
                self._check_order(extract, error)
                rows, stretch_rows = max(1, rows // NARROWER), longest
                continue
            if stretch_rows is None or done - before < stretch_rows:
                return
            rows, stretch_rows, longest = usual, None, 2 * longest

    def _check_order(self, extract: Extract, error: SourceError) -> None:
        """Return if a second statement certainly gives the rows in rowid order, as the first did.

        Raises:
            ReadAgain: This is not certain; all rows of the unit are read one by one.
        """
        if not in_rowid_order(extract):
            self._one_by_one = True
            raise ReadAgain from error

    def _batch_rows(self, extract: Extract, selector: Selector, batch_bytes: int) -> int:
        if extract.query is not None or not extract.table.row_ranges:
            width = UNKNOWN_ROW_BYTES
        else:
            # Row by row: the sample may be the widest rows of all, and only their sizes are kept.
            rows = size = 0
            for row in self._stream(sample_statement(extract, selector, SAMPLED_ROWS), 1):
                rows += row.num_rows
                size += row.nbytes
                del row
            width = size // max(1, rows)
        return max(1, min(MAX_BATCH_ROWS, batch_bytes // max(1, width)))

    def _stream(self, sql: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the result without its first row, which only fixes the types."""
        try:
            with _driver_errors(self._path):
                self._begin_statement(sql, batch_rows)
                pending = 1
                for batch in self._rows:
                    yield batch.slice(pending)
                    pending = 0
        finally:
            self._end_statement()

    def _values(self, sql: str) -> tuple[Any, ...] | None:
        """Return the first row of a result."""
        with _driver_errors(self._path):
            self._begin_statement(sql, 1)
            batch = next(self._rows, None)
        self._end_statement()
        return tuple(column[0].as_py() for column in batch.columns) if batch else None

    def _begin_statement(self, sql: str, batch_rows: int) -> None:
        import pyarrow as pa
        from adbc_driver_manager import AdbcStatement

        self._end_statement()
        self._statement = AdbcStatement(self._connection)
        self._statement.set_options(**{_BATCH_ROWS: str(batch_rows)})
        self._statement.set_sql_query(sql)
        stream, _ = self._statement.execute_query()
        self._rows = pa.RecordBatchReader.from_stream(stream)

    def _end_statement(self) -> None:
        for each in (self._rows, self._statement):
            if each is not None:
                with suppress(Exception):
                    each.close()
        self._rows = self._statement = None

    def _refusal(self, extract: Extract, selector: Selector, error: SourceError) -> UnloaderError:
        """Return the value that stopped the reading, if it was one; else the error itself."""
        if sqlite_types.OVERFLOW not in error.message:
            return error
        for names, sql in searches(extract, selector):
            row = self._values(sql)
            for name, storage in zip(names, row[1:] if row else (), strict=False):
                if row is not None and storage is not None:
                    return sqlite_types.foreign_value(extract, name, storage, row[0])
        return error


@contextmanager
def _driver_errors(doing: str) -> Iterator[None]:
    from adbc_driver_manager import Error
    from pyarrow import ArrowException

    try:
        yield
    except (Error, ArrowException, OSError) as error:
        raise driver_error(doing, str(error)) from error


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
        """Return the descriptions of many tables from joint queries; views one by one."""
        return describing.described_tables(self, self._rows, tables, observe)

    def address_column(self, table: TableInfo) -> str | None:
        """Return the INTEGER PRIMARY KEY, which is the rowid."""
        return describing.address_column(self._rows, table.name)

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of the query, with the types that SQLite gives to view columns."""
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
        """Reserve the right to write until `close`, so that other programs cannot commit."""
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=taken_at)
        return Snapshot(kind=RESERVATION, value=self._session.reserve(), taken_at=taken_at)

    def check_snapshot(self) -> None:
        """Check that the file was not written since it was reserved."""
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
        """Return the statement that reads the rows of a selector, with the key of a sample."""
        return selector_statement(with_key(extract), selector)

    def count(self, extract: Extract) -> int:
        """Return the number of rows of the extract; SQLite has no partitions."""
        self._session.add_sampling()
        rows_asked = [*conditions(extract, None), *counted_condition(extract)]
        sql = select_count(relation_of(extract), rows_asked, extract.limit_rows)
        rows = int(self._rows(sql)[0][0])
        self.check_snapshot()
        return rows

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return the number of rows of each of many tables, with few statements."""
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
