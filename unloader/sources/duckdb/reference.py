"""The reference table: the shape of a published ten-billion-row Oracle table, in a DuckDB file.

`HASH_PART_0160` of the published measurement has ten columns, is hash-partitioned 32 ways on the
first, a VARCHAR2(15), is not compressed (115.7 bytes a row) and makes CSV records of 165 bytes on
average in the `sqlldr-var` dialect. So does this one. The rows are a function of their numbers
alone. Each partition is one range of rowids, and the table `unloader_partitions` in the same file
names them.

The types and their order were published: VARCHAR2, DATE, NUMBER, VARCHAR2, NUMBER with two
decimals, DATE, CHAR(8), VARCHAR2, NUMBER, VARCHAR2. The names of the columns are ours. CHAR is kept
with its blanks, as Oracle returns it. Text is random letters and digits, which compress no better
than that. All randomness is DuckDB's `hash()` of the row number, which is the same in DuckDB 1.4
and 2.0.

An Oracle DATE has whole seconds from year 1 to 9999 and beyond. It becomes TIMESTAMP, which holds
them exactly. TIMESTAMP_S would do so too, but DuckDB (1.4 and 2.0) turns it into nanoseconds for
functions such as strftime, which fails on every date after 2262.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from unloader.errors import Interrupted, OutputFailed, UnloaderError, UsageError
from unloader.sources.duckdb.catalog import PARTITION_MAP, first_line
from unloader.sources.registry import duckdb_driver
from unloader.sources.statement import literal, quoted

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
PAIRS = "".join(first + second for first in _LETTERS for second in _LETTERS)
"""Every pair of the letters: the text is drawn two characters at a time."""

_PAIRS_PER_HASH = 5
_SALTS = 64


class ReferenceColumn(NamedTuple):
    """One column: its name, its DuckDB type, and SQL for its value in row `i`."""

    name: str
    type: str
    expression: str


_YEAR_1 = -62_135_596_800
_YEAR_10000 = 253_402_300_800
"""Seconds from 1970 to 0001-01-01 and to the end of 9999-12-31."""


def _number(salt: int, span: int) -> str:
    """Return SQL for a number from 0 to `span` - 1; each of the 64 salts has a separate series.

    The salt is part of the hashed value: `hash(i, salt)` would be `hash(i)` with some bits
    inverted.
    """
    return f"(hash(i * {_SALTS} + {salt}) % {span})::BIGINT"


def _text(salt: int, shortest: int, longest: int) -> str:
    """Return SQL for random letters and digits; takes three salts, from `salt` on."""
    pairs = []
    for pair in range((longest + 1) // 2):
        nth_hash, nth_pair = divmod(pair, _PAIRS_PER_HASH)
        bits = f"(hash(i * {_SALTS} + {salt + 1 + nth_hash}) >> {nth_pair * 12})"
        place = f"({bits} % {len(PAIRS) // 2})::BIGINT * 2 + 1"
        pairs.append(f"substr(getvariable('pairs'), {place}, 2)")
    length = f"{shortest} + {_number(salt, longest - shortest + 1)}"
    return f"left(concat({', '.join(pairs)}), {length})"


def _date(salt: int, first: int, edge: int, edge_row: int) -> str:
    """Return SQL for a second from `first` to the end of 9999; `edge` in one row of a thousand."""
    seconds = f"{first} + {_number(salt, _YEAR_10000 - first)}"
    at = f"CASE WHEN i % 1000 = {edge_row} THEN {edge} ELSE {seconds} END"
    return f"make_timestamp(({at}) * 1000000)"


COLUMNS = (
    ReferenceColumn("REF_KEY", "VARCHAR", _text(0, 5, 15)),
    ReferenceColumn("VALID_FROM", "TIMESTAMP", _date(5, _YEAR_1, _YEAR_1, 1)),
    ReferenceColumn("ITEM_NO", "DECIMAL(13,0)", f"100000000000 + {_number(6, 3_900_000_000_000)}"),
    ReferenceColumn("LABEL", "VARCHAR", _text(10, 5, 15)),
    ReferenceColumn(
        "AMOUNT", "DECIMAL(12,2)", f"(10000000 + {_number(7, 90_000_000)})::DECIMAL(12,0) * 0.01"
    ),
    ReferenceColumn("VALID_TO", "TIMESTAMP", _date(8, 0, _YEAR_10000 - 1, 0)),
    ReferenceColumn("CODE", "VARCHAR", f"rpad({_text(20, 5, 8)}, 8, ' ')"),
    ReferenceColumn("GRADE", "VARCHAR", _text(30, 5, 10)),
    ReferenceColumn(
        "SERIAL_NO", "DECIMAL(15,0)", f"100000000000000 + {_number(9, 900_000_000_000_000)}"
    ),
    ReferenceColumn("REMARK", "VARCHAR", _text(40, 10, 20)),
)
"""In table order. The SQL needs the DuckDB variable `pairs` to hold `PAIRS`.

