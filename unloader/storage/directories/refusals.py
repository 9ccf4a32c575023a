"""Why a directory cannot be taken by a run, found out without changing anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import (
    is_directory_of,
    is_locked,
    lives_elsewhere,
    owners_for,
    read_holder,
)
from unloader.storage.directories.links import foreign_link
from unloader.storage.place_names import overlapping, two_are_one
from unloader.storage.storage_protocol import MANIFEST, RUN


def refusal(path: Path, *, overwrite: bool) -> OutputFailed | None:
    """Return why a run would be refused a directory; None if nothing is known against it.

    Args:
        path: The directory, which may be missing.
        overwrite: An earlier run in it may be replaced.
    """
    if (link := foreign_link(path)) is not None:
        return linked(link)
    try:
        there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
        if not there.is_dir():
            return refused("create", path, f"{there} is not a directory")
        if not os.access(there, os.W_OK | os.X_OK):
            return refused("create" if there != path else "prepare", path, "Permission denied")
        if there != path:
            return None
        room = path / RUN
        if room.exists():
            if not is_directory_of(room, owners_for(path)):
                return foreign_room(room)
            if is_locked(room) or lives_elsewhere(room):
                return held(path)
        return None if overwrite else not_free(path)
    except OSError as error:
        return refused("prepare", path, error.strerror or str(error))


def missing(places: Iterable[str]) -> frozenset[str]:
    """Return the directories that are not there and that nothing is seen to keep from being made.

    What they are in is looked at once for all of them.
    """
    can_hold: dict[str, bool] = {}

    def can_be_made(place: str) -> bool:
        path = os.path.abspath(place)
        above, name = os.path.split(path)
        if name == RUN or not name:
            return False
        try:
            os.lstat(path)
        except FileNotFoundError:
            pass
        except OSError:
            return False  # Its name is too long, or nothing can be seen: who takes it says why.
        else:
            return False
        if above not in can_hold:
            can_hold[above] = _can_hold(above)
        return can_hold[above]

    return frozenset(filter(can_be_made, places))


def _can_hold(above: str) -> bool:
    """Tell whether this user may make a directory in another one, which is made where it is not."""
    if RUN in os.path.realpath(above).split(os.sep) or foreign_link(Path(above)) is not None:
        return False
    there = next(each for each in (Path(above), *Path(above).parents) if os.path.lexists(each))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def not_free(path: Path, *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a directory that holds anything but leftovers of dead runs, else None.

    Args:
        path: The directory.
        shared: Other runs may have directories in it; only a finished run is in the way.

    Raises:
        OSError: It cannot be read.
    """
    others = sorted(entry.name for entry in path.iterdir() if entry.name != RUN)
    finished = MANIFEST in others
    if not others or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{others[0]} and possibly other files"
    return OutputFailed(
        f"{path} is not empty: it holds {what}",
        "choose an empty directory with --to, or replace an earlier run with --overwrite",
    )


def held(path: Path) -> OutputFailed:
    """Return the error for a directory that another run is writing to."""
    who = read_holder(path / RUN).text()
    return OutputFailed(
        f"another run is writing to {path}{who and f': {who}'}",
        f"look at that run with: unloader status {path}; or choose another --to",
    )


def linked(link: Path) -> OutputFailed:
    """Return the error for a link that somebody else has laid."""
    return OutputFailed(
        f"{link} is a symbolic link of another user, in a directory that all users may write to",
        "find out which program created it and remove it, or choose another --to",
    )


def foreign_room(room: Path) -> OutputFailed:
    """Return the error for a `_run` that is not ours."""
    return OutputFailed(
        f"{room} is a symbolic link or belongs to another user",
        "find out which program created it and remove it, or choose another --to",
    )


def refused(verb: str, path: Path, why: str) -> OutputFailed:
    """Return the error for what the file system said."""
    return OutputFailed(
        f"cannot {verb} {path}: {why}",
        "check the path, its permissions and the free space, or choose another --to",
    )


def check_different(
    paths: Sequence[Path], real_path: Callable[[Path], str] = os.path.realpath
) -> Sequence[str]:
    """Return the directories without links on the way to them; none is or lies in another one.

    Raises:
        OutputFailed: One does, or lies in the `_run` of another run.
    """
    resolved = [real_path(path) for path in paths]
    for path, real in zip(paths, resolved, strict=True):
        if RUN in real.split(os.sep):
            # The end of a run into the directory around it removes it, finished files and all.
            raise OutputFailed(
                f"{path} is inside a directory {RUN}, which is removed when the run ends",
                "choose another directory",
            )
    pair = overlapping(list(map(PurePath, resolved))) if len(resolved) > 1 else None
    if pair is not None:
        first, second = pair
        same = resolved[first] == resolved[second]
        raise OutputFailed(
            two_are_one(str(paths[first]), str(paths[second]), same=same),
            "give separate directories",
        )
    return resolved
