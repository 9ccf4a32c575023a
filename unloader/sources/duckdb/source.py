"""DuckDB: an embedded database file, opened read-only by the parent and by every worker.

DuckDB lets many processes read a file while no process writes it, so the open file itself is the
snapshot. It has no partitions; a table may have a map of partitions, see `describing`. The parent
and the workers use the same statements for a selector's rows, for checksums and for samples of
keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partition_planner.model import ColumnInfo, Piece, RowRange, Selector, TableInfo, WholeTable
from unloader.errors import OutputFailed, SnapshotGone, SourceError
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
from unloader.request.names import matching_partitions, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.base import SHARES, Capabilities, Catalog, Source, batch_rows
from unloader.sources.duckdb import describing
from unloader.sources.duckdb import types as duckdb_types
from unloader.sources.duckdb.describing import ReadingTypes
from unloader.sources.duckdb.file import (
    HEADER_BYTES,
    OpenFile,
    connect,
    first_line,
    identity_of,
    is_out_of_memory,
    relation,
    translated,
)
from unloader.sources.file_state import FileAtSnapshot, database_path, kept_header_of
from unloader.sources.hashing import HashedColumn, Hasher, Hashing, SqlHasher
from unloader.sources.many_tables import counted_in_union
from unloader.sources.readings import ColumnReadings, Declared, one_of
from unloader.sources.statement import (
    below,
    check_condition,
    check_distinct,
    derived_table,
    limit_clause,
    literal,
    qualified,
    quoted,
    row_conditions,
    select,
    select_count,
    select_list,
)
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa


_LONGEST = {"HUGEINT": 40, "TIME WITH TIME ZONE": 24, "UHUGEINT": 39, "UUID": 36}
"""Types that are read as text, with the maximum number of ASCII characters."""


class DuckDBSource(Source):
    """DuckDB files, by `duckdb:///absolute/path.db`."""

    scheme = "duckdb"
    summary = "DuckDB database file: duckdb:///abs/path.db"
    url = UrlForm(written="duckdb:///PATH", what="file")
    extra = "duckdb"
    driver = "duckdb"

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the file itself: the snapshot is its state."""
        return spec if kind == FILE else None

    def declared(self, source_type: str) -> Declared:
        """Return how long the texts of types are that are read as text."""
        return one_of(source_type, _LONGEST)

    def load(self) -> None:
        """Import DuckDB, and the libraries for its batches."""
        import duckdb  # noqa: F401
        import pyarrow.ipc
        import pyarrow.types  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> DuckDBCatalog:
        """Open the file in the parent."""
        return DuckDBCatalog(connect(spec, {}))

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> DuckDBReader:
        """Open the file in a worker; one thread, as the processes are the parallelism."""
        path = Path(database_path(spec))
        wanted = snapshot.value if snapshot is not None and snapshot.value else None

        def state() -> str:
            return identity_of(path, kept_header_of(str(path), HEADER_BYTES))

        at_snapshot = FileAtSnapshot(str(path), state, wanted)
        file = connect(spec, {"threads": "1"}, kept_header_of)
        try:
            at_snapshot.check_opened(file.identity)
        except SnapshotGone:
            file.connection.close()
            raise
        return DuckDBReader(file.connection, at_snapshot)


READER_MEMORY_BYTES = (32 << 20, 256 << 20)
"""Caps of DuckDB's own buffers in a worker that scans a table. Without one every block read stays
cached, and a worker grows with the table; a scan needs a few blocks of 256 KiB only. But
DuckDB reads 2048 values at a time. Values of 20 kB need 64 MiB, so the next cap is tried."""
LAST_CAP_SHARES = 512
"""The last cap is the memory of a batch times this number, but at least 1 GiB."""
LEAST_LAST_CAP_BYTES = 1 << 30
WIDE_BATCH_ROWS = (64, 4)
"""Rows of a batch under the second cap and the last one: the values of a batch are as wide as those
that did not fit under the cap before."""


