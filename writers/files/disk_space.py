"""The free space of a disk, the waits for it, and whether a file system accepts direct writes.

An error that the system reports only when a file is synced cannot be mended by a wait.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

FULL = (errno.ENOSPC, errno.EDQUOT)
DIRECT_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)
"""The errors of a file system without direct writes."""

_POLL_SECONDS = 0.2
_MOST_MARGIN_BYTES = 64 * 1024 * 1024
_MARGIN_SHARE = 10


def free_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Return the bytes that this user may still write, quotas aside; None if unknown."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def enough_bytes(min_free_bytes: int) -> int:
    """Return how many bytes must be free to go on, so that a few bytes do not stop it again."""
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
    """Call a function with the directory of a wait, often, in the thread that writes."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def pause_for_space(directory: Path) -> None:
    for listener in tuple(_listeners):
        listener(str(directory))
    time.sleep(_POLL_SECONDS)


def why_not_direct(directory: str | os.PathLike[str]) -> str | None:
    """Return why files in a directory cannot be direct, by an unnamed one; None if they can."""
    try:
        with TemporaryFile(dir=directory, buffering=0) as file:
            if (alignment := direct_alignment(file.fileno())) is not None:
                # Some file systems refuse only the write.
                file.write(mmap.mmap(-1, alignment))
                return None
    except OSError as exc:
        if exc.errno not in DIRECT_REFUSALS:
            reason = os.strerror(exc.errno) if exc.errno else exc
            return f"direct writes cannot be tested ({reason})"
    return "its file system does not accept direct writes"


def direct_alignment(descriptor: int) -> int | None:
    """Make a file direct; return the alignment of its writes, or None if it cannot be direct."""
    alignment = max(os.fstatvfs(descriptor).f_bsize, mmap.PAGESIZE)
    # Our memory starts at a page, and all known devices need a power of two.
    if alignment & (alignment - 1):
        return None
    try:
        set_direct(descriptor, wanted=True)
    except OSError as exc:
        if exc.errno not in DIRECT_REFUSALS:
            raise
        return None
    return alignment


def set_direct(descriptor: int, *, wanted: bool) -> None:
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | direct if wanted else flags & ~direct)
