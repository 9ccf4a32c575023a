"""The lock of a place in an object store, and the process that holds it.

The lock is one object. A process writes it only if it is still the version that the process has
read last, so the store decides between two processes. A holder renews its lock every few seconds.
Another process takes over a lock that is not renewed, and the former holder notices that at its
next renewal. It cannot begin to publish then, because that is a renewal too.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

from msgspec import Meta
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.objects.object_staging import Room
from unloader.storage.storage_protocol import Holder, boot_id, held
from writers.errors import StoreFailed, Superseded, WriteError
from writers.objects.location import Location

WATCH_SECONDS = 20.0
"""A holder on another machine that has not renewed its lock for this time is dead."""
_LOOK_SECONDS = 0.5

_obeying: set[Location] = set()
"""Stores that were seen to obey the conditions of a write."""


class ObjectHolder(Holder, frozen=True, kw_only=True):
    """The process of a run that holds a place."""

    folder: Annotated[str, Meta(min_length=1)]
    """Name of the run's own prefix in the `_run` of each of its places."""
    names: tuple[str, ...] = ()
    """Patterns of the final names that uploads may have been begun to, by this run or by the runs
    whose leftovers it has found; see `Claim.names`."""
    nonce: str
    """Distinguishes this process of the run from all others."""
    pid_space: str
    """The name space of `pid`: containers on one machine have their own."""
    pid_since: str
    """When the kernel started the process, which distinguishes it from a later one with its id."""
    beat: int = 0
    """Counts the renewals."""
    is_released: bool = False
    """The process has ended its work here."""
    is_publishing: bool = False
    """The run is complete: the next process gives its files their final names."""

    @classmethod
    def here(cls, run_id: str, places: tuple[str, ...], **more: Any) -> Self:
        nonce = os.urandom(8).hex()
        # The records of a process that dies while it cleans are found by this name.
        more.setdefault("folder", nonce)
        pid_since = _started(os.getpid())
        return super().here(
            run_id, places, nonce=nonce, pid_space=_pid_space(), pid_since=pid_since, **more
        )

    @classmethod
    def read(cls, data: bytes) -> ObjectHolder:
        """Return the holder from the bytes of a lock; a ValueError means damage."""
        return _HOLDER.decode(data)

    def to_bytes(self) -> bytes:
        return encode(self) + b"\n"

    def renewed(self, **changes: Any) -> ObjectHolder:
        """Return it with one more renewal and these changes."""
        return replace(self, beat=self.beat + 1, **changes)

    def lives(self) -> bool | None:
        """Return whether the process lives; None if this process cannot see that."""
        if self.is_released:
            return False
        if not (self.boot_id and self.boot_id == boot_id() and self.pid_space == _pid_space()):
            return None
        return _started(self.pid) == self.pid_since


_HOLDER = Decoder(ObjectHolder)


