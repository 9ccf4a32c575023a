"""What a source is: a `Catalog` for the parent, a `Reader` for the workers, a `Source` for both.

The parent's `Catalog` lists tables, takes the snapshot, decides how each column is read and counts.
A worker's `Reader` reads one work unit at a time. The two share only plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import ColumnInfo, Piece, Selector, TableInfo, WorkUnit
from unloader.errors import SnapshotGone, SourceError, TransientSourceError, UsageError
from unloader.events import Observer, silent
from unloader.model import (
    Consistency,
    Extract,
    NamePart,
    SampledKeys,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.locations import UrlForm
from unloader.request.names import Folding
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources.readings import ColumnReadings, Declared
from unloader.sources.statement import Hasher
from writers.model import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow

    RowBatch = pa.RecordBatch


T = TypeVar("T")

SHARES = 16
"""A batch is this part of the fetch memory. Few batches are in flight at a time, but encoding one
takes several times its own size; measured, larger batches gain no CPU and cost 10 to 50 MB. A
source that knows how wide rows can be bounds their number so that the widest fit into the whole."""

Text = bytes | bytearray | memoryview
"""A chunk of ready text. The memory of a writable view is reused when no view of it is left. A
read-only view is a single large row; it is released before the next row is read."""


def is_large_row(chunk: Text) -> bool:
    """Return whether a chunk of ready text is a single large row."""
    return isinstance(chunk, memoryview) and chunk.readonly


class ReadAgain(Exception):
    """Raised by `Reader.batches` where the unit must be read again, from its first row.

    The reader found that the rows need another way of reading, and remembers it. The worker drops
    the unit's output and calls `batches` again, at most `MOST_TIMES` for a unit.
    """

    MOST_TIMES = 3


class Capabilities(Struct, frozen=True, kw_only=True):
    """Facts about a kind of source; other code reads these, not the name of the database."""

    shared_snapshot: bool
    """Several connections can read one and the same state of the data."""
    snapshot_outlives_run: bool
    """A later process can read at the snapshot of an earlier run, while the database keeps the data
    of that time. The snapshot does not end with a process or a connection."""
    folding: Folding
    """How the database folds the letters of a plain name."""
    hashes: bool = False
    """The database computes checksums of columns: `unhashed` and `open_hasher`."""
    samples: bool = False
    """Rows can be chosen by a sample of keys, and limited in number: `sampled_keys` and
    `count_selected`. Readers and `count` take only the rows of `extract.keys`, and at most
    `extract.limit_rows` rows; for a reader this limit applies to one piece."""


Held = tuple["Extract", "tuple[Selector, ...]"]


class LoadReader(Struct, frozen=True, kw_only=True):
    """A separate session that counts active sessions; used by one thread at a time."""

    others: Callable[[], int]
    """Returns how many sessions are active that are not this run's; raises SourceError."""
    close: Callable[[], None]
    """Closes the session; never raises."""


