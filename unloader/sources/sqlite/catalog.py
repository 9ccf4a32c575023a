"""The parent's side of a SQLite file: its snapshot, its tables, their columns, rowids and sizes.

Nothing in this process except SQLite opens the file itself: POSIX drops every lock that a process
has on a file as soon as the process closes any descriptor of it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote_from_bytes

from partition_planner.model import ColumnInfo, RowExtent, Selector, TableInfo
from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Consistency, Extract, SampledKeys, Snapshot, TableSummary, ValueOptions
from unloader.sources import statement as common
from unloader.sources.base import Capabilities, result_or_error
from unloader.sources.file_state import FileCatalog, header_of, inode_of, state_of
from unloader.sources.readings import ColumnReadings
from unloader.sources.sqlite import statement as statements

ROWID_NAMES = ("rowid", "_rowid_", "oid")
MAX_WALKED_BYTES = 256 * 1024 * 1024
"""A table is measured page by page only in files up to this size, for that reads all its pages."""
SAMPLED_ROWS = 100

_VIRTUAL = 2
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
    "SELECT t.name, c.name, coalesce(c.type, ''), c.\"notnull\", c.pk, c.hidden "
    "FROM sqlite_master t JOIN pragma_table_xinfo(t.name, 'main') c WHERE t.type = 'table'{} "
    "ORDER BY t.name, c.cid"
)
XINFO = (
    "SELECT name, coalesce(type, ''), \"notnull\", pk, hidden FROM pragma_table_xinfo(?, ?) "
    "WHERE hidden <> 1 ORDER BY cid"
)
"""Columns that `SELECT *` has: name, declared type, not null, place in the key, and the code
for hidden columns."""
KEYS_APART = (
    "SELECT DISTINCT t.name FROM sqlite_master t JOIN pragma_index_list(t.name, 'main') i "
    "WHERE t.type = 'table' AND i.origin = 'pk'{}"
)
FACTS = "SELECT t.name, t.wr, t.strict FROM pragma_table_list t WHERE t.schema = 'main'{}"
SIZES = "SELECT t.name, sum(t.pgsize) FROM dbstat t WHERE true{} GROUP BY t.name"
SHADOWS = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"

QUERY_VIEW = "unloader query"
_FUNCTION = "unloader_is_sampled"
_SECOND_OF_A_NAME = re.compile(r"(.+):\d+")


HEADER_BYTES = 100
_FORMATS = slice(18, 20)
"""The bytes of the header for the format that writing and reading need."""
WAL_MODE = 2
"""Their value in WAL mode (https://www.sqlite.org/fileformat.html)."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another program's lock, a commit as a rule."""

_TRANSIENT = (
    "database is locked",
    "database table is locked",
    "database schema is locked",
    "database schema has changed",
    "locking protocol",
)
"""SQLITE_BUSY, SQLITE_LOCKED, SQLITE_SCHEMA and SQLITE_PROTOCOL. ADBC's errors have no code."""


def database_uri(path: str, mode: str) -> str:
    """Return the URI under which SQLite opens `path` in mode `ro` or `rw`; neither creates it."""
    return f"file://{quote_from_bytes(os.fsencode(path))}?mode={mode}"


def database_state(path: str, read_header: Callable[[str, int], bytes] = header_of) -> str:
    """Return a text that differs for each state of the data.

    With a rollback journal each commit changes the counter in the header. In WAL mode it does not,
    so the time of the inode's last change is used instead.
    """
    header = read_header(path, HEADER_BYTES)
    in_wal_mode = WAL_MODE in header[_FORMATS]
    return state_of(path, header, "-wal", with_ctime=in_wal_mode)


def state_while_read(state: str) -> str:
    """Return what must not change of a state while the file is reserved.

    The frames of a WAL stay in it then, but any program may copy them into the file.
    """
    return state.partition(" wal=")[2] or state


def driver_error(doing: str, text: str) -> SourceError:
    """Return the user's error for SQLite's own text, which may end with the statement."""
    cause = text.partition("\nquery:")[0].strip()
    message = f"{doing}: {cause}"
    if any(mark in cause for mark in _TRANSIENT):
        return TransientSourceError(
            message, "run again when the program that writes the database has finished"
        )
    for mark, hint in _HINTS.items():
        if mark in cause:
            return SourceError(message, hint)
    return SourceError(message)


_HINTS = {
    "file is not a database": "check the path; an encrypted database must be decrypted first",
    "malformed": "check the file with: sqlite3 FILE 'PRAGMA integrity_check'",
    # A file is only ever written to undo what a killed writer left half done.
    "readonly": (
        "a program that writes was killed and left its journal or WAL next to the file: open the "
        "database once with a program that may write, for instance: sqlite3 FILE 'PRAGMA "
        "user_version'"
    ),
    "unable to open database file": (
        "check the permissions of file and folder; a database in WAL mode needs a folder that "
        "this user may write to, or its -wal and -shm files"
    ),
    "no such module": "this SQLite does not have the module of the virtual table: read its plain "
    "tables",
}


class SQLiteCatalog(FileCatalog):
    """A read-only connection, and the write reservation once a snapshot is asked for.

    While the reservation is held, other programs cannot commit, in rollback journal and WAL mode
    alike, so the dictionary has one state. The reservation writes nothing, and closing leaves file
    and WAL unchanged. POSIX drops its lock as soon as other code than this SQLite library closes a
    descriptor of the file in this process; `check_snapshot` fails if a program wrote after that.
    """

    capabilities = Capabilities(
        shared_snapshot=True, snapshot_outlives_run=True, folding="any", samples=True
    )

    def __init__(self, path: str) -> None:
        """Open the file read-only; `SourceError` where it is not a readable database."""
        self.path = path
        self._inode = inode_of(path)
        self._reservation: sqlite3.Connection | None = None
        self._version = 0
        self._connection = _connect(path, "ro")
        try:
            self.rows("SELECT count(*) FROM sqlite_master")
        except SourceError:
            self._connection.close()
            raise
        self.server_version = f"SQLite {self.rows('SELECT sqlite_version()')[0][0]}"

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with driver_errors(self.path, sqlite3.Error):
            return self._connection.execute(sql, parameters).fetchall()

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

    def shadows(self) -> set[str]:
        return {name for (name,) in self.rows(SHADOWS)} if LISTS_TABLES else set()

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
        columns: dict[str, list[tuple[Any, ...]]] = {}
        for name, *found in ask(COLUMNS):
            columns.setdefault(name, []).append(tuple(found))
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
                table = common.qualified("main", name)
                sql = f"SELECT {common.quoted(name)}.{rowid} FROM {table} LIMIT 0"
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
            if isinstance(ends, SourceError):
                infos["main", name] = ends
                continue
            alias = _rowid_alias(columns[name]) if rowid and name not in indexed else None
            read = []
            for column, declared, not_null, _, hidden in columns[name]:
                attributes = {statements.READING: str(statements.reading_of(declared))}
                # SQLite checks the types of a STRICT table where it stores a value.
                rigid = name in strict and hidden != _VIRTUAL
                if rigid:
                    attributes[statements.READING] = _RIGID.get(declared.upper(), "exact")
                if rigid or column == alias:
                    attributes[statements.CHECKED] = "yes"
                if rowid is not None:
                    attributes[statements.ROWID] = rowid
                read.append(
                    ColumnInfo(
                        name=column,
                        native_type=declared,
                        nullable=not (not_null or column == alias),
                        attributes=tuple(sorted(attributes.items())),
                    )
                )
            infos["main", name] = TableInfo(
                schema="main",
                name=name,
                columns=tuple(read),
                rows=analyzed.get(name),
                bytes=sizes.get(name),
                extents=ends,
                ranges_from="rowid" if rowid else None,
                named_partitions=False,
                row_ranges=rowid is not None,
            )
        return infos

    def derived_columns(self, schema: str, name: str) -> tuple[ColumnInfo, ...]:
        """Return the columns of a view or virtual table.

        A column of a view has the declared type of the column that it is made of. But since SQLite
        3.41 all other expressions are called BLOB, too. The first rows distinguish the two cases.
        """
        columns = []
        for column, declared, _, _, _ in self.rows(XINFO, name, schema):
            reading = statements.reading_of(declared)
            if reading == "blob":
                value = statements.value_of(column, name)
                first = f"SELECT typeof({value}) AS class FROM {common.quoted(name)}"
                found = self.rows(f"SELECT DISTINCT class FROM ({first} LIMIT {SAMPLED_ROWS})")
                if {"blob"} != {storage for (storage,) in found} - {"null"}:
                    reading = "exact"
            columns.append(
                ColumnInfo(
                    name=column, native_type=declared, attributes=((statements.READING, reading),)
                )
            )
        return tuple(columns)

    def address_column(self, table: TableInfo) -> str | None:
        """Return the INTEGER PRIMARY KEY, which is the rowid."""
        if self.rows(KEYS_APART.format(" AND t.name = ?"), table.name):
            return None
        return _rowid_alias(self.rows(XINFO, table.name, "main"))

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
            f"(SELECT {end}({common.quoted(name)}.{rowid}) FROM {common.qualified('main', name)})"
            for end in ("min", "max")
        )
        ((first, last),) = self.rows(f"SELECT {', '.join(ends)}")
        return (RowExtent(first=first or 0, last=0 if last is None else last + 1),)

    def describe_query(self, query: str) -> TableInfo:
        view = common.quoted(QUERY_VIEW)
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self.explain(query)
        # In memory: a temporary file would be one more thing that can fail or be left behind.
        self.rows("PRAGMA temp_store = memory")
        self.rows(f"CREATE TEMP VIEW {view} AS SELECT * FROM {common.derived_table(query)}")
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
        return common.query_table(columns)

    def snapshot(self, consistency: Consistency) -> Snapshot:
        """Keep every writer out until `close`, except with the consistency `none`.

        `TransientSourceError` where another program is writing; `SourceError` where this user may
        only read.
        """
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        if consistency == "none":
            return Snapshot(kind="none", value="", taken_at=taken_at)
        self._reservation = _connect(self.path, "rw")
        try:
            try:
                self._reservation.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if "locked" in str(error):
                    raise TransientSourceError(
                        f"another program is writing {self.path}: {error}",
                        "run again when that program has finished, or read without a snapshot: "
                        "--consistency none",
                    ) from error
                what = f"cannot lock {self.path} against writers"
                raise driver_error(what, str(error)) from error
            # On a file that may only be read, SQLite turns BEGIN IMMEDIATE into a plain BEGIN: then
            # a second connection can write.
            with (
                closing(_connect(self.path, "rw", busy_seconds=0)) as second,
                suppress(sqlite3.OperationalError),
            ):
                second.execute("BEGIN IMMEDIATE")
                raise SourceError(
                    f"cannot lock {self.path} against writers, because this user may only read it",
                    "if no program writes to it during the run, read without a snapshot: "
                    "--consistency none",
                )
            # It moves with every commit of another connection, and with nothing else.
            self._version = self._data_version()
            state = database_state(self.path)
            if inode_of(self.path) != self._inode:
                raise TransientSourceError(
                    f"{self.path} was replaced by another file while it was opened", "run again"
                )
        except SourceError:
            self._reservation.close()
            self._reservation = None
            raise
        return Snapshot(kind=statements.RESERVATION, value=state, taken_at=taken_at)

    def check_snapshot(self) -> None:
        if self._reservation is not None and self._data_version() != self._version:
            raise SnapshotGone(
                f"the snapshot is lost: {self.path} was written although it was locked",
                "run again; if it is on a network file system, copy it to a local disk first",
            )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        relation = statements.relation_name(table, query)
        return tuple(statements.readings_of(column, relation) for column in table.columns)

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        if statements.attribute(column, statements.READING) == "real":
            return None
        value = common.quoted(column.name)
        whole = f"CAST({value} AS INTEGER)"
        real = f"CAST(CASE WHEN {value} = {whole} THEN {whole} ELSE {value} END AS TEXT)"
        text = (
            f"CASE typeof({value}) WHEN 'text' THEN {value} "
            f"WHEN 'integer' THEN CAST({value} AS TEXT) WHEN 'blob' THEN "
            f"lower(hex({value})) WHEN 'real' THEN {real} END"
        )
        return SampledKeys(column=column.name, share=share, text=text, condition="")

    def statement(self, extract: Extract, selector: Selector) -> str:
        """Return the statement that reads the rows of a selector, with the key of a sample."""
        return statements.selector_statement(statements.with_key(extract), selector)

    def count(self, extract: Extract) -> int:
        rows_asked, keys = statements.conditions(extract, None), extract.keys
        if keys is not None:
            self._connection.create_function(_FUNCTION, 2, common.is_sampled, deterministic=True)
            rows_asked.append(f"{_FUNCTION}(CAST({keys.text} AS BLOB), {keys.share!r})")
        sql = common.select_count(common.relation_of(extract), rows_asked, extract.limit_rows)
        rows = int(self.rows(sql)[0][0])
        self.check_snapshot()
        return rows

    def count_statement(self, extract: Extract, selector: Selector) -> str:
        return common.select(
            "count(*)", common.relation_of(extract), statements.conditions(extract, selector)
        )

    def cancel(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # The file is closed.
            self._connection.interrupt()

    def close(self) -> None:
        # The last connection that may write copies a WAL into the file and deletes it. A WAL with
        # content must stay as it was found, and does while a reader is open; an empty one goes.
        order = [self._connection, self._reservation]
        with suppress(OSError):
            if os.stat(f"{os.path.realpath(self.path)}-wal").st_size:
                order.reverse()
        for connection in filter(None, order):
            with suppress(sqlite3.Error):
                connection.rollback()
            with suppress(sqlite3.Error):
                connection.close()
        self._reservation = None

    def _data_version(self) -> int:
        return int(self.rows("PRAGMA data_version")[0][0])


def _rowid_alias(columns: Sequence[tuple[Any, ...]]) -> str | None:
    """Return the INTEGER PRIMARY KEY: a key of one column that needs no separate index."""
    keys = [name for name, _, _, key, _ in columns if key]
    return keys[0] if len(keys) == 1 else None


def _connect(path: str, mode: str, *, busy_seconds: float | None = None) -> sqlite3.Connection:
    with driver_errors(f"cannot open {path}", sqlite3.Error):
        return sqlite3.connect(
            database_uri(path, mode),
            uri=True,
            timeout=BUSY_SECONDS if busy_seconds is None else busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )


@contextmanager
def driver_errors(doing: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise errors of a driver as the user's errors."""
    try:
        yield
    except kinds as error:
        raise driver_error(doing, str(error)) from error
