"""What is left of runs that died: publications that are completed, and leftovers that are removed.

What has a final name is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, RUN_RECORD, Cleaning, Completed, Leftover
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.lock import Lock, is_alive, read_lock
from unloader.storage.objects.publication import (
    Publication,
    carry_out,
    is_published,
    sweep,
    take_back,
)
from unloader.storage.objects.room import Room, abort_uploads, look
from writers.errors import FormatError, WriteError


@contextmanager
def refused(verb: str, room: Room) -> Iterator[None]:
    """Turn what the store said into the error for the user."""
    try:
        yield
    except OSError as error:
        raise OutputFailed(
            f"cannot {verb} {room.name}: {error.strerror or error}",
            "check the name of the bucket, the credentials and their rights, and the network",
        ) from error


def pending(room: Room) -> tuple[Room, Holder, object] | None:
    """Return the first place of a run that was cut short while it was published, else None.

    Raises:
        OutputFailed: A lock is damaged.
        OSError: The store refused.
    """
    seen = read_lock(room)
    if seen is None or not seen[0].places:
        return None
    home = room.others(seen[0].places)[0]
    of_home = seen if home is room else read_lock(home)
    if of_home is None or of_home[0].folder != seen[0].folder or not of_home[0].is_publishing:
        return None
    if is_alive(home, of_home[0]):
        return None
    return home, *of_home


def complete(room: Room) -> tuple[Completed, ...]:
    """Finish a publication that was cut short, see `unloader.storage.base.Storage.complete`.

    Raises:
        OutputFailed: It cannot be finished.
        WriteError: The store refused or failed.
    """
    with refused("read", room):
        found = pending(room)
        if found is None:
            return ()
        home, holder, version = found
        if _is_being_cleared(home, holder):
            _remove_rest(home, holder, version)
            return ()
        record = home.read_record(holder.folder, RUN_RECORD)
        publication, rooms = _read(home, holder)
        lock = _taken_over(home, holder, version)
        others = [_of_its_own(each, holder) for each in rooms[1:]]
        try:
            if None in others:
                # They were given back already, or never were this run's.
                _check_published(home, holder)
                mine = (home, *(each for each, own in zip(rooms[1:], others, strict=True) if own))
                sweep(mine)
            else:
                carry_out(publication, rooms)
                for one in rooms:
                    abort_uploads(one, holder.names)
            for each in (*others, lock):
                if each is not None:
                    each.remove()
        except BaseException:
            for each in (*others, lock):
                if each is not None:
                    with suppress(OutputFailed, WriteError):
                        each.renew(is_released=True)
            raise
    text = (
        f"run {publication.run_id} was interrupted while it was published into {home.name}: the "
        "publication is completed now"
    )
    return (Completed(place=home.name, run_id=publication.run_id, record=record, messages=(text,)),)


def _read(home: Room, holder: Holder) -> tuple[Publication, list[Room]]:
    """Return what is to be done, and the places of it, the first one being the home."""
    try:
        publication = Publication.read(home.bucket.read(home.publication(holder.folder)))
        rooms = home.others(publication.places)
        if publication.folder != holder.folder or not rooms or rooms[0] is not home:
            raise ValueError("it belongs to another run")
        publication.check(rooms)
    except (ValueError, FileNotFoundError, FormatError) as error:
        raise _damaged(home, holder, str(error)) from None
    return publication, rooms


def _remove_rest(home: Room, holder: Holder, version: object) -> None:
    """Remove the rest of a run that is published."""
    rooms = home.others(holder.places)
    lock = _taken_over(home, holder, version)
    others = [_of_its_own(each, holder) for each in rooms[1:]]
    sweep((home, *(each for each, own in zip(rooms[1:], others, strict=True) if own)))
    for each in (*others, lock):
        if each is not None:
            each.remove()


def _is_being_cleared(home: Room, holder: Holder) -> bool:
    """Return whether all of a run is published, and its records were being removed when it died.

    They are there before its lock says that it is published, and go behind its manifest.
    """
    keys = {each.key for each in home.bucket.within(home.prefix)}
    if keys >= {home.publication(holder.folder), home.manifest(holder.folder)}:
        return False
    try:
        return f'"{holder.run_id}"'.encode() in home.bucket.read(home.final(MANIFEST))
    except FileNotFoundError:
        return False


def _check_published(home: Room, holder: Holder) -> None:
    """Check that all is published, where a place of it is not the run's any more."""
    if not is_published(home, home.bucket.read(home.manifest(holder.folder))):
        raise _damaged(home, holder, "one of its places does not belong to the run")