class Catalog(Protocol):
    """The parent's view of one database; opened once, closed at the end of the run.

    A catalog inherits from this class. Methods with a body are optional.
    """

    capabilities: Capabilities
    server_version: str

    def tables(self) -> tuple[TableSummary, ...]:
        """Return the tables and views the user may read, by schema and name."""

    def list_tables(self) -> Listing:
        """Return tables and views without partitions, also ones that the user may not read.

        A source that reads its catalogue at the snapshot lists the tables of that time, with the
        rights of the present. Optional: the result of `tables`.
        """
        return Listing.of(
            [ListedTable.of(table) for table in self.tables()],
            folding=self.capabilities.folding,
            # The first schema of the source's search path is unknown.
            default_schemas=("",),
            where="the source",
        )

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        """Return columns, leaf partitions and estimates of one table or view.

        Names in the result are written as in the database, and partitions are in table order.
        `observe` is called as each slow step begins: `columns`, `partitions`, `extents`.
        `SourceError` where the table does not exist, its name is ambiguous, or the user may not
        read it.
        """

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Return for each table of the listing, in order, the result of `describe` or an obstacle.

        An error concerns all tables. Optional: tables are described one by one.
        """
        return tuple(
            described_or_obstacle(self, quoted_name(table.schema, table.name), observe)
            for table in tables
        )

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of a query as a table named `query` without partitions.

        `SourceError` where the query is not valid, or columns share a name. Optional: `--query` is
        refused.
        """
        raise UsageError(
            "--query does not apply to this source, which does not have queries", "give --table"
        )

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return one sentence for each missing right and its benefit. Optional: none is missing."""
        return ()

    def address_column(self, table: TableInfo) -> str | None:
        """Return the column whose values the addresses of a table's extents are; optional: None."""
        return None

    def expect_workers(self, workers: int) -> None:
        """Prepare for a number of workers that will enter the snapshot; called before `snapshot`.

        Optional: any number of sessions can enter a snapshot.
        """
        return

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Fix the state that all workers read, and hold it until `close`.

        Called before `describe`, so that the description is of that state, too. A catalog that was
        opened with the result of `Source.at_snapshot` enters that snapshot. If it returns another
        kind or value than the earlier run had, or raises `SnapshotGone`, the snapshot is gone.
        """

    def check_snapshot(self) -> None:
        """Return if the snapshot is still held. Optional: it is always held.

        `SourceError` if no further worker can enter it; `SnapshotGone` if no later process can,
        either.
        """
        return

    def keep_until_gone(self, marks: Sequence[str]) -> str:
        """Keep the snapshot beyond the death of the run, if the user asked for that.

        A snapshot that ends with the process which took it cannot serve a resumed run, so another
        process keeps it. Before this call it ends with the run. `marks` are absolute paths of files
        that hold the run's id while it can be continued; without any the snapshot ends with the
        run. The result is as of `kept_until`. Optional: nothing is kept.
        """
        return ""

    def kept_until(self) -> str:
        """Return until when the snapshot outlives the run, in ISO 8601, or nothing; never raise."""
        return ""

    def end_keeping(self) -> None:
        """Stop keeping the snapshot of a complete run; `ConfigError` where that fails."""
        return

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return for the columns of `table`, in their order, how each can be read.

        Each column needs a reading for every use, whether `--as-text` names it or not.
        `SourceError` names a column that cannot be read exactly, and `--exclude`. `table` has the
        chosen columns alone; `query` is the query of a table from `describe_query`, else None; the
        fields of `values` that options of this source set are used.
        """

    def encodes(self, text: TextFormat) -> bool:
        """Return whether readings for the use `encoded` give this dialect to the byte.

        The reader then has `encoded`. Optional: the source renders no text.
        """
        return False

    def check_where(self, extract: Extract) -> None:
        """Check the user's condition, if there is one, before any worker sees it.

        Readers read, and `count` counts, only the rows for which `extract.where` holds.
        `SourceError` where the database does not take it as one condition. Optional: `--where` is
        refused.
        """
        if extract.where is not None:
            raise UsageError(
                "--where does not apply to this source, which does not have conditions",
                "leave it out",
            )

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Keep the selectors' rows as at the snapshot until `close`; called before a run.

        For changes that a snapshot does not cover, such as PostgreSQL's TRUNCATE. `SnapshotGone`
        where a change since the snapshot has removed its rows. Optional without a snapshot, or if
        other processes cannot write.
        """
        return

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        """Hold each table as `hold` does; return the error of each, or None. Optional: one by one.

        All tables together wait for locks no longer than one table may. What concerns all is
        raised.
        """
        found = [result_or_error(partial(self.hold, *each)) for each in tables]
        return tuple(each if isinstance(each, SourceError) else None for each in found)

    def unheld(self) -> tuple[str, ...]:
        """Return a sentence for each kind of object that `hold` could not keep unchanged."""
        return ()

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the SELECT of a worker for a selector, word for word; shown to the user.

        A source without SQL returns the name of the file or object that the worker opens.
        """

    def count(self, extract: Extract) -> int:
        """Return the number of requested rows, counted by the database.

        The count checks the plan, so it must not use it. It uses the table or the query, the
        condition and the patterns of `extract.partitions`, at the snapshot.
        """

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return for each extract the result or the error of `count`. Optional: one by one."""
        return tuple(result_or_error(partial(self.count, each)) for each in extracts)

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        """Return the sample of a column's values; None if values of its type cannot be keys."""
        return None

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        """Return how many rows some selectors select, counted by the database."""
        raise UsageError("this source cannot choose rows")

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        """Return the columns that the database cannot hash, by index, each with why."""
        return {}

    def open_hasher(self, extract: Extract) -> Hasher:
        """Open a session that computes checksums at the extract's snapshot."""
        raise UsageError("this source computes no checksums")

    def end_sessions_sql(self) -> str:
        """Return the statement with which an administrator ends only the run's sessions.

        Optional: empty, as the run has no name in a list of sessions.
        """
        return ""

    def ping(self) -> bool:
        """Send the database something small and wait for its answer; optional: False."""
        return False

    def open_load(self) -> LoadReader:
        """Open a session that counts active sessions; may be called from any thread.

        `ConfigError` names the grant to see the sessions of others. Optional: `--max-db-load` is
        refused.
        """
        raise UsageError(
            "--max-db-load does not apply to this source, which does not report active sessions",
            "leave it out",
        )

    def cancel(self) -> None:
        """Make the call that another thread waits for raise soon; without one, do nothing.

        It may be called from any thread, more than once, and never raises. The waiting call may
        raise any error: `cancelled_by` turns it into `Interrupted`. Optional where no call takes
        longer than a second.
        """
        return

    def close(self) -> None:
        """Release the snapshot and the connection; never raises."""


