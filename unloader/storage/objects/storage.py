"""Object stores as a storage; see `unloader.storage.base.Storage`."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

from msgspec.json import encode

from unloader.errors import OutputFailed
from unloader.storage.model import (
    JOURNAL,
    MANIFEST,
    REQUESTS,
    Claim,
    Cleaning,
    Completed,
    Disk,
    Leftover,
    Requests,
    WhoWasHere,
)
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.lock import held, is_alive, read_lock
from unloader.storage.objects.recovery import clean, complete
from unloader.storage.objects.room import (
    RUN,
    Room,
    abort_uploads,
    look,
    nothing_counted,
    read_journal,
)
from unloader.storage.objects.run import ObjectRun
from unloader.storage.objects.taking import not_free
from writers.errors import WriteError
from writers.files.readable import RemoteFile
from writers.objects.bucket import together
from writers.objects.location import below


class ObjectStorage:
    """S3 and its likes, Google's and Azure's."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        """Return why a run would be refused a place; the right to write is not tried."""
        room = Room(place)
        try:
            seen = read_lock(room)
            if seen is not None and is_alive(room, seen[0]):
                return held(room, seen[0])
            return None if overwrite else not_free(room)
        except OSError as error:
            return OutputFailed(
                f"cannot read {room.name}: {error.strerror or error}",
                "check the name of the bucket, the credentials and their rights, and the network",
            )

    def missing(self, places: Sequence[str]) -> frozenset[str]:
        """Return none: to look at a place takes as many requests as most of taking it."""
        return frozenset()

    def take(self, claim: Claim) -> ObjectRun:
        """Take the places of a run."""
        return ObjectRun(claim)

    def complete(self, place: str) -> tuple[Completed, ...]:
        """Finish a publication that was cut short."""
        return complete(Room(place))

    def complete_all(self, places: Sequence[str]) -> tuple[Completed, ...]:
        """Finish publications at many places, looking at several at once."""
        return tuple(each for found in together(self.complete, places) for each in found)

    def names(self, place: str) -> tuple[str, ...]:
        """Return the names of the objects at a place, its `_run` left out."""
        room = Room(place)
        levels, objects = room.bucket.look(room.location.prefix)
        if not (levels or objects):
            raise FileNotFoundError(errno.ENOENT, "the place is empty", room.name)
        return tuple(each.key.rpartition("/")[2] for each in objects)

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return the prefixes with a manifest or a `_run`, except hidden ones."""
        found: list[str] = []
        level = [place]
        for number in range(depth + 1):
            following = []
            for each in level:
                room = Room(each)
                names, objects = room.bucket.look(room.location.prefix)
                if not number and not (names or objects):
                    raise FileNotFoundError(errno.ENOENT, "the place is empty", room.name)
                if RUN in names or room.final(MANIFEST) in {each.key for each in objects}:
                    found.append(each)
                following += [below(each, name) for name in names if name != RUN and name[0] != "."]
            level = following
        return tuple(sorted(found))

    def levels(self, place: str) -> tuple[str, ...]:
        """Return the names of the prefixes one level below."""
        room = Room(place)
        return tuple(room.bucket.look(room.location.prefix)[0])

    def read(self, place: str, name: str) -> bytes:
        """Return a whole object."""
        room = Room(place)
        return room.bucket.read(room.final(name))

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write a small object under a name that none has."""
        room = Room(place)
        room.bucket.put_new(room.final(name), data)

    def size(self, place: str, name: str) -> int:
        """Return the bytes of an object."""
        room = Room(place)
        found = room.bucket.size(room.final(name))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the object does not exist", f"{place}/{name}")
        return found

    def file(self, place: str, name: str) -> RemoteFile:
        """Return an object with a final name."""
        room = Room(place)
        key = room.final(name)
        return RemoteFile(name=str(room.location.below(name)), open=partial(room.bucket.open, key))

    def disk(self, place: str) -> Disk | None:
        """Return None: it is no disk of this machine."""
        return None

    def record(self, place: str, name: str) -> bytes:
        """Return a record of the run that has a place or had it."""
        room = Room(place)
        seen = read_lock(room)
        if seen is None:
            return b""
        home = room.others(seen[0].places)[0]
        if name == JOURNAL:
            return read_journal(home, seen[0].folder)
        return home.read_record(seen[0].folder, name)

    def ask_to_stop(self, place: str) -> None:
        """Write an object into the `_run` of the run's first place."""
        _ask(place, stop=True)

    def ask(self, place: str, wish: bytes) -> None:
        """Write an object into the `_run` of the run's first place."""
        _ask(place, change=wish.decode())

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run whose lock is at a place."""
        room = Room(place)
        seen = read_lock(room)
        if seen is None:
            return None
        holder = seen[0]
        return WhoWasHere(
            run_id=holder.run_id,
            pid=holder.pid,
            places=holder.places,
            is_running=is_alive(room, holder),
            left=_left(room, holder) if counted else nothing_counted(room, holder),
            host=holder.host,
            since=holder.since,
            home=holder.home,
        )

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove what dead runs have left in places."""
        return clean(places, dry_run=dry_run)


def _left(room: Room, holder: Holder) -> Leftover:
    uploads = abort_uploads(room, holder.names, dry_run=True) if holder.names else 0
    return look(room, holder, uploads=uploads)


def _ask(place: str, *, stop: bool = False, change: str = "") -> None:
    """Ask the run of a place for something, in one object that is replaced."""
    room = Room(place)
    seen = read_lock(room)
    if seen is None or not seen[0].places:
        raise FileNotFoundError(errno.ENOENT, "the place has no run", place)
    home, holder = room.others(seen[0].places)[0], seen[0]
    data = home.read_record(holder.folder, REQUESTS)
    before = Requests.read(data, holder.nonce) if data else Requests()
    asked = Requests(process=holder.nonce, stop=stop or before.stop, change=change)
    try:
        home.bucket.put(home.record(holder.folder, REQUESTS), encode(asked))
    except WriteError as error:
        raise OSError(errno.EIO, error.message, home.name) from error
