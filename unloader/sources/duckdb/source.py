"""DuckDB: an embedded database file, opened read-only by the parent and by every worker.

DuckDB lets many processes read a file as long as none writes it, so the open file itself is the
snapshot. It has no partitions; a table may bring its own map of them, see `layout`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from partition_planner.model import ColumnInfo, Piece, RowRange, Selector, TableInfo, WholeTable
from unloader.errors import ConfigError, OutputFailed, SourceError, UnloaderError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    Projection,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    Target,
)
from unloader.request.names import matching_partitions, resolve
from unloader.request.options.option import Option
from unloader.sources.arrow_width import batch_rows
from unloader.sources.base import SHARES, Capabilities
from unloader.sources.duckdb import layout as duckdb_layout
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.registry import missing_driver
from unloader.sources.statement import (
    check_condition,
    check_distinct,
    condition,
    derived_table,
    qualified,
    select,
    select_list,
)

if TYPE_CHECKING:
    import pyarrow as pa

READER_MEMORY_BYTES = (32 << 20, 256 << 20)
"""Caps of DuckDB's own buffers in a worker that scans a table. Without one every block read stays
cached, and a worker grows with the table; a scan needs a few blocks of 256 KiB only. But 2048
values come at a time: where those of 20 kB need 64 MiB, the next cap is tried."""
LAST_CAP_SHARES = 512
"""The last cap is so many times the memory of a batch, but 1 GiB at least."""
LEAST_LAST_CAP_BYTES = 1 << 30
WIDE_BATCH_ROWS = (64, 4)
"""Rows of a batch under the second cap and the last one: the values of a batch are as wide as those
that did not fit under the cap before."""


class DuckDBSource:
    """DuckDB files, by `duckdb:///absolute/path.db`."""

    scheme = "duckdb"
    summary = "DuckDB database file: duckdb:///abs/path.db"
    extra = "duckdb"
    driver = "duckdb"
    options: tuple[Option, ...] = ()

    def load(self) -> None:
        """Import DuckDB."""
        import duckdb  # noqa: F401

    def driver_warning(self, version: str) -> str | None:
        """Return None: no version is known to change values."""
        return None

    def open_catalog(self, spec: SourceSpec) -> DuckDBCatalog:
        """Open the file in the parent."""
        return DuckDBCatalog(_connect(spec, {}), _path_of(spec))

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> DuckDBReader:
        """Open the file in a worker; one thread, as the processes are the parallelism."""
        connection = _connect(spec, {"threads": "1"})
        if snapshot is not None and snapshot.value not in ("", _identity(_path_of(spec))):
            connection.close()
            raise SourceError(
                f"{_path_of(spec)} is no longer the file that the snapshot was taken of",
                "run again; nothing may write the file meanwhile",
            )
        return DuckDBReader(connection)


class DuckDBCatalog:
    """The parent's connection; while it is open no other process can write the file."""

    capabilities = Capabilities(
        shared_snapshot=True,
        snapshot_outlives_run=True,
        encoded_text=False,
        queries=True,
        folding="any",
    )

    def __init__(self, connection: Any, path: Path) -> None:
        """Take over an open connection to the file at `path`."""
        self._connection = connection
        self._path = path
        self.server_version = (
            f"DuckDB {self._rows('SELECT library_version FROM pragma_version()')[0][0]}"
        )

    def tables(self) -> tuple[TableSummary, ...]:
        """Return tables and views of the file, by schema and name."""
        rows = self._rows(
            "SELECT schema_name, table_name, 'table', estimated_size FROM duckdb_tables() "
            "WHERE NOT internal AND database_name = current_database() UNION ALL "
            "SELECT schema_name, view_name, 'view', NULL FROM duckdb_views() "
            "WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2"
        )
        return tuple(
            TableSummary(
                schema=schema,
                name=name,
                kind=kind,
                rows=size,
                bytes=None,
                partitions=duckdb_layout.partition_count(self._rows, schema, name),
            )
            for schema, name, kind, size in rows
            if name != duckdb_layout.PARTITION_MAP
        )

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
        observe(PhaseStarted(phase="columns"))
        columns = self._columns(f"SELECT * FROM {qualified(schema, name)}")
        if found.kind == "view":
            return TableInfo(
                schema=schema, name=name, columns=columns, named_partitions=False, row_ranges=False
            )
        observe(PhaseStarted(phase="extents"))
        rows, extent = duckdb_layout.extent_of(self._rows, schema, name)
        return TableInfo(
            schema=schema,
            name=name,
            columns=columns,
            partitions=duckdb_layout.partitions_of(self._rows, schema, name, extent),
            rows=rows,
            extents=(extent,),
            ranges_from="rowid",
            named_partitions=False,
            row_ranges=True,
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

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return nothing: who may open the file may read all of it."""
        return ()

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Return the identity of the file, which nobody can write while we have it open."""
        return Snapshot(
            kind="read-only-file",
            value=_identity(self._path),
            taken_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def check_snapshot(self) -> None:
        """Check that the file is still the one we opened."""
        if not self._path.is_file():
            raise SourceError(f"{self._path} is gone", "restore the file and run again")

    def project(self, table: TableInfo, query: str | None, target: Target) -> Projection:
        """Decide how each column is read; the schema is what DuckDB itself says of the result."""
        columns = tuple(duckdb_types.read_column(column, target) for column in table.columns)
        relation = derived_table(query) if query else qualified(table.schema, table.name)
        nothing = select(select_list(columns), relation, ["false"])
        found = _relation(self._connection, nothing).to_arrow_reader(1).schema
        typed, schema = duckdb_types.with_types(columns, found, target)
        return Projection(columns=typed, route="arrow", schema=schema.serialize().to_pybytes())

    def check_where(self, extract: Extract) -> None:
        """Let DuckDB plan the user's condition."""
        if extract.where is not None:
            check_condition(self._explain, relation_of(extract), extract.where)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Do nothing: while the snapshot lasts nobody else can write."""

    def selector_sql(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that reads what a selector stands for."""
        return selector_statement(select_list(extract.projection.columns), extract, selector)

    def count(self, extract: Extract) -> int:
        """Return the rows asked for: by partition, where some were, as the file maps them now."""
        conditions = [condition(extract.where)] if extract.where else []
        if extract.partitions:
            conditions.append(f"({' OR '.join(self._rows_asked(extract)) or 'false'})")
        counted = self._rows(select("count(*)", relation_of(extract), conditions))
        return int(counted[0][0])

    def _rows_asked(self, extract: Extract) -> Iterator[str]:
        """Yield a condition for each partition asked for, on the rows that the map says it has."""
        ranges = duckdb_layout.mapped_rows(
            self._rows, extract.table.schema or "main", extract.table.name
        )
        asked = matching_partitions((name for name, _, _ in ranges), extract.partitions)
        for name, first, last in ranges:
            if name in asked:
                yield f"rowid BETWEEN {first} AND {last}"

    def end_sessions_sql(self) -> str:
        """Return nothing: a file has no sessions."""
        return ""

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
            raise _translated(error) from error
        if not single:
            raise SourceError("it holds more than one statement", "give one without a semicolon")
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
            raise _translated(error) from error


class DuckDBReader:
    """A worker's read-only connection."""

    def __init__(self, connection: Any) -> None:
        """Take over an open connection."""
        self._connection = connection
        self._tried = 0
        """Caps that were too low."""

    def batches(
        self, extract: Extract, piece: Piece, *, fetch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the piece's rows in batches of about `fetch_bytes`."""
        from writers.schema import read_schema

        schema = read_schema(extract.projection.schema)
        sql = selector_statement(select_list(extract.projection.columns), extract, piece.selector)
        rows = batch_rows(schema, fetch_bytes)
        caps = _caps(extract, fetch_bytes)
        yielded = 0
        while True:
            self._limit_memory(caps)
            fewer = (rows, *WIDE_BATCH_ROWS)[self._tried] if caps else rows
            try:
                # One thread gives the same rows in the same order again.
                for batch in _without(yielded, self._scan(sql, fewer)):
                    yielded += batch.num_rows
                    yield duckdb_types.conform(batch, schema)
                    del batch
                return
            except Exception as error:
                if not (caps and _is_out_of_memory(error)):
                    raise _translated(error) from error
                if self._tried == len(caps) - 1:
                    raise _too_wide(schema, caps[-1]) from error
                self._tried += 1

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _scan(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        # Closing the connection under a half-read result hangs DuckDB 2.0's next one.
        with _relation(self._connection, sql).to_arrow_reader(rows) as reader:
            yield from reader

    def _limit_memory(self, caps: tuple[int, ...]) -> None:
        if caps:
            self._connection.execute(f"SET memory_limit = '{caps[self._tried]}B'")
        else:
            self._connection.execute("RESET memory_limit")


def _caps(extract: Extract, fetch_bytes: int) -> tuple[int, ...]:
    """Return the caps to try one after the other, nothing where there is none."""
    # A query or a condition may sort or join: that needs room, and what is read once more under
    # another cap may come in another order. A scan of a table does neither.
    if extract.query is not None or extract.where is not None or not extract.table.row_ranges:
        return ()
    return (*READER_MEMORY_BYTES, max(LEAST_LAST_CAP_BYTES, LAST_CAP_SHARES * fetch_bytes))


def _too_wide(schema: pa.Schema, cap: int) -> OutputFailed:
    """Return the error for rows that DuckDB itself cannot hold under the last cap."""
    import pyarrow as pa

    from writers.large_rows import is_long

    names = [
        field.name for field in schema if is_long(field.type) or pa.types.is_nested(field.type)
    ]
    return OutputFailed(
        f"DuckDB needs more than {cap >> 20:,} MiB to read the values of {', '.join(names)}: it "
        "reads up to 2,048 values of a column at once",
        f"raise --fetch-memory, of which DuckDB may take {LAST_CAP_SHARES // SHARES} times as much "
        "in each worker, or leave wide columns out with --exclude",
    )


def _without(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without their first rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of `columns` over the rows of one selector."""
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        if selector.first is not None:
            conditions.append(f"rowid >= {selector.first}")
        if selector.last is not None:
            conditions.append(f"rowid < {selector.last}")
    else:
        assert isinstance(selector, WholeTable), "no other is described"
    if extract.where:
        conditions.append(condition(extract.where))
    return select(columns, relation_of(extract), conditions)


def relation_of(extract: Extract) -> str:
    """Return the table expression that holds the rows."""
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


def _relation(connection: Any, sql: str) -> Any:
    try:
        return connection.sql(sql)
    except Exception as error:
        raise _translated(error) from error


def _path_of(spec: SourceSpec) -> Path:
    parts = urlsplit(spec.location)
    path = Path(unquote(parts.path))
    odd = parts.netloc or parts.query or parts.fragment
    if odd or not path.is_absolute() or path == Path("/"):
        raise ConfigError(
            f"{spec.location} does not name a file",
            "write duckdb:///absolute/path.db, with %3F for ? and %23 for #",
        )
    return path


def _identity(path: Path) -> str:
    status = path.stat()
    return f"size={status.st_size} mtime_ns={status.st_mtime_ns}"


def _connect(spec: SourceSpec, config: dict[str, str]) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error
    path = _path_of(spec)
    if not path.is_file():
        raise SourceError(f"there is no file {path}", "check the path in the URL")
    if _is_sqlite(path):
        raise ConfigError(f"{path} is a SQLite file", f"write sqlite://{path}")
    # Nothing is to be fetched from the network, an extension for another kind of file included.
    config = {**config, "autoinstall_known_extensions": "false"}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise SourceError(
                f"{path} is open for writing in another process: {_first_line(error)}",
                "run again when that process has closed it",
            ) from error
        raise SourceError(f"{path} cannot be opened: {_first_line(error)}") from error
    # Zones of TIMESTAMPTZ must not follow the environment of a worker.
    with suppress(duckdb.Error):
        connection.execute("SET TimeZone = 'UTC'")
    return connection


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False  # DuckDB has the words for what is wrong.


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _translated(error: Exception) -> UnloaderError:
    """Return the user's error for whatever DuckDB raised; our own pass unchanged."""
    if isinstance(error, UnloaderError):
        return error
    text = _first_line(error)
    if duckdb_types.REFUSED in text:
        return OutputFailed(*duckdb_types.refusal(text))
    if _is_out_of_memory(error):
        return SourceError(f"DuckDB ran out of memory: {text}", "lower --parallelism")
    return SourceError(f"DuckDB: {text}")


def _is_out_of_memory(error: Exception) -> bool:
    # Among the rows it comes through Arrow, as an OSError.
    return type(error).__name__ == "OutOfMemoryException" or "Out of Memory Error" in str(error)
