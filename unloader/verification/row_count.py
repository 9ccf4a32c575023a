"""Counting a finished run's rows in its source, at the run's snapshot where that still exists."""

from __future__ import annotations

from dataclasses import replace

from unloader.errors import SourceError
from unloader.events import Notice, Observer, silent
from unloader.manifest.model import Manifest
from unloader.model import (
    Extract,
    NamePart,
    Selection,
    Snapshot,
    SourceSpec,
    TableName,
)
from unloader.resolve.preparation import chosen_table
from unloader.sources.base import Catalog
from unloader.sources.projection import OutputNeeds, project
from unloader.sources.registry import source_of
from writers.model import TextFormat


def count_rows(manifest: Manifest, source: SourceSpec, observe: Observer) -> tuple[int, str]:
    """Return the rows that the source counts now, and in words at which state it did.

    Raises:
        SourceError: The source refused.
    """
    if manifest.options.enable_row_security:
        source = replace(source, session=replace(source.session, enable_row_security=True))
    at_snapshot = _at_snapshot(source, manifest)
    if at_snapshot is not None:
        try:
            return _counted(manifest, at_snapshot, observe)
        except SourceError as error:
            if error.retryable:
                raise
            observe(
                Notice(
                    text="the run's snapshot is gone: compared with the source as it is now, for "
                    f"it can no longer read the earlier state: {error.message}"
                )
            )
            observe = silent  # It would say so once more.
    return _counted(manifest, source, observe)


def _counted(manifest: Manifest, source: SourceSpec, observe: Observer) -> tuple[int, str]:
    catalog = source_of(source.kind).open_catalog(source)
    try:
        snapshot = catalog.snapshot("snapshot")
        was = manifest.snapshot
        now = None if snapshot.kind == "none" else (snapshot.kind, snapshot.value)
        same = was is not None and (was.kind, was.value) == now
        state = "at the run's snapshot" if same else "as the source is now"
        if not same:
            observe(
                Notice(text="the run's snapshot is gone: compared with the source as it is now")
            )
        return _count_rows(catalog, manifest, source, snapshot), state
    finally:
        catalog.close()


def _at_snapshot(source: SourceSpec, manifest: Manifest) -> SourceSpec | None:
    """Return the source as it was at the run's snapshot, None where it cannot go back."""
    snapshot = manifest.snapshot
    if snapshot is None:
        return None
    return source_of(source.kind).at_snapshot(source, snapshot.kind, snapshot.value)


def _count_rows(
    catalog: Catalog, manifest: Manifest, source: SourceSpec, snapshot: Snapshot
) -> int:
    options = manifest.options
    selection = Selection(table=_table_name(manifest), query=manifest.query)
    table = chosen_table(catalog, selection)
    needs = OutputNeeds(text=TextFormat(), batches_only=True)
    projection = project(catalog, table, selection.query, (needs,), as_text=("*",))
    extract = Extract(
        source=source,
        snapshot=snapshot,
        table=table,
        query=selection.query,
        where=options.where,
        partitions=options.partition,
        projection=projection,
    )
    return catalog.count(extract)


def _table_name(manifest: Manifest) -> TableName | None:
    table = manifest.table
    if table is None:
        return None
    return TableName(
        schema=None if table.schema is None else NamePart(text=table.schema, quoted=True),
        name=NamePart(text=table.name, quoted=True),
    )
