"""The dictionary of a SQLite file: columns, rowids and sizes of its tables.

Everything is asked through `rows`, the catalog's way to run a statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from partition_planner.model import ColumnInfo, RowExtent
from unloader.errors import SourceError, TransientSourceError
from unloader.sources.sqlite.types import CHECKED, READING, ROWID, reading_of, value_of
from unloader.sources.statement import qualified, quoted

ROWID_NAMES = ("rowid", "_rowid_", "oid")
MAX_WALKED_BYTES = 256 * 1024 * 1024
"""A table is measured page by page only in files up to this size, for that reads all its pages."""
SAMPLED_ROWS = 100

_HIDDEN, _VIRTUAL = 1, 2
_RIGID = {"INT": "integer", "INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}


Column = tuple[str, str, int, int, int]
"""Name, declared type, not null, place in the primary key, and what is hidden about it."""


class Rows(Protocol):
    """Runs one statement in the parent and returns its rows; raises SourceError."""

    def __call__(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run it with these parameters."""


def table_columns(rows: Rows, name: str, rowid: str | None) -> tuple[ColumnInfo, ...]:
    """Return a table's columns, generated ones included, from `PRAGMA table_xinfo`.

    Args:
        rows: Runs a statement.
        name: The table.
        rowid: A name by which its rowid can be asked for, None where there is none.
    """
    found = _xinfo(rows, name, "main")
    indexed = rowid is not None and _has_key_index(rows, name)
    return table_columns_of(found, rowid=rowid, strict=_is_strict(rows, name), indexed_key=indexed)


def table_columns_of(
    found: Sequence[Column], *, rowid: str | None, strict: bool, indexed_key: bool
) -> tuple[ColumnInfo, ...]:
    """Return a table's columns as they are read.

    Args:
        found: In table order, without hidden ones.
        rowid: A name by which its rowid can be asked for, None where there is none.
        strict: It is declared STRICT.
        indexed_key: Its primary key has an index of its own.
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

    A column of a view has the declared type of the column behind it, but since SQLite 3.41 other
    expressions are called BLOB, too, whatever they yield: the first rows tell the two apart.
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


def rowid_name(rows: Rows, name: str) -> str | None:
    """Return a name of the table's rowid that no column has; None if the table has no rowid."""
    candidate = free_rowid_name(_xinfo(rows, name, "main"))
    if candidate is None:
        return None
    try:
        rows(f"SELECT {quoted(name)}.{candidate} FROM {qualified('main', name)} LIMIT 0")
    except TransientSourceError:
        raise
    except SourceError:
        return None  # declared WITHOUT ROWID
    return candidate


def address_column(rows: Rows, name: str) -> str | None:
    """Return the column that is the rowid of a table by another name; None if there is none."""
    return None if _has_key_index(rows, name) else _rowid_alias(_xinfo(rows, name, "main"))


def free_rowid_name(columns: Sequence[Column]) -> str | None:
    """Return a name of the rowid that no column has, if the table has a rowid at all."""
    taken = {each[0].lower() for each in columns}
    return next((name for name in ROWID_NAMES if name not in taken), None)


def extent_of(rows: Rows, name: str, rowid: str) -> RowExtent:
    """Return the range of rowids, from both ends of the table's tree."""
    # One query for each end: SQLite walks the whole table where both are asked of one.
    first, last = (
        rows(f"SELECT {end}({quoted(name)}.{rowid}) FROM {qualified('main', name)}")[0][0]
        for end in ("min", "max")
    )
    return extent(first, last)


def extent(first: int | None, last: int | None) -> RowExtent:
    """Return the range between the first rowid and the last; None where there are no rows."""
    if first is None or last is None:
        return RowExtent(first=0, last=0)
    return RowExtent(first=first, last=last + 1)


def analyzed_rows(rows: Rows) -> dict[str, int]:
    """Return the number of rows of each table as of the last ANALYZE, from `sqlite_stat1`."""
    if not rows("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"):
        return {}
    # The first number of `stat`; that of a partial index is smaller than the table's.
    found = rows("SELECT tbl, max(CAST(stat AS INTEGER)) FROM sqlite_stat1 GROUP BY tbl")
    return {name: int(count) for name, count in found if count is not None}


def table_bytes(rows: Rows, name: str) -> int | None:
    """Return the size of a table: exact in a small file, else that of a file with no other."""
    used = _used_bytes(rows)
    if used <= MAX_WALKED_BYTES:
        try:
            return int(rows("SELECT sum(pgsize) FROM dbstat WHERE name = ?", name)[0][0])
        except TransientSourceError:
            raise
        except SourceError:
            pass  # this SQLite is built without dbstat
    return used if _is_alone(rows) else None


def all_bytes(rows: Rows) -> Callable[[str], int | None]:
    """Return what gives the size of each table as `table_bytes` does, walking the file once."""
    used = _used_bytes(rows)
    if used <= MAX_WALKED_BYTES:
        try:
            found = rows("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")
        except TransientSourceError:
            raise
        except SourceError:
            pass
        else:
            return {name: int(size) for name, size in found}.get
    alone = used if _is_alone(rows) else None
    return lambda name: alone


def _used_bytes(rows: Rows) -> int:
    (pages,), (free,), (size,) = (
        rows(f"PRAGMA {what}")[0] for what in ("page_count", "freelist_count", "page_size")
    )
    return (int(pages) - int(free)) * int(size)


def _is_alone(rows: Rows) -> bool:
    """Return whether a file has a single table."""
    return bool(rows("SELECT count(*) = 1 FROM sqlite_master WHERE type = 'table'")[0][0])


def column(name: str, declared: str | None, not_null: int, key: int, hidden: int) -> Column:
    """Return a column as `PRAGMA table_xinfo` has it."""
    return name, declared or "", not_null, key, hidden


def is_hidden(found: Column) -> bool:
    """Return whether `SELECT *` leaves a column out."""
    return found[-1] == _HIDDEN


def _xinfo(rows: Rows, name: str, schema: str) -> list[Column]:
    found = rows(
        'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?, ?) ORDER BY cid',
        name,
        schema,
    )
    columns = (column(*each) for each in found)
    return [each for each in columns if not is_hidden(each)]


def _is_strict(rows: Rows, name: str) -> bool:
    if sqlite3.sqlite_version_info < (3, 37):
        return False  # it would not even open a file with a STRICT table
    found = rows("SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", name)
    return bool(found and found[0][0])


def _has_key_index(rows: Rows, name: str) -> bool:
    return bool(rows("SELECT 1 FROM pragma_index_list(?, 'main') WHERE origin = 'pk'", name))


def _rowid_alias(columns: Sequence[Column]) -> str | None:
    """Return the INTEGER PRIMARY KEY: a key of one column that needs no index of its own."""
    keys = [name for name, _, _, key, _ in columns if key]
    return keys[0] if len(keys) == 1 else None


def _begins_with_blobs(rows: Rows, name: str, column: str) -> bool:
    value = value_of(column, name)
    first = f"SELECT typeof({value}) AS class FROM {quoted(name)} LIMIT {SAMPLED_ROWS}"
    classes = {found for (found,) in rows(f"SELECT DISTINCT class FROM ({first})")}
    return "blob" in classes and classes <= {"blob", "null"}
