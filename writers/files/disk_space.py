"""Writes at the end of a file, and the free space on its disk.

The thread that writes waits for free space between two system calls, so nothing that was written is
lost. An error that the system reports only when a file is synced cannot be mended this way.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from writers.codecs.compression import BytesLike

FULL = (errno.ENOSPC, errno.EDQUOT)

_MOST_PIECES = 1024  # IOV_MAX of Linux, limits.h
_LOOK_BYTES = 8 * 1024 * 1024
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.2
_MOST_MARGIN_BYTES = 64 * 1024 * 1024
_MARGIN_SHARE = 10


def rest_after(pieces: Sequence[BytesLike], count: int) -> list[BytesLike]:
    rest: list[BytesLike] = []
    for piece in pieces:
        view = memoryview(piece)
        if count < view.nbytes:
            rest.append(view[count:])
        count = max(0, count - view.nbytes)
    return rest


def write_some(descriptor: int, pieces: Sequence[BytesLike]) -> int:
    """Write the beginning of the pieces with one call; return the bytes it took, at least 1."""
    if len(pieces) == 1:
        count = os.write(descriptor, pieces[0])
    else:
        count = os.writev(descriptor, pieces[:_MOST_PIECES])
    if count == 0:
        raise OSError(errno.EIO, "nothing was written")
    return count


def sync(descriptor: int, path: Path) -> None:
    """Sync a file, and check that it still has its name."""
    os.fsync(descriptor)
    os.stat(path)  # A file that was unlinked meanwhile can be synced, but is lost.


def free_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Return the bytes that this user may still write in a directory; None if not known.

    A quota is not seen: only a failed write shows it.
    """
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def enough_bytes(min_free_bytes: int) -> int:
    """Return how many bytes must be free before a waiting write continues.

    It is more than the limit, so that the write does not stop again after a few bytes.
    """
    return min_free_bytes + min(_MOST_MARGIN_BYTES, min_free_bytes // _MARGIN_SHARE)


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is the error of a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__
    return False


_listeners: list[Callable[[str], None]] = []


@contextmanager
def notified_of_waits(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a function during each wait inside the context, several times a second.

    Args:
        listener: Takes the directory on the full disk. Called in the thread that writes.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class GuardedWrites:
    """The writes into one regular file, which wait while its disk is full.

    With `min_free_bytes` of 0 nothing waits, and a full disk is an error.
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

        A full disk is an error only with a limit of 0, or after `interrupt`.
        """
        if not self._min_free:
            return write_some(self._descriptor, pieces)
        self._await_space(sum(map(len, pieces)))
        while True:
            try:
                return write_some(self._descriptor, pieces)
            except OSError as error:
                if error.errno not in FULL or self._interrupted:
                    raise
            self._pause()

    def interrupt(self) -> None:
        self._interrupted = True

    def _await_space(self, size: int) -> None:
        """Wait until `size` more bytes fit; most calls return without a look at the disk."""
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
