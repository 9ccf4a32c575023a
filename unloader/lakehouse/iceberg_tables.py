"""Apache Iceberg tables through pyiceberg; see `unloader.lakehouse.lake_formats.LakeFormat`.

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
    run_log,
    snapshot_of_run,
)
from unloader.lakehouse.table_commits import (
    Commit,
    Committed,
    RunLog,
    Wanted,
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
        """Return what a text of `--to` means.

        Raises:
            UsageError: It does not name a table.
        """
        catalog, _, rest = text.removeprefix(MARK).partition("/")
        parts = tuple(rest.split("."))
        if not catalog or len(parts) < 2 or not all(parts) or "/" in rest:
            raise UsageError(
                f"--to {text} is not the name of an Iceberg table",
                "write it as iceberg://CATALOG/NAMESPACE.TABLE",
            )
        return cls(catalog=catalog, identifier=parts)


class IcebergTables:
    """Tables in the catalogs that pyiceberg knows."""

    def absolute_name(self, name: str) -> str:
        """Return the name, which is the same in each directory."""
        return name

    def prepared(self, wanted: Wanted) -> LakeTable:
        """Return the table as it is, or as it will be made."""
        name = Name.parse(wanted.name)
        catalog = open_catalog(name)
        table = loaded(catalog, name)
        check_wanted(wanted, is_there=table is not None)
        if table is None:
            return self._to_be_made(wanted, catalog, name)
        return self._there(wanted, name, table)

    def _to_be_made(self, wanted: Wanted, catalog: Catalog, name: Name) -> LakeTable:
        schema = table_schema(wanted.schema)
        check_spec(partition_spec(schema, wanted.partition_by), schema, wanted.name)
        with answering(name):
            _check_namespace(catalog, name)
            made = catalog.create_table_transaction(name.identifier, schema)
        location = str(made.table_metadata.location).rstrip("/")
        return LakeTable(
            kind="iceberg",
            name=wanted.name,
            save_mode=wanted.save_mode,
            location=location,
            files=data_location(made._table),
            field_ids=tuple(each.field_id for each in schema.fields),
            partition_by=wanted.partition_by,
            sorted_by=wanted.sorted_by,
        )

    def _there(self, wanted: Wanted, name: Name, table: Table) -> LakeTable:
        ids = field_ids(wanted.schema, table.schema(), wanted.name)
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
        found = LakeTable(
            kind="iceberg",
            name=wanted.name,
            save_mode=wanted.save_mode,
            replace_where=wanted.replace_where,
            branch=wanted.branch,
            location=str(table.location()).rstrip("/"),
            files=data_location(table),
            table_id=str(table.metadata.table_uuid),
            base=head_of(table, wanted.branch),
            field_ids=ids,
        )
        if wanted.replace_where is not None:
            check_filter(wanted.replace_where, table.schema())
            with answering(name):
                replaced_files(table, found)
        return found

    def data_place(self, name: str) -> str:
        """Return where the files of a table are."""
        known = Name.parse(name)
        catalog = open_catalog(known)
        table: Any = loaded(catalog, known)
        if table is None:
            with answering(known):
                _check_namespace(catalog, known)
                made = catalog.create_table_transaction(
                    known.identifier, table_schema(pa.schema([("x", pa.int64())]))
                )
            table = made._table
        return place_in(data_location(table), table.io.properties)

    def committed(self, table: LakeTable, run_id: str) -> str:
        """Return the snapshot that a run has committed."""
        name = Name.parse(table.name)
        found = loaded(open_catalog(name), name)
        if found is None or table.table_id not in ("", str(found.metadata.table_uuid)):
            return ""
        snapshot = snapshot_of_run(found, run_id)
        if not snapshot:
            check_remembers(found, table, run_id)
        return snapshot

    def commit(self, commit: Commit) -> Committed:
        """Make all files part of the table in one step."""
        name = Name.parse(commit.table.name)
        return committed_once(commit, partial(commit_to, open_catalog(name), name, commit))

    def run_log(self, table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
        """Return the entries of a table's log about a run and its files."""
        name = Name.parse(table.name)
        found = loaded(open_catalog(name), name)
        check_is_the_table(table, "" if found is None else str(found.metadata.table_uuid))
        assert found is not None
        with answering(name):
            return run_log(found, table, run_id, names)


def _check_namespace(catalog: Catalog, name: Name) -> None:
    with suppress(NoSuchNamespaceError):
        if catalog.namespace_exists(name.identifier[:-1]):
            return
    space = ".".join(name.identifier[:-1])
    raise OutputFailed(
        f"the catalog {name.catalog} has no namespace {space}",
        f"create it, for instance with: pyiceberg create namespace {space}",
    )


def commit_to(catalog: Catalog, name: Name, commit: Commit) -> Committed | None:
    """Commit a run, or find it in the table; None if another commit was faster.

    Raises:
        OutputFailed: As `unloader.lakehouse.lake_formats.LakeFormat.commit`.
    """
    table = loaded(catalog, name)
    if table is not None and (found := snapshot_of_run(table, commit.run_id)):
        return Committed(snapshot=found, is_new=False)
    with answering(name):
        _check_is_as_it_was(table, commit)
        transaction = _transaction(catalog, name, commit, table)
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


def _transaction(catalog: Catalog, name: Name, commit: Commit, table: Table | None) -> Transaction:
    if table is not None:
        # Only in this object: a repetition by the library would not look for the run again.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table.transaction()
    io = catalog._load_file_io(location=commit.table.location)
    schema = table_schema(schema_of(io, commit))
    return catalog.create_table_transaction(
        name.identifier,
        schema,
        location=commit.table.location,
        partition_spec=partition_spec(schema, commit.table.partition_by),
        sort_order=sort_order(schema, commit.table.sorted_by),
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
    """Return the catalog of a table.

    Raises:
        ConfigError: pyiceberg does not know the catalog, or a library of the catalog is missing.
    """
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
    own = [
        each
        for each in vars(exceptions).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    others = (
        ("sqlalchemy.exc", "SQLAlchemyError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
    )
    loaded_ones = (
        getattr(sys.modules[module], each) for module, each in others if module in sys.modules
    )
    return (*own, *loaded_ones, OSError, ValueError)


def data_location(table: Any) -> str:
    """Return where the files of a table belong, as its records write it."""
    chosen = table.properties.get("write.data.path") if hasattr(table, "properties") else None
    return str(chosen or f"{str(table.location()).rstrip('/')}/data").rstrip("/")


def place_in(location: str, properties: dict[str, Any]) -> str:
    """Return a location as a place of `--to`, with the catalog's options of the store."""
    known = (("endpoint", "s3.endpoint"), ("region", "s3.region"))
    options = [f"{name}={properties[key]}" for name, key in known if properties.get(key)]
    is_s3 = location.startswith("s3")
    return place_of(location, "&".join(options) if is_s3 else "")


def said(error: Exception) -> str:
    """Return the text of an error in one line, without a secret."""
    return redact(f"{type(error).__name__}: {error}".strip().splitlines()[0])
