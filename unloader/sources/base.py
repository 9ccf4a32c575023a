"""What a source is: two small protocols, one for the parent and one for the workers.

The parent's `Catalog` lists tables, takes the snapshot, decides how each column is read and counts.
A worker's `Reader` reads one work unit at a time. The two share only plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from unloader.sources.readings import Declared

if TYPE_CHECKING:
    import pyarrow as pa

    from partition_planner.model import Piece, Selector, TableInfo, WorkUnit
    from unloader.events import Observer
    from unloader.model import (
        Consistency,
        Extract,
        Snapshot,
        SourceSpec,
        TableName,
        TableSummary,
        ValueOptions,
    )
    from unloader.request.locations import UrlForm
    from unloader.request.names import Folding
    from unloader.sources.readings import ColumnReadings
    from writers.large_rows import LargeRow
    from writers.model import TextFormat


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
    encoded_text: bool
    """The source can render delimited text itself in some dialects; the catalog is an
    `abilities.TextCatalog`, the reader a `TextReader`."""
    queries: bool
    """An arbitrary query can be unloaded; the catalog is an `abilities.QueryCatalog`."""
    conditions: bool
    """Rows can be chosen by a condition; the catalog is an `abilities.ConditionCatalog`."""
    folding: Folding
    """How the database folds the letters of a plain name."""
    keeping: bool = False
    """The snapshot of a run can be kept beyond its death; the catalog is an
    `abilities.KeepingCatalog`."""
    hashes: bool = False
    """The database computes checksums of columns; the catalog is a `hashing.HashingCatalog`."""
    connects: bool = False
    """There is a connection that has a round trip; the catalog is an
    `abilities.ConnectedCatalog`."""
    sessions: bool = False
    """An administrator can see and end the run's sessions; the catalog is an
    `abilities.SessionCatalog`."""
    loads: bool = False
    """The active sessions of others can be counted; the catalog is an `abilities.LoadCatalog`."""
    lists: bool = False
    """All tables are listed in few statements, with rights; the catalog is a
    `many_tables.ListingCatalog`."""
    describes_many: bool = False
    """Many tables are described in few statements; the catalog is a
    `many_tables.DescribingCatalog`."""
    samples: bool = False
    """Rows can be chosen by a sample of keys, and limited in number; the catalog is a
    `statement.SamplingCatalog`."""
    holds_many: bool = False
    """Many tables are held in few statements; the catalog is a `many_tables.HoldingCatalog`."""
    counts_many: bool = False
    """Many tables are counted in few statements; the catalog is a `many_tables.CountingCatalog`."""
    addresses_are_values: bool = False
    """The addresses of rows may be values of a column; the catalog is an
    `abilities.AddressedCatalog`."""


class Catalog(Protocol):
    """The parent's view of one database; opened once, closed at the end of the run.

    A class may inherit from this one and leave out the methods that are optional. The methods of
    only some sources are in `abilities`.
    """

    capabilities: Capabilities
    server_version: str

    def tables(self) -> tuple[TableSummary, ...]:
        """Return the tables and views the user may read, by schema and name.

        Raises:
            SourceError: The database refused.
        """

    def describe(self, table: TableName, observe: Observer = ...) -> TableInfo:
        """Return columns, leaf partitions and estimates of one table or view.

        Names in the result are written as in the database. Partitions are in table order.

        Args:
            table: The name as the user typed it.
            observe: Called as each slow step begins: `columns`, `partitions`, `extents`.

        Raises:
            SourceError: No such table, an ambiguous name, or no right to read it.
        """

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return one sentence for each missing right and its benefit.

        Optional: nothing is missing.
        """
        return ()

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Fix the state that all workers read, and hold it until `close`.

        Called before `describe`, so that the description is of that state, too. A catalog that was
        opened with the result of `Source.at_snapshot` enters that snapshot. If it returns another
        kind or value than the earlier run had, the snapshot is gone.

        Raises:
            SourceError: The database cannot give one; the hint names the way out.
            SnapshotGone: The state to enter does not exist any more.
        """

    def check_snapshot(self) -> None:
        """Return if the snapshot is still held. Optional: it is always held.

        Raises:
            SourceError: No further worker can enter it; `SnapshotGone` where no later process can,
                either.
        """
        return

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return for the columns of `table`, in their order, how each can be read.

        Each column needs a reading for every use, whether `--as-text` names it or not.

        Args:
            table: The table, its columns cut down to the chosen ones.
            query: The query of a table from `describe_query`, else None.
            values: The fields that options of this source set are used.

        Raises:
            SourceError: A column cannot be read exactly; names it and `--exclude`.
        """

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Keep the selectors' rows as at the snapshot until `close`; called before a run.

        For changes that a snapshot does not cover, such as PostgreSQL's TRUNCATE. Optional
        without a snapshot, or if other processes cannot write.

        Raises:
            SnapshotGone: A change since the snapshot has removed its rows.
            SourceError: A table cannot be held.
        """
        return

    def unheld(self) -> tuple[str, ...]:
        """Return a sentence for each kind of object that `hold` could not keep unchanged.

        Optional: empty.
        """
        return ()

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the SELECT of a worker for a selector, word for word; shown to the user.

        A source without SQL returns the name of the file or object that the worker opens.
        """

    def count(self, extract: Extract) -> int:
        """Return the number of requested rows, counted by the database.

        The count checks the plan, so it must not use it. It uses the table or the query, the
        condition and the patterns of `extract.partitions`, at the snapshot.

        Raises:
            SourceError: The database refused or the snapshot is gone.
        """

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
    """A worker's connection: reads units one after the other at the run's snapshot."""

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows of a piece, each batch with the schema of the projection.

        A row with a value too large for memory is yielded separately, as a `LargeRow`.

        Args:
            extract: The table or query.
            piece: The rows that belong to this call: one of a unit's selectors.
            batch_bytes: About the memory one batch may take.

        Raises:
            SourceError: The database failed; `TransientSourceError` where a retry may help.
            SnapshotGone: The state at the snapshot does not exist any more.
            OutputFailed: A value cannot be held exactly by the type it is read as.
            ReadAgain: The unit must be read once more, in another way.
        """

    def close(self) -> None:
        """Close the connection; never raises."""


class TextReader(Reader, Protocol):
    """A reader whose database can render delimited text itself."""

    def encoded(
        self, extract: Extract, piece: Piece, text: TextFormat
    ) -> Iterator[tuple[Text, ...]]:
        """Yield the rows of a piece as finished text in the dialect.

        Each item is some chunks in order, each chunk whole records.

        Only called where the projection's route is `encoded`. After the last piece
        `encoded_rows` holds the database's own count of the rows it sent.

        Raises:
            SourceError: The database failed; `TransientSourceError` where a retry may help.
        """

    @property
    def encoded_rows(self) -> int:
        """Rows of the last exhausted `encoded` call, as the database counted them."""


class Source(Protocol):
    """A kind of source: how a URL is opened, in the parent and in a worker.

    A class may inherit from this one and leave out the fields with defaults and the optional
    methods.
    """

    scheme: str
    summary: str
    """One line for `unloader sources`."""
    url: UrlForm
    """How its URLs are written."""
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
        """Return a sentence if the driver in this version was not found exact.

        Optional: None.
        """
        return None

    def declared(self, source_type: str) -> Declared:
        """Return the length of values that a column's type declares, for `--fixed`.

        Optional: nothing, so that the user has to give widths of texts.

        Args:
            source_type: The column's own type, or the type of its domain (`base_type` in the
                metadata of its Arrow field); in capitals and with single blanks.
        """
        return Declared()

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the source with which `open_catalog` reads at the snapshot of an earlier run.

        The catalog's `snapshot` then returns the same kind and value if that state still exists.
        If not, it raises `SnapshotGone` or returns another value. This method does not connect.
        Optional: None, as the source cannot go back to a snapshot.

        Args:
            spec: The source of the present command.
            kind: The kind of the run's `Snapshot`.
            value: The value of the run's `Snapshot`.
        """
        return None

    def load(self) -> None:
        """Import the driver and the other modules of a reader before its first use. Optional.

        Raises:
            ImportError: The driver is not installed.
        """
        return

    def open_catalog(self, spec: SourceSpec) -> Catalog:
        """Connect in the parent.

        Raises:
            ConfigError: The driver is missing or the URL is malformed.
            SourceError: The database refused.
        """

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Reader:
        """Connect in a worker and enter the snapshot.

        Raises:
            ConfigError: The driver is missing.
            SourceError: The database refused.
            SnapshotGone: The state at the snapshot does not exist any more.
        """


