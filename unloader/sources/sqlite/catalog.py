"""The parent's side of a SQLite file: its snapshot, its tables, their columns, rowids and sizes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from partition_planner.model import ColumnInfo, RowExtent, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    SampledKeys,
    Snapshot,
    TableSummary,
    ValueOptions,
)
from unloader.selection.listing import ListedTable
from unloader.sources.base import Capabilities, result_or_error
from unloader.sources.file_state import FileCatalog
from unloader.sources.readings import ColumnReadings
from unloader.sources.sqlite.session import Session
from unloader.sources.sqlite.statement import (
    CHECKED,
    READING,
    RESERVATION,
    ROWID,
    conditions,
    counted_condition,
    reading_of,
    readings_of,
    relation_name,
    sampled_keys,
    selector_statement,
    value_of,
    with_key,
)
from unloader.sources.statement import (
    derived_table,
    qualified,
    query_table,
    quoted,
    relation_of,
    select,
    select_count,
)

ROWID_NAMES = ("rowid", "_rowid_", "oid")
MAX_WALKED_BYTES = 256 * 1024 * 1024
"""A table is measured page by page only in files up to this size, for that reads all its pages."""
SAMPLED_ROWS = 100

_HIDDEN, _VIRTUAL = 1, 2
_RIGID = {"INT": "integer", "INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}

LISTS_TABLES = sqlite3.sqlite_version_info >= (3, 37)
"""`pragma_table_list` has tables without a rowid, STRICT ones, and tables that serve another one.
Older versions do not open a file with a STRICT table."""

TABLES = (
    "SELECT name, CASE WHEN type = 'view' THEN 'view' "
    "WHEN sql LIKE 'CREATE VIRTUAL %' THEN 'virtual table' ELSE 'table' END "
    "FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite^_%' "
    "ESCAPE '^' ORDER BY name"
)
COLUMNS = (
    'SELECT t.name, c.name, c.type, c."notnull", c.pk, c.hidden FROM sqlite_master t '
    "JOIN pragma_table_xinfo(t.name, 'main') c WHERE t.type = 'table'{} ORDER BY t.name, c.cid"
)
KEYS_APART = (
    "SELECT DISTINCT t.name FROM sqlite_master t JOIN pragma_index_list(t.name, 'main') i "
    "WHERE t.type = 'table' AND i.origin = 'pk'{}"
)
FACTS = "SELECT t.name, t.wr, t.strict FROM pragma_table_list t WHERE t.schema = 'main'{}"
SIZES = "SELECT t.name, sum(t.pgsize) FROM dbstat t WHERE true{} GROUP BY t.name"
SHADOWS = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"

Column = tuple[str, str, int, int, int]
"""Name, declared type, not null, place in the primary key, and the code for hidden columns."""

QUERY_VIEW = "unloader query"
_SECOND_OF_A_NAME = re.compile(r"(.+):\d+")


class SQLiteCatalog(FileCatalog):
    """The parent's session; it holds the snapshot until it is closed.

    While the file is reserved, other processes cannot change it, so its dictionary has one state.
    """

    capabilities = Capabilities(
        shared_snapshot=True, snapshot_outlives_run=True, folding="any", samples=True
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self.path = session.path
        self.server_version = f"SQLite {self.rows('SELECT sqlite_version()')[0][0]}"

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._session.rows(sql, *parameters)

    def explain(self, sql: str) -> object:
        return self.rows(f"EXPLAIN {sql}")

    def tables(self) -> tuple[TableSummary, ...]:
        analyzed = self._analyzed_rows()
        return tuple(
            TableSummary(
                schema="main",
                name=name,
                kind=kind,
                rows=analyzed.get(name),
                bytes=None,
                partitions=0,
            )
            for name, kind in self.rows(TABLES)
        )

    def listed(self, tables: Sequence[TableSummary]) -> list[ListedTable]:
        """Return tables of the list; one that holds what another is made of is the system's."""
        shadows = {name for (name,) in self.rows(SHADOWS)} if LISTS_TABLES else set()
        return [ListedTable.of(table, system=table.name in shadows) for table in tables]

    def plain_tables(
        self, keys: Sequence[tuple[str, str]], observe: Observer = silent
    ) -> dict[tuple[str, str], TableInfo | SourceError]:
        names = [name for _, name in keys]

        def ask(sql: str) -> list[tuple[Any, ...]]:
            """Run a statement for one table, or for all tables if there are several."""
            if len(names) == 1:
                return self.rows(sql.format(" AND t.name = ?"), names[0])
            return self.rows(sql.format(""))

        observe(PhaseStarted(phase="columns"))
        columns: dict[str, list[Column]] = {}
        for name, *found in ask(COLUMNS):
            columns.setdefault(name, []).append(_column(*found))
        indexed = {name for (name,) in ask(KEYS_APART)}
        rowids: dict[str, str | None] = {}
        for name in filter(columns.__contains__, names):
            taken = {each[0].lower() for each in columns[name]}
            rowids[name] = next((each for each in ROWID_NAMES if each not in taken), None)
        strict = set()
        if LISTS_TABLES:
            for name, without_rowid, is_strict in ask(FACTS):
                if without_rowid:
                    rowids[name] = None
                if is_strict:
                    strict.add(name)
        else:
            for name, rowid in rowids.items():
                sql = f"SELECT {quoted(name)}.{rowid} FROM {qualified('main', name)} LIMIT 0"
                if rowid and isinstance(result_or_error(partial(self.rows, sql)), SourceError):
                    rowids[name] = None
        observe(PhaseStarted(phase="extents"))
        analyzed = self._analyzed_rows()
        (pages,), (free,), (page_size,) = (
            self.rows(f"PRAGMA {what}")[0] for what in ("page_count", "freelist_count", "page_size")
        )
        # A table's size: exact in a small file, else the size of a file with one table.
        used = (int(pages) - int(free)) * int(page_size)
        walked = result_or_error(partial(ask, SIZES)) if used <= MAX_WALKED_BYTES else None
        sizes: dict[str, int] = {}
        if isinstance(walked, list):
            sizes = {name: int(size) for name, size in walked}
        # The size is too large, or SQLite was built without dbstat.
        elif self.rows("SELECT count(*) = 1 FROM sqlite_master WHERE type = 'table'")[0][0]:
            sizes = dict.fromkeys(names, used)
        infos: dict[tuple[str, str], TableInfo | SourceError] = {}
        for name in filter(columns.__contains__, names):
            rowid = rowids.get(name)
            ends = result_or_error(partial(self._ends, name, rowid)) if rowid else ()
            infos["main", name] = (
                ends
                if isinstance(ends, SourceError)
                else TableInfo(
                    schema="main",
                    name=name,
                    columns=_columns_as_read(
                        [each for each in columns[name] if not _is_hidden(each)],
                        rowid=rowid,
                        strict=name in strict,
                        indexed_key=name in indexed,
                    ),
                    rows=analyzed.get(name),
                    bytes=sizes.get(name),
                    extents=ends,
                    ranges_from="rowid" if rowid else None,
                    named_partitions=False,
                    row_ranges=rowid is not None,
                )
            )
        return infos

    def derived_columns(self, schema: str, name: str) -> tuple[ColumnInfo, ...]:
        """Return the columns of a view or virtual table.

        A column of a view has the declared type of the column that it is made of. But since SQLite
        3.41 all other expressions are called BLOB, too. The first rows distinguish the two cases.
        """
        columns = []
        for column, declared, _, _, _ in self._xinfo(name, schema):
            reading = reading_of(declared)
            if reading == "blob":
                value = value_of(column, name)
                first = f"SELECT typeof({value}) AS class FROM {quoted(name)} LIMIT {SAMPLED_ROWS}"
                found = self.rows(f"SELECT DISTINCT class FROM ({first})")
                if {"blob"} != {storage for (storage,) in found} - {"null"}:
                    reading = "exact"
            columns.append(
                ColumnInfo(name=column, native_type=declared, attributes=((READING, reading),))
            )
        return tuple(columns)

    def address_column(self, table: TableInfo) -> str | None:
        """Return the INTEGER PRIMARY KEY, which is the rowid."""
        if self.rows(KEYS_APART.format(" AND t.name = ?"), table.name):
            return None
        return _rowid_alias(self._xinfo(table.name, "main"))

    def _analyzed_rows(self) -> dict[str, int]:
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"):
            return {}
        # The first number of `stat` is smaller for a partial index than for the table.
        found = self.rows("SELECT tbl, max(CAST(stat AS INTEGER)) FROM sqlite_stat1 GROUP BY tbl")
        return {name: int(count) for name, count in found if count is not None}

    def _ends(self, name: str, rowid: str) -> tuple[RowExtent]:
        """Return the range of rowids of a table, from both ends of its tree."""
        # A query for each end: SQLite walks the whole table where one asks for both.
        ends = (
            f"(SELECT {end}({quoted(name)}.{rowid}) FROM {qualified('main', name)})"
            for end in ("min", "max")
        )
        ((first, last),) = self.rows(f"SELECT {', '.join(ends)}")
        return (RowExtent(first=first or 0, last=0 if last is None else last + 1),)

    def _xinfo(self, name: str, schema: str) -> list[Column]:
        found = self.rows(
            'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?, ?) ORDER BY cid',
            name,
            schema,
        )
        columns = (_column(*each) for each in found)
        return [each for each in columns if not _is_hidden(each)]

    def describe_query(self, query: str) -> TableInfo:
        view = quoted(QUERY_VIEW)
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self.explain(query)
        # In memory: a temporary file would be one more thing that can fail or be left behind.
        self.rows("PRAGMA temp_store = memory")
        self.rows(f"CREATE TEMP VIEW {view} AS SELECT * FROM {derived_table(query)}")
        try:
            columns = self.derived_columns("temp", QUERY_VIEW)
        finally:
            self.rows(f"DROP VIEW temp.{view}")
        names = {column.name.casefold() for column in columns}
        for column in columns:
            # SQLite calls the second of two columns `a` in a view `a:1`.
            same = _SECOND_OF_A_NAME.fullmatch(column.name)
            if same and same[1].casefold() in names:
                raise SourceError(
                    f"two columns of the query are named {same[1]!r}",
                    "give each column a different name with AS",
                )
        return query_table(columns)

    def snapshot(self, consistency: Consistency) -> Snapshot:
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=taken_at)
        return Snapshot(kind=RESERVATION, value=self._session.reserve(), taken_at=taken_at)

    def check_snapshot(self) -> None:
        if not self._session.intact():
            raise SnapshotGone(
                f"the snapshot is lost: {self._session.path} was written although it was locked",
                "run again; if it is on a network file system, copy it to a local disk first",
            )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        relation = relation_name(table, query)
        return tuple(readings_of(column, relation) for column in table.columns)

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        return sampled_keys(column, share)

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that reads the rows of a selector, with the key of a sample."""
        return selector_statement(with_key(extract), selector)

    def count(self, extract: Extract) -> int:
        self._session.add_sampling()
        rows_asked = [*conditions(extract, None), *counted_condition(extract)]
        sql = select_count(relation_of(extract), rows_asked, extract.limit_rows)
        rows = int(self.rows(sql)[0][0])
        self.check_snapshot()
        return rows

    def count_statement(self, extract: Extract, selector: Selector) -> str:
        return select("count(*)", relation_of(extract), conditions(extract, selector))

    def cancel(self) -> None:
        self._session.cancel()

    def close(self) -> None:
        self._session.close()


def _columns_as_read(
    found: Sequence[Column], *, rowid: str | None, strict: bool, indexed_key: bool
) -> tuple[ColumnInfo, ...]:
    """Return a table's columns, generated ones included, as they are read.

    `rowid` is a name that selects the rowid, if there is one; `indexed_key`: the primary key has a
    separate index.
    """
    alias = _rowid_alias(found) if rowid is not None and not indexed_key else None
    columns = []
    for column, declared, not_null, _, hidden in found:
        attributes = {READING: str(reading_of(declared))}
        # SQLite checks the types of a STRICT table where it stores a value.
        rigid = strict and hidden != _VIRTUAL
        if rigid:
            attributes[READING] = _RIGID.get(declared.upper(), "exact")
        if rigid or column == alias:
            attributes[CHECKED] = "yes"
        if rowid is not None:
            attributes[ROWID] = rowid
        columns.append(
            ColumnInfo(
                name=column,
                native_type=declared,
                nullable=not (not_null or column == alias),
                attributes=tuple(sorted(attributes.items())),
            )
        )
    return tuple(columns)


def _column(name: str, declared: str | None, not_null: int, key: int, hidden: int) -> Column:
    return name, declared or "", not_null, key, hidden


def _is_hidden(found: Column) -> bool:
    """Return whether `SELECT *` leaves a column out."""
    return found[-1] == _HIDDEN


def _rowid_alias(columns: Sequence[Column]) -> str | None:
    """Return the INTEGER PRIMARY KEY: a key of one column that needs no separate index."""
    keys = [name for name, _, _, key, _ in columns if key]
    return keys[0] if len(keys) == 1 else None
