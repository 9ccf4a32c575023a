"""Reads the manifest of a run that is finished, or of one that broke off.

`_manifest.json` in the destination is written last, so its presence means that the run is complete.
Resuming and verifying trust the manifest and the journal and nothing else.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from unloader.errors import OutputFailed
from unloader.json_fields import OPTIONAL, NotAsExpected
from unloader.json_fields import from_json as read_json
from unloader.json_reading import decode
from unloader.manifest.digest import digest_at_end, is_intact
from unloader.manifest.model import FORMAT_VERSION, DirectoryRecord, FileRecord, Manifest, from_json
from unloader.manifest.tables import is_of_tables
from unloader.storage.model import MANIFEST, Index
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath, path_of

_RESTORE = "restore it, or unload again to another directory"

_ALWAYS = ("table", "query", "snapshot", "options", "totals")
"""Every manifest has them; one without is damaged."""


class _UnitFiles(Struct, frozen=True, kw_only=True):
    files: tuple[FileRecord, ...]


class _Listing(Struct, frozen=True, kw_only=True):
    """What replacing a run needs of its manifest, whatever else another version wrote into it."""

    run_id: str
    units: tuple[_UnitFiles, ...]
    directories: Annotated[tuple[DirectoryRecord, ...] | None, OPTIONAL] = None


def read_manifest(destination: PlacePath, name: str = MANIFEST) -> Manifest:
    """Return the manifest of a finished run.

    Args:
        destination: The directory that it lies in.
        name: Another name than it has once its run is finished.

    Raises:
        OutputFailed: There is none, it is no whole manifest, or of a later format version.
    """
    return parse_manifest(manifest_data(destination, name), destination, name)


def manifest_data(destination: PlacePath, name: str = MANIFEST) -> bytes:
    """Return the bytes of the manifest of a finished run, unchecked.

    Raises:
        OutputFailed: There is none, or it cannot be read.
    """
    place = str(destination)
    try:
        return storage_at(place).read(place, name)
    except FileNotFoundError:
        raise OutputFailed(
            f"{destination} has no finished run: {MANIFEST} does not exist",
            "give the directory that was given with --to",
        ) from None
    except NotADirectoryError:
        raise OutputFailed(
            f"{destination} is a file, but a run is in a directory",
            f"give the directory: {destination.parent}",
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"{destination / name} cannot be read: {error.strerror or error}", _RESTORE
        ) from error


def read_index(data: bytes, place: str) -> Index:
    """Return what a storage must know of a finished run, from the bytes of its manifest.

    Raises:
        OutputFailed: They are no whole manifest.
    """
    path = path_of(place) / MANIFEST
    try:
        document = document_of(data, path)
        if is_of_tables(document):
            # The files are in the directories of its tables.
            return Index(run_id=str(document.get("run_id", "")), places=(place,), files=())
        found = read_json(_Listing, document, "the manifest", newer=True)
        if missing := [key for key in _ALWAYS if key not in document]:
            raise NotAsExpected(f"it has no {missing[0]!r}")
        known = max(1, len(found.directories or ()))
        files = {file.path: file.directory or 0 for unit in found.units for file in unit.files}
        if strangers := [number for number in files.values() if not 0 <= number < known]:
            raise NotAsExpected(f"directory {strangers[0]} is not in its list")
    except NotAsExpected as error:
        raise OutputFailed(f"{path} is damaged: {error}", _RESTORE) from error
    others = [each.path for each in (found.directories or ())[1:]]
    return Index(
        run_id=found.run_id,
        places=(place, *(str(path_of(place) / each) for each in others)),
        files=tuple((number, name) for name, number in files.items()),
    )


def parse_manifest(data: bytes, destination: PlacePath, name: str = MANIFEST) -> Manifest:
    """Return the manifest that these bytes are.

    Args:
        data: All of the file.
        destination: Where it lies.
        name: Its name there.

    Raises:
        OutputFailed: They are no whole manifest, one of a later format version, or not as they
            were written.
    """
    path = destination / name
    document = document_of(data, path)
    if is_of_tables(document):
        raise OutputFailed(
            f"{path} is the manifest of a run of several tables; each table has a separate "
            "manifest",
            "give the directory of one of the tables in its list",
        )
    try:
        manifest = from_json(document)
        known = len(directories_of(manifest, destination))
        strangers = [place for place in places_of(manifest).values() if not 0 <= place < known]
        if strangers:
            raise NotAsExpected(f"directory {strangers[0]} is not in its list")
    except NotAsExpected as error:
        raise OutputFailed(f"{path} is damaged: {error}", _RESTORE) from error
    return manifest


def document_of(data: bytes, path: PlacePath) -> Any:
    """Return what the bytes of a manifest hold, once they are intact and its version is ours.

    Raises:
        OutputFailed: They are no JSON, were changed, or are of another format version.
    """
    if digest_at_end(data) and not is_intact(data):
        raise _changed(path, "its digest does not match its text")
    try:
        document = decode(data.decode())
    except ValueError as error:
        raise OutputFailed(f"{path} cannot be read: {error}", _RESTORE) from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise OutputFailed(
            f"{path} has format version {version!r}, but this program reads {FORMAT_VERSION}",
            "use the version of unloader that wrote it",
        )
    if document.get("format_revision") not in (None, 0) and not digest_at_end(data):
        raise _changed(path, "it does not end with its digest")
    return document


def _changed(path: PlacePath, why: str) -> OutputFailed:
    return OutputFailed(f"{path} was changed after it was written: {why}", _RESTORE)


def directories_of(
    manifest: Manifest, home: PlacePath, *, recorded: bool = False
) -> tuple[PlacePath, ...]:
    """Return the directories that hold a run's files, in the order of their numbers.

    Args:
        manifest: Of any run.
        home: Where the manifest lies; that is the first directory, wherever it was at the time.
        recorded: The first directory is where it was at the time.
    """
    listed = tuple(path_of(each.path) for each in manifest.directories or ())
    if not listed:
        return (home,)
    first = listed[0] if recorded else home
    # Those of merged parts are written as seen from the first; an absolute path stays as it is.
    return (first, *(first / each for each in listed[1:]))


def places_of(manifest: Manifest) -> dict[str, int]:
    """Return for each file of a manifest, by name, the number of its directory."""
    return {name: file.directory or 0 for name, file in manifest.files.items()}
