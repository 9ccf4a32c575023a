"""What a source is: two small protocols, one for the parent and one for the workers.

The parent's `Catalog` says what is there, takes the snapshot, decides how each column is read and
counts. A worker's `Reader` reads one work unit at a time. The two share nothing but plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from unloader.sources.readings import Declared

if TYPE_CHECKING:
    import pyarrow as pa

    from partition_planner.model import Piece, Selector, TableInfo
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
"""A chunk of ready text. A view that can be written to is of memory that serves again once nobody
has a view of it; one that cannot is a single large row, and let go of before the next is read."""


def is_large_row(chunk: Text) -> bool:
    """Return whether a chunk of ready text is one row that is large by itself."""
    return isinstance(chunk, memoryview) and chunk.readonly


class ReadAgain(Exception):
    """Raised by `Reader.batches` where the unit must be read anew, from its first row.

    The reader has learnt that the rows need another way of reading and remembers it. Nothing it
    yielded of the unit counts; the worker begins the unit's output anew and calls `batches` again.
    It happens `MOST_TIMES` a unit at most.
    """

    MOST_TIMES = 3


class Capabilities(Struct, frozen=True, kw_only=True):
    """Facts about a kind of source; nobody asks which database it is."""

    shared_snapshot: bool
    """Several connections can read one and the same state of the data."""
    snapshot_outlives_run: bool
    """A later process can read at the snapshot of an earlier run, as long as the data stay or the
    database keeps what it needs; not only while a process or a connection lives."""
    encoded_text: bool
    """The source can render delimited text itself in some dialects; the catalog is an
    `abilities.TextCatalog`, the reader a `TextReader`."""
    queries: bool
    """An arbitrary query can be unloaded; the catalog is an `abilities.QueryCatalog`."""
    conditions: bool
    """Rows can be chosen by a condition; the catalog is an `abilities.ConditionCatalog`."""
    folding: Folding
    """What the database makes of a plain name."""
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
    `sampling.SamplingCatalog`."""
    holds_many: bool = False
    """Many tables are held in few statements; the catalog is a `several.HoldingCatalog`."""
    counts_many: bool = False
    """Many tables are counted in few statements; the catalog is a `several.CountingCatalog`."""
    addresses_are_values: bool = False
    """The addresses of rows may be values of a column; the catalog is an
    `abilities.AddressedCatalog`."""


class Catalog(Protocol):
    """The parent's view of one database; opened once, closed at the end of the run.

    A class of yours may inherit from this one and leave out what is called optional here. What only
    some sources can do is in `abilities`.
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

        Names in the result are those of the database. Partitions are in table order.

        Args:
            table: As it was typed.
            observe: Called as each slow step begins: `columns`, `partitions`, `extents`.

        Raises:
            SourceError: No such table, an ambiguous name, or no right to read it.
        """

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return one sentence for each right that is missing and what it would bring.

        Optional: nothing is missing.
        """
        return ()

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Fix the state that all workers read, and hold it until `close`.

        Called before `describe`, so that the description is of that state, too. A catalog that was
        opened with what `Source.at_snapshot` returned enters that snapshot. If it returns another
        kind or value than that run had, the snapshot is gone.

        Raises:
            SourceError: The database cannot give one; the hint names the way out.
            SnapshotGone: The state that is to be entered does not exist any more.
        """

    def check_snapshot(self) -> None:
        """Return if the snapshot is still held. Optional: it is.

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
            query: The query behind a table made by `describe_query`, else None.
            values: Those count whose fields options of the source set.

        Raises:
            SourceError: A column cannot be read exactly; names it and `--exclude`.
        """

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        """Keep what the selectors read as it is at the snapshot until `close`; called before a run.

        For changes that a snapshot does not cover, such as PostgreSQL's TRUNCATE. Optional: there
        is nothing to do without a snapshot, or where nobody else can write.

        Raises:
            SnapshotGone: Something has changed since the snapshot, so that its rows are lost.
            SourceError: Something cannot be held.
        """
        return

    def unheld(self) -> tuple[str, ...]:
        """Return a sentence for each kind of thing that `hold` could not keep as it is.

        Optional: there is none.
        """
        return ()

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return what a worker reads for a selector, each selector's its own; shown to the user.

        That is the SELECT, word for word as a worker's, or in a source without SQL what it opens:
        a file's name, for instance.
        """

    def count(self, extract: Extract) -> int:
        """Return how many rows there must be: what was asked for, counted by the database.

        The count checks the plan, so it knows nothing of it: it is made of the table or the query,
        the condition and the patterns of `extract.partitions`, at the snapshot.

        Raises:
            SourceError: The database refused or the snapshot is gone.
        """

    def cancel(self) -> None:
        """Make the call that another thread waits for raise soon; harmless if there is none.

        The one method that may be called from any thread, more than once, and never raises. The
        call that waits raises any error at all: `cancelled_by` makes `Interrupted` of it. Optional
        where no call takes longer than a second.
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

        A row with a value too large to be held comes by itself, as a `LargeRow`.

        Args:
            extract: What is read.
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

    A class of yours may inherit from this one and leave out what has a value here, and what is
    called optional.
    """

    scheme: str
    summary: str
    """One line for `unloader sources`."""
    url: UrlForm
    """How its URLs are written."""
    extra: str = ""
    """The extra that brings the driver, empty for a core one."""
    driver: str = ""
    """The distribution whose version `unloader sources` shows, empty where there is none."""
    options: tuple[str, ...] = ()
    """The options that say something to it and not to every source; their fields in a request keep
    their defaults elsewhere."""
    one_machine: str = ""
    """Why only workers on the parent's machine can read it; empty where others can, too."""
    waits_for_network: bool = False
    """`open_catalog` may wait for a network, and cannot be cancelled. It is then called in a thread
    of its own, which a signal leaves behind; the catalog is used in another thread afterwards."""

    def driver_warning(self, version: str) -> str | None:
        """Return a sentence if the driver in this version is not one that was found exact.

        Optional: none is known.
        """
        return None

    def declared(self, source_type: str) -> Declared:
        """Return what a column's type says of the length of its values, for `--fixed`.

        Optional: nothing, so that the user has to give widths of texts.

        Args:
            source_type: The column's own type, or the one behind its domain (`base_type` in the
                metadata of its Arrow field); in capitals and with single blanks.
        """
        return Declared()

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        """Return the source as `open_catalog` takes it to read at the snapshot of an earlier run.

        The catalog's `snapshot` then returns the same kind and value, if that state still exists;
        it raises `SnapshotGone`, or returns another value, if it does not. Nothing is connected
        here. Optional: None, as the source cannot go back to a snapshot.

        Args:
            spec: The source as it is given now.
            kind: The kind that the run's `Snapshot` had.
            value: Its value.
        """
        return None

    def load(self) -> None:
        """Import the driver and whatever else a reader needs, ahead of its first use. Optional.

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
