"""One commit for all files of a run, which is made once whoever else commits, or makes it too.

A catalog takes a commit only if the branch still is where the commit believes it to be. So whoever
has looked through all snapshots for the run, and has found none, is refused if somebody has
committed the run since; it looks again then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed
from unloader.lakehouse.iceberg.catalogs import Name, answering, known_errors, loaded, said
from unloader.lakehouse.iceberg.files import data_files, schema_of
from unloader.lakehouse.iceberg.history import (
    MAIN,
    check_remembers,
    head_of,
    snapshot_of_run,
)
from unloader.lakehouse.iceberg.partitions import partition_spec, sort_order
from unloader.lakehouse.iceberg.types import field_ids, table_schema
from unloader.lakehouse.model import Commit, Committed
from unloader.lakehouse.refusals import check_is_the_same

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction


def commit_to(catalog: Catalog, name: Name, commit: Commit) -> Committed | None:
    """Commit a run, or see that it is part of the table; None where somebody else was faster.

    Raises:
        OutputFailed: As `unloader.lakehouse.base.LakeFormat.commit`.
    """
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

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
    """Send the commit; what is neither done nor refused is told as such."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
    from pyiceberg.exceptions import ValidationException as NotValid

    try:
        return transaction.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError, NotValid):
        raise
    except known_errors() as error:
        raise OutputFailed(
            f"the catalog {name.catalog} did not answer whether the commit was done: {said(error)}",
            "check that the catalog works; then run the next command, which commits the run "
            "unless that was done",
        ) from error


def _check_is_as_it_was(table: Table | None, commit: Commit) -> None:
    """Refuse to commit to another table, over somebody's work, or maybe twice."""
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
    from unloader.lakehouse.iceberg.replacing import check_condition, replaced_files

    branch = commit.table.branch or MAIN
    metadata = transaction.table_metadata
    if branch not in metadata.refs and MAIN in metadata.refs:
        _make_branch(transaction, branch, metadata.refs[MAIN].snapshot_id)
    snapshot = transaction.update_snapshot(
        snapshot_properties=dict(commit.properties), branch=branch
    )
    new = data_files(transaction._table.io, transaction.table_metadata, commit)
    producer: Any
    if commit.table.save_mode == "overwrite":
        from pyiceberg.expressions import AlwaysTrue

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


def _make_branch(transaction: Transaction, branch: str, snapshot: int) -> None:
    from pyiceberg.table.update.snapshot import ManageSnapshots

    with ManageSnapshots(transaction) as refs:
        refs.create_branch(snapshot, branch)
