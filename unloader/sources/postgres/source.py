"""PostgreSQL: partitions and heap ranges over COPY, all workers in one exported snapshot.

The parent holds a read-only transaction and exports its snapshot; each worker imports it. Reads go
through COPY in CSV form, the server's own exact text: handed on as it is where the asked-for
dialect is one that COPY writes (`encoded`), parsed into batches elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from partition_planner.model import ColumnInfo, NamedPartition, RowRange, TableInfo, WorkUnit
from unloader.errors import SourceError, UnloaderError
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
from unloader.names import resolve
from unloader.sources.base import Capabilities
from unloader.sources.postgres import dictionary
from unloader.sources.postgres.session import PARENT_GATHER, CopyDialect, Session, session_name
from unloader.sources.postgres.types import (
    arrow_column,
    arrow_schema,
    base_type,
    encodable,
    encoded_column,
    is_number,
)
from unloader.sources.statement import (
    check_condition,
    check_distinct,
    condition,
    derived_table,
    literal,
    qualified,
    quoted,
    select,
    select_list,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.model import TextFormat

ENCODED_PIECE_BYTES = 1024 * 1024
BATCH_RELATIONS = 100
"""Relations that one statement counts or locks."""


class PostgresSource:
    """PostgreSQL servers, by `postgresql://user@host:port/database`."""

    scheme = "postgresql"
    summary = "PostgreSQL: postgresql://user@host:5432/database"
    extra = "postgres"
    driver = "asyncpg"
    session_options: frozenset[str] = frozenset()
    value_options: frozenset[str] = frozenset()

    def load(self) -> None:
        """Import asyncpg."""
        import asyncpg  # noqa: F401

    def driver_warning(self, version: str) -> str | None:
        """Return None: no version is known to change values."""
        return None

    def open_catalog(self, spec: SourceSpec) -> PostgresCatalog:
        """Connect in the parent."""
        return PostgresCatalog(Session(spec, gather=PARENT_GATHER), spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> PostgresReader:
        """Connect in a worker and import the snapshot."""
        return PostgresReader(lambda: _in_snapshot(spec, snapshot))


def _in_snapshot(spec: SourceSpec, snapshot: Snapshot | None) -> Session:
    session = Session(spec)
    if snapshot is not None and snapshot.kind == "exported-snapshot":
        try:
            session.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                f"SET TRANSACTION SNAPSHOT {literal(snapshot.value)}"
            )
        except UnloaderError as error:
            session.close()
            raise SourceError(
                f"snapshot {snapshot.value} cannot be imported: {error.message}",
                "run again: the snapshot ended with the connection that held it",
            ) from error
    return session


class PostgresCatalog:
    """The parent's session; it holds the snapshot until it is closed."""

    capabilities = Capabilities(
        shared_snapshot=True,
        snapshot_outlives_run=False,
        encoded_text=True,
        queries=True,
        pads_char=True,
    )

    def __init__(self, session: Session, spec: SourceSpec) -> None:
        """Take over a connected session."""
        self._session = session
        self._name = session_name(spec)
        parts = urlsplit(spec.location)
        self._where = parts.path.lstrip("/") or "the database"
        self.server_version = f"PostgreSQL {session.value('SHOW server_version')}"

    def tables(self) -> tuple[TableSummary, ...]:
        """Return the relations the user may read, without the partitions of others."""
        found = [row for row in dictionary.relations(self._session) if not row["is_partition"]]
        sizes = dictionary.sizes(self._session, [row["oid"] for row in found])
        return tuple(
            TableSummary(
                schema=row["schema"],
                name=row["name"],
                kind=row["kind"],
                rows=sizes[row["oid"]]["rows"] if row["oid"] in sizes else None,
                bytes=sizes[row["oid"]]["bytes"] if row["oid"] in sizes else None,
                partitions=sizes[row["oid"]]["leaves"] if row["kind"] == "partitioned table" else 0,
            )
            for row in found
        )

    def describe(self, table: TableName) -> TableInfo:
        """Return columns, leaf partitions and heap blocks; any relation, partitions included."""
        oid, schema, name = self._resolve(table)
        columns = dictionary.columns(self._session, oid)
        leaves = dictionary.leaves(self._session, oid)
        known_rows = [leaf.rows for leaf in leaves if leaf.rows is not None]
        known_bytes = [leaf.bytes for leaf in leaves if leaf.bytes is not None]
        single = len(leaves) == 1 and leaves[0].relation == (schema, name)
        # Rights on some columns only do not reach to ctid, nor rights on a table to its partitions.
        readable = all(leaf.readable for leaf in leaves)
        row_ranges = readable and any(leaf.extents for leaf in leaves)
        return TableInfo(
            schema=schema,
            name=name,
            columns=columns,
            partitions=dictionary.partitions(leaves, name) if readable and not single else (),
            rows=sum(known_rows) if known_rows else None,
            bytes=sum(known_bytes) if known_bytes else None,
            extents=leaves[0].extents if readable and single else (),
            ranges_from="pg_relation_size" if row_ranges else None,
            named_partitions=True,
            row_ranges=row_ranges,
        )

    def describe_query(self, query: str) -> TableInfo:
        """Return the columns of the query, as the server names them."""
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self._session.column_names(query)
        found = self._session.column_names(f"SELECT * FROM {derived_table(query)}")
        check_distinct([name for name, _ in found])
        return TableInfo(
            schema=None,
            name="query",
            columns=tuple(self._query_column(name, oid) for name, oid in found),
            named_partitions=False,
            row_ranges=False,
        )

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        """Return a sentence a partition that the user may not read by itself."""
        if table.schema is None:
            return ()
        relation = qualified(table.schema, table.name)
        oid = self._session.value("SELECT $1::text::regclass::oid", relation)
        leaves = dictionary.leaves(self._session, oid)
        return tuple(
            f"SELECT on {qualified(*leaf.relation)} is missing: without it the table is one unit"
            for leaf in leaves
            if not leaf.readable
        )

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Open a read-only transaction and export its snapshot; held until `close`."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=now)
        self._session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        value = self._session.value("SELECT pg_export_snapshot()")
        return Snapshot(kind="exported-snapshot", value=value, taken_at=now)

    def check_snapshot(self) -> None:
        """Check that the connection which holds the snapshot is alive."""
        try:
            self._session.value("SELECT 1")
        except UnloaderError as error:
            raise SourceError(
                f"the connection that holds the snapshot is lost: {error.message}",
                "run again when the server is back: a snapshot cannot be taken up again",
            ) from error

    def project(self, table: TableInfo, query: str | None, target: Target) -> Projection:
        """Choose COPY's own text where it is the dialect asked for, typed batches elsewhere."""
        text = target.text
        if target.encoded_allowed and text is not None and encodable(text):
            columns = tuple(encoded_column(column, text, target) for column in table.columns)
            return Projection(columns=columns, route="encoded", schema=b"")
        columns = tuple(arrow_column(column, target) for column in table.columns)
        schema = arrow_schema(tuple(zip(table.columns, columns, strict=True)))
        return Projection(columns=columns, route="arrow", schema=schema.serialize().to_pybytes())

    def check_where(self, extract: Extract) -> None:
        """Let PostgreSQL plan the user's condition."""
        if extract.where is not None:
            relation = (
                derived_table(extract.query)
                if extract.query is not None
                else qualified(extract.table.schema, extract.table.name)
            )
            check_condition(
                lambda sql: self._session.rows(f"EXPLAIN {sql}"), relation, extract.where
            )

    def hold(self, extract: Extract, units: tuple[WorkUnit, ...]) -> None:
        """Lock the relations against all that a snapshot does not cover, as pg_dump does.

        After TRUNCATE, or an ALTER TABLE that writes the table anew, older snapshots see it empty,
        and so would a count. EXPLAIN takes the lock that a SELECT takes, with the same rights.
        """
        if extract.snapshot is None or extract.snapshot.kind == "none":
            return
        relations = _relations(extract, units)
        for batch in _batches([select("1", relation, ()) for relation in relations]):
            self._session.rows("EXPLAIN " + " UNION ALL ".join(batch))
        if extract.query is not None:
            return
        names = sorted({_name(extract, unit) for unit in units})
        changed = dictionary.changed_files(self._session, names)
        if changed is not None:
            raise SourceError(
                f"{changed} was truncated or written anew while the run began",
                "run again: the snapshot is from before that, and cannot see those rows any more",
            )

    def unit_sql(self, extract: Extract, unit: WorkUnit) -> str:
        """Return the SELECT that workers wrap into `COPY (...) TO STDOUT (FORMAT csv)`."""
        return unit_statement(select_list(extract.projection.columns), extract, unit)

    def count(self, extract: Extract, units: tuple[WorkUnit, ...]) -> int:
        """Return the rows of the units; pieces of one relation are counted as the whole of it."""
        conditions = [condition(extract.where)] if extract.where else []
        total = 0
        relations = _relations(extract, units)
        for batch in _batches([select("count(*) AS rows", each, conditions) for each in relations]):
            counts = " UNION ALL ".join(batch)
            total += int(self._session.value(f"SELECT sum(rows)::bigint FROM ({counts}) AS counts"))
        return total

    def end_sessions_sql(self) -> str:
        """Return the call that ends the backends of this run."""
        return (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = {literal(self._name)}"
        )

    def cancel(self) -> None:
        """Have the server cancel the query that is running."""
        self._session.cancel()

    def close(self) -> None:
        """End the transaction and with it the snapshot."""
        self._session.close()

    def _resolve(self, table: TableName) -> tuple[int, str, str]:
        rows = dictionary.relations(self._session)
        path = self._session.value("SELECT current_schemas(false)::text[]")
        listed = [
            TableSummary(
                schema=row["schema"],
                name=row["name"],
                kind=row["kind"],
                rows=None,
                bytes=None,
                partitions=0,
            )
            for row in rows
        ]
        found = resolve(table, listed, default_schemas=tuple(path or ()), where=self._where)
        row = rows[listed.index(found)]
        return row["oid"], row["schema"], row["name"]

    def _query_column(self, name: str, oid: int) -> ColumnInfo:
        # A query's description has no precision for numerics: they stay exact text.
        base = self._session.value(
            "SELECT format_type(coalesce(nullif(typbasetype, 0), oid), NULL) "
            "FROM pg_type WHERE oid = $1",
            oid,
        )
        native = self._session.value("SELECT format_type($1::oid, NULL)", oid)
        attributes = (("base_type", base),) if base != native else ()
        return ColumnInfo(name=name, native_type=native, nullable=None, attributes=attributes)


