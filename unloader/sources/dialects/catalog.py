"""A database with a driver of any vendor: the parent's catalog and the workers' reader.

The two differ between drivers only in how they open a `Session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from partition_planner.model import ColumnInfo, Piece, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError, UnloaderError, UsageError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    ReadColumn,
    SampledKeys,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.request.names import one_column, resolve
from unloader.selection.listing import ListedTable, Listing
from unloader.sources.base import Capabilities, Catalog, Held, Reader
from unloader.sources.dialects import dividing, texts
from unloader.sources.dialects.databases import (
    EXACT,
    LENGTHS,
    LONG,
    STATEMENT,
    Dialect,
    Session,
    SQLite,
    TooLong,
)
from unloader.sources.moments import conformed
from unloader.sources.postgres.statement import EXPORTED
from unloader.sources.readings import ColumnReadings
from unloader.sources.statement import (
    PARTLY_READABLE,
    check_condition,
    limit_clause,
    query_table,
    row_conditions,
    select,
    select_count,
)
from writers.schema import pc, read_schema

if TYPE_CHECKING:
    import pyarrow as pa

Connect = Callable[[], tuple[Session, Dialect]]


def opened(connect: Connect, snapshot: Snapshot | None = None) -> tuple[Session, Dialect]:
    """Open a session with the settings of its dialect, at a snapshot if that can be entered."""
    session, dialect = connect()
    try:
        for sql in (*dialect.opening, *dialect.entering(snapshot)):
            session.execute(sql)
    except BaseException as error:
        session.close()
        if isinstance(error, SourceError) and snapshot and snapshot.kind == EXPORTED:
            raise SnapshotGone(
                f"the snapshot cannot be entered: {error.message}", "run again"
            ) from error
        raise
    return session, dialect


def selector_statement(
    dialect: Dialect,
    extract: Extract,
    selector: Selector,
    *,
    ascii_only: bool,
    most: Callable[[str], int] = lambda _: LENGTHS[0],
) -> str:
    """Return the query of a selector; `most` returns the bytes that values of a column have."""
    columns = extract.projection.columns
    # No alias: a driver may cut, fold or refuse a name, and columns are taken in their order.
    items = ", ".join(
        dialect.item(each, ascii_only=ascii_only, most=most(each.name)) for each in columns
    )
    conditions = [*dividing.conditions(dialect.quoted, selector), *row_conditions(extract)]
    found = select(items, dialect.relation(extract), conditions)
    if first := ", ".join(filter(None, (dialect.frame(each, most(each.name)) for each in columns))):
        return f"SELECT {first} FROM temp.unloader_frame UNION ALL {found}"
    return found + limit_clause(extract.limit_rows)


class DialectCatalog(Catalog):
    """The parent's session, and the one that holds an exported snapshot."""

    def __init__(self, spec: SourceSpec, connect: Connect) -> None:
        self._spec, self._connect = spec, connect
        self._session, self.dialect = opened(connect)
        self._snapshot: Snapshot | None = None
        self._keeper: Session | None = None
        self._partly_readable: list[str] = []
        self.capabilities = Capabilities(
            shared_snapshot=bool(self.dialect.exports),
            snapshot_outlives_run=False,
            folding=self.dialect.folding,
            samples=self.dialect.samples,
        )
        self._where = "the database"
        try:
            self.server_version = self._session.vendor
            if self.dialect.version:
                ((self.server_version,),) = self._session.rows(self.dialect.version)
        except SourceError:
            self.close()
            raise

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._try(lambda session: session.rows(sql))
        return found

    def _try(self, call: Callable[[Session], Any]) -> Any:
        """Call with the session; open it again where an error has ended its transaction."""
        try:
            return call(self._session)
        except SourceError:
            if self._snapshot is not None and self._snapshot.kind == EXPORTED:
                self._session.close()
                self._session, _ = opened(self._connect, self._snapshot)
            raise

    def tables(self) -> tuple[TableSummary, ...]:
        found: tuple[TableSummary, ...] = self._try(self.dialect.tables)
        return tuple(sorted(found, key=lambda each: (each.schema or "", each.name)))

    def list_tables(self) -> Listing:
        return Listing.of(
            [ListedTable.of(table) for table in self.tables()],
            folding=self.capabilities.folding,
            default_schemas=self.dialect.default_schemas(self._session),
            where=self._where,
        )

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        observe(PhaseStarted(phase="columns"))
        found = resolve(
            table,
            self.tables(),
            folding=self.capabilities.folding,
            default_schemas=self.dialect.default_schemas(self._session),
            where=self._where,
        )
        columns = self._try(lambda session: self.dialect.columns(session, found.schema, found.name))
        info = TableInfo(
            schema=found.schema,
            name=found.name,
            columns=columns,
            named_partitions=False,
            row_ranges=False,
        )
        wanted = self._spec.session.split_by
        return info if wanted is None else self._divided(info, wanted, observe)

    def _divided(self, info: TableInfo, wanted: str, observe: Observer) -> TableInfo:
        names = [column.name for column in info.columns]
        try:
            name = one_column(names, wanted, self.capabilities.folding)
        except UsageError as error:
            raise SourceError(f"--split-by: {info.label}: {error.message}", error.hint) from error
        column = info.columns[names.index(name)]
        kind = self.dialect.key_kind(column)
        if kind is None:
            raise SourceError(
                f"{info.label} cannot be divided by its column {name} of the type "
                f"{column.native_type}",
                "name a column of numbers, dates or texts with --split-by, or leave it out",
            )
        observe(PhaseStarted(phase="extents"))
        key = self.dialect.key(column)
        return dividing.with_ranges(
            info,
            name,
            kind,
            self._ask,
            key=key,
            relation=self.dialect.qualified(info.schema, info.name),
            text=self.dialect.key_text,
            only=self.dialect.key_condition(key, kind),
            ascii_only=self._session.ascii_only,
        )

    def describe_query(self, query: str) -> TableInfo:
        if self._spec.session.split_by is not None:
            raise UsageError(
                "--split-by does not apply to --query, which one worker reads",
                "leave it out, or make a view of the query and read it with --table",
            )
        columns: Sequence[ColumnInfo] = self._try(
            lambda session: self.dialect.query_columns(session, query)
        )
        return query_table(columns)

    def snapshot(self, consistency: Consistency) -> Snapshot:
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=taken_at)
        if not self.dialect.exports:
            self._snapshot = Snapshot(kind=STATEMENT, value=taken_at, taken_at=taken_at)
            return self._snapshot
        self._keeper, _ = opened(self._connect)
        self._keeper.execute(self.dialect.begin)
        ((value,),) = self._keeper.rows(self.dialect.exports)
        self._snapshot = Snapshot(kind=EXPORTED, value=value, taken_at=taken_at)
        self._session.close()
        self._session, _ = opened(self._connect, self._snapshot)
        return self._snapshot

    def check_snapshot(self) -> None:
        if self._keeper is not None:
            try:
                self._keeper.rows("SELECT 1")
            except SourceError as error:
                raise SnapshotGone(
                    f"the session that held the snapshot has ended: {error.message}", "run again"
                ) from error

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        pieces = sum(len(selectors) for _, selectors in tables)
        if self._snapshot is not None and self._snapshot.kind == STATEMENT and pieces > 1:
            raise SourceError(
                f"this database gives one moment to one statement only, and {pieces} would read",
                "read one table in one piece (--split none), or accept rows of different moments "
                "with --consistency none",
            )
        return super().hold_tables(tables)

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        if self._keeper is not None:
            try:
                self.dialect.hold(self._keeper, extract)
            except SnapshotGone:
                raise
            except SourceError as error:
                self.check_snapshot()
                raise error
        if extract.query is None and self._try(
            lambda session: self.dialect.hides_columns(session, extract)
        ):
            self._partly_readable.append(extract.table.label)

    def unheld(self) -> tuple[str, ...]:
        if self.dialect.texts:
            return tuple(map(PARTLY_READABLE.format, self._partly_readable))
        return (
            f"{self.server_version} was not tried with this driver: values are as the driver "
            "returns them, and columns are marked as not proved",
        )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        relation = table.name if query is None else "query"
        return tuple(self.dialect.readings(column, relation) for column in table.columns)

    def check_where(self, extract: Extract) -> None:
        if extract.where is not None:
            check_condition(
                lambda sql: self._try(lambda session: self.dialect.explain(session, sql)),
                self.dialect.relation(extract),
                extract.where,
            )

    def statement(self, extract: Extract, selector: Selector) -> str:
        return selector_statement(
            self.dialect, extract, selector, ascii_only=self._session.ascii_only
        )

    def count(self, extract: Extract) -> int:
        sql = select_count(
            self.dialect.relation(extract), row_conditions(extract), extract.limit_rows
        )
        return int(self._ask(sql)[0][0])

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return self.dialect.sampled_keys(column, share)

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        relation, rows = self.dialect.relation(extract), row_conditions(extract)
        counts = (
            select("count(*)", relation, [*dividing.conditions(self.dialect.quoted, each), *rows])
            for each in selectors
        )
        return sum(int(self._ask(sql)[0][0]) for sql in counts)

    def ping(self) -> bool:
        self._ask("SELECT 1")
        return True

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        for session in (self._session, self._keeper):
            if session is not None:
                session.close()


