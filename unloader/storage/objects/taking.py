"""Taking the places of a run: whether it may have them, their locks, and the earlier runs there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import combinations

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, Claim, Index, ReadIndex
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.lock import BEAT_SECONDS, Lock, read_lock
from unloader.storage.objects.recovery import complete
from unloader.storage.objects.room import RUN, Room, is_plain
from writers.errors import Superseded, WriteError


def not_free(room: Room, *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a place that holds anything but leftovers of dead runs, else None.

    Args:
        room: Of the place.
        shared: Other runs may have places in it; only a finished run is in the way.

    Raises:
        OSError: The store refused.
    """
    levels, objects = room.bucket.look(room.location.prefix)
    names = sorted({*levels, *(each.key.rpartition("/")[2] for each in objects)} - {RUN})
    finished = MANIFEST in names
    if not names or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{names[0]} and possibly other objects"
    return OutputFailed(
        f"{room.name} is not empty: it holds {what}",
        "choose an empty prefix with --to, or replace an earlier run with --overwrite",
    )


def check_different(rooms: Sequence[Room]) -> None:
    """See that places are apart from each other, and of one kind.

    Raises:
        OutputFailed: They are not.
    """
    for one, other in combinations(rooms, 2):
        first, second = one.location, other.location
        if first.store == second.store and (
            first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
        ):
            raise OutputFailed(
                "--to names two places that are the same, or one is inside the other: "
                f"{one.name} and {other.name}",
                "give separate places",
            )
        if first.scheme != second.scheme:
            raise OutputFailed(
                f"--to names places of two kinds: {one.name} and {other.name}",
                "give places of one kind, because a run publishes all of its files in one step",
            )


def check_rights(claim: Claim) -> None:
    """See that a run asks for no rights that files have and objects do not.

    Raises:
        OutputFailed: It does.
    """
    if claim.mode is not None or claim.owner_group:
        raise OutputFailed(
            "objects do not have a mode or an owner on this machine",
            "leave out --mode and --owner-group, and set the permissions on the bucket",
        )


_TRIES = 3
_PATIENCE_SECONDS = 10.0
"""For a sign of life that is on its way when the run ends."""


class Locks:
    """Those of one run, in the order of its places, once `take` has returned."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self._rooms = rooms
        self._all: tuple[Lock, ...] = ()
        self.notices: tuple[str, ...] = ()
        """What was done to take them, in words for the user."""
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lock", daemon=True)

    def take(self, claim: Claim, me: Holder, folder: str, undo: ExitStack) -> Holder:
        """Take the locks, once nothing is being published at any of the places.

        Args:
            claim: What is taken.
            me: Who takes it.
            folder: The prefix of a run that begins.
            undo: Takes back what was done, if something fails later.

        Returns:
            Who this is, with the prefix of the run.

        Raises:
            OutputFailed: A run that lives has one of them, or the store cannot keep runs apart.
            WriteError: The store refused or failed.
            OSError: The same, of reading.
        """
        for _ in range(_TRIES):
            for room in () if claim.home else self._rooms:
                self.notices += tuple(text for run in complete(room) for text in run.messages)
            with ExitStack() as taken:
                self._all = ()
                named = _named(self._rooms[0], claim, me, folder)
                for room in self._rooms:
                    lock = Lock(room, named)
                    lock.take()
                    taken.callback(_undo, lock)
                    self._all = (*self._all, lock)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(each is not None and each.is_publishing for each in self.before):
                    undo.push(taken.pop_all())
                    return named
        names = " or ".join(room.name for room in self._rooms)
        raise OutputFailed(
            f"another run is being published into {names}", "wait until it ends, then start again"
        )

    @property
    def before(self) -> tuple[Holder | None, ...]:
        """Whose each place was, where its run has died."""
        return tuple(lock.before for lock in self._all)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Of each place, see `Holder.names`."""
        return tuple(lock.names for lock in self._all)

    def keep_alive(self) -> None:
        """Give signs of life from now on."""
        self._beating.start()

    def _beat(self) -> None:
        """Give signs of life; a store that is out of reach for a while is asked again."""
        while not self._ended.wait(BEAT_SECONDS):
            for lock in self._all:
                with suppress(WriteError, OutputFailed):
                    lock.renew()

    def leave_alone(self) -> None:
        """Give no more signs of life."""
        self._ended.set()
        self._beating.join(_PATIENCE_SECONDS)

    def check(self) -> None:
        """Look whether one of them was lost.

        Raises:
            OutputFailed: It was.
        """
        for lock in self._all:
            lock.check()

    def begin_publishing(self) -> None:
        """Write into the first one that the run is complete, if all are still this process's.

        Raises:
            OutputFailed: One is another's.
            WriteError: The store refused or failed.
        """
        for lock in self._all[1:]:
            lock.renew()
        self._all[0].renew(is_publishing=True)

    def remove(self) -> None:
        """Remove them, the first one last.

        Raises:
            OutputFailed: One is another's.
            WriteError: The store refused or failed.
        """
        for lock in reversed(self._all):
            lock.remove()

    def release(self) -> None:
        """Write down that the process has ended its work."""
        # Where the store does not answer, the next process sees that the lock is not renewed.
        for lock in self._all if not self._beating.is_alive() else ():
            _release(lock)


