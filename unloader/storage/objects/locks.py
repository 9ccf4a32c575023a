"""The locks of all places of a run: taken together, kept alive by a thread, given back together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.model import Claim
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.lock import BEAT_SECONDS, Lock, read_lock
from unloader.storage.objects.recovery import complete
from unloader.storage.objects.room import Room
from writers.errors import Superseded, WriteError

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
        # Where the store does not answer, whoever comes next sees that the lock is not renewed.
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
