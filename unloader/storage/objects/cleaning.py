"""Removing what runs that died have left at places; what has a final name is never touched."""

from __future__ import annotations

from collections.abc import Sequence

from unloader.errors import OutputFailed
from unloader.storage.model import Cleaning, Leftover
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.leftovers import look
from unloader.storage.objects.lock import Lock, is_alive, read_lock
from unloader.storage.objects.publication import Publication, sweep, take_back
from unloader.storage.objects.recovery import complete, pending, refused
from unloader.storage.objects.room import Room
from unloader.storage.objects.uploads import abort_uploads
from writers.errors import FormatError, WriteError


def clean(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove what is left unpublished, broken-off uploads included.

    A run that was cut short while it was published is complete and counted, so it is brought to its
    end first. Where that cannot be, it is taken back. Of a run over several places all are cleared.

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