Read = TypeVar("Read")


def read_again(read: Callable[[], Read]) -> Read:
    """Return the result of `read`, which is called again after each `ReadAgain`.

    Raises:
        ReadAgain: The reader asked for more than `MOST_TIMES` further readings.
    """
    for _ in range(ReadAgain.MOST_TIMES):
        with suppress(ReadAgain):
            return read()
    return read()


def unit_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, *, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield the rows of a unit; arguments and errors as for `Reader.batches`."""
    if extract.limit_rows is not None:
        yield from _limited_batches(reader, extract, unit, batch_bytes)
        return
    for piece in unit.pieces:
        yield from reader.batches(extract, piece, batch_bytes=batch_bytes)


def _limited_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield rows up to the limit of all pieces; a reader knows only one piece."""
    from writers.large_rows import LargeRow

    left = extract.limit_rows or 0
    for piece in unit.pieces:
        if left <= 0:
            return
        asked = replace(extract, limit_rows=left)
        for batch in reader.batches(asked, piece, batch_bytes=batch_bytes):
            left -= 1 if isinstance(batch, LargeRow) else batch.num_rows
            yield batch
            del batch


def unit_text(
    reader: TextReader,
    extract: Extract,
    unit: WorkUnit,
    text: TextFormat,
    counted: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[Text, ...]]:
    """Yield the rows of a unit as text; errors as for `TextReader.encoded`.

    Args:
        reader: A worker's connection.
        extract: The table or query.
        unit: The unit to read.
        text: The dialect.
        counted: Called after each piece with the rows that the database counted.
    """
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


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes of Arrow memory one row takes."""
    return max(1, sum(_field_bytes(field.type) for field in schema))


def batch_rows(schema: pa.Schema, batch_bytes: int) -> int:
    """Return the rows of a batch of about `batch_bytes`, between MIN_ROWS and MAX_ROWS."""
    return min(MAX_ROWS, max(MIN_ROWS, batch_bytes // row_bytes(schema)))


def _field_bytes(kind: pa.DataType) -> int:
    try:
        width: int = kind.bit_width
    except ValueError:
        return TEXT_BYTES * max(1, int(kind.num_fields))
    return (width + 7) // 8 + 1
