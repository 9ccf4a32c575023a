"""Removes an earlier run: at once for its readers, and never a file that is not its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unloader.errors import UnloaderError
from unloader.manifest.read import directories_of, read_manifest
from unloader.retention.earlier_runs import EarlierRun

LEAVING = ".removed-"
"""What the name of a directory begins with while its files are removed."""


def remove(run: EarlierRun) -> None:
    """Remove the files of a run and its directories.

    The directories are renamed first, so that no reader finds a run that is half there. If
    something has been put into one meanwhile all get their names back. The manifest goes last, so
    that a removal that is killed can be finished.

    Raises:
        OSError: The file system refused.
    """
    hidden = tuple(_hidden(each, run.manifest.run_id) for each in run.directories)
    renamed: list[tuple[Path, Path]] = []
    try:
        for directory, new in zip(run.directories, hidden, strict=True):
            os.rename(directory, new)
            renamed.append((directory, new))
        for number, (directory, new) in enumerate(renamed):
            if set(os.listdir(new)) != set(_names(run, number)):
                # Somebody came between the check and the new name, maybe a run.
                raise OSError(f"{directory} was changed during its removal")
    except OSError:
        for directory, new in renamed:
            os.rename(new, directory)
        raise
    empty(run, hidden)


def finish_removals(parent: Path) -> None:
    """Go on with what a removal that was killed has left in a directory."""
    with os.scandir(parent) as entries:
        left = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    for name in left:
        if name.startswith(LEAVING):
            with suppress(OSError):
                _finish(parent / name)


def _finish(home: Path) -> None:
    try:
        manifest = read_manifest(home)
    except UnloaderError:
        os.rmdir(home)
        return
    others = map(Path, directories_of(manifest, home)[1:])
    hidden = (home, *(_hidden(each, manifest.run_id) for each in others))
    # Whoever may write beside the runs could have put it there, with any name in its manifest.
    ours = all(map(is_ours, filter(os.path.lexists, hidden)))
    if not ours or not home.name.startswith(f"{LEAVING}{manifest.run_id}-"):
        return
    empty(EarlierRun(manifest=manifest, directories=hidden), hidden)


def empty(run: EarlierRun, hidden: Sequence[Path]) -> None:
    """Remove the files of a run, the manifest last, and the directories that they are in by now."""
    for number in reversed(range(len(hidden))):
        with suppress(FileNotFoundError):
            # Held open, so that no link can be put in its place.
            descriptor = os.open(hidden[number], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for name in filter(_is_plain, _names(run, number)):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(hidden[number])


def _names(run: EarlierRun, number: int) -> list[str]:
    return [name for place, name in run.files if place == number]


def _is_plain(name: str) -> bool:
    return "/" not in name and name not in (".", "..")


def is_ours(path: Path) -> bool:
    """Return whether a path is a directory of this user, and no link to one."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _hidden(directory: Path, run_id: str) -> Path:
    return directory.with_name(f"{LEAVING}{run_id}-{directory.name}")


def is_below(place: Path, home: Path) -> bool:
    """Return whether a directory lies in another, with no link on the way to it."""
    parts = place.relative_to(home).parts
    if not parts or ".." in parts:
        return False
    steps = [home.joinpath(*parts[: number + 1]) for number in range(len(parts))]
    return all(stat.S_ISDIR(os.lstat(step).st_mode) for step in steps)


def within(home: Path, tables: set[Path]) -> set[Path]:
    """Return the directories between a home and those of its tables."""
    return {
        parent for table in tables for parent in table.parents if parent.is_relative_to(home)
    } - {home}