class Reader(Protocol):
    """A worker's connection: reads units one after the other at the run's snapshot.

    A reader inherits from this class.
    """

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows of a piece, each batch with the schema of the projection.

        A piece is one of a unit's selectors. A row with a value too large for memory is yielded
        separately, as a `LargeRow`. A batch takes about `batch_bytes` of memory.

        `SourceError`: the database failed; `TransientSourceError` where a retry may help.
        `SnapshotGone`: the state at the snapshot does not exist any more. `OutputFailed`: a value
        cannot be held exactly by the type it is read as. `ReadAgain`: the unit must be read once
        more, in another way.
        """

    encoded_rows: int = 0
    """Rows of the last exhausted `encoded` call, as the database counted them."""

    def encoded(
        self, extract: Extract, piece: Piece, text: TextFormat
    ) -> Iterator[tuple[Text, ...]]:
        """Yield the rows of a piece as text that the database renders in the dialect.

        Each item is some chunks in order, each chunk whole records. Only called where the
        projection's route is `encoded`. Optional: the source renders no text.
        """
        raise UsageError("this source renders no text")

    def witnessed(self) -> tuple[int, str]:
        """Return the rows that were decoded both ways since the last call, and what was refused.

        For a source that decodes the database's answers, and has its driver decode a part of them,
        too. What was refused is why the driver alone decodes from here on, or empty.
        """
        return 0, ""

    def close(self) -> None:
        """Close the connection; never raises."""


class Source(Protocol):
    """A kind of source: how a URL is opened, in the parent and in a worker.

    A class may inherit from this one and leave out fields with defaults and optional methods.
    """

    scheme: str
    summary: str
    """One line for `unloader sources`."""
    url: UrlForm
    extra: str = ""
    """The extra that brings the driver, empty for a core one."""
    driver: str = ""
    """The distribution whose version `unloader sources` shows, or empty."""
    options: tuple[str, ...] = ()
    """The options that this source knows and not every source knows; their fields in a request keep
    their defaults for other sources."""
    one_machine: str = ""
    """Why only workers on the parent's machine can read it; empty where other machines can, too."""
    waits_for_network: bool = False
    """`open_catalog` may wait for a network and cannot be cancelled. It is then called in another
    thread, which a signal abandons. The catalog is used in a third thread afterwards."""

    def driver_warning(self, version: str) -> str | None:
        """Return a sentence if the driver in this version was not found exact. Optional: None."""
        return None

    def declared(self, source_type: str) -> Declared:
        """Return the length of values that a column's type declares, for `--fixed`.

        The type is the column's own, or the type of its domain (`base_type` in the metadata of its
        Arrow field), in capitals and with single blanks. Optional: the user gives widths of texts.
        """
        return Declared()

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the source with which `open_catalog` reads at the snapshot of an earlier run.

        `kind` and `value` are from the run's `Snapshot`. The catalog's `snapshot` then returns the
        same if that state still exists; if not, it raises `SnapshotGone` or returns another value.
        This method does not connect. Optional: None, as the source cannot go back to a snapshot.
        """
        return None

    def load(self) -> None:
        """Import the driver and the other modules of a reader before its first use. Optional."""
        return

    def share(self, spec: SourceSpec) -> None:
        """Open what the next readers of this process and of its forks may use. Optional.

        It must not start a thread: a process with several threads is not forked.
        """
        return

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        """Connect in the parent; `ConfigError` without the driver or for a malformed URL."""

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        """Connect in a worker and enter the snapshot; `SnapshotGone` where it is gone."""


def read_again(read: Callable[[], T]) -> T:
    """Return the result of `read`, which is called again after each `ReadAgain`."""
    for _ in range(ReadAgain.MOST_TIMES):
        with suppress(ReadAgain):
            return read()
    return read()


def unit_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, *, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield the rows of a unit; arguments and errors as for `Reader.batches`."""
    left = extract.limit_rows
    for piece in unit.pieces:
        if left is not None and left <= 0:
            return
        # A reader knows the limit of one piece. Without a limit it gets the same object each time.
        asked = extract if left is None else replace(extract, limit_rows=left)
        for batch in reader.batches(asked, piece, batch_bytes=batch_bytes):
            if left is not None:
                left -= batch.num_rows
            yield batch
            del batch


