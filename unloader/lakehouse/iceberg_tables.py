"""Apache Iceberg tables through pyiceberg; see `unloader.lakehouse.table_commits.LakeFormat`.

A catalog takes a commit only if the branch is where the commit expects it. A process that looked
through all snapshots and did not find the run is therefore refused if another process has committed
the run since. It looks again then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.utils.config import Config

from unloader.errors import ConfigError, OutputFailed, UsageError
from unloader.lakehouse.iceberg_files import (
    check_condition,
    check_filter,
    check_spec,
    data_files,
    field_ids,
    partition_spec,
    replaced_files,
    schema_of,
    sort_order,
    table_schema,
)
from unloader.lakehouse.table_commits import (
    RUN_ID,
    Commit,
    Committed,
    LaterChange,
    RunLog,
    check_is_the_same,
    check_is_the_table,
    check_wanted,
    place_of,
    time_of,
)
from unloader.model import LakeTable
from unloader.redaction import learn_fields, redact

MARK = "iceberg://"
MAIN = "main"
_CHECK = "check the catalog and its configuration: ~/.pyiceberg.yaml or PYICEBERG_CATALOG__..."


class Name(Struct, frozen=True, kw_only=True):
    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Name:
        catalog, _, rest = text.removeprefix(MARK).partition("/")
        parts = tuple(rest.split("."))
        if not catalog or len(parts) < 2 or not all(parts) or "/" in rest:
            raise UsageError(
                f"--to {text} is not the name of an Iceberg table",
                "write it as iceberg://CATALOG/NAMESPACE.TABLE",
            )
        return cls(catalog=catalog, identifier=parts)


def absolute_name(name: str) -> str:
    return name


def prepared(wanted: LakeTable, schema: pa.Schema) -> LakeTable:
    name = Name.parse(wanted.name)
    catalog = open_catalog(name)
    table = loaded(catalog, name)
    check_wanted(wanted, is_there=table is not None)
    if table is None:
        columns = table_schema(schema)
        check_spec(partition_spec(columns, wanted.partition_by), columns, wanted.name)
        made = _to_be_made(catalog, name, columns)
        return replace(
            wanted,
            replace_where=None,
            branch=None,
            location=str(made.location()).rstrip("/"),
            files=data_location(made),
            field_ids=tuple(each.field_id for each in columns.fields),
        )
    ids = field_ids(schema, table.schema(), wanted.name)
    check_spec(table.spec(), table.schema(), wanted.name)
    if wanted.branch not in (None, MAIN) and not table.metadata.snapshots:
        raise OutputFailed(
            f"the table {wanted.name} has no snapshot yet, so it cannot have a branch",
            "write to it without --branch first",
        )
    ref = table.metadata.refs.get(wanted.branch or MAIN)
    if ref is not None and ref.snapshot_ref_type != "branch":
        raise UsageError(
            f"{wanted.branch} is a tag of {wanted.name}, not a branch", "choose another name"
        )
    found = replace(
        wanted,
        location=str(table.location()).rstrip("/"),
        files=data_location(table),
        table_id=str(table.metadata.table_uuid),
        base=_head_of(table, wanted.branch),
        field_ids=ids,
        partition_by=(),
        sorted_by=(),
    )
    if wanted.replace_where is not None:
        check_filter(wanted.replace_where, table.schema())
        with answering(name):
            replaced_files(table, found)
    return found


def data_place(name: str) -> str:
    known = Name.parse(name)
    catalog = open_catalog(known)
    table: Any = loaded(catalog, known)
    if table is None:
        table = _to_be_made(catalog, known, table_schema(pa.schema([("x", pa.int64())])))
    # With the catalog's options of the store.
    location, properties = data_location(table), table.io.properties
    options = (("endpoint", "s3.endpoint"), ("region", "s3.region"))
    chosen = [f"{option}={properties[key]}" for option, key in options if properties.get(key)]
    return place_of(location, "&".join(chosen) if location.startswith("s3") else "")


def _to_be_made(catalog: Catalog, name: Name, schema: Schema) -> Any:
    """Return a table as it would be made; its namespace exists."""
    with answering(name):
        with suppress(NoSuchNamespaceError):
            if catalog.namespace_exists(name.identifier[:-1]):
                return catalog.create_table_transaction(name.identifier, schema)._table
        space = ".".join(name.identifier[:-1])
        raise OutputFailed(
            f"the catalog {name.catalog} has no namespace {space}",
            f"create it, for instance with: pyiceberg create namespace {space}",
        )


def committed(table: LakeTable, run_id: str) -> str:
    name = Name.parse(table.name)
    found = loaded(open_catalog(name), name)
    if found is None or table.table_id not in ("", str(found.metadata.table_uuid)):
        return ""
    snapshot = _snapshot_of_run(found, run_id)
    if not snapshot:
        _check_remembers(found, table, run_id)
    return snapshot


def run_log(table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    name = Name.parse(table.name)
    found = loaded(open_catalog(name), name)
    check_is_the_table(table, "" if found is None else str(found.metadata.table_uuid))
    assert found is not None
    with answering(name):
        return _log_of_run(found, table, run_id, names)


def attempt(commit: Commit) -> Committed | None:
    name = Name.parse(commit.table.name)
    catalog = open_catalog(name)
    table = loaded(catalog, name)
    if table is not None and (found := _snapshot_of_run(table, commit.run_id)):
        return Committed(snapshot=found, is_new=False)
    with answering(name):
        _check_is_as_it_was(table, commit)
        if table is not None:
            # Only in this object: a repetition by the library would not look for the run again.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = table.transaction()
        else:
            io = catalog._load_file_io(location=commit.table.location)
            schema = table_schema(schema_of(io, commit))
            transaction = catalog.create_table_transaction(
                name.identifier,
                schema,
                location=commit.table.location,
                partition_spec=partition_spec(schema, commit.table.partition_by),
                sort_order=sort_order(schema, commit.table.sorted_by),
            )
        try:
            _write(transaction, commit, table)
        except (CommitFailedException, TableAlreadyExistsError):
            return None
        try:
            done = transaction.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError):
            return None
        except ValidationException:
            raise
        except known_errors() as error:
            raise OutputFailed(
                f"the catalog {name.catalog} did not answer whether the commit was done: "
                f"{said(error)}",
                "check that the catalog works; then run the next command, which commits the run "
                "unless that was done",
            ) from error
    return Committed(snapshot=_snapshot_of_run(done, commit.run_id), is_new=True)


def _check_is_as_it_was(table: Table | None, commit: Commit) -> None:
    """Refuse a commit to another table, over later rows, or a possible second commit of a run."""
    was, run = commit.table, f"run {commit.run_id}"
    if table is None:
        check_is_the_same(commit, "")
        return
    check_is_the_same(commit, str(table.metadata.table_uuid), _head_of(table, was.branch))
    if not commit.is_own:
        _check_remembers(table, was, commit.run_id)
    field_ids_now = field_ids(schema_of(table.io, commit), table.schema(), was.name)
    if field_ids_now != was.field_ids:
        raise OutputFailed(
            f"the columns of {was.name} were replaced after {run} began", "run again"
        )


def _write(transaction: Transaction, commit: Commit, table: Table | None) -> None:
    branch = commit.table.branch or MAIN
    metadata = transaction.table_metadata
    if branch not in metadata.refs and MAIN in metadata.refs:
        with ManageSnapshots(transaction) as refs:
            refs.create_branch(metadata.refs[MAIN].snapshot_id, branch)
    snapshot = transaction.update_snapshot(
        snapshot_properties=dict(commit.properties), branch=branch
    )
    new = data_files(transaction._table.io, transaction.table_metadata, commit)
    producer: Any
    if commit.table.save_mode == "overwrite":
        gone = [] if table is None else replaced_files(table, commit.table)
        check_condition(new, transaction.table_metadata, commit)
        producer = snapshot.overwrite()
        producer.delete_by_predicate(AlwaysTrue())
        for each in gone:
            producer.delete_data_file(each)
    else:
        producer = snapshot.fast_append()
    with producer:
        for each in new:
            producer.append_data_file(each)


def open_catalog(name: Name) -> Catalog:
    try:
        learn_fields(Config().get_catalog_config(name.catalog) or {})
        catalog = load_catalog(name.catalog)
        # A REST catalog adds properties, and may hand out credentials.
        learn_fields(catalog.properties)
        return catalog
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the catalog {name.catalog} needs a library that is not installed: {error}",
            "pip install 'unloader[iceberg]', or the extra of pyiceberg that the catalog needs",
        ) from error
    except known_errors() as error:
        raise ConfigError(
            f"cannot open the Iceberg catalog {name.catalog}: {said(error)}", _CHECK
        ) from error


def loaded(catalog: Catalog, name: Name) -> Table | None:
    """Return a table as it is now; None if it does not exist."""
    with answering(name):
        try:
            found = catalog.load_table(name.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
    learn_fields(found.io.properties)
    return found


@contextmanager
def answering(name: Name) -> Iterator[None]:
    """Translate the errors of a catalog."""
    try:
        yield
    except known_errors() as error:
        raise OutputFailed(
            f"the Iceberg catalog {name.catalog} refused "
            f"{'.'.join(name.identifier)}: {said(error)}",
            _CHECK,
        ) from error


def known_errors() -> tuple[type[Exception], ...]:
    """Return the errors of catalogs and stores whose libraries are loaded."""
    own = [each for each in vars(exceptions).values() if isinstance(each, type)]
    others = (
        ("sqlalchemy.exc", "SQLAlchemyError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
    )
    known = [getattr(sys.modules[name], each) for name, each in others if name in sys.modules]
    errors = (each for each in (*own, *known) if issubclass(each, Exception))
    return (*errors, OSError, ValueError)


def data_location(table: Any) -> str:
    """Return where the files of a table belong, as its records write it."""
    chosen = table.properties.get("write.data.path") if hasattr(table, "properties") else None
    return str(chosen or f"{str(table.location()).rstrip('/')}/data").rstrip("/")


def said(error: Exception) -> str:
    """Return the text of an error in one line, without a secret."""
    return redact(f"{type(error).__name__}: {error}".strip().splitlines()[0])


def _snapshot_of_run(table: Table, run_id: str) -> str:
    """Return the snapshot that records a run; empty if no snapshot records it."""
    found = _of_run(table.metadata.snapshots, run_id)
    return "" if found is None else str(found.snapshot_id)


def _of_run(snapshots: Iterable[Snapshot], run_id: str) -> Snapshot | None:
    return next((each for each in snapshots if _property(each, RUN_ID) == run_id), None)


def _property(snapshot: Snapshot, name: str) -> str | None:
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(name)


def _head_of(table: Table, branch: str | None) -> str:
    """Return the newest snapshot of a branch, of main for a new branch; empty without one."""
    refs = table.metadata.refs
    ref = refs.get(branch or MAIN) or refs.get(MAIN)
    return "" if ref is None else str(ref.snapshot_id)


def _check_remembers(table: Table, was: LakeTable, run_id: str) -> None:
    """Check that a run without a snapshot was never committed."""
    known = table.metadata.snapshots
    if was.base:
        sure = any(str(each.snapshot_id) == was.base for each in known)
    else:
        sure = not known or min(each.sequence_number or 0 for each in known) <= 1
    if not sure:
        raise OutputFailed(
            f"the table {was.name} no longer has the snapshot at which run {run_id} began, so it "
            "is unknown whether the run was committed",
            f"check whether the table has its rows; if it does not, remove {was.files}",
        )


def _log_of_run(table: Table, was: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    """Return the entries of a table's log about a run, as `LakeFormat.run_log` does."""
    paths = {f"{was.files}/{name}": name for name in names}
    known = {each.snapshot_id: each for each in table.metadata.snapshots}
    own, head = _of_run(known.values(), run_id), known.get(int(_head_of(table, was.branch) or 0))
    used, removed_by = _files_in(table, head, paths, own)
    if len(used) < len(paths):
        # Of all manifests: another commit may have added the files again. What a tag or another
        # branch has is also used.
        used, removed_by = _files_in(table, head, paths, None)
        for number in {each.snapshot_id for each in table.metadata.refs.values()}:
            used |= _files_in(table, known.get(number), paths, None)[0]
    gone = paths.keys() - used
    if gone or own is None:
        # Earlier metadata files also name expired snapshots. Each snapshot is as the first file has
        # it: pyiceberg forgets a parent that expires.
        for entry in reversed(table.metadata.metadata_log):
            try:
                metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            except FileNotFoundError:
                break  # The table removes its old metadata files.
            known |= {each.snapshot_id: each for each in metadata.snapshots}
        own = _of_run(known.values(), run_id)
    # The snapshots of the branch from its newest back to the run's.
    later: list[Snapshot] = []
    at = None if head is None else known[head.snapshot_id]
    while at is not None and at is not own:
        later.append(at)
        if gone - removed_by.keys() and table.snapshot_by_id(at.snapshot_id) is not None:
            for manifest in at.manifests(table.io):
                if manifest.added_snapshot_id == at.snapshot_id and manifest.deleted_files_count:
                    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                    left = (e for e in entries if e.status == ManifestEntryStatus.DELETED)
                    paths_left = gone & {each.data_file.file_path for each in left}
                    removed_by |= dict.fromkeys(paths_left, at.snapshot_id)
        at = known.get(at.parent_snapshot_id or 0)
    # A branch that begins before the run's snapshot, and does not lead to it, was rolled back.
    is_rolled_back = (
        (own is not None and at is None and bool(later))
        and later[-1].parent_snapshot_id is None
        and later[-1].timestamp_ms < own.timestamp_ms
    )
    # The manifests of an expired snapshot are gone. If it alone removed files, it is known.
    removing = [each.snapshot_id for each in later if _number(each, "deleted-data-files") != 0]
    if at is not None and len(removing) == 1:
        removed_by = {**dict.fromkeys(gone, removing[0]), **removed_by}
    files: dict[int | None, list[str]] = {}
    for path in sorted(gone):
        files.setdefault(removed_by.get(path), []).append(paths[path])
    changes = []
    for by, some in files.items():
        snapshot = None if by is None else known.get(by)
        summary = None if snapshot is None else snapshot.summary
        change = LaterChange(
            snapshot="" if by is None else str(by),
            operation="" if summary is None else summary.operation.value,
            time="" if snapshot is None else time_of(snapshot.timestamp_ms),
            keeps_rows=summary is not None and summary.operation.value == "replace",
            files=tuple(some),
            removed_rows=None if snapshot is None else _number(snapshot, "deleted-records"),
            added_rows=None if snapshot is None else _number(snapshot, "added-records"),
        )
        if by is None and is_rolled_back and head is not None:
            change = replace(change, snapshot=str(head.snapshot_id), operation="rollback")
        changes.append(change)
    return RunLog(
        is_known=own is not None or bool(used or removed_by),
        rows=None if own is None else _number(own, "added-records"),
        changes=tuple(sorted(changes, key=lambda each: (not each.time, each.time))),
    )


def _files_in(
    table: Table, head: Snapshot | None, paths: Mapping[str, str], own: Snapshot | None
) -> tuple[set[str], dict[str, int]]:
    """Return the files of a snapshot, and the snapshot that removed each of the others."""
    used: set[str] = set()
    removed_by: dict[str, int] = {}
    number = 0 if own is None else own.sequence_number or 0
    for manifest in [] if head is None else head.manifests(table.io):
        # A file keeps the sequence number of its snapshot in every manifest. The least number of a
        # manifest belongs to its current files, and not to files that it records as removed.
        may_have = manifest.min_sequence_number <= number or manifest.deleted_files_count != 0
        if number and not (manifest.sequence_number >= number and may_have):
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            path = entry.data_file.file_path
            if path in paths and entry.status != ManifestEntryStatus.DELETED:
                used.add(path)
            elif path in paths and entry.snapshot_id is not None:
                removed_by[path] = entry.snapshot_id
    return used, removed_by


def _number(snapshot: Snapshot, name: str) -> int | None:
    """Return a number of a snapshot's summary; 0 if the summary leaves it out."""
    return None if snapshot.summary is None else int(_property(snapshot, name) or 0)
