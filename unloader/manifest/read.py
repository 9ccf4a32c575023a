"""Reads the manifest of a run that is finished, or of one that broke off.

`_manifest.json` in the destination is written last, so its presence means that the run is complete.
Resuming and verifying trust the manifest and the journal and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unloader.errors import OutputFailed
from unloader.json_reading import decode
from unloader.manifest.build import FORMAT_VERSION
from unloader.storage.model import MANIFEST, Index
from unloader.storage.opening import storage_at
from writers.model import WrittenFile

_NEEDED = ("run_id", "table", "query", "snapshot", "options", "units", "totals")
"""What replacing and verifying a run rely on."""

_TOTALS = ("rows", "bytes", "files")

_RESTORE = "restore it, or unload again to another directory"


def read_manifest(destination: Path, name: str = MANIFEST) -> Mapping[str, Any]:
    """Return the manifest of a finished run.

    Args:
        destination: The directory that it lies in.
        name: Another name than it has once its run is finished.

    Raises:
        OutputFailed: There is none, it is no whole manifest, or of a later format version.
    """
    place = str(destination)
    try:
        data = storage_at(place).read(place, name)
    except FileNotFoundError:
        raise OutputFailed(
            f"{destination} holds no finished run: there is no {MANIFEST}",
            "name the directory that was given with --to",
        ) from None
    except OSError as error:
        raise OutputFailed(f"{destination / name} cannot be read: {error}", _RESTORE) from error
    return parse_manifest(data, destination, name)


def read_index(data: bytes, place: str) -> Index:
    """Return what a storage must know of a finished run, from the bytes of its manifest.

    Raises:
        OutputFailed: They are no whole manifest.
    """
    manifest = parse_manifest(data, Path(place))
    return Index(
        run_id=str(manifest["run_id"]),
        places=tuple(map(str, directories_of(manifest, Path(place)))),
        files=tuple((number, name) for name, number in places_of(manifest).items()),
    )


def parse_manifest(data: bytes, destination: Path, name: str = MANIFEST) -> Mapping[str, Any]:
    """Return the manifest that these bytes are.

    Args:
        data: All of the file.
        destination: Where it lies.
        name: Its name there.

    Raises:
        OutputFailed: They are no whole manifest, or one of a later format version.
    """
    path = destination / name
    try:
        document = decode(data.decode())
    except ValueError as error:
        raise OutputFailed(f"{path} cannot be read: {error}", _RESTORE) from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise OutputFailed(
            f"{path} has format version {version!r}, this program reads {FORMAT_VERSION}",
            "use the version of unloader that wrote it",
        )
    try:
        files_of(document)
        known = len(directories_of(document, destination))
        strangers = [place for place in places_of(document).values() if not 0 <= place < known]
        if strangers:
            raise ValueError(f"there is no directory {strangers[0]}")
        missing = [key for key in _NEEDED if key not in document]
        missing += [key for key in _TOTALS if key not in document.get("totals", _TOTALS)]
    except (KeyError, TypeError, ValueError) as error:
        raise OutputFailed(f"{path} is damaged: {error!r}", _RESTORE) from error
    if missing:
        raise OutputFailed(f"{path} is damaged: it has no {missing[0]!r}", _RESTORE)
    return dict(document)


def files_of(manifest: Mapping[str, Any]) -> dict[str, WrittenFile]:
    """Return the files of a manifest by name, in table order.

    A file that several units share (one file for the table) comes once.
    """
    return {
        str(file["path"]): WrittenFile(
            path=str(file["path"]),
            rows=int(file["rows"]),
            bytes=int(file["bytes"]),
            checksum=str(file["checksum"]),
        )
        for unit in manifest["units"]
        for file in unit["files"]
    }


def directories_of(
    manifest: Mapping[str, Any], home: Path, *, recorded: bool = False
) -> tuple[Path, ...]:
    """Return the directories that hold a run's files, in the order of their numbers.

    Args:
        manifest: Of any run.
        home: Where the manifest lies; that is the first directory, wherever it was at the time.
        recorded: The first directory is where it was at the time.
    """
    listed = tuple(Path(str(each["path"])) for each in manifest.get("directories", ()))
    if not listed:
        return (home,)
    return listed if recorded else (home, *listed[1:])


def places_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return for each file of a manifest, by name, the number of its directory."""
    return {
        str(file["path"]): int(file.get("directory", 0))
        for unit in manifest["units"]
        for file in unit["files"]
    }