A record in the `sqlldr-var` dialect has 101 bytes beside the text and the two numbers of varying
length, 21.8 for those two (12.8 and 9) and 42.5 for the four texts: 165.3.
"""

KEY = COLUMNS[0]


GENERATOR_VERSION = 1
"""Raised whenever the same arguments would give another content."""

BYTES_PER_ROW = 120
"""Size of the file, a little over the measured 115.4 for tables of 500,000 rows and more."""

MAX_PARTITIONS = 256

_LABEL_START = "unloader reference table"
_LABEL = (
    f"{_LABEL_START}, generator {GENERATOR_VERSION}, {{rows}} rows in {{partitions}} partitions"
)

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

    Another reference table at `path` is replaced when the new one, `<path>.building`, is complete.
    Memory stays under about 3 GB. Row r is in partition `hash(key) % partitions` (1 to 256),
    counted from 0. A few times a second `observe` gets the rows written so far, and True of `stop`
    ends the build. `OutputFailed`: `path` is something else, another process is building it, or the
    directory refuses or is full.
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

    def pulse(written: int | None = None) -> None:
        if written is not None and observe is not None:
            observe(written)
        if stop():
            raise Interrupted(
                "the reference table was not finished", "run the same command again to build it"
            )

    with _database(path) as (database, building):
        database.execute("SET VARIABLE pairs = $pairs", {"pairs": PAIRS})
        database.execute("CREATE TEMP TABLE keyed (i BIGINT, p UTINYINT)")
        for first in range(0, rows, _KEY_SLICE_ROWS):
            last = min(first + _KEY_SLICE_ROWS, rows)
            database.execute(
                f"INSERT INTO keyed SELECT i, hash({KEY.expression}) % {partitions} "
                f"FROM range({first}, {last}) t(i)"
            )
            pulse()
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
            pulse(last)
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
        label = literal(_LABEL.format(rows=rows, partitions=partitions))
        database.execute(f"COMMENT ON TABLE {quoted(table)} IS {label}")
        database.execute("CHECKPOINT")
        database.close()
        os.replace(building, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def is_current(
    path: Path, rows: int, *, partitions: int = 32, table: str = "HASH_PART_0160"
) -> bool:
    """Return whether a build would keep the file; `OutputFailed` for any other file."""
    if not path.exists():
        return False
    duckdb = duckdb_driver()
    hint = "choose another directory or remove the file"
    try:
        with duckdb.connect(str(path), read_only=True) as database:
            found = database.execute(
                "SELECT comment FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = ?",
                [table],
            ).fetchone()
    except duckdb.Error as error:
        raise OutputFailed(
            f"{path} exists, but DuckDB cannot read it: {first_line(error)}", hint
        ) from error
    if found is None or not str(found[0]).startswith(_LABEL_START):
        raise OutputFailed(f"{path} exists, but does not contain the reference table {table}", hint)
    return bool(found[0] == _LABEL.format(rows=rows, partitions=partitions))


@contextmanager
def _database(path: Path) -> Iterator[tuple[Any, Path]]:
    """Open a new database under the building name; in the end remove it unless it was renamed."""
    duckdb = duckdb_driver()
    building = path.with_name(path.name + ".building")
    spill = path.with_name(path.name + ".building.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(building, spill)
        database = duckdb.connect(str(building))
        try:
            allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
            threads = min(len(allowed) or os.cpu_count() or 1, _MAX_THREADS)
            database.execute(f"SET threads = {threads}")
            database.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
            database.execute(f"SET temp_directory = {literal(str(spill))}")
            database.execute("SET preserve_insertion_order = true")
            yield database, building
        finally:
            database.close()
            _remove(building, spill)
    except (duckdb.Error, OSError) as error:
        raise OutputFailed(
            f"cannot build the reference table in {path}: {first_line(error)}",
            "check the free space and the permissions of the directory, or ask for fewer --rows",
        ) from error


def _remove(building: Path, spill: Path) -> None:
    """Remove what a build may have left; `OutputFailed` where DuckDB still locks the file."""
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
