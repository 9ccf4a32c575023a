"""Keeping the kernel writing, so that neither memory nor the final sync is left with a mountain.

Left alone, Linux lets dirty pages pile up for seconds and then writes them in one burst, while
the next writer waits. Here each step of a file is started as soon as it is there, and before
much more follows an older step must have arrived: so much of a file is dirty at most, whatever
its size and the machine's memory.

What has arrived leaves the page cache. Nobody waits for it there, it would push out what others
read, and the pages serve the next step: measured, the kernel takes as much CPU for a page that it
has to find as the encoder for its text, and three times as much in a virtual machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache

STEP_BYTES = 4 * 1024 * 1024
"""Written bytes after which the kernel is asked to write; less often leaves it too little time."""

WINDOW_STEPS = 8
"""Steps on their way to the device at most: enough to keep a disk of 1 GB/s busy, and what one of
50 MB/s needs 0.7 s for at the final sync (measured; 5 s without, for 256 MiB)."""

_WAIT_BEFORE, _START, _WAIT_AFTER = 1, 2, 4  # SYNC_FILE_RANGE_*, sync_file_range(2)
_NO_SUCH_CALL = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)


class Writeback:
    """Follows one file that grows at its end.

    Args:
        descriptor: Of the file, which begins empty.
        drops: Have what has arrived leave the page cache.
    """

    def __init__(self, descriptor: int, *, drops: bool = False) -> None:
        self._descriptor = descriptor
        self._drops = drops
        self._started = self._arrived = 0
        self._call = _sync_file_range()

    def grown(self, size: int) -> None:
        """Start what has come since the last step; wait while too much is on its way.

        Where the system has no such call nothing happens, for the final sync is what counts.

        Args:
            size: Of the file by now.

        Raises:
            OSError: The device refused an earlier write. The kernel says so only once, so it
                must be respected here.
        """
        if self._call is None or size - self._started < STEP_BYTES:
            return
        self._ask(self._started, size - self._started, _START)
        self._started = size
        late = size - WINDOW_STEPS * STEP_BYTES
        if late > self._arrived:
            self._ask(self._arrived, late - self._arrived, _WAIT_BEFORE | _START | _WAIT_AFTER)
            self._drop(self._arrived, late - self._arrived)
            self._arrived = late

    def ended(self) -> None:
        """Take note that the file was synced, and nothing more comes."""
        self._drop(0, 0)

    def _drop(self, offset: int, length: int) -> None:
        """Advise the kernel, which may do as it likes; a length of 0 is up to the end."""
        if self._drops and (advise := getattr(os, "posix_fadvise", None)) is not None:
            with suppress(OSError):
                advise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def _ask(self, offset: int, length: int, what: int) -> None:
        if self._call is None or self._call(self._descriptor, offset, length, what) == 0:
            return
        number = ctypes.get_errno()
        if number in _NO_SUCH_CALL:
            self._call = None
        elif number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def start_writing(descriptor: int) -> None:
    """Have the kernel begin to write all of a file, and do not wait for it.

    Where many small files are synced one after the other, each of them would begin its own
    transaction of the file system otherwise. What goes wrong is told by the sync that follows.
    """
    call = _sync_file_range()
    if call is not None:
        call(descriptor, 0, 0, _START)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call
