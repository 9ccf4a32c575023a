"""Interrupted publications, which are completed, and the leftovers of dead runs, which are removed.

The next command in a directory does it: a run, `verify` or `clean`. A run whose publication has
begun is complete and counted, so it is completed and not removed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_lock import (
    LOCK,
    holder_of,
    is_of,
    owners_for,
    take_lock,
)
from unloader.storage.directories.directory_publishing import (
    TWIN,
    Publication,
    carrying_out,
    check_found,
    is_out,
    leftover,
    read_publication,
    remove_room,
    strangers,
    take_back,
    twin_name,
)
from unloader.storage.storage_protocol import (
    MANIFEST,
    RUN,
    RUN_RECORD,
    Cleaning,
    Completed,
    Leftover,
)
from writers.errors import WriteError
from writers.files.regular import read_regular
from writers.files.syncing import alone


def complete(*directories: Path) -> tuple[Completed, ...]:
    """Complete interrupted publications of dead runs into directories; return their runs.

    After an OutputFailed everything is as it was, and a later try may succeed.
    """
    found, finished = [], set()
    for directory in directories:
        here = Path(os.path.realpath(directory))
        if os.path.lexists(here / MANIFEST):
            finished.add(here)
        for publication in pending(directory):
            with _locked(publication) as ours:
                if ours:
                    found.append(_finished(publication))
                    finished |= {share.directory for share in publication.shares}
    for place in finished:
        _clear_finished(place)
    return tuple(found)


def pending(directory: Path) -> tuple[Publication, ...]:
    """Return the publications that include a directory and are not cleared away."""
    found: dict[str, Publication] = {}
    try:
        here = Path(os.path.realpath(directory))
        owners = owners_for(here)
        # The first directories of the runs that have files in this one or in its twins.
        homes = [here]
        for place in (here, *_twins(here)):
            homes += map(Path, holder_of(place / RUN, owners).places[:1])
        for home in dict.fromkeys(homes):
            for place in (home, *_twins(home, owners)):
                publication = read_publication(place / RUN, owners)
                if publication is not None:
                    found.setdefault(publication.run_id, _rebased(publication, home))
    except OSError as error:
        raise OutputFailed(
            f"cannot read what earlier runs left in {directory}: {error.filename}: "
            f"{error.strerror or error}",
            "give a shorter --to"
            if error.errno == errno.ENAMETOOLONG
            else "check the permissions of that directory, then run the same command again",
        ) from error
    return tuple(found.values())


def is_under_way(directory: Path) -> bool:
    """Return whether a publication into a directory is on record and its manifest not in place."""
    return any(not is_out(publication) for publication in pending(directory))


_SETTLED_NANOSECONDS = 1_000_000_000
"""A second change within one tick of the clock is not seen, so a list of this age is trusted."""


def _twins(directory: Path, owners: frozenset[int] = frozenset()) -> list[Path]:
    """Return the twins next to a directory that belong to its owner or to one of these users."""
    owners |= owners_for(directory)
    with suppress(OSError):
        changed, now = os.stat(directory.parent).st_mtime_ns, time.time_ns()
        asked = 0 if now - changed > _SETTLED_NANOSECONDS else now
        twins = _twins_in(directory.parent, changed, asked).get(directory.name, ())
        return sorted(twin for twin in twins if is_of(twin, owners))
    return []


@lru_cache(maxsize=256)
def _twins_in(parent: Path, changed: int, asked: int) -> dict[str, list[Path]]:
    """Return the twins in a directory by the names of their directories.

    It is listed again only after a change: a list of a thousand names for each of a thousand
    directories is a million names.
    """
    twins: dict[str, list[Path]] = {}
    for name in os.listdir(parent):
        if name[0] == "." and TWIN in name:
            twins.setdefault(name[1:].rpartition(TWIN)[0], []).append(parent / name)
    return twins


def sweep(directory: Path) -> None:
    """Remove empty twins of a directory; the caller has the directory's lock."""
    here = Path(os.path.realpath(directory))
    owners = owners_for(here)
    for twin in _twins(here, owners):
        room = twin / RUN
        with suppress(OSError):
            if os.path.lexists(room):
                if not is_of(room, owners) or os.listdir(twin) != [RUN]:
                    continue
                if os.listdir(room) == [LOCK]:
                    if (lock := take_lock(room, create=False)) is None:
                        continue
                    os.close(lock)
                    (room / LOCK).unlink()
                room.rmdir()
            twin.rmdir()


def _clear_finished(here: Path) -> None:
    """Remove the `_run` and the twins that a run left as it cleared its directory; never raises.

    The `_run` has no more than its lock. A user who may not change them leaves them.
    """
    room, owners = here / RUN, owners_for(here)
    with suppress(OSError):
        if os.path.lexists(room):
            if not is_of(room, owners) or set(os.listdir(room)) - {LOCK}:
                return
        elif _twins(here, owners):
            # Only the holder of the directory's lock may remove them.
            room.mkdir()
        else:
            return
        if (lock := take_lock(room)) is None:
            return
        try:
            if os.listdir(room) == [LOCK]:
                sweep(here)
                (room / LOCK).unlink()
                room.rmdir()
        finally:
            os.close(lock)


def _rebased(publication: Publication, home: Path) -> Publication:
    """Return a publication of one directory with its present path, if it was moved."""
    share = publication.home
    if share.path == str(home) or any(each.path == str(home) for each in publication.shares):
        return publication
    if len(publication.shares) > 1:
        raise OutputFailed(
            f"{home} had the path {share.path} when run {publication.run_id} was being published "
            "into it",
            f"move it back to {share.path}, then run the same command again",
        )
    name = twin_name(home, publication.run_id) if share.twin else ""
    with suppress(OSError):
        if share.twin and share.twin != name:
            os.rename(home.with_name(share.twin), home.with_name(name))
    return replace(publication, shares=(replace(share, path=str(home), twin=name),))


