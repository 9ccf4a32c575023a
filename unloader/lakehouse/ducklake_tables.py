"""DuckLake tables; see `unloader.lakehouse.table_commits.LakeFormat`.

A catalog is a database: a file of DuckDB, which one process opens at a time, or SQLite, PostgreSQL
or MySQL. It is never made here, nor brought to another version.

A commit is a snapshot of the whole catalog, and a number of it that only one writer can take. It
names the run in its properties, and each file of the run has the run's id in its path.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection
from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.lakehouse.table_commits import (
    RUN_ID,
    Column,
    Commit,
    Committed,
    LaterChange,
    RunLog,
    check_alike,
    check_for_all_rows,
    check_is_the_same,
    check_is_the_table,
    check_wanted,
    exact_type,
    place_of,
    time_of,
)
from unloader.model import LakeTable
from unloader.redaction import redact
from unloader.request.locations import holds_password
from unloader.sources.statement import quoted
from writers.objects.location import below, is_location

MARK = "ducklake:"
CATALOG = "lake"
"""The name that a catalog has within a connection."""
RECORDS = f"__ducklake_metadata_{CATALOG}"
"""The name that its own tables have there."""

_EXTENSIONS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner", "mysql": "mysql_scanner"}
"""What DuckDB needs for catalogs in other databases, by what their names begin with."""
_BUSY = ("could not set lock", "conflicting lock", "already attached by", "database is locked")
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_PATTERN = re.compile(r"[\[*?]")
"""What DuckDB takes for a pattern in the path of a file."""

_Snapshots = dict[str, tuple[int, tuple[str, ...]]]
"""Time in microseconds and operations on a table, by the number of the snapshot, in order."""


class Address(Struct, frozen=True, kw_only=True):
    catalog: str
    """As DuckDB attaches it, without its mark."""
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Address:
        rest = text.removeprefix(MARK)
        if holds_password(rest):
            raise UsageError(
                "--to ducklake: contains a password, which every user of this machine could see",
                "leave the password out: the catalog's client reads it from PGPASSWORD, "
                "~/.pgpass or MYSQL_PWD",
            )
        catalog, _, named = rest.rpartition("/")
        schema, dot, table = named.partition(".")
        if not dot:
            schema, table = "main", named
        if not catalog or not schema or not table:
            raise UsageError(
                f"--to {text} does not name a table",
                "write ducklake:CATALOG/SCHEMA.TABLE, such as "
                "ducklake:/lake/catalog.ducklake/main.orders",
            )
        kind, mark, path = catalog.partition(":")
        if not mark or kind not in _EXTENSIONS:
            catalog = os.path.abspath(catalog)
        elif kind == "sqlite":
            catalog = f"{kind}:{os.path.abspath(path)}"
        return cls(catalog=catalog, schema=schema, table=table)

    @property
    def name(self) -> str:
        """The table as `--to` has it, so that it means the same from any directory."""
        return f"{MARK}{self.catalog}/{self.schema}.{self.table}"


@contextmanager
def attached(address: Address, *, to_write: bool = False) -> Iterator[DuckDBPyConnection]:
    """Open the catalog, or wait for it; ConfigError without a library, OutputFailed or `Busy`."""
    # DuckDB must not download extensions unasked.
    config = {"threads": 1, "autoinstall_known_extensions": False}
    with duckdb.connect(":memory:", config=config) as connection:
        extensions(connection, address.catalog)
        # Repeated by DuckDB, a commit would not look again for the run.
        connection.execute("SET ducklake_max_retry_count = 0")
        try:
            _attach(connection, address, to_write=to_write)
            yield connection
        except duckdb.Error as error:
            text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            kind = Busy if _is_busy(error) else OutputFailed
            raise kind(
                f"the DuckLake catalog {redact(address.catalog)} refused: {redact(text)}",
                "check its name and its permissions, and close other programs that keep it open",
            ) from error


class Busy(OutputFailed):
    """Another process has the catalog, or was faster. Nothing was changed."""


def _is_busy(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, duckdb.TransactionException) or any(each in text for each in _BUSY)


def _attach(connection: DuckDBPyConnection, address: Address, *, to_write: bool) -> None:
    where = f"ducklake:{address.catalog}".replace("'", "''")
    options = "CREATE_IF_NOT_EXISTS false" + ("" if to_write else ", READ_ONLY")
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute(f"ATTACH '{where}' AS {CATALOG} ({options})")
            return
        except duckdb.InvalidInputException as error:
            if "does not exist" not in str(error):
                raise
            raise OutputFailed(
                f"the DuckLake catalog {redact(address.catalog)} does not exist",
                "check its name, or create it in DuckDB: ATTACH 'ducklake:CATALOG' AS lake "
                "(DATA_PATH 'DIRECTORY')",
            ) from error
        except duckdb.Error as error:
            if not _is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_LOOK_SECONDS)


def extensions(connection: DuckDBPyConnection, catalog: str) -> None:
    """Load what a connection needs for a catalog, as DuckDB or pip has installed it."""
    other = _EXTENSIONS.get(catalog.partition(":")[0])
    for extension in filter(None, ("ducklake", other)):
        package, name = f"duckdb_extension_{extension}", extension
        found = find_spec(package)
        if found is not None and found.origin is not None:
            base = Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}"
            file = base / f"{extension}.duckdb_extension"
            name = str(file).replace("'", "''") if file.exists() else extension
        try:
            connection.execute(f"LOAD '{name}'")
        except duckdb.Error as error:
            raise ConfigError(
                f"DuckDB {duckdb.__version__} has no extension {extension!r}, which this table "
                "needs",
                f"install it once with: python -c \"import duckdb; duckdb.sql('INSTALL "
                f"{extension}')\", or pip install {package.replace('_', '-')}=="
                f"{duckdb.__version__}",
            ) from error


def absolute_name(name: str) -> str:
    return Address.parse(name).name


def prepared(wanted: LakeTable, schema: pa.Schema) -> LakeTable:
    check_for_all_rows(wanted)
    address = Address.parse(wanted.name)
    with attached(address) as lake:
        place = _place(lake, address)
        table_id, number = _table(lake, address)
        check_wanted(wanted, is_there=bool(table_id))
        columns = columns_of(schema)
        if table_id:
            _check_plain(lake, address.name, number)
            check_alike(columns, _columns(lake, address), wanted.name)
        return LakeTable(
            kind="ducklake",
            name=address.name,
            save_mode=wanted.save_mode,
            location=place,
            files=place,
            table_id=table_id,
            base=str(_newest_snapshot(lake)),
        )


def data_place(name: str) -> str:
    address = Address.parse(name)
    with attached(address) as lake:
        return _place(lake, address)


def committed(table: LakeTable, run_id: str) -> str:
    with attached(Address.parse(table.name)) as lake:
        return _snapshot_of_run(lake, run_id)


def run_log(table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    address = Address.parse(table.name)
    with attached(address) as lake:
        table_id, number = _table(lake, address)
        check_is_the_table(table, table_id)
        own = _snapshot_of_run(lake, run_id)
        records = lake.execute(
            f"SELECT path, end_snapshot, record_count FROM {RECORDS}.ducklake_data_file "
            "WHERE table_id = ? AND contains(path, ? || '/')",
            [number, run_id],
        ).fetchall()
        known = {path.rpartition("/")[2]: (end, rows) for path, end, rows in records}
        # Not by `ducklake_snapshots`, which leaves out compactions in DuckDB 1.4.
        changes = lake.execute(
            "SELECT snapshot_id, epoch_us(snapshot_time::TIMESTAMPTZ), changes_made "
            f"FROM {RECORDS}.ducklake_snapshot JOIN {RECORDS}.ducklake_snapshot_changes "
            "USING (snapshot_id) ORDER BY snapshot_id"
        ).fetchall()
        of_table = re.compile(rf"(?:^|,)(\w+):{number}(?=,|$)")
        snapshots: _Snapshots = {
            str(snapshot): (time, tuple(of_table.findall(done or "")))
            for snapshot, time, done in changes
        }
        # A file that was deleted stays on record, with the snapshot that deleted it. A merged file
        # leaves the record: its snapshot is known only if just one since the run merged files.
        merging = ""
        if own in snapshots:
            later = [each for each in snapshots if int(each) > int(own)]
            merges = [each for each in later if any(map(_moves_rows, snapshots[each][1]))]
            is_whole = len(later) == int(next(reversed(snapshots))) - int(own)
            merging = merges[0] if is_whole and len(merges) == 1 else ""
        files: dict[str, list[str]] = {}
        for name in sorted(names):
            if name not in known:
                files.setdefault(merging, []).append(name)
            elif known[name][0] is not None:
                files.setdefault(str(known[name][0]), []).append(name)
        changes = []
        for by, some in files.items():
            microseconds, operations = snapshots.get(by, (None, ()))
            changes.append(
                LaterChange(
                    snapshot=by,
                    operation=", ".join(sorted(operations)),
                    time="" if microseconds is None else time_of(microseconds / 1000),
                    keeps_rows=bool(operations) and all(map(_moves_rows, operations)),
                    files=tuple(some),
                )
            )
        if known.keys() >= set(names):
            rows = sum(each for _, each in known.values())
        else:
            said = _said_of_run(lake, run_id)
            text = None if said is None else said[1].get("unloader.rows")
            rows = None if text is None else int(text)
        return RunLog(
            is_known=bool(own),
            rows=rows,
            changes=tuple(sorted(changes, key=lambda each: (not each.time, each.time))),
        )


def attempt(commit: Commit) -> Committed | None:
    address = Address.parse(commit.table.name)
    try:
        with attached(address, to_write=True) as lake:
            newest = _newest_snapshot(lake)
            if found := _snapshot_of_run(lake, commit.run_id):
                return Committed(snapshot=found, is_new=False)
            try:
                schema = pq.read_schema(commit.first_file())
            except (OSError, pa.ArrowException) as error:
                raise OutputFailed(
                    f"a file of run {commit.run_id} cannot be read: {error}",
                    "find out which program changed it, and run again",
                ) from error
            _check_is_as_it_was(lake, address, schema, commit)
            # Everything above was read outside of the transaction, because a connection that reads
            # a catalog in SQLite cannot write to it. The commit fails if the snapshot has changed.
            lake.execute("BEGIN")
            if _newest_snapshot(lake) != newest:
                return None
            _write(lake, address, schema, commit)
            lake.execute("COMMIT")
            return Committed(snapshot=_snapshot_of_run(lake, commit.run_id), is_new=True)
    except Busy:
        return None


def _place(lake: DuckDBPyConnection, address: Address) -> str:
    """Return where the files of a table lie: below the catalog's data, by the table's name."""
    settings = dict(lake.execute(f"SELECT key, value FROM {RECORDS}.ducklake_metadata").fetchall())
    if settings.get("encrypted") == "true":
        raise OutputFailed(
            f"the catalog of {address.name} encrypts its files, so only the catalog can write them",
            "use a catalog without ENCRYPTED",
        )
    known = lake.execute(
        f"SELECT 1 FROM {RECORDS}.ducklake_schema WHERE schema_name = ? AND end_snapshot IS NULL",
        [address.schema],
    ).fetchone()
    if known is None:
        raise OutputFailed(
            f"the catalog of {address.name} has no schema {address.schema!r}",
            "create it with CREATE SCHEMA, or check the name",
        )
    place = place_of(str(settings["data_path"]))
    if is_location(place):
        raise OutputFailed(
            f"the data of {address.name} is in {place}, but files can be added only on a file "
            "system",
            "use a catalog whose DATA_PATH is a directory",
        )
    return below(below(place, address.schema), address.table)


def _table(lake: DuckDBPyConnection, address: Address) -> tuple[str, int]:
    """Return the unique id of the table, and its number in the records; "" and 0 without one."""
    found = lake.execute(
        f"SELECT t.table_uuid, t.table_id FROM {RECORDS}.ducklake_table t "
        f"JOIN {RECORDS}.ducklake_schema s USING (schema_id) "
        "WHERE t.table_name = ? AND s.schema_name = ? "
        "AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
        [address.table, address.schema],
    ).fetchone()
    return ("", 0) if found is None else (str(found[0]), int(found[1]))


def _columns(lake: DuckDBPyConnection, address: Address) -> list[Column]:
    found = lake.execute(
        "SELECT column_name, data_type, is_nullable FROM duckdb_columns() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index",
        [CATALOG, address.schema, address.table],
    ).fetchall()
    return [Column(name=name, kind=kind, nullable=nullable) for name, kind, nullable in found]


def _check_plain(lake: DuckDBPyConnection, name: str, number: int) -> None:
    """Refuse a table with partitions: the rows of added files are not divided."""
    found = lake.execute(
        f"SELECT 1 FROM {RECORDS}.ducklake_partition_info "
        "WHERE table_id = ? AND end_snapshot IS NULL",
        [number],
    ).fetchone()
    if found is not None:
        raise OutputFailed(
            f"the table {name} has partitions, and added files are not divided into partitions",
            "write to a table without partitions",
        )


def _check_is_as_it_was(
    lake: DuckDBPyConnection, address: Address, schema: pa.Schema, commit: Commit
) -> None:
    was, (table_id, number) = commit.table, _table(lake, address)
    check_is_the_same(commit, table_id, was.base)
    base = int(was.base)
    later = lake.execute(
        f"SELECT snapshot_id, changes FROM ducklake_snapshots('{CATALOG}') WHERE snapshot_id >= ? "
        "ORDER BY snapshot_id",
        [base],
    ).fetchall()
    forgotten = later[0][0] > base + 1
    if forgotten and not commit.is_own:
        raise _forgotten(
            commit,
            "the run was committed",
            "check whether its rows are in the table; if not, clean its files and run again",
        )
    if was.save_mode == "create":
        return
    _check_plain(lake, was.name, number)
    check_alike(columns_of(schema), _columns(lake, address), was.name)
    if was.save_mode != "overwrite":
        return
    for snapshot, changes in later:
        # Changes of other tables of the catalog do not matter.
        if snapshot > base and any(str(number) in names for names in changes.values()):
            check_is_the_same(commit, table_id, str(snapshot))
    if forgotten:
        raise _forgotten(commit, "the table was changed after the run began", "run again")


def _forgotten(commit: Commit, what: str, hint: str) -> OutputFailed:
    was = commit.table
    return OutputFailed(
        f"the catalog of {was.name} no longer has its snapshots from {was.base} on, so it is "
        f"unknown whether {what} (run {commit.run_id})",
        hint,
    )


def _write(lake: DuckDBPyConnection, address: Address, schema: pa.Schema, commit: Commit) -> None:
    table = f"{CATALOG}.{quoted(address.schema)}.{quoted(address.table)}"
    if commit.table.save_mode == "create":
        columns = ", ".join(
            f"{quoted(each.name)} {each.kind}{'' if each.nullable else ' NOT NULL'}"
            for each in columns_of(schema)
        )
        lake.execute(f"CREATE TABLE {table} ({columns})")
    elif commit.table.save_mode == "overwrite":
        lake.execute(f"DELETE FROM {table}")
    for path in (each.path for each in commit.files if each.rows):
        # A directory named a=1 is not a partition.
        lake.execute(
            f"CALL ducklake_add_data_files('{CATALOG}', ?, ?, schema => ?, "
            "hive_partitioning => false)",
            [address.table, _PATTERN.sub(r"[\g<0>]", path), address.schema],
        )
    lake.execute(
        f"CALL {CATALOG}.set_commit_message('unloader', ?, extra_info => ?)",
        [f"run {commit.run_id}", json.dumps(commit.properties)],
    )


def _snapshot_of_run(lake: DuckDBPyConnection, run_id: str) -> str:
    """Return the snapshot that a run has committed; it expires together with its properties."""
    if said := _said_of_run(lake, run_id):
        return said[0]
    files = lake.execute(
        f"SELECT min(begin_snapshot) FROM {RECORDS}.ducklake_data_file "
        "WHERE contains(path, ? || '/')",
        [run_id],
    )
    found = _value(files)
    return "" if found is None else str(found)


def _said_of_run(lake: DuckDBPyConnection, run_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return a run's snapshot and the properties of its commit; None if they are forgotten."""
    found = lake.execute(
        f"SELECT snapshot_id, commit_extra_info FROM {RECORDS}.ducklake_snapshot_changes "
        "WHERE contains(commit_extra_info, ?)",
        [run_id],
    ).fetchall()
    for snapshot, text in found:
        try:
            said = json.loads(text)
        except ValueError:
            continue  # Another program wrote it.
        if isinstance(said, dict) and said.get(RUN_ID) == run_id:
            return str(snapshot), said
    return None


def _moves_rows(operation: str) -> bool:
    """Return whether an operation writes the rows that a table has to other files."""
    return operation.startswith(("merge_", "rewrite_", "compacted_"))


def _value(found: DuckDBPyConnection) -> Any:
    row = found.fetchone()
    return None if row is None else row[0]


def _newest_snapshot(lake: DuckDBPyConnection) -> int:
    """Return the number of the newest snapshot; also within a transaction that writes."""
    newest = lake.execute(f"SELECT max(snapshot_id) FROM ducklake_snapshots('{CATALOG}')")
    return int(_value(newest))


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table that holds such files."""
    return [Column(name=each.name, kind=_kind(each), nullable=each.nullable) for each in schema]


def _kind(field: pa.Field) -> str:
    return exact_type(
        field,
        "DuckLake",
        _KINDS,
        lambda zoned: "TIMESTAMP WITH TIME ZONE" if zoned else "TIMESTAMP",
        lambda precision, scale: f"DECIMAL({precision},{scale})",
    )


_KINDS = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "time64[us]": "TIME",
    "timestamp[ns]": "TIMESTAMP_NS",
    "string": "VARCHAR",
    "binary": "BLOB",
}
