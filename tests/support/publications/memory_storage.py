"""Places in the memory of this process, which work as an object store does.

There is no rename and no folder. A commit first stores what it is going to do, then makes one
object visible after the other, the manifest last; whoever comes next repeats what is stored.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

from unloader.errors import OutputFailed
from unloader.storage.model import (
    JOURNAL,
    MANIFEST,
    RECORDS,
    RUN_RECORD,
    STAGED_LINE,
    STATUS,
    Claim,
    Cleaning,
    Completed,
    Leftover,
    Move,
    Place,
    Staging,
    WhoWasHere,
)
from writers.errors import WriteError
from writers.files.readable import RemoteFile
from writers.files.syncing import Steps
from writers.model import UncompletedUpload


@dataclass
class Plan:
    """A commit that has begun."""

    run_id: str
    places: tuple[str, ...]
    gone: tuple[tuple[str, str], ...]
    puts: tuple[tuple[str, str, bytes], ...]
    """The manifest is the last one."""


@dataclass
class Room:
    """What a run has at a place before it is published."""

    run_id: str
    places: tuple[str, ...]
    staged: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)
    shown: bytes = b""
    is_stop_asked: bool = False
    wish: bytes = b""
    is_locked: bool = True
    plan: Plan | None = None


class MemoryStorage:
    """All places and what lies there."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.objects: dict[tuple[str, str], bytes] = {}
        self.rooms: dict[str, Room] = {}
        self.before_step: Callable[[], None] = lambda: None
        """Called before each step of a commit; what it raises is the death of the process."""

    def refusal(self, place: str, *, overwrite: bool) -> None:
        """Return that nothing is known against a place."""

    def take(self, claim: Claim) -> MemoryRun:
        """Take all places, or none."""
        told = [t for place in claim.places for run in self.complete(place) for t in run.messages]
        for place in claim.places:
            room = self.rooms.get(place)
            if room is not None and room.is_locked:
                raise OutputFailed(f"another run is writing to {place}", "wait for it")
            if self.names(place) and not claim.overwrite:
                raise OutputFailed(f"{place} is not empty", "use --overwrite")
        earlier = self.earlier(claim)
        for place in claim.places if claim.resumed else ():
            if place not in self.rooms or self.rooms[place].run_id != claim.run_id:
                raise OutputFailed(f"run {claim.run_id} has no files in {place}", "start again")
        for place in claim.places:
            if claim.resumed:
                self.rooms[place].is_locked, self.rooms[place].is_stop_asked = True, False
                self.rooms[place].wish = b""
                continue
            if place in self.rooms and not self.left(place).is_empty:
                told.append(f"removed {self.left(place).text()}")
            self.rooms[place] = Room(claim.run_id, claim.places)
        return MemoryRun(self, claim, tuple(told), earlier)

    def earlier(self, claim: Claim) -> frozenset[tuple[str, str]]:
        """Return place and name of what finished runs have there, and may be replaced."""
        found = set()
        for place in claim.places:
            if (place, MANIFEST) in self.objects:
                index = claim.read_index(self.objects[place, MANIFEST], place)
                if set(index.places) - set(claim.places):
                    raise OutputFailed(f"the run in {place} has files elsewhere", "name all places")
                found |= {(index.places[number], name) for number, name in index.files}
                found.add((place, MANIFEST))
        return frozenset(found)

    def complete(self, place: str) -> tuple[Completed, ...]:
        """Repeat a commit that was cut short."""
        room = self.rooms.get(place)
        if room is None or room.plan is None or room.is_locked:
            return ()
        plan = room.plan
        record = self.rooms[plan.places[0]].records.get(RUN_RECORD, b"")
        self.carry_out(plan)
        text = f"run {plan.run_id} was interrupted while it was published: the publication is completed"
        return (
            Completed(place=plan.places[0], run_id=plan.run_id, record=record, messages=(text,)),
        )

    def carry_out(self, plan: Plan, then: Callable[[], None] = lambda: None) -> None:
        """Do all steps of a commit; each can be done again."""
        for key in sorted(plan.gone, key=lambda key: key[1] != MANIFEST):
            self.before_step()
            self.objects.pop(key, None)
        for place, name, data in plan.puts:
            self.before_step()
            self.objects[place, name] = data
        then()
        for place in plan.places:
            self.rooms.pop(place, None)

    def names(self, place: str) -> tuple[str, ...]:
        """Return the names of all objects at a place."""
        return tuple(sorted(name for where, name in self.objects if where == place))

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return the places with a manifest or a room whose names begin with the place's."""
        known = {where for where, name in self.objects if name == MANIFEST} | self.rooms.keys()
        levels = {
            each: each.removeprefix(place).count("/")
            for each in known
            if (each + "/").startswith(place + "/")
        }
        if not levels and not any(where.startswith(place) for where, _ in self.objects):
            raise FileNotFoundError(place)
        return tuple(sorted(each for each in levels if levels[each] <= depth))

    def levels(self, place: str) -> tuple[str, ...]:
        """Return nothing: no place lies in another."""
        return ()

    def read(self, place: str, name: str) -> bytes:
        """Return the bytes of an object."""
        try:
            return self.objects[place, name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Put an object where there is none."""
        if (place, name) in self.objects:
            raise FileExistsError(name)
        self.objects[place, name] = data

    def file(self, place: str, name: str) -> RemoteFile:
        """Return an object to be read in pieces."""
        return RemoteFile(
            name=f"{place}/{name}", open=lambda: io.BytesIO(self.objects[place, name])
        )

    def size(self, place: str, name: str) -> int:
        """Return the bytes of a file."""
        return len(self.read(place, name))

    def disk(self, place: str) -> None:
        """Return that it lies on no disk."""

    def record(self, place: str, name: str) -> bytes:
        """Return a record of the run that has a room at the place."""
        if place not in self.rooms:
            return b""
        room = self.rooms[place]
        return room.shown if name == STATUS else room.records.get(name, b"")

    def ask_to_stop(self, place: str) -> None:
        """Leave a word in the room of the run's first place."""
        if place not in self.rooms:
            raise FileNotFoundError(place)
        self.rooms[self.rooms[place].places[0]].is_stop_asked = True

    def ask(self, place: str, wish: bytes) -> None:
        """Leave it in the room of the run's first place."""
        if place not in self.rooms:
            raise FileNotFoundError(place)
        self.rooms[self.rooms[place].places[0]].wish = wish

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run that has a room at the place."""
        room = self.rooms.get(place)
        if room is None:
            return None
        return WhoWasHere(
            run_id=room.run_id,
            pid=os.getpid(),
            places=room.places,
            is_running=room.is_locked,
            left=self.left(place),
            host="memory",
            since="2026-01-01T00:00:00+00:00",
        )

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove the rooms of dead runs, at all their places."""
        completed: list[str] = []
        for place in places:
            if place in self.rooms and self.rooms[place].is_locked:
                raise OutputFailed(f"a run is writing to {place}", "wait until it ends")
            if not dry_run:
                completed += [text for run in self.complete(place) for text in run.messages]
        rooms = [self.rooms[place] for place in places if place in self.rooms]
        dead = dict.fromkeys(each for room in rooms for each in room.places)
        removed = tuple(self.left(place) for place in dead)
        for place in () if dry_run else dead:
            del self.rooms[place]
        return Cleaning(dry_run=dry_run, completed=tuple(completed), removed=removed)

    def left(self, place: str) -> Leftover:
        """Return what is staged at a place."""
        room = self.rooms[place]
        return Leftover(
            directory=place,
            run_id=room.run_id,
            units=room.records.get(JOURNAL, b"").count(STAGED_LINE),
            files=len(room.staged),
            bytes=sum(map(len, room.staged.values())),
        )


class MemoryRun:
    """The places of one run; see `unloader.storage.base.RunStorage`."""

    def __init__(
        self,
        storage: MemoryStorage,
        claim: Claim,
        notices: tuple[str, ...],
        earlier: frozenset[tuple[str, str]],
    ) -> None:
        """Hold the rooms that were made for the run."""
        self.places = tuple(Place(name=each, address=each) for each in claim.places)
        self.notices = notices
        self._storage, self._claim, self._earlier = storage, claim, earlier
        self._rooms = {place: storage.rooms[place] for place in claim.places}

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Refuse names of objects that no run has put there."""
        for number, name in finals:
            key = (self.places[number].name, name)
            if key in self._storage.objects and key not in self._earlier:
                raise OutputFailed(f"{'/'.join(key)} already exists", "move it away")

    def staging(self, place: int) -> Staging:
        """Return that there is no directory."""
        return Staging(label=f"memory:{self.places[place].name}")

    def check(self) -> None:
        """Do nothing: memory is not lost."""

    def open_staged(self, place: int, name: str) -> IO[bytes]:
        """Return a buffer whose bytes are staged when it is closed."""
        return _Upload(lambda data: self._room(place).staged.__setitem__(name, data))

    def staged_file(self, place: int, name: str) -> RemoteFile:
        """Return a staged object."""
        return RemoteFile(name=name, open=lambda: io.BytesIO(self._room(place).staged[name]))

    def discard(self, *stems: str) -> None:
        """Drop what attempts have staged."""
        beginnings = tuple(f"{stem}." for stem in stems)
        for room in self._rooms.values():
            for name in [name for name in room.staged if name.startswith(beginnings)]:
                del room.staged[name]

    def keep(self, name: str, data: bytes) -> None:
        """Store a record."""
        self._record(name)
        self._room(0).records[name] = data

    def recorded(self, name: str) -> bytes:
        """Return a record."""
        return self._room(0).records.get(name, b"")

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Refuse: nothing is uploaded here."""
        raise WriteError(f"{upload.name} is not in an object store.", "unload it again.")

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Drop what is staged but not named."""
        for number, room in enumerate(self._rooms.values()):
            for name in [name for name in room.staged if (number, name) not in kept]:
                del room.staged[name]

    def append(self, name: str, line: bytes) -> None:
        """Append to a record."""
        self._record(name)
        self._room(0).records[name] = self._room(0).records.get(name, b"") + line

    def show(self, data: bytes) -> None:
        """Store how far the run is, while it goes on."""
        room = self._room(0)
        if room.plan is None and self._storage.rooms.get(self.places[0].name) is room:
            room.shown = data

    def marks(self) -> tuple[str, ...]:
        """Return that no file names the run."""
        return ()

    def stop_asked(self) -> bool:
        """Tell whether there is a word in the room."""
        return self._room(0).is_stop_asked

    def wish(self) -> bytes:
        """Return what lies in the room."""
        return self._room(0).wish

    def commit(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> tuple[str, ...]:
        """Store the plan, then carry it out."""
        if len({(move.place, move.final) for move in moves}) < len(moves):
            raise WriteError("two staged files would have one name. Next: choose other names.")
        self.check_names((move.place, move.final) for move in moves)
        for move in moves:
            if move.staged not in self._room(move.place).staged:
                raise WriteError(f"the staged file {move.staged} is missing. Next: unload again.")
        if self._storage.earlier(self._claim) - self._earlier:
            raise OutputFailed("a finished run has appeared", "move it away")
        puts = [
            (self.places[move.place].name, move.final, self._room(move.place).staged[move.staged])
            for move in moves
        ]
        plan = Plan(
            self._claim.run_id,
            self._claim.places,
            tuple(self._earlier),
            (*puts, (self.places[0].name, MANIFEST, manifest)),
        )
        for room in self._rooms.values():
            room.plan = plan
        self._storage.carry_out(plan, then)
        return ()

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Do nothing: all is where it will ever be."""

    def committing(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> Steps[tuple[str, ...]]:
        """Do the same; nothing has to be waited for."""
        yield from ()
        return self.commit(moves, manifest, then)

    def abandon(self, manifest: bytes | None) -> None:
        """Leave the rooms for later, or remove them."""
        for place, room in self._rooms.items():
            if manifest is None and room.plan is None:
                del self._storage.rooms[place]

    def close(self) -> None:
        """Give the locks back."""
        for room in self._rooms.values():
            room.is_locked = False

    def _room(self, place: int) -> Room:
        return self._rooms[self.places[place].name]

    def _record(self, name: str) -> None:
        if name not in RECORDS:
            raise ValueError(f"{name!r} is not the name of a record of a run")


class _Upload(io.BytesIO):
    """Hands its bytes on when it is closed without an error."""

    def __init__(self, done: Callable[[bytes], None]) -> None:
        super().__init__()
        self._done = done

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._done(self.getvalue())
        super().close()
