"""The tables that the dictionary of a SQLite file describes: names, columns, rowids and sizes.

Each statement asks for one table or for all of them. While the file is reserved, other processes
cannot change it, so all of it has one state. SQLite has no access rights.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from partition_planner.model import ColumnInfo, RowExtent, TableInfo
from unloader.errors import SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import TableSummary
from unloader.selection.listing import ListedTable, Obstacle
from unloader.sources.base import Catalog
from unloader.sources.many_tables import asked_together, described_in_order, result_or_error
from unloader.sources.sqlite.types import CHECKED, READING, ROWID, reading_of, value_of
from unloader.sources.statement import qualified, quoted

ROWID_NAMES = ("rowid", "_rowid_", "oid")
MAX_WALKED_BYTES = 256 * 1024 * 1024
"""A table is measured page by page only in files up to this size, for that reads all its pages."""
SAMPLED_ROWS = 100

_HIDDEN, _VIRTUAL = 1, 2
_RIGID = {"INT": "integer", "INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}

LISTS_TABLES = sqlite3.sqlite_version_info >= (3, 37)
"""`pragma_table_list` has tables without a rowid, STRICT ones, and tables that serve another one.
Older versions do not open a file with a STRICT table."""

NAMES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
)
COLUMNS = (
    'SELECT t.name, c.name, c.type, c."notnull", c.pk, c.hidden FROM sqlite_master t '
    "JOIN pragma_table_xinfo(t.name, 'main') c WHERE t.type = 'table'{} ORDER BY t.name, c.cid"
)
KEYS_APART = (
    "SELECT DISTINCT t.name FROM sqlite_master t JOIN pragma_index_list(t.name, 'main') i "
    "WHERE t.type = 'table' AND i.origin = 'pk'{}"
)
"""Tables whose primary key has a separate index."""
FACTS = "SELECT t.name, t.wr, t.strict FROM pragma_table_list t WHERE t.schema = 'main'{}"
SIZES = "SELECT t.name, sum(t.pgsize) FROM dbstat t WHERE true{} GROUP BY t.name"
SHADOWS = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"

Column = tuple[str, str, int, int, int]
"""Name, declared type, not null, place in the primary key, and the code for hidden columns."""


class Rows(Protocol):
    """Runs one statement in the parent and returns its rows; raises SourceError."""

    def __call__(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run it with these parameters."""


def listed_tables(rows: Rows, tables: Sequence[TableSummary]) -> list[ListedTable]:
    """Return the tables of the file; one that holds what another is made of is the system's."""
    shadows = {name for (name,) in rows(SHADOWS)} if LISTS_TABLES else set()
    return [ListedTable.of(table, system=table.name in shadows) for table in tables]


