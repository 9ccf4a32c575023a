"""Bringing publications to their end that were cut short, and saying what a store refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, RUN_RECORD, Completed
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.lock import Lock, is_alive, read_lock
from unloader.storage.objects.publication import Publication, carry_out, stands, sweep
from unloader.storage.objects.room import Room
from unloader.storage.objects.uploads import abort_uploads
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
            _clear(home, holder, version)
            return ()
        record = home.read_record(holder.folder, RUN_RECORD)
        publication, rooms = _read(home, holder)
        lock = _taken_over(home, holder, version)
        others = [_of_its_own(each, holder) for each in rooms[1:]]
        try:
            if None in others:
                # They were given back already, or never were this run's.
                _check_stands(home, holder)
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


def _clear(home: Room, holder: Holder, version: object) -> None:
    """Remove the rest of a run that is published."""
    rooms = home.others(holder.places)
    lock = _taken_over(home, holder, version)
    others = [_of_its_own(each, holder) for each in rooms[1:]]
    sweep((home, *(each for each, own in zip(rooms[1:], others, strict=True) if own)))
    for each in (*others, lock):
        if each is not None:
            each.remove()


def _is_being_cleared(home: Room, holder: Holder) -> bool:
    """Tell whether all of a run is published, and its records were being removed when it died.

    They are there before its lock says that it is published, and go behind its manifest.
    """
    keys = {each.key for each in home.bucket.within(home.prefix)}
    if keys >= {home.publication(holder.folder), home.manifest(holder.folder)}:
        return False
    try:
        return f'"{holder.run_id}"'.encode() in home.bucket.read(home.final(MANIFEST))
    except FileNotFoundError:
        return False


def _check_stands(home: Room, holder: Holder) -> None:
    """Check that all is published, where a place of it is not the run's any more."""
    if not stands(home, home.bucket.read(home.manifest(holder.folder))):
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