class DuckDBReader:
    """A worker's read-only connection."""

    def __init__(self, connection: Any, file: FileAtSnapshot) -> None:
        """Take over an open connection to a file."""
        self._connection = connection
        self._file = file
        self._tried = 0
        """Caps that were too low."""

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the piece's rows in batches of about `batch_bytes`."""
        with self._file.read():
            yield from self._batches(extract, piece, batch_bytes)

    def _batches(
        self, extract: Extract, piece: Piece, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:

        schema = read_schema(extract.projection.schema)
        sql = selector_statement(select_list(extract.projection.columns), extract, piece.selector)
        rows = batch_rows(schema, batch_bytes)
        caps = _caps(extract, batch_bytes)
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
                if name := duckdb_types.refused_column(first_line(error)):
                    raise self._refusal(extract, piece, name) from error
                if not (caps and is_out_of_memory(error)):
                    raise translated(error) from error
                if self._tried == len(caps) - 1:
                    raise _too_wide(schema, caps[-1]) from error
                self._tried += 1

    def _refusal(self, extract: Extract, piece: Piece, first: str) -> OutputFailed:
        """Return the error for all columns of a piece that hold a refused value.

        Args:
            extract: The extract that is read.
            piece: The piece whose rows are read.
            first: The column that stopped the reading.
        """
        guarded = [
            each.name
            for each in extract.projection.columns
            if duckdb_types.REFUSED in each.expression
        ]
        items = ", ".join(f"bool_or(NOT isfinite({quoted(name)}))" for name in guarded)
        try:
            sql = selector_statement(items, extract, piece.selector)
            (row,) = self._connection.execute(sql).fetchall()
        except Exception:  # The error at hand says more.
            return duckdb_types.refusal([first])
        found = [name for name, holds in zip(guarded, row, strict=True) if holds]
        return duckdb_types.refusal(found or [first])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _scan(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        # Closing the connection under a half-read result hangs DuckDB 2.0's next one.
        with relation(self._connection, sql).to_arrow_reader(rows) as reader:
            yield from reader

    def _limit_memory(self, caps: tuple[int, ...]) -> None:
        if caps:
            self._connection.execute(f"SET memory_limit = '{caps[self._tried]}B'")
        else:
            self._connection.execute("RESET memory_limit")


def _caps(extract: Extract, batch_bytes: int) -> tuple[int, ...]:
    """Return the caps to try one after the other, empty if memory has no cap."""
    # A query or a condition may sort or join. That needs room, and a second reading under another
    # cap may return rows in another order. A scan of a table does neither, but DuckDB may find the
    # first rows of a table in another way.
    filtered = extract.where is not None or extract.limit_rows is not None
    if extract.query is not None or filtered or not extract.table.row_ranges:
        return ()
    return (*READER_MEMORY_BYTES, max(LEAST_LAST_CAP_BYTES, LAST_CAP_SHARES * batch_bytes))


def _too_wide(schema: pa.Schema, cap: int) -> OutputFailed:
    """Return the error for rows that DuckDB itself cannot hold under the last cap."""
    import pyarrow as pa

    from writers.large_rows import is_long

    names = [
        field.name for field in schema if is_long(field.type) or pa.types.is_nested(field.type)
    ]
    return OutputFailed(
        f"DuckDB needs more than {cap >> 20:,} MiB to read the values of {', '.join(names)}: it "
        "reads up to 2,048 values of a column together",
        f"raise --fetch-memory (DuckDB may use {LAST_CAP_SHARES // SHARES} times as much in each "
        "worker), or leave wide columns out with --exclude",
    )


def _without(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without their first rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


FILE = "read-only-file"
"""The kind of a snapshot here."""


class DuckDBCatalog(Catalog):
    """The parent's connection; while it is open, other processes cannot write the file."""

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
        """Return the descriptions of many tables from joint queries; views one by one."""
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
        """Return the identity of the file; other processes cannot write it while it is open."""
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
        """Return how each column can be read, with the types that DuckDB reports for the result."""
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
        """Return the statement that reads the rows of a selector."""
        return selector_statement(select_list(extract.projection.columns), extract, selector)

    def count(self, extract: Extract) -> int:
        """Return the rows asked for: by partition, where some were, as the file maps them now."""
        conditions = row_conditions(extract)
        if extract.partitions:
            conditions.append(f"({' OR '.join(self._rows_asked(extract)) or 'false'})")
        counted = self._rows(select_count(relation_of(extract), conditions, extract.limit_rows))
        return int(counted[0][0])

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return the number of rows of each of many tables, with few statements."""
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
        # DuckDB runs all statements of a text; more than one here is always a mistake.
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


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of `columns` over the rows of one selector."""
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        if selector.first is not None:
            conditions.append(f"rowid >= {selector.first}")
        if selector.last is not None:
            conditions.append(f"rowid < {selector.last}")
    else:
        assert isinstance(selector, WholeTable), "the source describes only these kinds"
    conditions += row_conditions(extract)
    return select(columns, relation_of(extract), conditions) + limit_clause(extract.limit_rows)


def relation_of(extract: Extract) -> str:
    """Return the table expression that holds the rows."""
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


_ARROW_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_ARROW_INTEGER = re.compile(r"u?int\d+")


def _hashed_text(column: HashedColumn) -> str | None:
    kind, value = column.kind, column.expression
    shown = f"CAST({value} AS VARCHAR)"
    if kind in ("string", "bool", "time64[us]") or _ARROW_INTEGER.fullmatch(kind):
        return shown
    if kind == "binary":
        return value
    if kind in ("float", "double"):
        bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
        return f"CASE WHEN isnan({value}) THEN 'NaN' ELSE {bits} END"
    if match := _ARROW_DECIMAL.fullmatch(kind):
        return decimal_text(shown, int(match[1]), int(match[2]))
    if kind == "date32[day]":
        return f"replace({shown}, ' (BC)', ' BC')"
    if kind.startswith("timestamp["):
        return _timestamp(shown, zoned="tz=" in kind)
    return None


def decimal_text(shown: str, precision: int, scale: int) -> str:
    """Return SQL for the digits of a decimal without zeros at the end, from its text."""
    if not scale:
        return shown
    trimmed = f"rtrim(rtrim({shown}, '0'), '.')"
    if scale < precision:
        return trimmed
    # Such a number comes without a digit before the point.
    return f"CASE WHEN {trimmed} IN ('', '-') THEN '0' ELSE replace({trimmed}, '.', '0.') END"


def _timestamp(shown: str, *, zoned: bool) -> str:
    """Return SQL for the text with the offset and then the era; the connection is in UTC."""
    if zoned:
        shown = f"regexp_replace({shown}, '[+]00$', '+00:00')"
    return (
        f"CASE WHEN contains({shown}, ' (BC)') THEN replace({shown}, ' (BC)', '') || ' BC' "
        f"ELSE {shown} END"
    )


HASHING = Hashing(
    text=_hashed_text,
    sum="sum(CAST('0x' || left(md5({}), 16) AS UBIGINT))",
    statement=selector_statement,
)


def hasher_of(connection: Any) -> SqlHasher:
    """Return what computes checksums in a further connection; DuckDB uses all cores."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        try:
            found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        except Exception as error:
            raise translated(error) from error
        return found

    return SqlHasher(
        hashing=HASHING, rows=rows, cancel=connection.interrupt, close=connection.close
    )


_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_INTEGER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT|U?INTEGER")


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they cannot be keys."""
    text = _key_text(quoted(column.name), column.native_type)
    if text is None:
        return None
    return SampledKeys(
        column=column.name,
        share=share,
        text=text,
        condition=f"sha256(nullif({text}, '')) < {literal(below(share))}",
    )


def _key_text(value: str, kind: str) -> str | None:
    shown = f"CAST({value} AS VARCHAR)"
    if kind == "VARCHAR":
        return value
    if kind == "UUID" or kind.startswith("ENUM(") or _INTEGER.fullmatch(kind):
        return shown
    if kind == "BLOB":
        return f"lower(hex({value}))"
    if match := _DECIMAL.fullmatch(kind):
        return decimal_text(shown, int(match[1]), int(match[2]))
    return None
