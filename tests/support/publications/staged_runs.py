"""Runs into directories, driven without a database: staged files, and finished runs of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from reports.manifests import manifest

from unloader.manifest.model import DirectoryRecord, Manifest
from unloader.manifest.read import manifest_bytes, read_index
from unloader.storage.directories.directory_storage import RunDirectories
from unloader.storage.storage_protocol import Claim, Move
from writers.model import WrittenFile

_WHOLE = manifest(units=1, workers=1, nodes=1, failed=0)


def taken(
    paths: Sequence[Path], *, overwrite: bool, run_id: str = "", **rights: Any
) -> RunDirectories:
    """Take directories for a run; `rights` are further fields of its claim."""
    return RunDirectories(
        Claim(
            **rights,
            places=tuple(map(str, paths)),
            run_id=run_id or os.urandom(6).hex(),
            overwrite=overwrite,
            read_index=read_index,
        )
    )


def as_bytes(document: Manifest | Mapping[str, Any]) -> bytes:
    """Return a manifest or a line of the journal as a run writes it."""
    if isinstance(document, Manifest):
        return manifest_bytes(document)
    return msgspec.json.encode(document) + b"\n"


def manifest_of(
    files: Iterable[str] | Mapping[str, int], run: str = "first", paths: Sequence[Path] = ()
) -> Manifest:
    """Return a manifest of one unit.

    Args:
        files: The names of its files, of several directories each with the directory's number.
        run: The id of the run.
        paths: The directories, where there are several.
    """
    numbers = files if isinstance(files, Mapping) else dict.fromkeys(files, 0)
    written = tuple(
        WrittenFile(path=name, rows=1, bytes=4, checksum="xxh3:0", directory=number)
        for name, number in numbers.items()
    )
    directories = tuple(DirectoryRecord(path=str(path), files=0, bytes=0) for path in paths)
    sums = {"rows": len(written), "bytes": 4 * len(written), "files": len(written)}
    return replace(
        _WHOLE,
        run_id=run,
        directories=directories or None,
        units=(replace(_WHOLE.units[0], files=written),),
        totals=replace(_WHOLE.totals, **sums),
    )


def stage(directory: RunDirectories, *names: str, content: str = "new\n") -> list[Move]:
    """Stage a file for each final name; return the moves."""
    for name in names:
        (directory.first.staged / f"{name}.part").write_text(content)
    return [Move(0, f"{name}.part", name) for name in names]


def finish(path: Path, *names: str, run: str = "first", overwrite: bool = False) -> None:
    """Do a whole run that leaves these files."""
    with taken([path], overwrite=overwrite) as directory:
        moves = stage(directory, *names, content=f"{run}\n")
        directory.commit(moves, as_bytes(manifest_of(names, run)))


def content_of(path: Path) -> dict[str, str]:
    """Return every file under a directory with its text."""
    return {
        str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()
    }
