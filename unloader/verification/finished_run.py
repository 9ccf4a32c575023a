"""Holding a finished run against its manifest, and against the source if one is given."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unloader.errors import OutputFailed, VerifyMismatch
from unloader.events import Notice, Observer, PhaseStarted
from unloader.manifest.digest import is_intact
from unloader.manifest.model import Manifest
from unloader.manifest.read import (
    directories_of,
    manifest_data,
    parse_manifest,
    places_of,
)
from unloader.model import SourceSpec
from unloader.placement.seating import machine
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from unloader.verification.files import CheckedFile, Reading, differences, some_of
from unloader.verification.recorded import fetched_by, part_of
from unloader.verification.row_count import count_rows
from writers.errors import FormatError
from writers.model import OutputSpec
from writers.registry import check

Level = Literal["count", "full"]

_SHOWN_FILES = 5
_OLD = "an earlier version has written it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is checked of a finished run, and how."""

    strict: bool = False
    """Files that are not of the run are a difference, and not only reported."""
    level: Level = "count"
    """count: files as a whole, and rows; full: also the values in them."""
    parallelism: int = 0
    """Files that are read at a time; 0 is as many as there are usable CPUs."""


def verify(
    destination: Path, source: SourceSpec | None, observe: Observer, checks: Checks
) -> dict[str, Any]:
    """Check every file of a finished run, and the row count where a source is given.

    A run that was cut short while it was published is brought to its end first.

    Each file is read as a whole: size, checksum, and the number of records counted by another
    reader than wrote it. The source counts at the run's snapshot where that still exists, otherwise
    as it is now, and the answer says which. Files that are not of the run are reported, and are a
    difference where `checks` are strict.

    Raises:
        VerifyMismatch: Something differs; the message names the first differences.
        OutputFailed: There is no finished run in `destination`, and none that can be finished.
        SourceError: The source refused.
    """
    for text in storage_at(str(destination)).complete(str(destination)):
        observe(Notice(text=text))
    manifest = _manifest(destination)
    if manifest.digest is None:
        observe(Notice(text=f"{MANIFEST} has no digest, so that edits of it are not found: {_OLD}"))
    observe(PhaseStarted(phase="verifying"))
    parallelism = checks.parallelism or machine().usable_cpus
    fetched = fetched_by(manifest) if checks.level == "full" else None
    reading = Reading(
        spec=_spec_of(destination, manifest), parallelism=parallelism, fetched=fetched
    )
    found = _check_files(destination, manifest, reading, observe)
    extra = _extra_files(destination, manifest)
    if extra and checks.strict:
        found.append(_extra_text(extra))
    elif extra:
        observe(Notice(text=_extra_text(extra)))
    counted, snapshot = None, "not asked"
    if source is not None:
        observe(PhaseStarted(phase="counting"))
        counted, snapshot = count_rows(manifest, source, observe)
        if counted != manifest.totals.rows:
            found.append(
                f"the manifest has {manifest.totals.rows} rows, the source counts {counted}"
                f" ({snapshot})"
            )
    if found:
        raise VerifyMismatch(
            f"{destination}: {some_of(found)}",
            "unload the table again, or restore the files"
            if len(found) > 1 or not (extra and checks.strict)
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
        "level": checks.level,
        "not_compared": [] if fetched is None else fetched.not_compared(),
        "result": "ok",
        "differences": [],
        "extra_files": extra,
    }


def _manifest(destination: Path) -> Manifest:
    """Return the manifest; one that is not as it was written is a difference like any other."""
    data = manifest_data(destination)
    try:
        return parse_manifest(data, destination)
    except OutputFailed as error:
        if is_intact(data):
            raise  # Of another version of this program.
        raise VerifyMismatch(error.message, error.hint) from error


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


def _check_files(
    destination: Path, manifest: Manifest, reading: Reading, observe: Observer
) -> list[str]:
    written = {name: file.written for name, file in manifest.files.items()}
    directories, places = directories_of(manifest, destination), places_of(manifest)
    parts = {file.path: part_of(manifest, unit) for unit in manifest.units for file in unit.files}
    files = []
    for name, file in written.items():
        place = str(directories[places[name]])
        path = storage_at(place).file(place, name)
        files.append(CheckedFile(path=path, written=file, part=parts[name]))
    if reading.fetched is not None and (notice := reading.fetched.notice()):
        observe(Notice(text=notice))
    found = differences(files, reading, observe)
    rows = sum(file.rows for file in written.values())
    if rows != manifest.totals.rows:
        found.append(f"the files have {rows} rows, the totals {manifest.totals.rows}")
    return found


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
