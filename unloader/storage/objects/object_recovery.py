"""Interrupted publications, which are completed, and the leftovers of dead runs, which are removed.

Objects with final names are removed only if their publication cannot be completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.objects.object_lock import Lock, ObjectHolder, is_alive, read_lock
from unloader.storage.objects.object_publishing import (
    carry_out,
    is_published,
    read_publication,
    sweep,
    take_back,
)
from unloader.storage.objects.object_staging import PUBLICATION, Room, abort_uploads, refused
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    RUN_RECORD,
    STAGED_LINE,
    Cleaning,
    Completed,
    Leftover,
)
from writers.errors import FormatError, WriteError


def leftover(room: Room, holder: ObjectHolder | None, uploads: int = 0) -> Leftover:
    """Count what a run has left at a place; unfinished uploads count as staged files."""
    files = [each for each in room.bucket.within(room.prefix) if "/staged/" in each.key]
    journal = room.read_record(holder.folder, JOURNAL) if holder is not None else b""
    return Leftover(
        directory=room.name,
        run_id=holder.run_id if holder is not None else "",
        units=sum(line.startswith(STAGED_LINE) for line in journal.splitlines()),
        files=len(files) + uploads,
        bytes=sum(each.bytes for each in files),
    )


def _pending(room: Room) -> tuple[Room, ObjectHolder, object] | None:
    """Return the first place of a dead run that was being published, its holder and its version."""
    seen = read_lock(room)
    if seen is None or not seen[0].places:
        return None
    home = room.others(seen[0].places)[0]
    first = seen if home is room else read_lock(home)
    if first is None or first[0].folder != seen[0].folder or not first[0].is_publishing:
        return None
    return None if is_alive(home, first[0]) else (home, *first)


def complete(place: str) -> tuple[Completed, ...]:
    """Complete an interrupted publication; see `Storage.complete`."""
    room = Room(place)
    with refused("read", room):
        found = _pending(room)
        if found is None:
            return ()
        home, holder, version = found
        if _is_being_cleared(home, holder):
            with _taken_over(home, holder, version, home.others(holder.places)) as mine:
                sweep(mine)
            return ()
        record = home.read_record(holder.folder, RUN_RECORD)
        try:
            publication, rooms = read_publication(home, holder.folder)
        except (ValueError, FileNotFoundError, FormatError) as error:
            raise _damaged(home, holder, str(error)) from None
        with _taken_over(home, holder, version, rooms) as mine:
            if len(mine) == len(rooms):
                carry_out(publication, rooms)
                sweep(rooms)
                for one in rooms:
                    abort_uploads(one, holder.names)
            elif is_published(home, home.bucket.read(home.record(holder.folder, MANIFEST))):
                sweep(mine)
            else:
                raise _damaged(home, holder, "one of its places does not belong to the run")
    text = (
        f"run {publication.run_id} was interrupted while it was published into {home.name}: the "
        "publication is completed now"
    )
    return (Completed(place=home.name, run_id=publication.run_id, record=record, messages=(text,)),)


def _is_being_cleared(home: Room, holder: ObjectHolder) -> bool:
    """Return whether a run is published, and died while its records were being removed.

    They exist before its lock records the publication, and are removed after its manifest has
    its final name.
    """
    keys = {each.key for each in home.bucket.within(home.prefix)}
    if keys >= {home.record(holder.folder, PUBLICATION), home.record(holder.folder, MANIFEST)}:
        return False
    try:
        return f'"{holder.run_id}"'.encode() in home.bucket.read(home.final(MANIFEST))
    except FileNotFoundError:
        return False


def _damaged(home: Room, holder: ObjectHolder, why: str) -> OutputFailed:
    return OutputFailed(
        f"the record of the publication of run {holder.run_id} into {home.name} is damaged: {why}",
        f"remove the run's leftovers with: unloader clean '{home.name}'; then unload again",
    )


@contextmanager
def _taken_over(
    home: Room, holder: ObjectHolder, version: object, rooms: Sequence[Room]
) -> Iterator[list[Room]]:
    """Take over the locks of the places that are still a dead run's; remove them at the end.

    Yields the places, `home` first. After an error the locks are released.
    """
    locks = [_take_over(home, holder, version)]
    for room in rooms[1:]:
        seen = read_lock(room)
        if seen is not None and seen[0].folder == holder.folder:
            locks.append(_take_over(room, *seen))
    try:
        yield [lock.room for lock in locks]
        for lock in (*locks[1:], locks[0]):
            lock.remove()
    except BaseException:
        for lock in locks:
            lock.release()
        raise


def _take_over(room: Room, holder: ObjectHolder, version: object) -> Lock:
    me = ObjectHolder.here(holder.run_id, holder.places, folder=holder.folder, home=holder.home)
    lock = Lock(room, replace(me, is_publishing=holder.is_publishing))
    lock.take_over(holder, version)
    return lock


def clean(places: Sequence[str], *, dry_run: bool) -> Cleaning:
    """Remove unpublished files and unfinished uploads; see `Storage.clear`."""
    # The places, and the other places of the runs that left something in them.
    rooms: list[Room] = []
    for room in map(Room, places):
        with refused("clean", room):
            names, seen = room.names(), read_lock(room)
            if not names and not abort_uploads(room, (), dry_run=True):
                raise OutputFailed(
                    f"{room.name} is empty", "give the place that was given with --to"
                )
        for each in (room, *(_own_places(room, seen[0]) if seen is not None else ())):
            if not any(each.is_same(known.name) for known in rooms):
                rooms.append(each)
    completed: list[str] = []
    removed: list[Leftover] = []
    for room in rooms:
        with refused("clean", room):
            if dry_run:
                if (found := _pending(room)) is not None and found[0].is_same(room.name):
                    completed.append(
                        f"run {found[1].run_id} was interrupted while it was published into "
                        f"{room.name}: the publication would be completed"
                    )
            else:
                completed += _complete_or_take_back(room)
            removed += _clear(room, dry_run=dry_run)
    return Cleaning(dry_run=dry_run, completed=tuple(completed), removed=tuple(removed))


def _own_places(room: Room, holder: ObjectHolder) -> list[Room]:
    """Return the places that are still the run's."""
    found = []
    for each in room.others(holder.places):
        with refused("clean", each):
            seen = read_lock(each)
        if seen is not None and seen[0].folder == holder.folder:
            found.append(each)
    return found


