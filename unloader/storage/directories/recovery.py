"""Finding publications that were cut short, and bringing them to their end.

The next command in a directory does it: a run, `verify` or `clean`. A run that is published by
half is complete and counted, so it is finished, never thrown away.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import (
    LOCK,
    Locked,
    holder_of,
    is_directory_of,
    is_file_of,
    owners_for,
    publishing_lines,
    take_lock,
)
from unloader.storage.directories.publication import (
    TWIN,
    Publication,
    Share,
    read_publication,
    twin_name,
)
from unloader.storage.directories.publishing import carry_out, check_found, is_out, take_back
from unloader.storage.place_names import RealPlaces
from unloader.storage.storage_protocol import MANIFEST, RUN, RUN_RECORD, Completed
from writers.errors import WriteError
from writers.files.regular import read_regular


def complete(directory: Path) -> tuple[Completed, ...]:
    """Finish what was being published into a directory; return whose it was.

    A run that is still at it is left alone.

    Raises:
        OutputFailed: It cannot be finished; everything is as it was, and a later try may succeed.
    """
    found = []
    here = Path(os.path.realpath(directory))
    places = {here} if os.path.lexists(here / MANIFEST) else set()
    for publication in pending(directory):
        with _locked(publication) as ours:
            if ours:
                found.append(_finished(publication))
                places |= {share.directory for share in publication.shares}
    for place in places:
        _clear(place)
    return tuple(found)


def complete_all(directories: Iterable[Path]) -> tuple[Completed, ...]:
    """Do the same for many directories; what lies beside them is looked at once.

    Raises:
        OutputFailed: As `complete`.
    """
    beside: dict[Path, set[str]] = {}
    found: list[Completed] = []
    places = RealPlaces()
    for directory in directories:
        here = Path(places.of(str(directory)))
        if here.parent not in beside:
            beside[here.parent] = _of_twins(here.parent)
        if here.name in beside[here.parent] or _has_more(here):
            found += complete(directory)
    return tuple(found)


def _has_more(here: Path) -> bool:
    """Return whether a publication may be found from a directory that has no twin."""
    room = here / RUN
    if not os.path.lexists(room):
        return False
    try:
        first = holder_of(room, owners_for(here)).directories[:1]
        on_record = bool(publishing_lines(room)[1])
    except OSError:
        return True  # Whoever looks closer says why.
    return on_record or first not in ((), (str(here),))


def _of_twins(parent: Path) -> set[str]:
    """Return the names of the directories that have a twin, or seem to."""
    try:
        names = os.listdir(parent)
    except OSError:
        return set()
    twins = (name for name in names if name.startswith("."))
    return {name[1:].rpartition(TWIN)[0] for name in twins if TWIN in name}


def give_up(directory: Path) -> None:
    """Take back what was being published into a directory and cannot be finished.

    Files that it gave final names are staged again, and the run that it replaced stands.

    Raises:
        OutputFailed: That cannot be either.
    """
    for publication in pending(directory):
        with _locked(publication) as ours:
            if not ours:
                continue
            try:
                out = is_out(publication)
                # What lies in a directory that is not mounted cannot be taken back.
                check_found(publication, out=out)
                if out:
                    raise _failed(publication, "its manifest already has its final name", "undone")
                take_back(publication)
            except OSError as error:
                raise _failed(
                    publication, f"{error.filename}: {error.strerror or error}", "undone"
                ) from error


def pending(directory: Path) -> tuple[Publication, ...]:
    """Return the publications that have a directory among theirs and are not cleared away.

    Raises:
        OutputFailed: The record of one cannot be read.
    """
    try:
        return _pending(Path(os.path.realpath(directory)))
    except OSError as error:
        raise OutputFailed(
            f"cannot read what earlier runs left in {directory}: {error.filename}: "
            f"{error.strerror or error}",
            "give a shorter --to"
            if error.errno == errno.ENAMETOOLONG
            else "check the permissions of that directory, then run the same command again",
        ) from error


def _pending(here: Path) -> tuple[Publication, ...]:
    found: dict[str, Publication] = {}
    owners = owners_for(here)
    for home in dict.fromkeys((here, *_homes(here, owners))):
        for room in _rooms_of(home, owners):
            publication = read_publication(room, owners)
            if publication is not None:
                found.setdefault(publication.run_id, _rebased(publication, home))
    return tuple(found.values())


def is_under_way(directory: Path, *, beside: bool = True) -> bool:
    """Tell whether a publication into a directory is on record and its manifest not in place.

    Args:
        directory: The directory.
        beside: Look also at twins of it. The `_run` of a publication into this directory alone
            is in a twin only once its manifest is in place.

    Raises:
        OutputFailed: The record of one cannot be read.
    """
    if not beside:
        here = Path(os.path.realpath(directory))
        publication = read_publication(here / RUN, owners_for(here))
        if publication is None or len(publication.shares) == 1:
            return publication is not None and not is_out(publication)
    return any(not is_out(publication) for publication in pending(directory))


def twins(directory: Path, owners: frozenset[int]) -> list[Path]:
    """Return the directories beside one that were to take its place, or were it once.

    Only those that it may have been: of its owner, or of one of these users.
    """
    owners |= owners_for(directory)
    beginning = f".{directory.name}{TWIN}"
    with suppress(OSError):
        names = os.listdir(directory.parent)
        found = [directory.with_name(name) for name in names if name.startswith(beginning)]
        return sorted(twin for twin in found if is_directory_of(twin, owners))
    return []


def sweep(directory: Path) -> None:
    """Remove twins of a directory that hold nothing; the caller has the directory's lock."""
    here = Path(os.path.realpath(directory))
    owners = owners_for(here)
    for twin in twins(here, owners):
        if os.path.lexists(twin / RUN) and not is_directory_of(twin / RUN, owners):
            continue
        with suppress(OSError, Locked):
            if (twin / RUN).exists() and os.listdir(twin) == [RUN]:
                if os.listdir(twin / RUN) == [LOCK]:
                    os.close(take_lock(twin / RUN, create=False))
                    (twin / RUN / LOCK).unlink()
                (twin / RUN).rmdir()
            twin.rmdir()