def _damaged(home: Room, holder: Holder, why: str) -> OutputFailed:
    return OutputFailed(
        f"the record of the publication of run {holder.run_id} into {home.name} is damaged: {why}",
        f"remove the run's leftovers with: unloader clean '{home.name}'; then unload again",
    )


def _taken_over(room: Room, holder: Holder, version: object) -> Lock:
    """Take a dead run's lock, to do what it would have done."""
    me = Holder.here(holder.run_id, holder.places, folder=holder.folder, home=holder.home)
    lock = Lock(room, replace(me, is_publishing=holder.is_publishing))
    lock.take_over(holder, version)
    return lock


def _of_its_own(room: Room, holder: Holder) -> Lock | None:
    """Take the lock of another place of the same run, where that is still its own."""
    seen = read_lock(room)
    if seen is None or seen[0].folder != holder.folder:
        return None
    return _taken_over(room, *seen)


def clean(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove unpublished files and unfinished uploads.

    A run that was cut short while it was published is complete and counted, so it is completed
    first. Where that cannot be, it is taken back. Of a run over several places all are cleared.

    Args:
        places: As they were given with `--to`.
        dry_run: Change nothing.

    Raises:
        OutputFailed: There is nothing at a place, a run is writing to it, or the store refused.
        WriteError: The store refused or failed.
    """
    completed: list[str] = []
    removed: list[Leftover] = []
    for room in _with_others(places):
        with refused("clean", room):
            completed += _would_complete(room) if dry_run else _complete(room)
            removed += _clear(room, dry_run=dry_run)
    return Cleaning(dry_run=dry_run, completed=tuple(completed), removed=tuple(removed))


def _with_others(places: Sequence[str]) -> list[Room]:
    """Return the places, and the others of the runs that left something in them."""
    found: list[Room] = []
    for place in places:
        room = Room(place)
        with refused("clean", room):
            levels, objects = room.bucket.look(room.location.prefix)
            seen = read_lock(room)
            if not (levels or objects) and not abort_uploads(room, (), dry_run=True):
                raise OutputFailed(
                    f"{room.name} is empty", "give the place that was given with --to"
                )
        for each in (room, *(_others(room, seen[0]) if seen is not None else ())):
            if not any(each.is_same(known.name) for known in found):
                found.append(each)
    return found


def _others(room: Room, holder: Holder) -> list[Room]:
    """Return the places of a run that are still its own."""
    found = []
    for each in room.others(holder.places):
        with refused("clean", each):
            seen = read_lock(each)
        if seen is not None and seen[0].folder == holder.folder:
            found.append(each)
    return found


def _would_complete(room: Room) -> tuple[str, ...]:
    found = pending(room)
    if found is None or not found[0].is_same(room.name):
        return ()
    return (
        f"run {found[1].run_id} was interrupted while it was published into {room.name}: the "
        "publication would be completed",
    )


def _complete(room: Room) -> tuple[str, ...]:
    try:
        return tuple(text for run in complete(room) for text in run.messages)
    except (OutputFailed, WriteError) as error:
        found = pending(room)
        if found is None:
            raise
        home, holder, _ = found
        # A record that cannot be read tells of no file: then there is nothing to take back.
        try:
            publication = Publication.read(home.bucket.read(home.publication(holder.folder)))
            rooms = home.others(publication.places)
            publication.check(rooms)
        except (ValueError, FileNotFoundError, FormatError):
            pass
        else:
            if len(_others(home, holder)) == len(rooms):
                take_back(publication, rooms)
        return (f"{error.message.rstrip('.')}; this publication is abandoned",)


def _clear(room: Room, *, dry_run: bool) -> list[Leftover]:
    seen = read_lock(room)
    holder = seen[0] if seen is not None else None
    if holder is not None and is_alive(room, holder):
        raise OutputFailed(
            f"a run is writing to {room.name}",
            f"wait until the run ends, or end it with: unloader stop '{room.name}'",
        )
    names = holder.names if holder is not None else ()
    left = look(room, holder, uploads=abort_uploads(room, names, dry_run=True))
    if holder is None and left.is_empty and not room.bucket.within(room.prefix):
        return []
    if not dry_run:
        lock = Lock(room, Holder.here("", (room.name,)))
        lock.take()
        try:
            abort_uploads(room, lock.names)
            sweep([room])
        finally:
            lock.remove()
    return [left]
