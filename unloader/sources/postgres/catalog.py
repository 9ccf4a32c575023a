"""The parent's side of a PostgreSQL database: its tables, its snapshot, and their sizes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from partition_planner.model import ColumnInfo, RowRange, Selector, TableInfo, WholeTable
from unloader.errors import ConfigError, SnapshotGone, SourceError, UsageError
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
from unloader.request.names import matching_partitions, no_such_table, resolve
from unloader.selection.listing import ListedTable, Listing, Obstacle, UnreadableColumn, family_of
from unloader.sources import statement as common
from unloader.sources.base import Capabilities, Catalog, Held, LoadReader, result_or_error
from unloader.sources.postgres import relations
from unloader.sources.postgres import statement as statements
from unloader.sources.postgres.errors import AGAIN, LOCK_NOT_AVAILABLE, state_of
from unloader.sources.postgres.keeping import Kept, kept_by_another, start_keeper
from unloader.sources.postgres.relations import ROWS, SHORT_SECONDS, batches, described, summed
from unloader.sources.postgres.session import (
    PARENT_GATHER,
    Session,
    enter,
    export,
    session_in,
    session_name,
)
from unloader.sources.questions import GONE
from unloader.sources.readings import ColumnReadings
from writers.model import TextFormat

LOAD_PROGRAM = "unloader-load"

_MAY_SEE = (
    "SELECT current_user, current_setting('is_superuser') = 'on' "
    "OR pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
)

_ACTIVE = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
    "AND backend_type IN ('client backend', 'parallel worker') AND pid <> pg_backend_pid() "
    "AND application_name NOT IN ({ours})"
)
"""Active sessions of the whole server, in all databases. The query runs outside a transaction:
within one the view would keep the state of its first query."""


_MEANT = "SELECT pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
"""Names that need no quotes, so that the server reads them in lower case."""


class PostgresCatalog(Catalog):
    """The parent's session; it holds the snapshot until it is closed."""

    capabilities = Capabilities(
        shared_snapshot=True,
        snapshot_outlives_run=False,
        folding="lower",
        hashes=True,
        samples=True,
    )

    def __init__(self, spec: SourceSpec, session: Session | None = None) -> None:
        """Connect, except with an open session; the catalog closes either."""
        self._session = session or Session(spec, gather=PARENT_GATHER)
        self._spec = spec
        self._kept: Kept | None = None
        self._cancelled = self._in_snapshot = False
        self._policies_apply = spec.session.enable_row_security
        self._where = urlsplit(spec.location).path.lstrip("/") or "the database"
        self.server_version = f"PostgreSQL {self._session.value('SHOW server_version')}"

    def tables(self) -> tuple[TableSummary, ...]:
        found = relations.readable(self._session)
        oids = [row.oid for row in found]
        sizes = {row.root: row for row in relations.sized(self._session, relations.SIZES, oids)}
        return tuple(_summary(row, sizes.get(row.oid)) for row in found)

    def describe(self, table: TableName, observe: Observer = silent) -> TableInfo:
        """Return columns, leaf partitions and heap blocks; any relation, partitions included.

        Another spelling of the name in the search path counts only if the server finds nothing.
        """
        text = ".".join(
            part.text
            if not part.quoted and _PLAIN.fullmatch(part.text)
            else common.quoted(part.text)
            for part in (table.schema, table.name)
            if part is not None
        )
        with self._apart():
            with self._session.users_path():
                oid = self._session.value(_MEANT, text)
            rows = relations.readable(self._session, oid)
            if oid is None:
                listed = [_summary(row) for row in rows]
                found = resolve(
                    table,
                    listed,
                    folding=self.capabilities.folding,
                    default_schemas=relations.users_schemas(self._session, implicit=False),
                    where=self._where,
                )
                rows = [rows[listed.index(found)]]
            elif not rows:
                raise no_such_table(table, (), self.capabilities.folding, self._where)
            oid, key = int(rows[0].oid), (rows[0].schema, rows[0].name)
            observe(PhaseStarted(phase="columns"))
            return described(self._session, {oid: key}, observe)[oid]

    def list_tables(self) -> Listing:
        """Return all tables as of the snapshot, also the database's own; rights are as of now."""
        self._session.value(relations.SEE_CHANGES)
        found = []
        for row in self._session.rows(relations.TABLES, None):
            name = common.qualified(row.schema, row.name)
            grant = f"GRANT SELECT ON TABLE {name} TO {common.quoted(row.reader)}"
            what = f"may not be read by user {row.reader}"
            hidden = row.hidden_columns if row.read_some and not row.gone else None
            table = ListedTable(
                schema=row.schema,
                name=row.name,
                kind=row.kind,
                family=family_of(row.kind),
                system=row.system,
                part_of=tuple(row.parent) if row.parent else None,
                obstacles=tuple(relations.obstacles(row, self._policies_apply)),
                unreadable=tuple(
                    UnreadableColumn(name=each, what=what, mend=(grant,)) for each in hidden or ()
                ),
            )
            found.append(table)
        return Listing.of(
            found,
            folding=self.capabilities.folding,
            default_schemas=relations.users_schemas(self._session, implicit=True),
            where=self._where,
        )

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = silent
    ) -> tuple[TableInfo | Obstacle, ...]:
        session = self._session
        with self._apart():
            observe(PhaseStarted(phase="columns"))
            oids = relations.oids_of(session, [table.key for table in tables])
            infos = described(session, {oid: tables[at].key for at, oid in oids.items()}, observe)
            # Last, so that tables dropped during the other queries are known, too.
            session.value(relations.SEE_CHANGES)
            against: dict[int, Obstacle] = {}
            for row in session.rows(relations.TABLES, list(infos)):
                for obstacle in relations.obstacles(row, self._policies_apply):
                    against.setdefault(int(row.oid), obstacle)
        return tuple(
            against.get(oids[at], infos[oids[at]]) if at in oids else GONE
            for at in range(len(tables))
        )

    def describe_query(self, query: str) -> TableInfo:
        with self._apart():
            with self._session.users_path():
                # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
                self._session.column_names(query)
                found = self._session.column_names(f"SELECT * FROM {common.derived_table(query)}")
            oids = [oid for _, oid in found]
            types = {row.oid: row.name for row in self._session.rows(relations.TYPES, oids)}
        common.check_distinct([name for name, _ in found])
        # A description has no precision for numerics: they stay exact text.
        return common.query_table(
            [ColumnInfo(name=name, native_type=types[oid], nullable=None) for name, oid in found]
        )

    def missing_privileges(self, table: TableInfo) -> tuple[str, ...]:
        if table.schema is None:
            return ()
        relation = common.qualified(table.schema, table.name)
        with self._apart():
            oid = self._session.value("SELECT $1::text::regclass::oid", relation)
            leaves = relations.leaves_of(self._session, [oid]).get(oid, ())
            found = relations.policies(self._session, [(table.schema, table.name)])
        missing = [
            f"SELECT on {common.qualified(leaf.schema, leaf.relation)} is missing: "
            "without it the table is one unit"
            for leaf in leaves
            if not leaf.granted
        ]
        return (*missing, f"BYPASSRLS is missing: {found}") if found else tuple(missing)

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Begin a transaction at a snapshot: an exported one, a keeper's, or an earlier run's."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        seconds = self._spec.session.keep_snapshot_seconds
        if consistency == "none":
            if seconds:
                raise UsageError(
                    "--keep-snapshot does not work with --consistency none", "leave one of them out"
                )
            return Snapshot(kind="none", value="", taken_at=now)
        earlier = self._spec.session.snapshot
        if earlier is not None or seconds:
            if earlier is None:
                self._kept = start_keeper(self._spec, lambda: self._cancelled)
            else:
                self._kept = kept_by_another(earlier)
            value = self._kept.value if self._kept else earlier or ""
            enter(self._session, value)
        else:
            value = export(self._session)
        self._in_snapshot = True
        return Snapshot(kind=statements.EXPORTED, value=value, taken_at=now)

    def check_snapshot(self) -> None:
        self.ping()
        if self._kept is not None:
            self._kept.check()

    def ping(self) -> bool:
        with self._holding():
            self._session.value("SELECT 1")
        return True

    def keep_until_gone(self, marks: Sequence[str]) -> str:
        if self._kept is None or not marks:
            return ""
        self._kept.ask("keep_until_gone", tuple(marks))
        return self.kept_until()

    def kept_until(self) -> str:
        if self._kept is not None:
            with suppress(SourceError):
                self._kept.check()
                return self._kept.kept_until
        return ""

    def end_keeping(self) -> None:
        if self._kept is not None:
            self._kept.end()

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        return tuple(statements.readings_of(column) for column in table.columns)

    def encodes(self, text: TextFormat) -> bool:
        formats = (text.date_format, text.timestamp_format, text.timestamp_tz_format)
        return (
            text.encoding.lower() in ("utf-8", "utf8")
            and text.escape == "double"
            and text.enclose != "none"
            and len(text.enclosure.encode()) == len(text.delimiter.encode()) == 1
            and text.eol == "\n"
            and not text.trailing_delimiter
            and text.record_length_digits == 0
            and formats == (None, None, None)
            and text.decimal_separator == "."
            and not set(text.null) & {"\r", "\n", text.delimiter, text.enclosure}
        )

    def check_where(self, extract: Extract) -> None:
        if extract.where is not None:

            def plan(sql: str) -> None:
                self._session.column_names(sql)  # It refuses parameters.
                self._session.rows(f"EXPLAIN {sql}")

            with self._apart(), self._session.users_path():
                common.check_condition(
                    plan, statements.relation_of(extract, WholeTable()), extract.where
                )

    def hold(self, extract: Extract, selectors: tuple[Selector, ...]) -> None:
        # An error releases the locks of this table, so later checks see other tables' locks only.
        with self._apart():
            self._lock([(extract, selectors)])
        if self._kept is not None:
            self._kept.ask("hold", extract, selectors)

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        """Lock many tables as `hold` locks one.

        A run that waits for a lock blocks changes of the tables that it has locked, and these
        changes block readers. So the wait is short at first. Tables that are locked by others are
        waited for at the end, all of them together no longer than one would be.
        """
        if not self._in_snapshot or len(tables) < 2:
            return super().hold_tables(tables)
        patience = self._spec.session.lock_timeout_seconds
        short = min(SHORT_SECONDS, patience or SHORT_SECONDS)
        found: list[SourceError | None] = [None] * len(tables)
        with self._holding():
            if self._kept is None:  # A keeper locks tables one by one.
                with suppress(SourceError), self._session.waiting(short), self._session.apart():
                    self._lock(tables)
                    return tuple(found)
            for at, each in enumerate(tables):
                with self._session.waiting(short):
                    found[at] = self._error_of(each)
            end = time.monotonic() + patience
            for at, error in enumerate(found):
                if error is None or state_of(error.__cause__) != LOCK_NOT_AVAILABLE:
                    continue
                wait = self._session.waiting(max(end - time.monotonic(), SHORT_SECONDS))
                with wait if patience else nullcontext():
                    found[at] = self._error_of(tables[at])
        return tuple(found)

    def _error_of(self, table: Held) -> SourceError | None:
        try:
            self.hold(*table)
        except SourceError as error:
            if not self._session.alive:
                raise
            return error
        return None

    def _lock(self, tables: Sequence[Held]) -> None:
        """Lock relations against the changes that a snapshot does not cover, as pg_dump does.

        After TRUNCATE, or an ALTER TABLE that rewrites the table, older snapshots see it empty, and
        a count would find no rows. LOCK TABLE locks many partitions, ten times as fast. EXPLAIN
        locks the rest: it takes the lock that a SELECT takes, with the same rights.
        """
        infos = [extract.table for extract, _ in tables if extract.query is None]
        own = [(info.schema or "", info.name) for info in infos]
        hiding = None if self._policies_apply else relations.policies(self._session, own)
        if hiding:
            raise SourceError(
                hiding,
                "unload the rows that the policies let through with --enable-row-security, "
                "or let a superuser grant all rows: ALTER ROLE user BYPASSRLS",
            )
        if not self._in_snapshot:
            return
        read = [(extract, each) for extract, selectors in tables for each in selectors]
        named = [each for each in read if each[0].query is None]
        names = sorted({statements.relation_name(*each) for each in named})
        whole = {
            statements.relation_name(*each)
            for each in named
            if not (isinstance(each[1], RowRange) or statements.is_alone(each[1]))
        }
        locked = []
        if names:
            lockable = self._session.rows(relations.LOCKABLE, names, list(whole))
            locked = [row.name for row in lockable]
        for batch in batches(locked):
            several = ", ".join(f"ONLY {name}" for name in batch)
            self._session.execute(f"LOCK TABLE {several} IN ACCESS SHARE MODE")
        # Columns are named: the planner leaves out relations that only unselected columns read.
        others, known = dict[str, None](), set(locked)
        with self._session.users_path():
            for extract, selector in read:
                columns = common.select_list(extract.projection.columns)
                relation = statements.relation_of(extract, selector)
                sql = f"EXPLAIN {common.select(columns, relation, ())}"
                if extract.query is not None:
                    self._session.rows(sql)  # It takes one statement only, whatever the text is.
                elif statements.relation_name(extract, selector) not in known:
                    others[sql] = None
            for batch in batches(list(others)):
                self._session.execute("; ".join(batch))
        texts = any(each.query is not None or each.where is not None for each, _ in tables)
        relations.check_unchanged(self._session, names, by_name=texts)

    def unheld(self) -> tuple[str, ...]:
        with self._holding():
            found = self._session.rows(relations.FOREIGN) if self._in_snapshot else []
        if not found:
            return ()
        names = ", ".join(str(row[0]) for row in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        return (
            f"rows come from foreign tables: {names}{more}; the snapshot "
            "and the locks of this server do not cover them, so the run may read a part of a "
            "change",
        )

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return statements.sampled_keys(column, share)

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the SELECT that workers wrap into `COPY (...) TO STDOUT`."""
        return statements.selector_statement(
            common.select_list(extract.projection.columns), extract, selector
        )

    def count(self, extract: Extract) -> int:
        session = self._session
        conditions, most = common.row_conditions(extract), extract.limit_rows
        key = (extract.table.schema or "", extract.table.name)
        name = common.qualified(*key)
        with self._apart():
            if extract.query is not None:
                sql = common.select_count(
                    common.derived_table(extract.query), conditions, most, ROWS
                )
                rows = relations.number(session, sql)
            else:
                oid = session.value("SELECT $1::text::regclass::oid", name)
                leaves = relations.leaves_of(session, [oid]).get(oid, [])
                if extract.partitions:
                    parts = relations.partitions(leaves, extract.table.name)
                    asked = matching_partitions((part.name for part in parts), extract.partitions)
                    alone = [part.relation for part in parts if part.name in asked]
                elif [leaf.oid for leaf in leaves] != [oid] and (
                    any(not leaf.granted or leaf.guarded for leaf in leaves)
                    or relations.policies(session, [key])
                ):
                    # Rows of partitions can be read through their table alone. Who has rights on
                    # columns alone may not ask which partition a row is from.
                    alone = None
                    if session.value(relations.MAY_READ_TABLEOID, oid):
                        oids = ", ".join(str(leaf.oid) for leaf in leaves)
                        own = f"ARRAY[{oids}]::pg_catalog.oid[]"
                        conditions.insert(0, f"{name}.tableoid OPERATOR(pg_catalog.=) ANY ({own})")
                else:
                    alone = [(leaf.schema, leaf.relation) for leaf in leaves]
                if alone is None:
                    rows = relations.number(
                        session, common.select_count(name, conditions, most, ROWS)
                    )
                else:
                    alias = common.quoted(extract.table.name)
                    rows = summed(
                        session,
                        [
                            common.select_count(
                                f"ONLY {common.qualified(*each)} AS {alias}", conditions, most, ROWS
                            )
                            for each in alone
                            if each is not None
                        ],
                    )
                    rows = rows if most is None else min(rows, most)
            if self._in_snapshot and statements.reads_others(extract):
                relations.check_unchanged(session)
        return rows

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return the rows of many tables, single relations a hundred in one statement."""
        session, found = self._session, dict[int, int | SourceError]()
        plain = [at for at, each in enumerate(extracts) if each.is_plain]
        for some in batches(plain):
            keys = [(extracts[at].table.schema or "", extracts[at].table.name) for at in some]
            counts = []
            with suppress(SourceError), self._apart():
                oids = relations.oids_of(session, keys)
                leaves = relations.leaves_of(session, list(oids.values()))
                for place, oid in oids.items():
                    if [leaf.oid for leaf in leaves.get(oid, ())] == [oid]:
                        alias = common.quoted(keys[place][1])
                        relation = f"ONLY {common.qualified(*keys[place])} AS {alias}"
                        items = f"{some[place]} AS at, {ROWS} AS rows"
                        counts.append(
                            common.select(
                                items, relation, common.row_conditions(extracts[some[place]])
                            )
                        )
                with session.users_path():
                    rows = session.rows(" UNION ALL ".join(counts)) if counts else ()
                found |= {int(row.at): int(row.rows) for row in rows}
            self.check_snapshot()
        for at, extract in enumerate(extracts):
            if at not in found:
                # Counted separately, so that an error of the server belongs to this table.
                found[at] = result_or_error(partial(self.count, extract))
        return tuple(found[at] for at in range(len(extracts)))

    def count_selected(self, extract: Extract, selectors: Sequence[Selector]) -> int:
        counts = [statements.selector_statement("count(*)", extract, each) for each in selectors]
        with self._apart():
            return summed(self._session, counts)

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        return statements.HASHING.unhashed(extract)

    def open_hasher(self, extract: Extract) -> common.Hasher:
        session = session_in(extract.source, extract.snapshot)
        # The server knows no encoding for texts in SQL_ASCII, and sends their bytes unchanged.
        plain = session.value("SHOW server_encoding") in ("UTF8", "SQL_ASCII")

        def rows(sql: str) -> list[Any]:
            with session.users_path():
                return session.rows(sql)

        return common.Hasher(
            hashing=statements.HASHING if plain else statements.HASHING_IN_UTF8,
            rows=rows,
            cancel=session.cancel,
            close=session.close,
        )

    def end_sessions_sql(self) -> str:
        return (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = {common.literal(session_name(self._spec))}"
        )

    def open_load(self) -> LoadReader:
        """Connect once more, outside of the snapshot."""
        session = Session(self._spec, program=LOAD_PROGRAM)
        names = (session_name(self._spec, each) for each in ("unloader", LOAD_PROGRAM))
        active = _ACTIVE.format(ours=", ".join(map(common.literal, names)))
        try:
            ((user, may_see),) = session.rows(_MAY_SEE)
            if not may_see:
                raise ConfigError(
                    f"--max-db-load: user {user} may not see which other sessions are active",
                    f"GRANT pg_read_all_stats TO {user}, or leave --max-db-load out",
                )
        except BaseException:
            session.close()
            raise
        return LoadReader(others=lambda: int(session.value(active)), close=session.close)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        if not self._in_snapshot:
            yield
            return
        with self._holding(), self._session.apart():
            yield

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Report on a lost connection that the snapshot is lost with it."""
        try:
            yield
        except SourceError as error:
            if self._session.alive:
                raise
            if self._kept is not None:
                raise SourceError(
                    f"the connection of the parent is lost: {error.message}",
                    "find the cause, and check with `unloader keepers` whether the snapshot is "
                    "kept",
                ) from error
            raise SnapshotGone(
                f"the connection that holds the snapshot is lost: {error.message}", AGAIN
            ) from error

    def cancel(self) -> None:
        self._cancelled = True
        self._session.cancel()

    def close(self) -> None:
        self._session.close()
        if self._kept is not None:
            self._kept.close()


def _summary(row: Any, size: Any = None) -> TableSummary:
    partitioned = size is not None and row.kind == "partitioned table"
    return TableSummary(
        schema=row.schema,
        name=row.name,
        kind=row.kind,
        rows=size.rows if size is not None else None,
        bytes=size.bytes if size is not None else None,
        partitions=size.leaves if partitioned else 0,
    )
