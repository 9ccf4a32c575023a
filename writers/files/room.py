"""Room on the disk that a file is written to: how much must stay free, and waiting for it.

Met by the thread that writes. It waits between two calls of the system, so nothing that is written
is lost, and goes on where it was. Only what the system reports when a file is synced cannot be
mended this way.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from writers.files.appending import write_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from writers.codecs.compression import BytesLike

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where there is no room, or none for this user."""

_LOOK_BYTES = 8 * 1024 * 1024
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.2
_MOST_MARGIN_BYTES = 64 * 1024 * 1024
_MARGIN_SHARE = 10


def free_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Return the bytes that this user may still write in a directory; None if not known.

    A quota is not seen: only a write that fails tells of it.
    """
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def enough_bytes(min_free_bytes: int) -> int:
    """Return how much must be free before what waits goes on.

    It is more than what made it wait: else it would stop again after the next few bytes.
    """
    return min_free_bytes + min(_MOST_MARGIN_BYTES, min_free_bytes // _MARGIN_SHARE)


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or what it comes from, is that of a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__
    return False


_listeners: list[Callable[[str], None]] = []


@contextmanager
def told_of_waits(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a function during each wait inside the context, several times a second.

    Args:
        listener: Takes the directory that has no room. Called in the thread that writes.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class GuardedWrites:
    """The writes into one regular file, which wait where there is no room.

    Args:
        descriptor: Of the file.
        path: Its name.
        min_free_bytes: What must stay free on its disk. 0 does not look, and a full disk is an
            error then.
    """

    def __init__(self, descriptor: int, path: Path, min_free_bytes: int) -> None:
        self._descriptor = descriptor
        self._directory = path.parent
        self._min_free = min_free_bytes
        self._interrupted = False
        self._unseen = 0
        self._looked = -_LOOK_SECONDS

    def write_some(self, pieces: Sequence[BytesLike]) -> int:
        """Write the beginning of the pieces; return the bytes that were taken, at least 1.

        Raises:
            OSError: The destination failed. A full one only if nothing must stay free, or once
                interrupted.
        """
        if not self._min_free:
            return write_some(self._descriptor, pieces)
        self._await_room(sum(map(len, pieces)))
        while True:
            try:
                return write_some(self._descriptor, pieces)
            except OSError as error:
                if error.errno not in FULL or self._interrupted:
                    raise
            self._pause()

    def interrupt(self) -> None:
        """End a wait; called by another thread."""
        self._interrupted = True

    def _await_room(self, size: int) -> None:
        """Return once there is room for so many bytes more; look now and then only."""
        self._unseen += size
        now = time.monotonic()
        if self._unseen < _LOOK_BYTES and now - self._looked < _LOOK_SECONDS:
            return
        self._unseen, self._looked = 0, now
        wanted = self._min_free
        while not self._interrupted:
            free = free_bytes(self._directory)
            if free is None or free >= wanted:
                return
            wanted = enough_bytes(self._min_free)
            self._pause()

    def _pause(self) -> None:
        for listener in tuple(_listeners):
            listener(str(self._directory))
        time.sleep(_POLL_SECONDS)