def unit_text(
    reader: Reader,
    extract: Extract,
    unit: WorkUnit,
    text: TextFormat,
    counted: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[Text, ...]]:
    """Yield the rows of a unit as text; call `counted` with the database's count of each piece."""
    left = extract.limit_rows
    for piece in unit.pieces:
        if left is not None and left <= 0:
            return
        yield from reader.encoded(replace(extract, limit_rows=left), piece, text)
        counted(reader.encoded_rows)
        if left is not None:
            left -= reader.encoded_rows


TEXT_BYTES = 24
"""Guess for a value without a fixed width: an offset and a short text."""
MIN_ROWS = 1024
MAX_ROWS = 1_000_000


def batch_rows(schema: pa.Schema, batch_bytes: int) -> int:
    """Return the rows of a batch of about `batch_bytes`, between MIN_ROWS and MAX_ROWS."""
    row_bytes = 0
    for field in schema:
        try:
            row_bytes += (field.type.bit_width + 7) // 8 + 1
        except ValueError:
            row_bytes += TEXT_BYTES * max(1, field.type.num_fields)
    return min(MAX_ROWS, max(MIN_ROWS, batch_bytes // max(1, row_bytes)))


def quoted_name(schema: str | None, name: str) -> TableName:
    return TableName(
        schema=None if schema is None else NamePart(text=schema, quoted=True),
        name=NamePart(text=name, quoted=True),
    )


def described_or_obstacle(
    catalog: Catalog, name: TableName, observe: Observer = silent
) -> TableInfo | Obstacle:
    return info_or_obstacle(result_or_error(partial(catalog.describe, name, observe)))


def info_or_obstacle(found: TableInfo | SourceError) -> TableInfo | Obstacle:
    if isinstance(found, SourceError):
        return Obstacle(kind="refused", what=found.message, hint=found.hint)
    return found


def result_or_error(act: Callable[[], T]) -> T | SourceError:
    """Return the result of a call, or the error of its table; raise what concerns all tables.

    That is a lost snapshot, or a `TransientSourceError`, as the connection may be lost.
    """
    try:
        return act()
    except (TransientSourceError, SnapshotGone):
        raise
    except SourceError as error:
        return error
