"""An open file that bytes are appended to: a regular file, a pipe or a device.

A regular file is written through the page cache, or past it in aligned blocks. Its content is the
same. While its disk is full a write may wait for free space, so nothing that was written is lost.

Only the thread that writes uses it. The errors are OSErrors of the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import mmap
import os
import select
import stat
import threading
import time
from pathlib import Path
from typing import Protocol

from writers.codecs.compression import BytesLike
from writers.files.disk_space import (
    DIRECT_REFUSALS,
    FULL,
    direct_alignment,
    enough_bytes,
    free_bytes,
    pause_for_space,
    set_direct,
)
from writers.files.regular import NotRegular, open_regular
from writers.files.syncing import START_WRITING, sync_file_range

logger = logging.getLogger(__name__)

_PIPE_BYTES = 1024 * 1024
"""The size of a pipe, for fewer switches between writer and reader (the default is 64 KiB). It is
the limit for all users except root (/proc/sys/fs/pipe-max-size)."""
_GATHER_BYTES = 1024 * 1024
"""The memory in which pieces of odd sizes are gathered into blocks (a guess)."""
_LOOK_BYTES = 8 * 1024 * 1024
_LOOK_SECONDS = 1.0

STEP_BYTES = 4 * 1024 * 1024
"""Written bytes after which the kernel is asked to write; longer steps leave it too little time."""
WINDOW_STEPS = 8
"""The limit of steps on their way to the device. It keeps a disk of 1 GB/s busy. A disk of 50 MB/s
needs 0.7 s for the final sync, instead of 5 s for 256 MiB without a limit (measured)."""
_WAIT_BEFORE, _WAIT_AFTER = 1, 4  # SYNC_FILE_RANGE_*, sync_file_range(2)
_NO_SUCH_CALL = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)


class OpenFile(Protocol):
    is_regular: bool
    """Whether we sync and remove it, which is not done with a pipe or device."""
    block_bytes: int
    """The best size of a buffer is a multiple of it."""
    written: int

    def put(self, piece: BytesLike) -> None:
        """Append a piece; OSError if the destination failed."""

    def finish(self) -> None:
        """Sync everything; OSError if that fails, or the file does not have its name any more."""

    def interrupt(self) -> None:
        """Make a `put` that waits return early; called by another thread, more than once."""

    def close(self) -> None: ...


def open_file(
    path: Path,
    *,
    direct: bool = False,
    min_free_bytes: int = 0,
    synced_from_bytes: int = 0,
    stays_cached: bool = False,
) -> OpenFile:
    """Create or empty a file; a pipe or device is opened as it is, and a pipe must have its reader.

    With `direct` a regular file is written past the page cache where the file system can.
    `min_free_bytes` stay free on its disk: writing waits for that. With 0 nothing waits, and a full
    disk is an error. A file below `synced_from_bytes` is closed without being synced, unless it is
    direct. With `stays_cached` a synced file keeps its pages: it is read again soon.

    Raises OSError if it cannot be opened for writing; BrokenPipeError for a pipe without a reader.
    """
    descriptor = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Stream(descriptor)
        if direct:
            if (alignment := direct_alignment(descriptor)) is not None:
                return DirectFile(descriptor, path, min_free_bytes, alignment)
            logger.info(
                "%s: its file system does not accept direct writes; the file is written normally",
                path,
            )
        return CachedFile(descriptor, path, min_free_bytes, synced_from_bytes, stays_cached)
    except BaseException:
        os.close(descriptor)
        raise


def _open(path: Path) -> int:
    # A file without a name is given as a descriptor of this process.
    follow = path.is_relative_to("/proc/self/fd")
    try:
        return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, follow=follow)
    except NotRegular:
        if stat.S_ISREG(os.stat(path).st_mode):
            raise  # A link to a file that is not ours.
    try:
        # A call that waits for another reader could not be interrupted.
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), str(path)) from exc
        raise


def _write_some(descriptor: int, view: memoryview) -> int:
    """Write the beginning of some bytes with one call; return the bytes it took, at least 1."""
    count = os.write(descriptor, view)
    if count == 0:
        raise OSError(errno.EIO, "nothing was written")
    return count


class _RegularFile:
    """What both kinds of regular files share; see `open_file` for the arguments."""

    is_regular = True

    def __init__(self, descriptor: int, path: Path, min_free_bytes: int) -> None:
        self._descriptor, self._path, self._min_free = descriptor, path, min_free_bytes
        self._interrupted = False
        self._unseen, self._looked = 0, -_LOOK_SECONDS
        self.written = 0

    def interrupt(self) -> None:
        self._interrupted = True

    def close(self) -> None:
        os.close(self._descriptor)

    def _sync(self) -> None:
        os.fsync(self._descriptor)
        os.stat(self._path)  # A file that was unlinked meanwhile can be synced, but is lost.

    def _write_guarded(self, view: memoryview) -> int:
        """Write at least 1 byte; a full disk fails with a limit of 0, or after `interrupt`."""
        if not self._min_free:
            return _write_some(self._descriptor, view)
        self._await_space(view.nbytes)
        while True:
            try:
                return _write_some(self._descriptor, view)
            except OSError as error:
                if error.errno not in FULL or self._interrupted:
                    raise
            pause_for_space(self._path.parent)

    def _await_space(self, size: int) -> None:
        """Wait until `size` more bytes fit; most calls return without a look at the disk."""
        self._unseen += size
        now = time.monotonic()
        if self._unseen < _LOOK_BYTES and now - self._looked < _LOOK_SECONDS:
            return
        self._unseen, self._looked = 0, now
        wanted = self._min_free
        while not self._interrupted:
            free = free_bytes(self._path.parent)
            if free is None or free >= wanted:
                return
            wanted = enough_bytes(self._min_free)
            pause_for_space(self._path.parent)


class CachedFile(_RegularFile):
    """A file written through the page cache, whose writes begin early.

    Otherwise Linux keeps dirty pages for seconds and then writes them in one burst, while the next
    writer waits. Here each step of a file is started when it is complete, and an older step must
    have arrived before much more follows. So the final sync is short.

    Pages that have arrived leave the page cache unless `stays_cached`. They serve the next step:
    measured, a page that the kernel has to find costs as much CPU as the encoding of its text.
    """

    block_bytes = 1

    def __init__(
        self,
        descriptor: int,
        path: Path,
        min_free_bytes: int,
        synced_from_bytes: int,
        stays_cached: bool,
    ) -> None:
        super().__init__(descriptor, path, min_free_bytes)
        self._synced_from, self._stays_cached = synced_from_bytes, stays_cached
        self._started = self._arrived = 0
        self._call = sync_file_range()

    def put(self, piece: BytesLike) -> None:
        view = memoryview(piece)
        while view.nbytes:
            count = self._write_guarded(view)
            self.written += count
            view = view[count:]
        # Without such a call of the system only the final sync is needed.
        if self._call is None or self.written - self._started < STEP_BYTES:
            return
        self._ask(self._started, self.written - self._started, START_WRITING)
        self._started = self.written
        late = self.written - WINDOW_STEPS * STEP_BYTES
        if late > self._arrived:
            waits = _WAIT_BEFORE | START_WRITING | _WAIT_AFTER
            self._ask(self._arrived, late - self._arrived, waits)
            self._drop(self._arrived, late - self._arrived)
            self._arrived = late

    def finish(self) -> None:
        if self.written >= self._synced_from:
            self._sync()
            self._drop(0, 0)
        else:
            os.stat(self._path)  # A file that was unlinked meanwhile is lost.

    def _drop(self, offset: int, length: int) -> None:
        """Advise the kernel to drop pages; a length of 0 is up to the end."""
        if not self._stays_cached and (advise := getattr(os, "posix_fadvise", None)) is not None:
            with contextlib.suppress(OSError):
                advise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def _ask(self, offset: int, length: int, what: int) -> None:
        """Ask for writes; raise the device's error of an earlier one, reported only once."""
        if self._call is None or self._call(self._descriptor, offset, length, what) == 0:
            return
        number = ctypes.get_errno()
        if number in _NO_SUCH_CALL:
            self._call = None
        elif number != errno.EINTR:
            raise OSError(number, os.strerror(number))


