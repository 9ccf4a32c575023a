"""The parent's side of a MySQL database: its tables, its snapshot, and their sizes.

The dictionary is not part of a snapshot. A table that was altered or truncated after the snapshot
cannot be read in it, and the server reports that. `hold` reads each table once in the parent's
transaction, which keeps other sessions from altering it until the run ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from partition_planner.model import (
    ColumnInfo,
    KeySample,
    PartitionInfo,
    RowExtent,
    Selector,
    TableInfo,
)
from unloader.errors import SessionsRefused, SnapshotGone, SourceError
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
from unloader.request.names import matching_partitions, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.sources import statement as common
from unloader.sources.base import Capabilities, Catalog, info_or_obstacle
from unloader.sources.mysql import statement as statements
from unloader.sources.mysql.errors import AGAIN, DENIED, code_of
from unloader.sources.mysql.keys import dividing_keys, ends
from unloader.sources.mysql.session import Session, address_of
from unloader.sources.mysql.snapshot import KIND, Lender, begin_together
from unloader.sources.questions import GONE
from unloader.sources.readings import ColumnReadings

Key = tuple[str, str]

_TABLES = (
    "SELECT table_schema, table_name, CASE WHEN table_type = 'VIEW' THEN 'view' "
    "WHEN create_options LIKE '%partitioned%' THEN 'partitioned table' ELSE 'table' END, {} "
    "FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') "
    "AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys'){} "
    "ORDER BY table_schema, table_name"
)
_FACTS = "engine, table_rows, data_length"
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, column_type, is_nullable = 'YES', "
    "concat(' CHARACTER SET ', character_set_name, ' COLLATE ', collation_name) "
    "FROM information_schema.columns WHERE true{} "
    "ORDER BY table_schema, table_name, ordinal_position"
)
_PRIMARY = (
    "SELECT table_schema, table_name, column_name FROM information_schema.statistics "
    "WHERE index_name = 'PRIMARY' AND seq_in_index = 1 AND sub_part IS NULL{}"
)
_PARTITIONS = (
    "SELECT table_schema, table_name, partition_name, subpartition_name, table_rows, data_length "
    # PARTITION (name) reads old rows, too, where a partition has the rows of a time.
    "FROM information_schema.partitions WHERE partition_method <> 'SYSTEM_TIME'{} ORDER BY "
    "table_schema, table_name, partition_ordinal_position, subpartition_ordinal_position"
)
_ENGINES = "SELECT engine FROM information_schema.engines WHERE transactions = 'YES'"

_SPARE_SESSIONS = 2
"""Sessions beyond one for each worker: an administrator may kill some."""
_LEAVES_TOGETHER = 100
"""Partitions whose ends one statement asks for."""
_SPARSE = 8
"""Numbers for each row from which on integer keys are divided at keys that exist."""
_ROWS_OF_A_KEY = 500
_SMALL_BYTES, _KEYS_OF_SMALL, _MOST_KEYS = 16 * 1024**2, 16, 256
"""Each dividing key takes three short statements."""


class MySQLCatalog(Catalog):
    """The parent's session, and the sessions that it lends to workers."""

    capabilities = Capabilities(
        shared_snapshot=True, snapshot_outlives_run=False, folding="any", samples=True
    )

    def __init__(self, spec: SourceSpec) -> None:
        self._spec, self._workers = spec, 1
        self._session = Session(spec)
        self._lender: Lender | None = None
        self._in_snapshot = False
        self._database = address_of(spec.location).database
        self._engines: dict[Key, str] = {}
        """Of the described tables whose engine has no transactions."""
        self._unheld: dict[Key, str] = {}
        self._partly_readable: list[str] = []
        kind = "MariaDB" if self._session.is_mariadb else "MySQL"
        self.server_version = f"{kind} {self._session.value('SELECT version()')}"

    def expect_workers(self, workers: int) -> None:
        self._workers = workers

    def tables(self) -> tuple[TableSummary, ...]:
        found = self._session.rows(_TABLES.format(_FACTS, ""))
        counted: dict[Key, int] = defaultdict(int)
        if any(kind == "partitioned table" for _, _, kind, *_ in found):
            for schema, name, *_ in self._session.rows(_PARTITIONS.format("")):
                counted[schema, name] += 1
        return tuple(
            TableSummary(
                schema=schema,
                name=name,
                kind=kind,
                rows=rows,
                bytes=size,
                partitions=counted[schema, name],
            )
            for schema, name, kind, _, rows, size in found
        )

    def list_tables(self) -> Listing:
        return Listing.of(
            [ListedTable.of(table) for table in self._names()],
            folding=self.capabilities.folding,
            default_schemas=self._default_schemas,
            where=self._where,
        )

    def _names(self) -> list[TableSummary]:
        """Return the tables without facts that the server would have to open each table for."""
        return [
            TableSummary(schema=schema, name=name, kind=kind, rows=None, bytes=None, partitions=0)
            for schema, name, kind, _ in self._session.rows(_TABLES.format("0", ""))
        ]

    @property
    def _default_schemas(self) -> tuple[str, ...]:
        return (self._database,) if self._database else ()

    @property
    def _where(self) -> str:
        return self._database or "the server"

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        found = resolve(
            table,
            self._names(),
            folding=self.capabilities.folding,
            default_schemas=self._default_schemas,
            where=self._where,
        )
        key = (found.schema or "", found.name)
        info = self._described([key], observe).get(key)
        if isinstance(info, TableInfo):
            return info
        raise info or SourceError(f"{found.schema}.{found.name} {GONE.what}", GONE.hint)

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        infos = self._described([table.key for table in tables], observe)
        return tuple(
            info_or_obstacle(infos[table.key]) if table.key in infos else GONE for table in tables
        )

    def _described(
        self, keys: Sequence[Key], observe: Observer
    ) -> dict[Key, TableInfo | SourceError]:
        schemas = ", ".join(dict.fromkeys(statements.text_literal(schema) for schema, _ in keys))
        where = f" AND table_schema IN ({schemas})"
        if len(keys) == 1:
            where += f" AND table_name = {statements.text_literal(keys[0][1])}"

        def ask(sql: str, *more: str) -> dict[Key, list[Any]]:
            found: dict[Key, list[Any]] = defaultdict(list)
            for schema, name, *facts in self._session.rows(sql.format(*more, where)):
                found[schema, name].append(facts)
            return found

        observe(PhaseStarted(phase="columns"))
        transactional = {engine for (engine,) in self._session.rows(_ENGINES)}
        tables, columns, primary = ask(_TABLES, _FACTS), ask(_COLUMNS), ask(_PRIMARY)
        observe(PhaseStarted(phase="partitions"))
        partitions = ask(_PARTITIONS)
        observe(PhaseStarted(phase="extents"))
        infos: dict[Key, TableInfo | SourceError] = {}
        for key in filter(tables.__contains__, keys):
            ((_, engine, rows, size),) = tables[key]
            if engine and engine not in transactional:
                self._engines[key] = engine
            info = TableInfo(
                schema=key[0],
                name=key[1],
                columns=tuple(
                    ColumnInfo(name=name, native_type=kind, nullable=bool(nullable))
                    for name, kind, nullable, _ in columns[key]
                ),
                partitions=tuple(map(_partition, range(len(partitions[key])), partitions[key])),
                rows=rows,
                bytes=size,
                named_partitions=True,
                row_ranges=False,
            )
            try:
                first = {name for (name,) in primary[key]}
                found = (
                    (column, column.native_type + (charset or ""))
                    for column, (*_, charset) in zip(info.columns, columns[key], strict=True)
                    if column.name in first
                )
                infos[key] = self._with_ranges(info, *next(found, (None, "")))
            except SourceError as error:
                if error.retryable or isinstance(error, SnapshotGone):
                    raise
                infos[key] = error
        return infos

    def _with_ranges(self, info: TableInfo, key: ColumnInfo | None, key_type: str) -> TableInfo:
        """Return a table with the ranges of the first column of its primary key."""
        integers = statements.integer_type(key_type) is not None
        if key is None or not (
            integers
            or (not info.partitions and statements.name_of(key_type) in statements.KEY_TYPES)
        ):
            return info
        facts = ((statements.KEY, key.name), (statements.KEY_TYPE, key_type))
        info = replace(
            info,
            columns=tuple(replace(column, attributes=facts) for column in info.columns),
            row_ranges=True,
            ranges_from="primary key",
        )
        relation = common.qualified(info.schema, info.name)
        if info.partitions:
            found: list[RowExtent] = []
            leaves = [statements.leaf_name(part.name, part.kind) for part in info.partitions]
            for start in range(0, len(leaves), _LEAVES_TOGETHER):
                some = leaves[start : start + _LEAVES_TOGETHER]
                found += self._extents(
                    key, [relation + statements.partition_clause([leaf]) for leaf in some]
                )
            parts = zip(info.partitions, found, strict=True)
            return replace(
                info, partitions=tuple(replace(part, extents=(extent,)) for part, extent in parts)
            )
        if integers:
            (extent,) = self._extents(key, [relation])
            if extent.addresses <= _SPARSE * max(info.rows or 0, _ROWS_OF_A_KEY):
                return replace(info, extents=(extent,))
        most = min((info.rows or 0) // _ROWS_OF_A_KEY, _MOST_KEYS)
        if (info.bytes or 0) < _SMALL_BYTES:
            most = min(most, _KEYS_OF_SMALL)
        keys = dividing_keys(self._session, relation, key.name, key_type, most)
        sample = KeySample(column=key.name, keys=keys) if keys else None
        return replace(info, keys=sample)

    def _extents(self, key: ColumnInfo, relations: list[str]) -> list[RowExtent]:
        asked = (ends(key.name, key.native_type, relation) for relation in relations)
        found = self._session.rows(" UNION ALL ".join(f"({each})" for each in asked))
        # A plan holds numbers of 64 bits; the outermost ranges are open.
        return [
            RowExtent(first=int(first), last=min(int(last) + 1, 2**64 - 1))
            if first is not None
            else RowExtent(first=0, last=0)
            for first, last in found
        ]

    def describe_query(self, query: str) -> TableInfo:
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self._session.rows(f"EXPLAIN {query.strip().rstrip(';')}\n")
        fields = self._session.fields(f"SELECT * FROM {common.derived_table(query)} LIMIT 0")
        common.check_distinct([field.name for field in fields])
        return common.query_table(
            [
                ColumnInfo(name=each.name, native_type=statements.type_of_field(each))
                for each in fields
            ]
        )

    def snapshot(self, consistency: Consistency) -> Snapshot:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=now)
        sessions: list[Session] = []
        try:
            with suppress(SessionsRefused):
                for _ in range(self._workers + _SPARE_SESSIONS):
                    sessions.append(Session(self._spec))
            if not sessions:
                sessions.append(Session(self._spec))
            # A sample outside a run may be of another moment.
            begin_together(self._session, sessions, lock=self._workers > 0)
        except BaseException:
            for session in sessions:
                session.end()
            raise
        self._in_snapshot = True
        self._lender = Lender(sessions)
        return Snapshot(kind=KIND, value=self._lender.value, taken_at=now)

    def check_snapshot(self) -> None:
        try:
            self.ping()
        except SourceError as error:
            raise SnapshotGone(
                f"the connection that holds the snapshot is lost: {error.message}", AGAIN
            ) from error
        if self._lender is not None and not self._lender.alive:
            raise SnapshotGone("all connections that hold the snapshot are lost", AGAIN)

    def ping(self) -> bool:
        self._session.value("SELECT 1")
        return True

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        return tuple(map(statements.readings_of, table.columns))

    def check_where(self, extract: Extract) -> None:
        if extract.where is not None:
            common.check_condition(
                lambda sql: self._session.rows(f"EXPLAIN {sql}"),
                common.relation_of(extract),
                extract.where,
            )

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        key = (extract.table.schema or "", extract.table.name)
        relation = common.relation_of(extract)
        if extract.query is None:
            try:
                self._session.rows(f"SELECT * FROM {relation} LIMIT 0")
            except SourceError as error:
                # The dictionary shows only the columns that the user may read.
                if code_of(error.__cause__) not in DENIED:
                    raise
                self._partly_readable.append(extract.table.label)
        if not self._in_snapshot:
            return
        self._session.rows(f"SELECT 1 FROM {relation} LIMIT 1")
        if extract.query is None and key in self._engines:
            self._unheld[key] = self._engines[key]

    def unheld(self) -> tuple[str, ...]:
        return tuple(
            f"the rows of {schema}.{name} are not of the snapshot: its engine {engine} has no "
            "transactions, so the run may read a part of a change"
            for (schema, name), engine in self._unheld.items()
        ) + tuple(map(common.PARTLY_READABLE.format, self._partly_readable))

    def statement(self, extract: Extract, selector: Selector) -> str:
        columns = common.select_list(extract.projection.columns)
        return statements.selector_statement(columns, extract, selector)

    def count(self, extract: Extract) -> int:
        relation = common.relation_of(extract)
        if extract.partitions:
            key = (extract.table.schema or "", extract.table.name)
            where = " AND table_schema = {} AND table_name = {}".format(
                *map(statements.text_literal, key)
            )
            found = self._session.rows(_PARTITIONS.format(where))
            parts = [_partition(at, facts) for at, (_, _, *facts) in enumerate(found)]
            asked = matching_partitions((part.name for part in parts), extract.partitions)
            chosen = (part for part in parts if part.name in asked)
            leaves = [statements.leaf_name(part.name, part.kind) for part in chosen]
            relation += statements.partition_clause(leaves)
        rows = common.row_conditions(extract)
        return int(self._session.value(common.select_count(relation, rows, extract.limit_rows)))

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return statements.sampled_keys(column, share)

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        counts = (statements.selector_statement("count(*)", extract, each) for each in selectors)
        return sum(int(self._session.value(sql)) for sql in counts)

    def end_sessions_sql(self) -> str:
        run_id = self._spec.session.run_id
        if not run_id:
            return ""
        return (
            "SELECT concat('KILL ', id, ';') FROM information_schema.processlist "
            f"WHERE info LIKE '/* unloader:{run_id} */%'"
        )

    def cancel(self) -> None:
        self._session.kill_query()

    def close(self) -> None:
        if self._lender is not None:
            with suppress(Exception):
                self._lender.close()
        self._session.end()


def _partition(position: int, facts: Sequence[Any]) -> PartitionInfo:
    name, child, rows, size = facts
    return PartitionInfo(
        name=name if child is None else f"{name}/{child.replace('%', '%25').replace('/', '%2F')}",
        kind="partition" if child is None else "subpartition",
        position=position,
        rows=rows,
        bytes=size,
    )
