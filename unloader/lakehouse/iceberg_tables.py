"""Apache Iceberg tables through pyiceberg; see `unloader.lakehouse.table_commits.LakeFormat`.

A catalog takes a commit only if the branch is where the commit expects it. A process that looked
through all snapshots and did not find the run is therefore refused if another process has committed
the run since. It looks again then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
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
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
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
from unloader.lakehouse.iceberg_history import (
    MAIN,
    check_remembers,
    head_of,
    log_of_run,
    snapshot_of_run,
)
from unloader.lakehouse.table_commits import (
    Commit,
    Committed,
    RunLog,
    check_is_the_same,
    check_is_the_table,
    check_wanted,
    committed_once,
    place_of,
)
from unloader.model import LakeTable
from unloader.redaction import learn_fields, redact

MARK = "iceberg://"
_CHECK = "check the catalog and its configuration: ~/.pyiceberg.yaml or PYICEBERG_CATALOG__..."


class Name(Struct, frozen=True, kw_only=True):
    """A table in a catalog."""

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Name:
        """Return what a text of `--to` means."""
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
        base=head_of(table, wanted.branch),
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
    snapshot = snapshot_of_run(found, run_id)
    if not snapshot:
        check_remembers(found, table, run_id)
    return snapshot


def run_log(table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
    name = Name.parse(table.name)
    found = loaded(open_catalog(name), name)
    check_is_the_table(table, "" if found is None else str(found.metadata.table_uuid))
    assert found is not None
    with answering(name):
        return log_of_run(found, table, run_id, names)


def commit(commit: Commit) -> Committed:
    name = Name.parse(commit.table.name)
    return committed_once(commit, partial(_commit_to, open_catalog(name), name, commit))


def _commit_to(catalog: Catalog, name: Name, commit: Commit) -> Committed | None:
    """Commit a run, or find it in the table; None if another commit was faster."""
    table = loaded(catalog, name)
    if table is not None and (found := snapshot_of_run(table, commit.run_id)):
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
            done = _sent(transaction, name)
        except (CommitFailedException, TableAlreadyExistsError):
            return None
    return Committed(snapshot=snapshot_of_run(done, commit.run_id), is_new=True)


def _sent(transaction: Transaction, name: Name) -> Table:
    """Send the commit. If its result is unknown, the error has a separate message."""
    try:
        return transaction.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError, ValidationException):
        raise
    except known_errors() as error:
        raise OutputFailed(
            f"the catalog {name.catalog} did not answer whether the commit was done: {said(error)}",
            "check that the catalog works; then run the next command, which commits the run "
            "unless that was done",
        ) from error


def _check_is_as_it_was(table: Table | None, commit: Commit) -> None:
    """Refuse a commit to another table, over later rows, or a possible second commit of a run."""
    was, run = commit.table, f"run {commit.run_id}"
    check_is_the_same(commit, "" if table is None else str(table.metadata.table_uuid))
    if table is None:
        return  # It is to be made.
    if was.save_mode == "overwrite" and head_of(table, was.branch) != was.base:
        raise OutputFailed(
            f"the table {was.name} was changed after {run} began: it was at snapshot "
            f"{was.base or 'none'} and is at {head_of(table, was.branch)} now; the overwrite "
            "would remove the rows written since then",
            "run again, which reads the source again and replaces the current table",
        )
    if not commit.is_own:
        check_remembers(table, was, commit.run_id)
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
    """Return the catalog of a table."""
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