def _named(home: Room, claim: Claim, me: Holder, folder: str) -> Holder:
    """Return who this is, with the prefix that a resumed run has already."""
    if claim.resumed and (seen := read_lock(home)) is not None:
        folder = seen[0].folder
    return replace(me, folder=folder)


def _undo(lock: Lock) -> None:
    """Leave the place as it was, as far as the store lets us."""
    with suppress(OutputFailed, WriteError, Superseded):
        lock.undo()


def _release(lock: Lock) -> None:
    """Write down that the process has ended its work there."""
    with suppress(OutputFailed, WriteError):
        if not lock.is_lost:
            lock.renew(is_released=True)


class EarlierRuns:
    """The runs at the places when they were taken, and the runs that are there now."""

    def __init__(self, rooms: Sequence[Room], read_index: ReadIndex) -> None:
        """Look at the places.

        Raises:
            OutputFailed: A manifest is damaged, or its run has files at other places, too.
            OSError: One cannot be read.
        """
        self._rooms = tuple(rooms)
        self._read_index = read_index
        self._before = self._runs()

    def names(self) -> list[set[str]]:
        """Return for each place the final names that go with earlier runs, manifests included.

        Raises:
            OutputFailed: A finished run has files at places that are not ours to replace.
            OSError: A manifest cannot be read.
        """
        found: list[set[str]] = [set() for _ in self._rooms]
        for home, index in zip(self._rooms, self._finished(), strict=True):
            if index is None:
                continue
            for number, place in enumerate(index.places):
                ours = next((n for n, each in enumerate(self._rooms) if each.is_same(place)), None)
                if ours is None and number:
                    raise OutputFailed(
                        f"the run in {home.name} also has files in {place}",
                        f"give both with --to to replace the run, or remove {home.name}/{MANIFEST}",
                    )
                # The first is where the manifest is, wherever it was when that was written.
                found[self._rooms.index(home) if ours is None else ours] |= {
                    name for at, name in index.files if at == number and is_plain(name)
                }
            found[self._rooms.index(home)].add(MANIFEST)
        return found

    def check_unchanged(self) -> None:
        """Check that no run was published since the start: the user did not agree to replace it.

        Raises:
            OutputFailed: One has.
            OSError: A manifest cannot be read.
        """
        for room, was, now in zip(self._rooms, self._before, self._runs(), strict=True):
            if now and now != was:
                raise OutputFailed(
                    f"another run ({now}) was published into {room.name} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another place, then unload again",
                )

    def _runs(self) -> list[str]:
        return [index.run_id if index is not None else "" for index in self._finished()]

    def _finished(self) -> list[Index | None]:
        return [self._index(room) for room in self._rooms]

    def _index(self, room: Room) -> Index | None:
        try:
            data = room.bucket.read(room.final(MANIFEST))
        except FileNotFoundError:
            return None
        return self._read_index(data, room.name)