class PostgresReader:
    """A worker's session inside the run's snapshot."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        """Connect, and again after a COPY that was broken off, which costs its connection."""
        self._connect = connect
        self._session = connect()

    def batches(
        self, extract: Extract, unit: WorkUnit, *, fetch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the unit's rows, each batch parsed from about `fetch_bytes` of COPY text."""
        from unloader.sources.postgres.parse import CopyParser
        from writers.schema import read_schema

        parser = CopyParser(read_schema(extract.projection.schema))
        sql = unit_statement(select_list(extract.projection.columns), extract, unit)
        for piece in self._connected().copy(sql, CopyDialect(), fetch_bytes):
            yield parser.parse(b"".join(piece))

    def encoded(
        self, extract: Extract, unit: WorkUnit, text: TextFormat
    ) -> Iterator[tuple[bytes, ...]]:
        """Yield the unit's rows as COPY writes them in the dialect `text`."""
        forced: tuple[str, ...] | bool = text.enclose == "all"
        if text.enclose == "strings":
            forced = tuple(
                column.name
                for column in extract.table.columns
                if not is_number(column) and base_type(column) != "boolean"
            )
        dialect = CopyDialect(
            delimiter=text.delimiter, quote=text.enclosure, null=text.null, force_quote=forced
        )
        sql = unit_statement(select_list(extract.projection.columns), extract, unit)
        yield from self._connected().copy(sql, dialect, ENCODED_PIECE_BYTES)

    @property
    def encoded_rows(self) -> int:
        """Rows of the last `encoded`, from the server's `COPY n`."""
        return self._session.rows_copied

    def close(self) -> None:
        """Close the session."""
        with suppress(UnloaderError):
            self._session.close()

    def _connected(self) -> Session:
        if not self._session.alive:
            self._session.close()
            self._session = self._connect()
        return self._session