def described_tables(
    catalog: Catalog, rows: Rows, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return the description of each table, in the given order.

    A view is described alone, because some of its rows are read for the description.

    Args:
        catalog: Describes one table.
        rows: Runs a statement.
        tables: The tables of the listing.
        observe: Called as each slow step begins.
    """
    there = {("main", name) for (name,) in rows(NAMES)}
    wanted = [table.name for table in tables if table.kind == "table" and table.key in there]
    # The error of an only table is its obstacle.
    infos = plain_tables(rows, wanted, observe) if len(wanted) > 1 else ()
    return described_in_order(catalog, tables, infos, there, observe)


def plain_tables(
    rows: Rows, names: Sequence[str], observe: Observer = silent
) -> Iterator[TableInfo]:
    """Yield the descriptions of tables that are neither views nor virtual.

    If several tables are requested, unreadable tables are left out.

    Raises:
        SourceError: The only table cannot be read.
    """
    ask = _asking(rows, names)
    observe(PhaseStarted(phase="columns"))
    columns: dict[str, list[Column]] = {}
    for name, *found in ask(COLUMNS):
        columns.setdefault(name, []).append(_column(*found))
    indexed = {name for (name,) in ask(KEYS_APART)}
    rowids = {name: _free_rowid_name(columns[name]) for name in names if name in columns}
    strict = set()
    if LISTS_TABLES:
        for name, without_rowid, is_strict in ask(FACTS):
            if without_rowid:
                rowids[name] = None
            if is_strict:
                strict.add(name)
    else:
        rowids |= {name: None for name in rowids if not _has_rowid(rows, name, rowids[name])}
    observe(PhaseStarted(phase="extents"))
    addressed = {name: rowid for name, rowid in rowids.items() if rowid}
    extents = dict(asked_together(partial(_ends, rows, addressed), list(addressed)))
    analyzed, sizes = analyzed_rows(rows), _sizes(rows, names)
    for name in names:
        rowid = rowids.get(name)
        if name not in columns or (rowid and name not in extents):
            continue
        yield TableInfo(
            schema="main",
            name=name,
            columns=_columns_as_read(
                [each for each in columns[name] if not _is_hidden(each)],
                rowid=rowid,
                strict=name in strict,
                indexed_key=name in indexed,
            ),
            rows=analyzed.get(name),
            bytes=sizes(name),
            extents=(extents[name],) if rowid else (),
            ranges_from="rowid" if rowid else None,
            named_partitions=False,
            row_ranges=rowid is not None,
        )


def _asking(rows: Rows, names: Sequence[str]) -> Callable[[str], list[tuple[Any, ...]]]:
    """Return what runs a statement for one table, or for all tables if there are several."""
    if len(names) == 1:
        return lambda sql: rows(sql.format(" AND t.name = ?"), names[0])
    return lambda sql: rows(sql.format(""))


def _columns_as_read(
    found: Sequence[Column], *, rowid: str | None, strict: bool, indexed_key: bool
) -> tuple[ColumnInfo, ...]:
    """Return a table's columns, generated ones included, as they are read.

    Args:
        found: The columns in table order, without hidden columns.
        rowid: A name that selects its rowid, None if the table has no such name.
        strict: The table is declared STRICT.
        indexed_key: The primary key has a separate index.
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


def derived_columns(rows: Rows, name: str, schema: str) -> tuple[ColumnInfo, ...]:
    """Return the columns of a view or virtual table.

    A column of a view has the declared type of the column that it is made of. But since SQLite 3.41
    all other expressions are called BLOB, too. The first rows distinguish the two cases.
    """
    columns = []
    for column, declared, _, _, _ in _xinfo(rows, name, schema):
        reading = reading_of(declared)
        if reading == "blob" and not _begins_with_blobs(rows, name, column):
            reading = "exact"
        columns.append(
            ColumnInfo(name=column, native_type=declared, attributes=((READING, reading),))
        )
    return tuple(columns)


def address_column(rows: Rows, name: str) -> str | None:
    """Return the column that is an alias of a table's rowid; None if the table has no alias."""
    if rows(KEYS_APART.format(" AND t.name = ?"), name):
        return None
    return _rowid_alias(_xinfo(rows, name, "main"))


def analyzed_rows(rows: Rows) -> dict[str, int]:
    """Return the number of rows of each table as of the last ANALYZE, from `sqlite_stat1`."""
    if not rows("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"):
        return {}
    # The first number of `stat` is smaller for a partial index than for the table.
    found = rows("SELECT tbl, max(CAST(stat AS INTEGER)) FROM sqlite_stat1 GROUP BY tbl")
    return {name: int(count) for name, count in found if count is not None}


def _sizes(rows: Rows, names: Sequence[str]) -> Callable[[str], int | None]:
    """Return a function for a table's size: exact in a small file, else a one-table file's size."""
    (pages,), (free,), (size,) = (
        rows(f"PRAGMA {what}")[0] for what in ("page_count", "freelist_count", "page_size")
    )
    used = (int(pages) - int(free)) * int(size)
    if used <= MAX_WALKED_BYTES:
        found = result_or_error(partial(_asking(rows, names), SIZES))
        if not isinstance(found, SourceError):  # Some SQLite are built without dbstat.
            return {name: int(size) for name, size in found}.get
    (alone,) = rows("SELECT count(*) = 1 FROM sqlite_master WHERE type = 'table'")[0]
    return lambda _: used if alone else None


def _ends(
    rows: Rows, rowids: Mapping[str, str], names: Sequence[str]
) -> list[tuple[str, RowExtent]]:
    """Return the range of rowids of each table, from both ends of its tree."""
    # A query for each end: SQLite walks the whole table where one asks for both.
    sql = " UNION ALL ".join(
        f"SELECT {at}, "
        + ", ".join(
            f"(SELECT {end}({quoted(name)}.{rowids[name]}) FROM {qualified('main', name)})"
            for end in ("min", "max")
        )
        for at, name in enumerate(names)
    )
    return [
        (names[at], RowExtent(first=0, last=0) if first is None else _range(first, last))
        for at, first, last in rows(sql)
    ]


def _range(first: int, last: int) -> RowExtent:
    return RowExtent(first=first, last=last + 1)


def _has_rowid(rows: Rows, name: str, rowid: str | None) -> bool:
    """Return whether a table has a rowid; for versions whose dictionary does not have that."""
    sql = f"SELECT {quoted(name)}.{rowid} FROM {qualified('main', name)} LIMIT 0"
    return rowid is not None and not isinstance(result_or_error(partial(rows, sql)), SourceError)


def _free_rowid_name(columns: Sequence[Column]) -> str | None:
    """Return a name of the rowid that no column has, if the table has a rowid."""
    taken = {each[0].lower() for each in columns}
    return next((name for name in ROWID_NAMES if name not in taken), None)


def _column(name: str, declared: str | None, not_null: int, key: int, hidden: int) -> Column:
    """Return a column as `PRAGMA table_xinfo` has it."""
    return name, declared or "", not_null, key, hidden


def _is_hidden(found: Column) -> bool:
    """Return whether `SELECT *` leaves a column out."""
    return found[-1] == _HIDDEN


def _xinfo(rows: Rows, name: str, schema: str) -> list[Column]:
    found = rows(
        'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?, ?) ORDER BY cid',
        name,
        schema,
    )
    columns = (_column(*each) for each in found)
    return [each for each in columns if not _is_hidden(each)]


def _rowid_alias(columns: Sequence[Column]) -> str | None:
    """Return the INTEGER PRIMARY KEY: a key of one column that needs no separate index."""
    keys = [name for name, _, _, key, _ in columns if key]
    return keys[0] if len(keys) == 1 else None


def _begins_with_blobs(rows: Rows, name: str, column: str) -> bool:
    value = value_of(column, name)
    first = f"SELECT typeof({value}) AS class FROM {quoted(name)} LIMIT {SAMPLED_ROWS}"
    classes = {found for (found,) in rows(f"SELECT DISTINCT class FROM ({first})")}
    return "blob" in classes and classes <= {"blob", "null"}
