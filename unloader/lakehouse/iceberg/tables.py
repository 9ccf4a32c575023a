"""Iceberg tables; see `unloader.lakehouse.base.LakeFormat`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed, UsageError
from unloader.lakehouse.iceberg.catalogs import (
    Name,
    answering,
    data_location,
    loaded,
    open_catalog,
    place_in,
)
from unloader.lakehouse.iceberg.history import (
    MAIN,
    check_remembers,
    head_of,
    run_log,
    snapshot_of_run,
)
from unloader.lakehouse.model import Commit, Committed, RunLog, Wanted
from unloader.lakehouse.refusals import check_is_the_table, check_wanted
from unloader.lakehouse.repeating import committed_once
from unloader.model import LakeTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


class IcebergTables:
    """Tables in the catalogs that pyiceberg knows."""

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
        from unloader.lakehouse.iceberg.partitions import check_spec, partition_spec
        from unloader.lakehouse.iceberg.types import table_schema

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
        from unloader.lakehouse.iceberg.partitions import check_spec
        from unloader.lakehouse.iceberg.replacing import parsed_filter, replaced_files
        from unloader.lakehouse.iceberg.types import field_ids

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
            parsed_filter(wanted.replace_where, table.schema())
            with answering(name):
                replaced_files(table, found)
        return found

    def data_place(self, name: str) -> str:
        """Return where the files of a table lie."""
        known = Name.parse(name)
        catalog = open_catalog(known)
        table: Any = loaded(catalog, known)
        if table is None:
            import pyarrow as pa

            from unloader.lakehouse.iceberg.types import table_schema

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
        """Make all files part of the table, at once."""
        from unloader.lakehouse.iceberg.commits import commit_to

        name = Name.parse(commit.table.name)
        return committed_once(commit, partial(commit_to, open_catalog(name), name, commit))

    def run_log(self, table: LakeTable, run_id: str, names: Sequence[str]) -> RunLog:
        """Return what the log of a table knows of a run, and of its files since."""
        name = Name.parse(table.name)
        found = loaded(open_catalog(name), name)
        check_is_the_table(table, "" if found is None else str(found.metadata.table_uuid))
        assert found is not None
        with answering(name):
            return run_log(found, table, run_id, names)


def _check_namespace(catalog: Catalog, name: Name) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError

    with suppress(NoSuchNamespaceError):
        if catalog.namespace_exists(name.identifier[:-1]):
            return
    space = ".".join(name.identifier[:-1])
    raise OutputFailed(
        f"the catalog {name.catalog} has no namespace {space}",
        f"create it, for instance with: pyiceberg create namespace {space}",
    )
