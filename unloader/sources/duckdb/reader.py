"""A worker's side of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from partition_planner.model import Piece
from unloader.errors import OutputFailed, SnapshotGone
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import SHARES, Reader, batch_rows
from unloader.sources.duckdb import catalog
from unloader.sources.file_reader import FileAtSnapshot, kept_header_of
from unloader.sources.file_state import database_path, state_of
from unloader.sources.statement import quoted, select_list
from writers.large_rows import is_long
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa

_Opened = tuple[Any, str, FileAtSnapshot]

_shared: dict[SourceSpec, _Opened] = {}
"""Files that were opened by `share` and have no reader in this process yet."""


def _opened(spec: SourceSpec) -> _Opened:
    """Open the file without a thread: the processes are the parallelism."""
    path = database_path(spec)

    def state() -> str:
        return state_of(path, kept_header_of(path, catalog.HEADER_BYTES), catalog.LOGS)

    at_snapshot = FileAtSnapshot(path, state)
    beside = path in catalog.OPEN_HERE.values()
    config = {} if beside else {"threads": "1", "async_threads": "0"}
    return *catalog.connect(spec, config, kept_header_of), at_snapshot


def share(spec: SourceSpec) -> None:
    _shared[spec] = connection, _, _ = _opened(spec)
    # The first use of each of these prepares tables that stay.
    with connection.sql("SELECT 1").to_arrow_reader(1) as rows:
        rows.read_all()


def open_reader(spec: SourceSpec, snapshot: Snapshot | None) -> DuckDBReader:
    wanted = snapshot.value if snapshot is not None and snapshot.value else None
    is_shared = spec in _shared
    connection, identity, file = _shared.pop(spec) if is_shared else _opened(spec)
    try:
        file.check_opened(wanted, identity)
    except SnapshotGone:
        connection.close()
        if is_shared:  # The file has changed since then.
            return open_reader(spec, snapshot)
        raise
    return DuckDBReader(connection, file)


COLUMN_MEMORY_BYTES = 1 << 20
LEAST_MEMORY_BYTES = 8 << 20
"""The first cap of DuckDB's own buffers in a worker that scans a table: for each column, and at
least. Without a cap every block read stays cached, and a worker grows with the table. A scan holds
two blocks of 256 KiB of a column at a time. Each worker fills its cap once, and the kernel has to
find and clear that memory: 32 MiB cost 0.03 CPU-seconds more than 8 MiB."""
MORE_MEMORY = 4
"""Factor of the next cap. DuckDB reads 2048 values at a time, so values of 10 kB need 20 MiB."""
WIDE_MEMORY_BYTES = 256 << 20
"""The least cap after that."""
LAST_CAP_SHARES = 512
"""The last cap is the memory of a batch times this number, but at least 1 GiB."""
LEAST_LAST_CAP_BYTES = 1 << 30
WIDE_BATCH_ROWS = (64, 4)
"""Rows of a batch under the last two caps, as its values are too wide for the cap before."""


class DuckDBReader(Reader):
    def __init__(self, connection: Any, file: FileAtSnapshot) -> None:
        self._connection = connection
        self._file = file
        self._tried = 0

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        schema = read_schema(extract.projection.schema)
        sql = catalog.selector_statement(
            select_list(extract.projection.columns), extract, piece.selector
        )
        rows = batch_rows(schema, batch_bytes)
        # A query or a condition may sort or join. That needs room, and a second reading under
        # another cap may return rows in another order. A scan of a table does neither, but DuckDB
        # may find the first rows of a table in another way.
        filtered = extract.where is not None or extract.limit_rows is not None
        is_scan = extract.table.row_ranges and extract.query is None and not filtered
        first = max(LEAST_MEMORY_BYTES, len(schema) * COLUMN_MEMORY_BYTES)
        second = MORE_MEMORY * first
        third = max(WIDE_MEMORY_BYTES, second)
        last = max(LEAST_LAST_CAP_BYTES, LAST_CAP_SHARES * batch_bytes, third)
        caps = list(zip((first, second, third, last), (rows, rows, *WIDE_BATCH_ROWS), strict=True))
        yielded = 0
        with self._file.read():
            while True:
                cap, fewer = "RESET memory_limit", rows
                if is_scan:
                    most, fewer = caps[self._tried]
                    cap = f"SET memory_limit = '{most}B'"
                self._connection.execute(cap)
                again = yielded  # One thread gives the same rows in the same order again.
                try:
                    # Closing the connection under a half-read result hangs DuckDB 2.0's next one.
                    with self._connection.sql(sql).to_arrow_reader(fewer) as found:
                        for batch in found:
                            known = min(again, batch.num_rows)
                            again -= known
                            if known < batch.num_rows:
                                yielded += batch.num_rows - known
                                yield catalog.conform(batch.slice(known), schema)
                            del batch
                    return
                except Exception as error:
                    if name := catalog.refused_column(catalog.first_line(error)):
                        raise self._refusal(extract, piece, name) from error
                    if not (is_scan and catalog.is_out_of_memory(error)):
                        raise catalog.translated(error) from error
                    if self._tried == len(caps) - 1:
                        wide = ", ".join(
                            field.name
                            for field in schema
                            if is_long(field.type) or field.type.num_fields
                        )
                        raise OutputFailed(
                            f"DuckDB needs more than {last >> 20:,} MiB to read the values of "
                            f"{wide}: it reads up to 2,048 values of a column together",
                            "raise --fetch-memory (DuckDB may use "
                            f"{LAST_CAP_SHARES // SHARES} times as much in each worker), or leave "
                            "wide columns out with --exclude",
                        ) from error
                    self._tried += 1

    def _refusal(self, extract: Extract, piece: Piece, first: str) -> OutputFailed:
        """Return the error for all columns with a refused value; `first` stopped the reading."""
        columns = extract.projection.columns
        guarded = [each.name for each in columns if catalog.REFUSED in each.expression]
        items = ", ".join(f"bool_or(NOT isfinite({quoted(name)}))" for name in guarded)
        try:
            sql = catalog.selector_statement(items, extract, piece.selector)
            (row,) = self._connection.execute(sql).fetchall()
        except Exception:  # The error at hand says more.
            return catalog.refusal([first])
        found = [name for name, holds in zip(guarded, row, strict=True) if holds]
        return catalog.refusal(found or [first])

    def close(self) -> None:
        self._connection.close()