def sweep_one_of_many(directory: Path) -> None:
    """Do the same for the directory of a table of many.

    What lies beside all of them is listed once as long as it is the same: a list of all names for
    each of a thousand directories is a million of them.
    """
    here = Path(os.path.realpath(directory))
    with suppress(OSError):
        changed = os.stat(here.parent).st_mtime_ns
        if _beside.get(here.parent, (0, ()))[0] != changed:
            if len(_beside) >= _MOST_BESIDE:
                _beside.clear()
            _beside[here.parent] = changed, _of_twins(here.parent)
        if here.name in _beside[here.parent][1]:
            sweep(here)


_beside: dict[Path, tuple[int, Collection[str]]] = {}
"""When a directory was last changed, and the names in it that have twins."""

_MOST_BESIDE = 256
"""Guess: tables lie in the directory of the run, or in one for each schema."""


def _clear(here: Path) -> None:
    """Remove what is left in a finished directory of a run that died while it cleared away.

    That is a `_run` with its lock at most, and twins with no more than that. Never raises: who may
    not change them leaves them.
    """
    room, owners = here / RUN, owners_for(here)
    with suppress(OSError, Locked):
        if os.path.lexists(room):
            if not is_directory_of(room, owners) or set(os.listdir(room)) - {LOCK}:
                return
        elif twins(here, owners):
            # They are removed by who has the directory.
            room.mkdir()
        else:
            return
        lock = take_lock(room)
        try:
            if os.listdir(room) == [LOCK]:
                sweep(here)
                (room / LOCK).unlink()
                room.rmdir()
        finally:
            os.close(lock)


def _homes(here: Path, owners: frozenset[int]) -> Iterator[Path]:
    """Yield the first directories of the runs that have something in this one or beside it."""
    for room in _rooms_of(here, owners):
        for path in holder_of(room, owners).directories[:1]:
            yield Path(path)


def _rooms_of(directory: Path, owners: frozenset[int]) -> Iterator[Path]:
    """Yield where the `_run` of a publication into a directory may be."""
    yield directory / RUN
    for twin in twins(directory, owners):
        yield twin / RUN


def _rebased(publication: Publication, home: Path) -> Publication:
    """Return a publication of one directory where that is now, if it has been moved."""
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
def _locked(publication: Publication) -> Iterator[bool]:
    """Hold the locks of a publication's directories; yields False if another process has one."""
    with ExitStack() as held:
        for share in publication.shares:
            try:
                for room in _rooms(publication, share):
                    held.callback(os.close, take_lock(room, create=False))
            except (Locked, FileNotFoundError):
                yield False
                return
            except OSError as error:
                raise _failed(publication, error.strerror or str(error)) from error
        yield True


def _rooms(publication: Publication, share: Share) -> Iterator[Path]:
    for room in (share.room, share.beside / RUN):
        if publication.holds(room):
            yield room


def _finished(publication: Publication) -> Completed:
    record = _record_of(publication)
    try:
        was_out = is_out(publication)
        messages = carry_out(publication)
    except OSError as error:
        raise _failed(publication, f"{error.filename}: {error.strerror or error}") from error
    except WriteError as error:
        raise _failed(publication, str(error)) from error
    places = " and ".join(share.path for share in publication.shares)
    text = f"run {publication.run_id} was interrupted while it was published into {places}: "
    if was_out:
        text = (
            f"run {publication.run_id} was interrupted just after it was published into {places}: "
        )
    text += "its leftovers are removed" if was_out else "the publication is completed"
    return Completed(
        place=publication.home.path,
        run_id=publication.run_id,
        record=record,
        messages=(text, *messages),
    )


def _record_of(publication: Publication) -> bytes:
    """Return what the run was to do; empty where that cannot be read: it is complete without."""
    for room in _rooms(publication, publication.home):
        path = room / RUN_RECORD
        with suppress(OSError):
            if is_file_of(path, publication.owners):
                return read_regular(path)
    return b""


def _failed(publication: Publication, why: str, how: str = "completed") -> OutputFailed:
    return OutputFailed(
        f"run {publication.run_id} is complete, but its publication into {publication.home.path} "
        f"was interrupted and cannot be {how}: {why}",
        f"fix the cause, then run: unloader verify {publication.home.path}; or abandon the run "
        f"with: unloader clean {publication.home.path}",
    )