@contextmanager
def _locked(publication: Publication, how: str = "completed") -> Iterator[bool]:
    """Hold the locks of a publication's directories; yield False if another process has one.

    Errors of the file system are translated.
    """
    with ExitStack() as held:
        ours = True
        try:
            try:
                for share in publication.shares:
                    for room in publication.rooms(share):
                        lock = take_lock(room, create=False)
                        ours = ours and lock is not None
                        if lock is not None:
                            held.callback(os.close, lock)
            except FileNotFoundError:
                ours = False
            yield ours
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            raise _failed(publication, f"{named}{error.strerror or error}", how) from error
        except WriteError as error:
            raise _failed(publication, str(error), how) from error


def _finished(publication: Publication) -> Completed:
    """Complete a publication whose locks are held."""
    record = b""
    for room in publication.rooms(publication.home):
        # The publication does not need the record, so it may be unreadable.
        with suppress(OSError):
            if not record and is_of(room / RUN_RECORD, publication.owners, stat.S_IFREG):
                record = read_regular(room / RUN_RECORD)
    was_out = is_out(publication)
    messages = alone(carrying_out(publication))
    places = " and ".join(share.path for share in publication.shares)
    when, done = "while", "the publication is completed"
    if was_out:
        when, done = "just after", "its leftovers are removed"
    text = f"run {publication.run_id} was interrupted {when} it was published into {places}: {done}"
    return Completed(
        place=publication.home.path,
        run_id=publication.run_id,
        record=record,
        messages=(text, *messages),
    )


def _failed(publication: Publication, why: str, how: str = "completed") -> OutputFailed:
    return OutputFailed(
        f"run {publication.run_id} is complete, but its publication into {publication.home.path} "
        f"was interrupted and cannot be {how}: {why}",
        f"fix the cause, then run: unloader verify {publication.home.path}; or abandon the run "
        f"with: unloader clean {publication.home.path}",
    )


def clean(directories: Sequence[Path], *, dry_run: bool) -> Cleaning:
    """Remove unpublished files of dead runs from directories; see `Storage.clear`."""
    completed: list[str] = []
    removed: list[Leftover] = []
    kept: list[str] = []
    directory = None
    try:
        for directory in _with_others(directories):
            if dry_run:
                completed += (
                    f"run {each.run_id} was interrupted while it was published into "
                    f"{each.home.path}: the publication would be completed"
                    for each in pending(directory)
                )
            else:
                completed += _complete_or_undo(directory)
            foreign = strangers(directory / RUN)
            kept += map(str, foreign)
            left = _clear(directory, dry_run=dry_run)
            removed += (each for each in left if each.run_id or not (each.is_empty and foreign))
    except OSError as error:
        raise OutputFailed(
            f"cannot clean {directory or error.filename}: {error.strerror or error}",
            "check the path and its permissions",
        ) from error
    return Cleaning(
        dry_run=dry_run, completed=tuple(completed), removed=tuple(removed), kept=tuple(kept)
    )


def _with_others(directories: Sequence[Path]) -> list[Path]:
    """Return the directories, and the other directories of the runs that left files in them."""
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise OutputFailed(
                f"{directory} is not a directory", "give the directory that was given with --to"
            )
        found.setdefault(os.path.realpath(directory), directory)
    for real, directory in tuple(found.items()):
        owners = owners_for(directory)
        holder = holder_of(directory / RUN, owners)
        if real not in holder.places:
            # A copy: the run in the directories that its lock names may still be resumed.
            continue
        for other in holder.places:
            if holder.run_id and holder_of(Path(other) / RUN, owners).run_id == holder.run_id:
                found.setdefault(other, Path(other))
    return list(found.values())


def _complete_or_undo(directory: Path) -> tuple[str, ...]:
    """Complete publications; stage the files of others again, and restore the replaced runs."""
    try:
        return tuple(text for run in complete(directory) for text in run.messages)
    except OutputFailed as error:
        for publication in pending(directory):
            with _locked(publication, "undone") as ours:
                if ours:
                    # Files in a directory that is not mounted cannot be moved back.
                    check_found(publication, out=is_out(publication))
                    if is_out(publication):
                        why = "its manifest already has its final name"
                        raise _failed(publication, why, "undone") from None
                    take_back(publication)
        return (f"{error.message}; this publication is abandoned",)


def _clear(directory: Path, *, dry_run: bool) -> list[Leftover]:
    room = directory / RUN
    if not room.is_dir():
        if not dry_run:
            sweep(directory)
        return []
    if not is_of(room, owners_for(directory)):
        raise OutputFailed(
            f"{room} is a symbolic link or belongs to another user",
            "run the same command as its owner, or find out which program created it",
        )
    try:
        lock = take_lock(room, create=not dry_run)
    except FileNotFoundError:
        # Without a lock no run has it; or its run has just ended.
        return [leftover(directory)] if dry_run and room.is_dir() else []
    if lock is None:
        raise OutputFailed(
            f"a run is writing to {directory}",
            f"wait until the run ends, or end it with: unloader stop {directory}",
        )
    try:
        if not dry_run and is_under_way(directory):
            # A run that had its lock until now has begun to publish, and died.
            raise OutputFailed(
                f"a run was interrupted a moment ago while it was published into {directory}",
                "run the same command again, which completes the publication",
            )
        left = leftover(directory)
        if not dry_run:
            remove_room(room)
            sweep(directory)
        return [left]
    finally:
        os.close(lock)