def _complete_or_take_back(room: Room) -> list[str]:
    try:
        return [text for run in complete(room.name) for text in run.messages]
    except (OutputFailed, WriteError) as error:
        if (found := _pending(room)) is None:
            raise
        try:
            publication, rooms = read_publication(found[0], found[1].folder)
        except (ValueError, FileNotFoundError, FormatError):
            pass  # A record that cannot be read names no file, so there is nothing to take back.
        else:
            if len(_own_places(found[0], found[1])) == len(rooms):
                take_back(publication, rooms)
        return [f"{error.message.rstrip('.')}; this publication is abandoned"]


def _clear(room: Room, *, dry_run: bool) -> list[Leftover]:
    seen = read_lock(room)
    if seen is not None and is_alive(room, seen[0]):
        raise OutputFailed(
            f"a run is writing to {room.name}",
            f"wait until the run ends, or end it with: unloader stop '{room.name}'",
        )
    holder = seen[0] if seen is not None else None
    names = holder.names if holder is not None else ()
    left = leftover(room, holder, abort_uploads(room, names, dry_run=True))
    if holder is None and left.is_empty and not room.bucket.within(room.prefix):
        return []
    if not dry_run:
        lock = Lock(room, ObjectHolder.here("", (room.name,)))
        lock.take()
        try:
            abort_uploads(room, lock.holder.names)
            sweep([room])
        finally:
            lock.remove()
    return [left]