class DialectReader(Reader):
    def __init__(self, connect: Connect, snapshot: Snapshot | None) -> None:
        self._open = partial(opened, connect, snapshot)
        self._session, self._dialect = self._open()
        self._is_clean = True

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        if not self._is_clean:
            # An error, or a result that was not read to its end, may be in the way.
            self._session.close()
            self._session, self._dialect = self._open()
        self._is_clean = False
        dialect, ascii_only = self._dialect, self._session.ascii_only
        sql = selector_statement(
            dialect, extract, piece.selector, ascii_only=ascii_only, most=self._most
        )
        schema, columns = read_schema(extract.projection.schema), extract.projection.columns
        converters = [partial(self._convert, each) for each in columns]
        skipped = any(dialect.frame(each, LENGTHS[0]) for each in columns)
        for batch in self._session.batches(sql, batch_bytes):
            rows, skipped = batch.slice(1) if skipped else batch, False
            if rows.num_rows:
                yield conformed(rows.columns, schema, converters)
            del batch, rows
        dialect.check_ended(self._session)
        self._is_clean = True

    def _most(self, column: str) -> int:
        """Return the bytes for which the buffer of a column is made."""
        return LENGTHS[0]

    def _convert(self, column: ReadColumn, array: pa.Array, kind: pa.DataType) -> pa.Array:
        may_be_long = self._session.ascii_only and column.output_type in ("string", "binary")
        if may_be_long and self._dialect.marks_long and pc.any(pc.equal(array, LONG)).as_py():
            raise TooLong(f"column {column.name} holds a long value")
        if isinstance(self._dialect, SQLite):
            exact = column.expression.startswith(EXACT)
            return texts.of_storage_class(array, kind, exact=exact)
        if self._dialect.texts:
            return texts.of_text(array, kind, ascii_only=self._session.ascii_only)
        return texts.of_driver(array, kind)

    def close(self) -> None:
        with suppress(UnloaderError):
            self._session.close()
