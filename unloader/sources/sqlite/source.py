"""SQLite: a database file, reserved against writers by the parent and read by every worker.

The parent uses Python's own `sqlite3`, a worker the ADBC driver, which fills Arrow arrays in C.
Each has a separate SQLite library. One process must not use both while the reservation is held;
`catalog` explains why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from partition_planner.model import Piece, Selector
from unloader.errors import OutputFailed, SourceError, UnloaderError
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.request.locations import UrlForm
from unloader.sources.base import SHARES, ReadAgain, Reader, Source
from unloader.sources.file_reader import FileAtSnapshot, kept_header_of
from unloader.sources.file_state import database_path
from unloader.sources.readings import Declared, one_of, text_length
from unloader.sources.registry import missing_driver
from unloader.sources.sqlite import catalog
from unloader.sources.sqlite import statement as statements
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
    *("CHAR", "CHARACTER", "CHARACTER VARYING", "NCHAR"),
    *("NVARCHAR", "NVARCHAR2", "VARCHAR", "VARCHAR2"),
)


class SQLiteSource(Source):
    """SQLite files, by `sqlite:///absolute/path.db`."""

    scheme = "sqlite"
    summary = "SQLite database file: sqlite:///abs/path.db"
    url = UrlForm(written="sqlite:///PATH", what="file")
    extra = "sqlite"
    driver = "adbc-driver-sqlite"
    one_machine = "its locks do not stop processes on other machines from writing the file"

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        return spec if kind == statements.RESERVATION else None

    def declared(self, source_type: str) -> Declared:
        """Return the length that a type declares, though SQLite does not hold values to it."""
        return text_length(source_type, _TEXTS) or one_of(source_type, {"UUID": 36})

    def load(self) -> None:
        import adbc_driver_sqlite  # noqa: F401
        import pyarrow  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> catalog.SQLiteCatalog:
        for module in ("adbc_driver_manager", "adbc_driver_sqlite"):
            if find_spec(module) is None:
                raise missing_driver(ModuleNotFoundError(name=module), self.extra)
        return catalog.SQLiteCatalog(database_path(spec))

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> SQLiteReader:
        path = database_path(spec)
        reserved = None
        if snapshot is not None and snapshot.kind == statements.RESERVATION:
            reserved = catalog.state_while_read(snapshot.value)

        def state() -> str:
            return catalog.state_while_read(catalog.database_state(path, kept_header_of))

        return SQLiteReader(path, FileAtSnapshot(path, state), reserved)


class SQLiteReader(Reader):
    def __init__(self, path: str, file: FileAtSnapshot, reserved: str | None) -> None:
        """Open the file; `SnapshotGone` where it is another file than the parent has reserved."""
        try:
            # Not its `dbapi`, which imports polars and pandas where they are installed.
            from adbc_driver_manager import AdbcConnection, Error
            from adbc_driver_sqlite import connect
        except ImportError as error:
            raise missing_driver(error, "sqlite") from error
        from pyarrow import ArrowException

        self._errors = (Error, ArrowException, OSError)
        self._path = path
        self._file = file
        self._statement: Any = None
        self._rows: Any = None
        self._one_by_one = False
        """A view or query has a wide row: its rows come one by one."""
        with catalog.driver_errors(path, *self._errors):
            self._database = connect(catalog.database_uri(path, "ro"))
            # It commits each statement: a transaction would keep a unit's locks until the next one.
            self._connection = AdbcConnection(self._database)
        try:
            self._values(f"PRAGMA busy_timeout = {round(catalog.BUSY_SECONDS * 1000)}")
            file.check_opened(reserved)
        except SourceError:
            self.close()
            raise

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the piece's rows; a batch takes at most `SHARES` times `batch_bytes`, or it is one
        row.
        """
        schema = read_schema(extract.projection.schema)
        try:
            with self._file.read():
                found = self._bounded(statements.with_key(extract), piece.selector, batch_bytes)
                for batch in statements.chosen(found, extract):
                    if batch.num_rows:
                        yield statements.conform(batch, extract.projection.columns, schema)
                    del batch
        except SourceError as error:
            raise self._refusal(extract, piece.selector, error) from error

    def close(self) -> None:
        self._end_statement()
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):
            self._database.close()

    def _bounded(
        self, extract: Extract, selector: Selector, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selector's rows; each stretch of wide ones with fewer in a batch."""
        width = UNKNOWN_ROW_BYTES
        if extract.query is None and extract.table.row_ranges and not self._one_by_one:
            # Row by row: the sample may be the widest rows of all, and only their sizes are kept.
            sampled = size = 0
            for row in self._stream(
                statements.sample_statement(extract, selector, SAMPLED_ROWS), 1
            ):
                sampled += row.num_rows
                size += row.nbytes
                del row
            width = size // max(1, sampled)
        usual = max(1, min(MAX_BATCH_ROWS, batch_bytes // max(1, width)))
        usual = rows = 1 if self._one_by_one else usual
        done, stretch_rows, longest = 0, None, FIRST_STRETCH_ROWS
        while True:
            widest = SHARES * batch_bytes // rows if rows > 1 else None
            sql = statements.selector_statement(
                extract, selector, skip=done, rows=stretch_rows, widest_bytes=widest
            )
            before = done
            try:
                for batch in self._stream(sql, rows):
                    done += batch.num_rows
                    yield batch
                    del batch
            except SourceError as error:
                if rows == 1 or statements.TOO_WIDE not in error.message:
                    raise
                reserved = (
                    extract.snapshot is not None and extract.snapshot.kind == statements.RESERVATION
                )
                if not (reserved and statements.is_plain(extract)):
                    # A second statement may give the rows in another order: SQLite may use any
                    # index for a view, a query or a condition, and without a reservation other
                    # programs may change the rows. All rows of the unit are read one by one.
                    self._one_by_one = True
                    raise ReadAgain from error
                rows, stretch_rows = max(1, rows // NARROWER), longest
                continue
            if stretch_rows is None or done - before < stretch_rows:
                return
            rows, stretch_rows, longest = usual, None, 2 * longest

    def _stream(self, sql: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the result without its first row, which only fixes the types."""
        try:
            with catalog.driver_errors(self._path, *self._errors):
                self._begin_statement(sql, batch_rows)
                pending = 1
                for batch in self._rows:
                    yield batch.slice(pending)
                    pending = 0
        finally:
            self._end_statement()

    def _values(self, sql: str) -> tuple[Any, ...] | None:
        with catalog.driver_errors(self._path, *self._errors):
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
        for names, sql in (
            statements.searches(extract, selector) if statements.OVERFLOW in error.message else ()
        ):
            rowid, *classes = self._values(sql) or (None,)
            for name, storage in zip(names, classes, strict=False):
                if storage is None:
                    continue
                (column,) = (each for each in extract.projection.columns if each.name == name)
                declared = f" declared {column.source_type}" if column.source_type else ""
                place = f" in the row with rowid {rowid}" if rowid is not None else ""
                return OutputFailed(
                    f"column {name} of {extract.table.label},{declared} read as "
                    f"{column.output_type}, holds a value of storage class {storage}{place}",
                    f"write the column as exact text with --as-text {name}, or leave it out with "
                    f"--exclude {name}",
                )
        return error
