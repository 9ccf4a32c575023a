"""Delta Lake tables through deltalake (delta-rs); see `table_commits.LakeFormat`.

A commit is a numbered file that only one writer can make. It names the run in a transaction id,
which the table keeps, and in the properties of the commit.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    Transaction,
    create_table_with_add_actions,
)
from msgspec import Struct
from pyarrow.fs import PyFileSystem

from partition_planner.planner import known_sum
from unloader.errors import OutputFailed, UsageError
from unloader.lakehouse.table_commits import (
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
    time_of,
)
from unloader.model import LakeTable
from unloader.redaction import redact
from writers.errors import FormatError
from writers.objects.location import Location, is_location

MARK = "delta:"
_OPTIONS = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}
_HISTORY = 1000
"""The number of commits that are searched for one that is known to be there."""


class Address(Struct, frozen=True, kw_only=True):
    """The directory of a table, or its prefix in an object store."""

    place: str
    """As a place of `--to`."""
    uri: str
    """As deltalake has it."""
    options: dict[str, str]
    """Of the object store, in the names of deltalake."""

    @classmethod
    def parse(cls, text: str) -> Address:
        place = text.removeprefix(MARK)
        if not place:
            raise UsageError(f"--to {text} does not name a table", "write delta:DIRECTORY")
        if "://" in place and not is_location(place):
            raise UsageError(
                "--to delta: is neither a directory nor a place of a known store; it is not "
                "shown because it may contain credentials",
                "write delta:DIRECTORY, delta:s3://BUCKET/PREFIX, delta:gs:// or delta:az://; "
                "put the credentials into the environment",
            )
        if not is_location(place):
            path = os.path.abspath(place)
            return cls(place=path, uri=path, options={})
        try:
            found = Location.parse(place)
        except FormatError as error:
            raise UsageError(f"--to: {error.message}", error.hint) from None
        options = {_OPTIONS[name]: value for name, value in found.options if name in _OPTIONS}
        if found.option("endpoint").startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        uri = f"{found.scheme}://{found.bucket}/{found.key}"
        return cls(place=str(found), uri=uri, options=options)


def absolute_name(name: str) -> str:
    return f"{MARK}{Address.parse(name).place}"


def prepared(wanted: LakeTable, schema: pa.Schema) -> LakeTable:
    check_for_all_rows(wanted)
    address = Address.parse(wanted.name)
    table = load(address)
    check_wanted(wanted, is_there=table is not None)
    if table is None:
        table_schema(schema)
    else:
        _check_plain(table, wanted.name)
        check_columns(schema, table, wanted.name)
    return LakeTable(
        kind="delta",
        name=absolute_name(wanted.name),
        save_mode=wanted.save_mode,
        location=address.uri,
        files=address.uri,
        table_id="" if table is None else str(table.metadata().id),
        base="" if table is None else str(table.version()),
    )


def data_place(name: str) -> str:
    return Address.parse(name).place


def committed(table: LakeTable, run_id: str) -> str:
    address = Address.parse(table.name)
    found = load(address)
    return "" if found is None else _version_of_run(address, found, run_id)


def run_log(table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    address = Address.parse(table.name)
    found = load(address)
    check_is_the_table(table, "" if found is None else str(found.metadata().id))
    assert found is not None
    home = table.files.removeprefix(f"{table.location}/")
    files = {f"{home}/{name}": name for name in names}
    with answering(address):
        used = _rows_of_files(found)
        if files.keys() <= used.keys():
            rows = known_sum([used[path] for path in files])
            return RunLog(is_known=True, rows=rows, changes=())
        left = {path: name for path, name in files.items() if path not in used}
        is_known = found.transaction_version(_transaction(run_id)) is not None
        rows, changes = None, []
        for version, lines in _commits(address, found.version()):
            if _has_run(lines, run_id):
                rows = known_sum([_rows_in(each) for each in _actions("add", lines)])
                break
            removed = {unquote(each["path"]): each for each in _actions("remove", lines)}
            mine = sorted(removed.keys() & left.keys())
            if not mine:
                continue
            info = next(iter(_actions("commitInfo", lines)), {})
            changes.append(
                LaterChange(
                    snapshot=str(version),
                    operation=str(info.get("operation", "")),
                    time=time_of(info["timestamp"]) if "timestamp" in info else "",
                    keeps_rows=not any(removed[path].get("dataChange", True) for path in mine),
                    files=tuple(left.pop(path) for path in mine),
                    removed_rows=_rows_before(found, version, list(removed)),
                    added_rows=known_sum([_rows_in(each) for each in _actions("add", lines)]),
                )
            )
        changes.reverse()
        if left:
            forgotten = tuple(sorted(left.values()))
            changes.append(
                LaterChange(snapshot="", operation="", time="", keeps_rows=False, files=forgotten)
            )
        return RunLog(is_known=is_known, rows=rows, changes=tuple(changes))


def attempt(commit: Commit) -> Committed | None:
    address = Address.parse(commit.table.name)
    table = load(address)
    if table is not None and (found := _version_of_run(address, table, commit.run_id)):
        return Committed(snapshot=found, is_new=False)
    path = commit.first_file().removeprefix(f"{commit.table.location}/")
    with answering(address), _store(address).open_input_file(path) as file:
        schema = pq.read_schema(file)
    if table is None:
        check_is_the_same(commit, "")
    else:
        check_is_the_same(commit, str(table.metadata().id), str(table.version()))
        _check_plain(table, commit.table.name)
        check_columns(schema, table, commit.table.name)
    with answering(address):
        try:
            _write(address, table, table_schema(schema), commit)
        except CommitFailedError:
            return None
        except DeltaError:
            if table is None and load(address) is not None:
                return None  # Another program has created it meanwhile.
            raise
    done = load(address)
    assert done is not None
    return Committed(snapshot=_version_of_run(address, done, commit.run_id), is_new=True)


def _check_plain(table: DeltaTable, name: str) -> None:
    """Refuse a table whose rules on rows would not be kept by files that are only added."""
    known = table.metadata()
    rules = [
        each
        for each in known.configuration
        if each.startswith("delta.constraints.") or each == "delta.columnMapping.mode"
    ]
    if known.partition_columns:
        rules.append(f"partitions by {', '.join(known.partition_columns)}")
    if rules:
        raise OutputFailed(
            f"the table {name} has {', '.join(rules)}, and added files do not follow these rules",
            "write to a table without such rules",
        )


def _write(address: Address, table: DeltaTable | None, schema: pa.Schema, commit: Commit) -> None:
    base = f"{commit.table.location}/"
    files = [each for each in commit.files if each.rows]
    # In the names that Spark uses.
    metrics = {
        "numFiles": str(len(files)),
        "numOutputRows": str(sum(each.rows for each in files)),
        "numOutputBytes": str(sum(each.bytes for each in files)),
    }
    actions = [
        AddAction(
            path=each.path.removeprefix(base),  # The library encodes it.
            size=each.bytes,
            partition_values={},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=f'{{"numRecords": {each.rows}}}',
        )
        for each in files
    ]
    said = CommitProperties(
        custom_metadata={**commit.properties, "operationMetrics": metrics},
        max_commit_retries=0,  # A repetition by the library would not look for the run again.
        app_transactions=[Transaction(_transaction(commit.run_id), 1)],
    )
    if table is None:
        create_table_with_add_actions(
            address.uri,
            Schema.from_arrow(schema),
            actions,
            mode="error",
            storage_options=address.options,
            commit_properties=said,
        )
    else:
        mode = "overwrite" if commit.table.save_mode == "overwrite" else "append"
        table.create_write_transaction(
            [*actions], mode, Schema.from_arrow(schema), commit_properties=said
        )


def _transaction(run_id: str) -> str:
    return f"unloader:{run_id}"


def _version_of_run(address: Address, table: DeltaTable, run_id: str) -> str:
    """Return the version of a run's commit, from the log: the library's history may be wrong."""
    if table.transaction_version(_transaction(run_id)) is None:
        return ""
    newest = table.version()
    for version, lines in _commits(address, newest):
        if _has_run(lines, run_id):
            return str(version)
    return f"at most {newest}"


def _commits(address: Address, newest: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the newest known commits with their lines (actions), the newest first."""
    store = _store(address)
    for version in range(newest, max(newest - _HISTORY, -1), -1):
        try:
            with (
                answering(address),
                store.open_input_stream(f"_delta_log/{version:020}.json") as log,
            ):
                lines = log.read().splitlines()
        except OutputFailed as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return  # Old commits are cleaned away.
            raise
        yield version, lines


