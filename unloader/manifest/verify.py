"""Holding a finished run against its manifest, and against the source if one is given."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unloader.errors import (
    OutputFailed,
    SourceError,
    VerifyMismatch,
    translate,
)
from unloader.events import Notice, Observer, PhaseStarted, silent
from unloader.manifest.file_check import check_file
from unloader.manifest.model import Manifest
from unloader.manifest.read import (
    directories_of,
    places_of,
    read_manifest,
)
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
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from writers.errors import FormatError, WriteError
from writers.model import (
    OutputSpec,
    TextFormat,
)
from writers.registry import check

_SHOWN_FILES = 5


def verify(
    destination: Path, source: SourceSpec | None, observe: Observer, *, strict: bool = False
) -> dict[str, Any]:
    """Check every file of a finished run, and the row count where a source is given.

    A run that was cut short while it was published is brought to its end first.

    Each file is read as a whole: size, checksum, and the number of records counted by another
    reader than wrote it. The source counts at the run's snapshot where that still exists, otherwise
    as it is now, and the answer says which. Files that are not of the run are reported, and are a
    difference where `strict`.

    Raises:
        VerifyMismatch: Something differs; the message names the first differences.
        OutputFailed: There is no finished run in `destination`, and none that can be finished.
        SourceError: The source refused.
    """
    for text in storage_at(str(destination)).complete(str(destination)):
        observe(Notice(text=text))
    manifest = read_manifest(destination)
    observe(PhaseStarted(phase="verifying"))
    differences = _check_files(destination, manifest)
    extra = _extra_files(destination, manifest)
    if extra and strict:
        differences.append(_extra_text(extra))
    elif extra:
        observe(Notice(text=_extra_text(extra)))
    counted, snapshot = None, "not asked"
    if source is not None:
        observe(PhaseStarted(phase="counting"))
        counted, snapshot = _count(manifest, source, observe)
        if counted != manifest.totals.rows:
            differences.append(
                f"the manifest has {manifest.totals.rows} rows, the source counts {counted}"
                f" ({snapshot})"
            )
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise VerifyMismatch(
            f"{destination}: " + "; ".join(differences[:3]) + more,
            "unload the table again, or restore the files"
            if len(differences) > 1 or not (extra and strict)
            else f"move them away, or let the loader read the names in {MANIFEST}",
        )
    return {
        "destination": str(destination),
        "run_id": manifest.run_id,
        "files": manifest.totals.files,
        "rows": manifest.totals.rows,
        "bytes": manifest.totals.bytes,
        "source_rows": counted,
        "snapshot": snapshot,
        "result": "ok",
        "differences": [],
        "extra_files": extra,
    }


def _extra_files(destination: Path, manifest: Manifest) -> list[str]:
    """Return the files beside a run's own that a loader would take with them, in order.

    Those in `destination` by name, those in further directories of the run by path. Names that
    begin in `_` or `.` are ours, or hidden: loaders pass them over.
    """
    directories, places = directories_of(manifest, destination), places_of(manifest)
    own = {directories[place] / name for name, place in places.items()}
    extra = []
    for directory in sorted({*directories, *(path.parent for path in own)}):
        with suppress(FileNotFoundError):  # That its files are missing is reported anyway.
            extra += [
                path.name if directory == destination else str(path)
                for path in _files_in(directory)
                if path not in own and path.name[0] not in "_."
            ]
    return extra


def _files_in(directory: Path) -> list[Path]:
    place = str(directory)
    return [directory / name for name in storage_at(place).names(place)]


def _extra_text(extra: list[str]) -> str:
    more = f" and {len(extra) - _SHOWN_FILES} more" if len(extra) > _SHOWN_FILES else ""
    return (
        "files that are not of this run lie beside its own, where a loader may take them: "
        + ", ".join(extra[:_SHOWN_FILES])
        + more
    )


def _check_files(destination: Path, manifest: Manifest) -> list[str]:
    spec = _spec_of(destination, manifest)
    differences = []
    files = {name: file.written for name, file in manifest.files.items()}
    directories, places = directories_of(manifest, destination), places_of(manifest)
    for name, file in files.items():
        try:
            place = str(directories[places[name]])
            check_file(storage_at(place).file(place, name), file, spec, header=True)
        except FormatError:
            raise  # The checksum's library is missing: nothing is known of the file.
        except (VerifyMismatch, WriteError) as error:
            known = translate(error)
            differences.append(known.message if known else str(error))
    rows = sum(file.rows for file in files.values())
    if rows != manifest.totals.rows:
        differences.append(f"the files have {rows} rows, the totals {manifest.totals.rows}")
    return differences


def _spec_of(destination: Path, manifest: Manifest) -> OutputSpec:
    options = manifest.options
    try:
        check(options.dialect, options.compression)
    except FormatError as error:
        raise OutputFailed(
            f"the options in {destination / MANIFEST} are damaged: {error!r}",
            "restore it, or unload again to another directory",
        ) from error
    return OutputSpec(
        directory=str(destination), format=options.dialect, compression=options.compression
    )


def _count(manifest: Manifest, source: SourceSpec, observe: Observer) -> tuple[int, str]:
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
