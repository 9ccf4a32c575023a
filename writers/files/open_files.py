"""An open file that bytes are appended to: a regular file, a pipe or a device.

Only the thread that writes uses it. The errors are OSErrors of the system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from writers.files.direct_io import open_direct
from writers.files.disk_space import GuardedWrites, rest_after, sync, write_some
from writers.files.regular import NotRegular, open_regular
from writers.files.syncing import Writeback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from writers.codecs.compression import BytesLike

_PIPE_BYTES = 1024 * 1024
"""The size of a pipe, for fewer switches between writer and reader (the default is 64 KiB). It is
the limit for all users except root (/proc/sys/fs/pipe-max-size)."""


class OpenFile(Protocol):
    """A file that takes bytes at its end."""

    is_regular: bool
    """Whether we sync and remove it, which is not done with a pipe or device."""

    written: int

    def whole(self, buffer_bytes: int) -> int:
        """Return the best size of buffers near this size."""

    def put(self, pieces: Sequence[BytesLike]) -> None:
        """Append the pieces; OSError if the destination failed."""

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
    """Create or empty a file; a pipe or device is opened as it is.

    Args:
        path: The file. A named pipe must have its reader already.
        direct: Write past the page cache where the file system can.
        min_free_bytes: Bytes that stay free on the disk of a regular file: writing waits for it.
        synced_from_bytes: A smaller file is closed without being synced.
        stays_cached: Keep the pages of a synced file: it is read again soon.

    Raises:
        OSError: It cannot be opened for writing; BrokenPipeError for a pipe without a reader.
    """
    descriptor = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Stream(descriptor)
        if direct:
            written = open_direct(descriptor, path, min_free_bytes)
            if written is not None:
                return written
        return RegularFile(
            descriptor, path, min_free_bytes, synced_from_bytes, stays_cached=stays_cached
        )
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


class RegularFile:
    """A file written through the page cache; see `open_file` for the arguments."""

    is_regular = True

    def __init__(
        self,
        descriptor: int,
        path: Path,
        min_free_bytes: int = 0,
        synced_from_bytes: int = 0,
        *,
        stays_cached: bool = False,
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._synced_from = synced_from_bytes
        self._writes = GuardedWrites(descriptor, path, min_free_bytes)
        self._writeback = Writeback(descriptor, drops=not stays_cached)
        self.written = 0

    def whole(self, buffer_bytes: int) -> int:
        return buffer_bytes

    def put(self, pieces: Sequence[BytesLike]) -> None:
        pieces = [piece for piece in pieces if len(piece)]
        while pieces:
            count = self._writes.write_some(pieces)
            self.written += count
            pieces = rest_after(pieces, count)
        self._writeback.grown(self.written)

    def finish(self) -> None:
        if self.written >= self._synced_from:
            sync(self._descriptor, self._path)
            self._writeback.ended()
        else:
            os.stat(self._path)  # A file that was unlinked meanwhile is lost.

    def interrupt(self) -> None:
        self._writes.interrupt()

    def close(self) -> None:
        os.close(self._descriptor)


class Stream:
    """A pipe, terminal or device: written in order, never synced.

    `put` waits for a slow reader, and `interrupt` ends the wait at any time.

    Args:
        descriptor: It becomes non-blocking, so nothing else may use it; closed by `close`.
    """

    is_regular = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._woken, self._wake = os.pipe()
        self._lock = threading.Lock()
        self._interrupted = self._closed = False
        self.written = 0

    def whole(self, buffer_bytes: int) -> int:
        return buffer_bytes

    def put(self, pieces: Sequence[BytesLike]) -> None:
        pieces = [piece for piece in pieces if len(piece)]
        while pieces and not self._interrupted:
            try:
                count = write_some(self._descriptor, pieces)
            except BlockingIOError:
                self._wait()
            else:
                self.written += count
                pieces = rest_after(pieces, count)

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

    def _wait(self) -> None:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLOUT)
        waiting.register(self._woken, select.POLLIN)
        waiting.poll()
