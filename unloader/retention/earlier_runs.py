"""Earlier finished runs of the same table: which there are, and which may be removed.

A directory is removed only if all that lies in it is a finished run of the same table of the same
source, as it was when it was published. Anything else stays, and the reason is told.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from unloader.errors import UnloaderError
from unloader.manifest.model import Manifest
from unloader.manifest.read import directories_of, read_manifest
from unloader.storage.storage_protocol import MANIFEST


class EarlierRun(Struct, frozen=True, kw_only=True):
    """A finished run in a directory of its own, or in several."""

    manifest: Manifest
    directories: tuple[Path, ...]
    """The first holds the manifest."""

    @property
    def files(self) -> tuple[tuple[int, str], ...]:
        """Number of the directory and name of each of its files, the manifest last."""
        listed = ((file.directory, name) for name, file in self.manifest.files.items())
        return (*listed, (0, MANIFEST))


def newer_run(path: Path, new: Manifest) -> str:
    """Return the id of the finished run at a path, if it is of the same table and newer; or ""."""
    found = _manifest_at(path)
    if found is None or not _is_of_the_same(found, new):
        return ""
    return found.run_id if found.run_id > new.run_id else ""


def other_runs(parent: Path, names: re.Pattern[str], new: Manifest) -> list[EarlierRun]:
    """Return the finished runs of the same table beside a new one, the newest first.

    Args:
        parent: The directory in which they lie.
        names: What the name of each matches as a whole.
        new: The manifest of the new run, which is left out.
    """
    found = []
    for path in _directories(parent, names):
        manifest = _manifest_at(path)
        if manifest is None:
            continue
        if manifest.run_id != new.run_id and _is_of_the_same(manifest, new):
            directories = tuple(map(Path, directories_of(manifest, path)))
            found.append(EarlierRun(manifest=manifest, directories=directories))
    # The id of a run begins with the time of its start.
    return sorted(found, key=lambda run: run.manifest.run_id, reverse=True)


def why_kept(run: EarlierRun, allowed: tuple[tuple[Path, re.Pattern[str]], ...]) -> str:
    """Return why a run is not to be removed; empty if it may be.

    Args:
        run: The run.
        allowed: For each of its directories where it must lie, and what its name must match.
    """
    if len(allowed) != len(run.directories):
        return "it is in other directories than the new run"
    for directory, (parent, names) in zip(run.directories, allowed, strict=True):
        if not _is_directory(directory):
            return f"{directory} is not a directory"
        if not names.fullmatch(directory.name) or not _same(directory.parent, parent):
            return f"{directory} is not next to the new run"
    for number, directory in enumerate(run.directories):
        if why := why_not_ours(run, number, directory):
            return why
    return ""


def why_not_ours(
    run: EarlierRun, number: int, directory: Path, beside: frozenset[str] = frozenset()
) -> str:
    """Return what in a directory of a run is not as the run has left it; empty if all is.

    Args:
        run: The run.
        number: Of the directory among those of the run.
        directory: The directory.
        beside: Names that may be there, too.
    """
    expected = {name for place, name in run.files if place == number}
    written = os.lstat(run.directories[0] / MANIFEST).st_mtime_ns
    files = run.manifest.files
    with os.scandir(directory) as entries:
        found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    for name in sorted(found.keys() - expected - beside):
        return f"{directory / name} is not a file of the run"
    for name in sorted(expected - found.keys()):
        return f"{directory / name} is missing"
    for name in sorted(expected - {MANIFEST}):
        status = found[name]
        # The manifest was written after every file. A checksum would mean to read all of them.
        changed = status.st_size != files[name].bytes or status.st_mtime_ns > written
        if changed or not stat.S_ISREG(status.st_mode):
            return f"{directory / name} was changed after the run"
    return ""


def _manifest_at(path: Path) -> Manifest | None:
    """Return the manifest of the run in a directory; None if that is unfinished, or no run."""
    try:
        return read_manifest(path)
    except (UnloaderError, OSError):
        return None


def _directories(parent: Path, names: re.Pattern[str]) -> Iterator[Path]:
    with os.scandir(parent) as entries:
        found = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    yield from (parent / name for name in sorted(found) if names.fullmatch(name))


def _is_of_the_same(one: Manifest, other: Manifest) -> bool:
    """Return whether two runs read the same table or query of the same source."""
    same_source = (one.source.kind, one.source.location) == (
        other.source.kind,
        other.source.location,
    )
    finished = one.status == "complete"
    return finished and same_source and (one.table, one.query) == (other.table, other.query)


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
