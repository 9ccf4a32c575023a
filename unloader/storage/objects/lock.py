"""The lock of a place: one object, written only where it is as its writer has seen it last.

If two processes write it together, the store decides. A holder renews its lock every few seconds.
One that is not renewed is taken over, and its former holder learns of it at the next renewal: it
cannot begin to publish any more, as that is a renewal, too.
"""

from __future__ import annotations

import math
import threading
import time

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.room import Room
from writers.errors import StoreFailed, Superseded
from writers.objects.location import Location

BEAT_SECONDS = 5.0
"""Between two signs of life."""
WATCH_SECONDS = 20.0
"""A holder of another machine that has not renewed its lock for this time is dead."""
_LOOK_SECONDS = 0.5

_obeying: set[Location] = set()
"""Stores that were seen to look at the conditions of a write."""


class Lock:
    """The lock of one place, once `take` has returned.

    Args:
        room: Of the place.
        holder: Who wants it.
    """

    def __init__(self, room: Room, holder: Holder) -> None:
        self._room = room
        self._holder = holder
        self._version: object = None
        self._guard = threading.Lock()
        self.is_lost = False
        """Another process has taken it over."""
        self.before: Holder | None = None
        """Whose it was, where it was taken over."""

    def take(self) -> None:
        """Take it.

        Raises:
            OutputFailed: A run that lives has it, or the store cannot keep runs apart.
            WriteError: The store refused or failed.
            OSError: The same, of reading.
        """
        bucket, key = self._room.bucket, self._room.lock
        try:
            self._version = bucket.put_new(key, self._holder.to_bytes())
        except FileExistsError:
            self._take_over()
            return
        if bucket.location not in _obeying:
            self._check_conditions()
            _obeying.add(bucket.location)

    def take_over(self, found: Holder, version: object) -> None:
        """Take it from a holder that is known to be dead.

        Raises:
            OutputFailed: Another process was quicker.
            WriteError: The store refused or failed.
        """
        # Its leftovers must be found until they are removed, also if this process dies.
        names = tuple(dict.fromkeys((*self._holder.names, *found.names)))
        self._holder = replace(self._holder, names=names)
        try:
            self._version = self._room.bucket.replace(
                self._room.lock, self._holder.to_bytes(), version
            )
        except Superseded:
            raise held(self._room, found) from None
        self.before = found

    @property
    def names(self) -> tuple[str, ...]:
        """See `Holder.names`."""
        return self._holder.names

    def _take_over(self) -> None:
        seen = read_lock(self._room)
        if seen is None:
            raise OutputFailed(
                f"another run was writing to {self._room.name} until now", "start again"
            )
        found, version = seen
        if is_alive(self._room, found):
            raise held(self._room, found)
        self.take_over(found, version)

    def _check_conditions(self) -> None:
        """See whether the store refuses to write an object that is there.

        Servers that do not know the condition ignore it. Two runs could not be kept apart there.
        """
        bucket, key = self._room.bucket, self._room.lock
        try:
            bucket.put_new(key, b"{}")
        except FileExistsError:
            return
        bucket.delete([key])
        raise OutputFailed(
            f"the store of {self._room.name} ignores If-None-Match, so it cannot keep two runs "
            "apart",
            "use a version of its server that supports conditional writes, or use another store",
        )

    def renew(self, **changes: bool) -> None:
        """Give a sign of life, with changes of what is written in it.

        Raises:
            OutputFailed: It is another's.
            WriteError: The store refused or failed.
        """
        with self._guard:
            self._check()
            following = self._holder.beating(**changes)
            try:
                self._version = self._room.bucket.replace(
                    self._room.lock, following.to_bytes(), self._version
                )
            except Superseded:
                self._look_again(following)
            self._holder = following

    def _look_again(self, following: Holder) -> None:
        """Find out whether an earlier renewal was carried out whose answer was lost."""
        try:
            seen = read_lock(self._room)
        except OSError as error:
            raise StoreFailed(f"{error}.") from error
        if seen is not None and seen[0].nonce == self._holder.nonce:
            try:
                self._version = self._room.bucket.replace(
                    self._room.lock, following.to_bytes(), seen[1]
                )
            except Superseded:
                self.is_lost = True
        else:
            self.is_lost = True
        self._check()

    def check(self) -> None:
        """Raise OutputFailed if it is known to be another's."""
        with self._guard:
            self._check()

    def _check(self) -> None:
        if self.is_lost:
            raise OutputFailed(
                f"another process has taken over {self._room.name}, because this process gave no "
                f"sign of life for {WATCH_SECONDS:.0f} seconds",
                f"look at the other run with: unloader status '{self._room.name}'",
            )

    def undo(self) -> None:
        """Leave the place as if it had never been taken.

        Raises:
            OutputFailed: It is another's.
            WriteError: The store refused or failed.
        """
        if self.before is None:
            self.remove()
            return
        with self._guard:
            self.is_lost = True
            data = self.before.beating(is_released=True).to_bytes()
            self._room.bucket.replace(self._room.lock, data, self._version)

    def remove(self) -> None:
        """Remove it, where it is still this process's.

        Raises:
            OutputFailed: It is another's.
            WriteError: The store refused or failed.
        """
        self.renew()
        with self._guard:
            self._room.bucket.delete([self._room.lock])
            self.is_lost = True


def held(room: Room, holder: Holder) -> OutputFailed:
    """Return the error for a place that another run is writing to."""
    return OutputFailed(
        f"another run is writing to {room.name}: {holder.text()}",
        f"look at that run with: unloader status '{room.name}'; or choose another --to",
    )


def read_lock(room: Room) -> tuple[Holder, object] | None:
    """Return who has a place or had it, and the version of the lock; None without a lock.

    Raises:
        OutputFailed: The lock is damaged.
        OSError: It cannot be read.
    """
    try:
        data, version = room.bucket.read_version(room.lock)
    except FileNotFoundError:
        return None
    try:
        return Holder.read(data), version
    except ValueError as error:
        raise OutputFailed(
            f"{room.name}/_run/lock.json is damaged: {error}",
            "make sure that no run is writing there, then remove that object",
        ) from None


def is_alive(room: Room, holder: Holder) -> bool:
    """Return whether the holder of a lock lives; watch the lock if nothing else shows it.

    Raises:
        OutputFailed: The lock is damaged.
        OSError: It cannot be read.
    """
    known = holder.lives()
    if known is not None:
        return known
    # Looks are counted, not seconds: a machine that is suspended makes no looks.
    for _ in range(math.ceil(WATCH_SECONDS / _LOOK_SECONDS)):
        time.sleep(_LOOK_SECONDS)
        seen = read_lock(room)
        if seen is None or seen[0].is_released:
            return False
        if (seen[0].nonce, seen[0].beat) != (holder.nonce, holder.beat):
            return True
    return False
