"""The reference table: the shape of a published ten-billion-row Oracle table, in a DuckDB file.

`HASH_PART_0160` of the published measurement has ten columns, is hash-partitioned 32 ways on the
first, a VARCHAR2(15), is not compressed (115.7 bytes a row) and makes CSV records of 165 bytes on
average in the `sqlldr-var` dialect. So does this one; `reference_columns` has the columns.

The rows are a function of their numbers alone. DuckDB has no partitions: here each is one range of
rowids, and the table `unloader_partitions` in the same file says which.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unloader.errors import Interrupted, OutputFailed, UnloaderError, UsageError
from unloader.sources.duckdb.layout import PARTITION_MAP
from unloader.sources.duckdb.reference_columns import COLUMNS, KEY, PAIRS
from unloader.sources.registry import missing_driver
from unloader.sources.statement import literal, quoted

GENERATOR_VERSION = 1
"""Raised whenever the same arguments would give another content."""

BYTES_PER_ROW = 120
"""Size of the file, a little over what was measured (115.4) for tables of 500,000 rows and more."""

MAX_PARTITIONS = 256

_LABEL = "unloader reference table"

# A whole number of DuckDB's row groups (122,880 rows), so that none is left half full between two
# inserts; one insert is then well under a second of work for a core.
_SLICE_ROWS = 2 * 122_880
_KEY_SLICE_ROWS = 1_000_000
_MEMORY_LIMIT = "2GB"
_MAX_THREADS = 8


def build_reference_table(
    path: Path,
    rows: int,
    *,
    partitions: int = 32,
    table: str = "HASH_PART_0160",
    observe: Callable[[int], None] | None = None,
    stop: Callable[[], bool],
) -> None:
    """Make the DuckDB file `path` with the reference table, or keep one that is already right.

    A file built before with the same rows, partitions, table name and generator is left as it is;
    another reference table is replaced. The file is built beside its place, as `<path>.building`,
    and renamed when it is complete; whatever ends the build early, what was there before stays.
    Memory stays under about 3 GB whatever the number of rows.

    Args:
        path: The file; its directory is created.
        rows: Rows of the table, 1 or more.
        partitions: 1 to 256; row r is in partition `hash(key) % partitions`, counted from 0.
        table: Name of the table in the schema `main`.
        observe: Told the rows laid down so far, a few times a second.
        stop: Asked a few times a second whether to give up.

    Raises:
        UsageError: `rows` or `partitions` is out of range.
        ConfigError: DuckDB is not installed.
        OutputFailed: `path` is something else, another process is building it, or the directory
            refuses or is full.
        Interrupted: `stop` returned True.
    """
    if rows < 1:
        raise UsageError(f"cannot build a reference table of {rows} rows", "give --rows 1 or more")
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(
            f"cannot build a reference table of {partitions} partitions",
            f"choose 1 to {MAX_PARTITIONS} partitions",
        )
    if is_current(path, rows, partitions=partitions, table=table):
        return
    with _database(path) as (database, building):
        _lay_down(database, rows, partitions, table, _Pulse(observe, stop))
        _record_partitions(database, rows, partitions, table)
        label = literal(_label(rows, partitions))
        database.execute(f"COMMENT ON TABLE {quoted(table)} IS {label}")
        database.execute("CHECKPOINT")
        database.close()
        _publish(building, path)


def is_current(
    path: Path, rows: int, *, partitions: int = 32, table: str = "HASH_PART_0160"
) -> bool:
    """Return whether `build_reference_table` with these arguments would keep the file at `path`.

    Raises:
        ConfigError: DuckDB is not installed.
        OutputFailed: `path` exists and is not a reference table.
    """
    return path.exists() and _existing_label(path, table) == _label(rows, partitions)


def _existing_label(path: Path, table: str) -> str:
    """Return what the reference table in the file says of itself."""
    duckdb = _driver()
    hint = "choose another directory or remove the file"
    try:
        with duckdb.connect(str(path), read_only=True) as database:
            found = database.execute(
                "SELECT comment FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = ?",
                [table],
            ).fetchone()
    except duckdb.Error as error:
        raise OutputFailed(
            f"{path} exists, but DuckDB cannot read it: {_first_line(error)}", hint
        ) from error
    if found is None or not str(found[0]).startswith(_LABEL):
        raise OutputFailed(f"{path} exists, but does not contain the reference table {table}", hint)
    return str(found[0])


class _Pulse:
    """Tells how far the build is and gives up when asked to."""

    def __init__(self, observe: Callable[[int], None] | None, stop: Callable[[], bool]) -> None:
        self._observe = observe
        self._stop = stop

    def beat(self, rows: int | None = None) -> None:
        if rows is not None and self._observe is not None:
            self._observe(rows)
        if self._stop():
            raise Interrupted(
                "the reference table was not finished", "run the same command again to build it"
            )


@contextmanager
def _database(path: Path) -> Iterator[tuple[Any, Path]]:
    """Open a new database under the building name; in the end remove it unless it was renamed."""
    duckdb = _driver()
    building = path.with_name(path.name + ".building")
    spill = path.with_name(path.name + ".building.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(building, spill)
        database = duckdb.connect(str(building))
        try:
            database.execute(f"SET threads = {_threads()}")
            database.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
            database.execute(f"SET temp_directory = {literal(str(spill))}")
            database.execute("SET preserve_insertion_order = true")
            yield database, building
        finally:
            database.close()
            _remove(building, spill)
    except (duckdb.Error, OSError) as error:
        raise OutputFailed(
            f"cannot build the reference table in {path}: {_first_line(error)}",
            "check the free space and the permissions of the directory, or ask for fewer --rows",
        ) from error


def _publish(building: Path, path: Path) -> None:
    os.replace(building, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove(building: Path, spill: Path) -> None:
    """Remove what a build may have left.

    Raises:
        OutputFailed: Another process is building; DuckDB keeps a lock on the file it writes.
    """
    if building.exists():
        with building.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise OutputFailed(
                    f"another process is building {building}",
                    "wait for it, or choose another directory",
                ) from error
            building.unlink()
    building.with_name(building.name + ".wal").unlink(missing_ok=True)
    shutil.rmtree(spill, ignore_errors=True)


def _lay_down(database: Any, rows: int, partitions: int, table: str, pulse: _Pulse) -> None:
    """Insert the rows partition by partition, within one in the order of their numbers.

    Only row numbers are sorted: the wide columns are made in their final place, in slices.
    """
    database.execute("SET VARIABLE pairs = $pairs", {"pairs": PAIRS})
    database.execute("CREATE TEMP TABLE keyed (i BIGINT, p UTINYINT)")
    for first in range(0, rows, _KEY_SLICE_ROWS):
        last = min(first + _KEY_SLICE_ROWS, rows)
        database.execute(
            f"INSERT INTO keyed SELECT i, hash({KEY.expression}) % {partitions} "
            f"FROM range({first}, {last}) t(i)"
        )
        pulse.beat()
    database.execute("CREATE TEMP TABLE placed AS SELECT i FROM keyed ORDER BY p, i")
    database.execute("DROP TABLE keyed")
    columns = ", ".join(
        f"{column.name} {column.type} USING COMPRESSION uncompressed" for column in COLUMNS
    )
    database.execute(f"CREATE TABLE {quoted(table)} ({columns})")
    values = ", ".join(column.expression for column in COLUMNS)
    for first in range(0, rows, _SLICE_ROWS):
        last = min(first + _SLICE_ROWS, rows)
        database.execute(
            f"INSERT INTO {quoted(table)} SELECT {values} FROM placed "
            f"WHERE rowid BETWEEN {first} AND {last - 1}"
        )
        pulse.beat(last)


def _record_partitions(database: Any, rows: int, partitions: int, table: str) -> None:
    """Write the side table from the rowids the rows really got.

    Raises:
        UnloaderError: The rows of some partition are not one range.
    """
    found = {
        number: (first, last, count)
        for number, first, last, count in database.execute(
            f"SELECT hash({KEY.name}) % {partitions}, min(rowid), max(rowid), count(*) "
            f"FROM {quoted(table)} GROUP BY ALL"
        ).fetchall()
    }
    database.execute(
        f"CREATE TABLE {PARTITION_MAP} (table_schema VARCHAR, table_name VARCHAR, "
        "partition_name VARCHAR, position INTEGER, first_rowid BIGINT, last_rowid BIGINT)"
    )
    start = 0
    for number in range(partitions):
        first, last, count = found.get(number, (start, start - 1, 0))
        if first != start or last != start + count - 1:
            raise UnloaderError(
                f"partition {number} of {table} has {count} rows between rowids {first} and "
                f"{last}; it should begin at {start} and have no gap",
                "report this with the version of DuckDB",
            )
        start = last + 1
        name = f"{table}_P{number + 1:02d}"
        database.execute(
            f"INSERT INTO {PARTITION_MAP} VALUES ('main', ?, ?, ?, ?, ?)",
            [table, name, number + 1, first, last],
        )
    if start != rows:
        raise UnloaderError(f"{table} got {start} rows instead of {rows}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _label(rows: int, partitions: int) -> str:
    return f"{_LABEL}, generator {GENERATOR_VERSION}, {rows} rows in {partitions} partitions"


def _driver() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise missing_driver(error, "duckdb") from error
    return duckdb


def _threads() -> int:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return min(len(allowed) or os.cpu_count() or 1, _MAX_THREADS)