def unit_statement(columns: str, extract: Extract, unit: WorkUnit) -> str:
    """Return a SELECT of `columns` over the rows of one unit."""
    conditions: list[str] = []
    if isinstance(unit.selector, RowRange):
        if unit.selector.first is not None:
            conditions.append(f"ctid >= '({unit.selector.first},0)'::tid")
        if unit.selector.last is not None:
            conditions.append(f"ctid < '({unit.selector.last},0)'::tid")
    if extract.where:
        conditions.append(condition(extract.where))
    return select(columns, _relation(extract, unit), conditions)


def _relations(extract: Extract, units: tuple[WorkUnit, ...]) -> tuple[str, ...]:
    """Return what the units read from, each once: pieces of one relation share it."""
    return tuple(dict.fromkeys(_relation(extract, unit) for unit in units))


def _batches(statements: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(statements), BATCH_RELATIONS):
        yield statements[start : start + BATCH_RELATIONS]


def _relation(extract: Extract, unit: WorkUnit) -> str:
    """Return what the unit reads from; a partition answers to the name of its table."""
    if extract.query is not None:
        return derived_table(extract.query)
    name = _name(extract, unit)
    if isinstance(unit.selector, (NamedPartition, RowRange)) and unit.selector.relation:
        # ONLY, for the table itself may be among its partitions where children inherit from it.
        return f"ONLY {name} AS {quoted(extract.table.name)}"
    return f"ONLY {name}" if isinstance(unit.selector, RowRange) else name


def _name(extract: Extract, unit: WorkUnit) -> str:
    """Return the partition that the unit reads from, or the table."""
    if isinstance(unit.selector, (NamedPartition, RowRange)) and unit.selector.relation:
        return qualified(*unit.selector.relation)
    return qualified(extract.table.schema, extract.table.name)