class DirectFile(_RegularFile):
    """A file written past the page cache in aligned blocks; bytes at the end go through it."""

    def __init__(self, descriptor: int, path: Path, min_free_bytes: int, alignment: int) -> None:
        super().__init__(descriptor, path, min_free_bytes)
        self.block_bytes = alignment
        self._is_direct = True
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        size = max(_GATHER_BYTES // alignment, 1) * alignment
        self._gather = memoryview(mmap.mmap(-1, size, flags=flags))
        self._gathered = self._arrived = 0

    def put(self, piece: BytesLike) -> None:
        view = memoryview(piece)
        self.written += view.nbytes
        if not self._gathered and _is_at_page(view):
            aligned = view.nbytes - view.nbytes % self.block_bytes
            self._write(view[:aligned])
            view = view[aligned:]
        while view.nbytes:
            part = view[: len(self._gather) - self._gathered]
            self._gather[self._gathered : self._gathered + part.nbytes] = part
            self._gathered += part.nbytes
            view = view[part.nbytes :]
            if self._gathered == len(self._gather):
                self._write(self._gather)
                self._gathered = 0

    def finish(self) -> None:
        aligned = self._gathered - self._gathered % self.block_bytes
        self._write(self._gather[:aligned])
        self._leave_direct()
        self._write(self._gather[aligned : self._gathered])
        self._gathered = 0
        self._sync()

    def _write(self, view: memoryview) -> None:
        while view.nbytes:
            if self._arrived % self.block_bytes:
                # After a short write inside a block only normal writes can continue.
                self._leave_direct()
            try:
                count = self._write_guarded(view)
            except OSError as exc:
                if not self._is_direct or exc.errno not in DIRECT_REFUSALS:
                    raise
                logger.info(
                    "%s: a direct write was refused; the file is written normally", self._path
                )
                self._leave_direct()
            else:
                self._arrived += count
                view = view[count:]

    def _leave_direct(self) -> None:
        if self._is_direct:
            set_direct(self._descriptor, wanted=False)
            self._is_direct = False


def _is_at_page(view: memoryview) -> bool:
    if view.readonly or not view.nbytes:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % mmap.PAGESIZE == 0


class Stream:
    """A pipe, terminal or device, never synced; its descriptor becomes non-blocking.

    `put` waits for a slow reader, and `interrupt` ends the wait at any time.
    """

    is_regular = False
    block_bytes = 1

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._woken, self._wake = os.pipe()
        self._lock = threading.Lock()
        self._interrupted = self._closed = False
        self.written = 0

    def put(self, piece: BytesLike) -> None:
        view = memoryview(piece)
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLOUT)
        waiting.register(self._woken, select.POLLIN)
        while view.nbytes and not self._interrupted:
            try:
                count = _write_some(self._descriptor, view)
            except BlockingIOError:
                waiting.poll()
            else:
                self.written += count
                view = view[count:]

    def finish(self) -> None:
        pass

    def interrupt(self) -> None:
        with self._lock:
            # After `close` the number may belong to another file.
            if not self._interrupted and not self._closed:
                self._interrupted = True
                os.write(self._wake, b"x")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for descriptor in (self._woken, self._wake, self._descriptor):
                os.close(descriptor)