def _has_run(lines: Sequence[bytes], run_id: str) -> bool:
    return any(each["appId"] == _transaction(run_id) for each in _actions("txn", lines))


def _actions(kind: str, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    mark = f'"{kind}"'.encode()
    found = (json.loads(line).get(kind) for line in lines if mark in line)
    return [each for each in found if each is not None]


def _rows_of_files(table: DeltaTable) -> dict[str, int | None]:
    """Return the files of a table with the rows of each; None where the log does not say them."""
    found = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    paths = [unquote(path) for path in found["path"]]
    return dict(zip(paths, found.get("num_records", [None] * len(paths)), strict=True))


def _rows_before(table: DeltaTable, version: int, paths: Sequence[str]) -> int | None:
    """Return the rows of some files in the version before; None if the log does not say it."""
    try:
        table.load_as_version(version - 1)
    except DeltaError:
        return None  # The log begins later.
    rows = _rows_of_files(table)
    return known_sum([rows.get(path) for path in paths])


def _rows_in(add: dict[str, Any]) -> int | None:
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    return None if rows is None else int(rows)


def _store(address: Address) -> PyFileSystem:
    """Return what reads and lists the files of a table, below its directory."""
    return PyFileSystem(DeltaStorageHandler(address.uri, options=address.options))


def load(address: Address) -> DeltaTable | None:
    """Return a table as it is now; None if it does not exist."""
    with answering(address):
        try:
            return DeltaTable(address.uri, storage_options=address.options)
        except TableNotFoundError:
            return None


@contextmanager
def answering(address: Address) -> Iterator[None]:
    """Translate errors of deltalake."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise OutputFailed(
            f"the Delta table {address.place} refused: {redact(text)}",
            "check its name, the credentials and their permissions",
        ) from error


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table that holds such files, as Arrow has them."""
    return pa.schema([pa.field(each.name, _type(each), each.nullable) for each in schema])


def check_columns(schema: pa.Schema, table: DeltaTable, name: str) -> None:
    wanted = Schema.from_arrow(table_schema(schema)).fields
    check_alike(map(_column, wanted), map(_column, table.schema().fields), name)


def _column(field: Any) -> Column:
    return Column(
        name=field.name,
        kind=str(getattr(field.type, "type", field.type)),
        nullable=field.nullable,
        rules=tuple(field.metadata or ()),
    )


def _type(field: pa.Field) -> pa.DataType:
    return exact_type(
        field,
        "Delta",
        _TYPES,
        lambda zoned: pa.timestamp("us", "UTC" if zoned else None),
        pa.decimal128,
    )


_TYPES = {
    str(each): each
    for each in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.string(), pa.binary()),
    )
}