def _pid_space() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _started(pid: int) -> str:
    """Return when a process was started; empty if it does not exist or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Lock:
    """The lock of one place.

    Methods raise OutputFailed if another process holds it, else WriteError or OSError of the store.
    """

    def __init__(self, room: Room, holder: ObjectHolder) -> None:
        self.room = room
        self.holder = holder
        self._version: object = None
        self._guard = threading.RLock()
        self.is_lost = False
        """Another process has taken it over."""
        self.before: ObjectHolder | None = None
        """The dead holder that it was taken over from."""

    def take(self) -> None:
        """Take it, if no living process holds it and the store can keep two runs apart."""
        bucket = self.room.bucket
        try:
            self._version = bucket.put_new(self.room.lock, self.holder.to_bytes())
        except FileExistsError:
            seen = read_lock(self.room)
            if seen is None:
                raise OutputFailed(
                    f"another run was writing to {self.room.name} until now", "start again"
                ) from None
            if is_alive(self.room, seen[0]):
                raise held(self.room.name, seen[0]) from None
            self.take_over(*seen)
            return
        if bucket.location in _obeying:
            return
        # Servers that do not know the condition ignore it. They cannot keep two runs apart.
        with suppress(FileExistsError):
            bucket.put_new(self.room.lock, b"{}")
            bucket.delete([self.room.lock])
            raise OutputFailed(
                f"the store of {self.room.name} ignores If-None-Match, so it cannot keep two runs "
                "apart",
                "use a version of its server that supports conditional writes, or use another "
                "store",
            )
        _obeying.add(bucket.location)

    def take_over(self, found: ObjectHolder, version: object) -> None:
        """Take it from a dead holder, unless another process is quicker."""
        # Its leftovers must be found until they are removed, also if this process dies.
        names = tuple(dict.fromkeys((*self.holder.names, *found.names)))
        self.holder = replace(self.holder, names=names)
        try:
            self._replace(self.holder, version)
        except Superseded:
            raise held(self.room.name, found) from None
        self.before = found

    def _replace(self, holder: ObjectHolder, version: object) -> None:
        self._version = self.room.bucket.replace(self.room.lock, holder.to_bytes(), version)

    def renew(self, **changes: bool) -> None:
        """Write it with one more renewal and these changes."""
        with self._guard:
            self.check()
            following = self.holder.renewed(**changes)
            try:
                self._replace(following, self._version)
            except Superseded:
                # The store may have an earlier renewal of this process whose answer was lost.
                try:
                    seen = read_lock(self.room)
                except OSError as error:
                    raise StoreFailed(f"{error}.") from error
                self.is_lost = seen is None or seen[0].nonce != self.holder.nonce
                if seen is not None and not self.is_lost:
                    try:
                        self._replace(following, seen[1])
                    except Superseded:
                        self.is_lost = True
                self.check()
            self.holder = following

    def check(self) -> None:
        """Raise an error if another process is known to have taken it over."""
        with self._guard:
            if self.is_lost:
                raise OutputFailed(
                    f"another process has taken over {self.room.name}, because this process gave "
                    f"no sign of life for {WATCH_SECONDS:.0f} seconds",
                    f"look at the other run with: unloader status '{self.room.name}'",
                )

    def undo(self) -> None:
        """Leave the place as it was before the lock was taken, as far as the store permits."""
        with suppress(OutputFailed, WriteError), self._guard:
            if self.before is None:
                self.remove()
            else:
                self.is_lost = True
                self._replace(self.before.renewed(is_released=True), self._version)

    def remove(self) -> None:
        """Remove it if this process still holds it."""
        with self._guard:
            self.renew()
            self.room.bucket.delete([self.room.lock])
            self.is_lost = True

    def release(self) -> None:
        """Record that the process has ended its work, as far as the store permits."""
        with suppress(OutputFailed, WriteError):
            self.renew(is_released=True)


def read_lock(room: Room) -> tuple[ObjectHolder, object] | None:
    """Return the holder of a place and the version of the lock; None without a lock."""
    try:
        data, version = room.bucket.read_version(room.lock)
    except FileNotFoundError:
        return None
    try:
        return ObjectHolder.read(data), version
    except ValueError as error:
        raise OutputFailed(
            f"{room.name}/_run/lock.json is damaged: {error}",
            "make sure that no run is writing there, then remove that object",
        ) from None


def is_alive(room: Room, holder: ObjectHolder) -> bool:
    """Return whether the holder of a lock lives; watch the lock if nothing else shows it."""
    known = holder.lives()
    if known is not None:
        return known
    # Looks are counted, not seconds: a suspended machine makes no looks.
    for _ in range(math.ceil(WATCH_SECONDS / _LOOK_SECONDS)):
        time.sleep(_LOOK_SECONDS)
        seen = read_lock(room)
        if seen is None or seen[0].is_released:
            return False
        if (seen[0].nonce, seen[0].beat) != (holder.nonce, holder.beat):
            return True
    return False
