"""One staged file, written by a thread of its own while the producer prepares the next bytes.

The sink gathers what it is given into buffers, compresses them, counts and hashes the bytes as
they leave, and syncs the file at the end. Memory is bounded by `buffers * buffer_bytes`, and
two buffers more where it compresses: a producer that is faster than the destination waits. A
failing destination never makes the producer wait for ever: the error is raised at its next call.

It knows nothing of rows or formats.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import xxhash

from writers.compression import open_compressor
from writers.errors import FormatError
from writers.os_errors import write_error
from writers.writeback import STEP_BYTES, start_writeback

if TYPE_CHECKING:
    from writers.compression import BytesLike
    from writers.model import Compression

logger = logging.getLogger(__name__)

_HOLD_BYTES = 8 * 1024
"""Pieces from this size on are held, not copied: measured, a copy costs more than a call."""

_ABORT_SECONDS = 10.0
"""How long `abort` waits for a write the kernel does not finish (guess)."""


class Sink:
    """A file under its staging name that is being written.

    Used by one producer thread. End it with `close` or `abort`.

    Args:
        path: The file; it is created or emptied. A pipe or device is written to as it is.
        compression: Applied in the I/O thread, over everything that is written.
        buffer_bytes: Size of one buffer, before compression.
        buffers: Buffers in flight at most: one being gathered, the others waiting or being
            written. With 1 nothing overlaps.

    Raises:
        WriteError: The file cannot be created.
        FormatError: The codec or its level is impossible, or a limit is below 1.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compression: Compression,
        buffer_bytes: int,
        buffers: int,
    ) -> None:
        if buffer_bytes < 1 or buffers < 1:
            raise FormatError(
                f"{buffers} output buffers of {buffer_bytes} bytes are impossible. "
                f"Next: use at least 1 buffer of at least 1 byte."
            )
        self.path = Path(path)
        self._buffer_bytes = buffer_bytes
        self._handed_limit = max(1, buffers - 1)
        self._compressor = open_compressor(compression)
        self._is_plain = compression.codec == "none"
        self._hash = xxhash.xxh3_64()
        self._gathered: list[BytesLike] = []
        self._gathered_bytes = 0
        self._queue: deque[list[BytesLike]] = deque()
        self._in_flight = 0
        self._finishing = self._aborting = self._ended = False
        self._failure: BaseException | None = None
        self._accepted = self._written = self._told = 0
        self._compress_seconds = self._write_seconds = 0.0
        self._change = threading.Condition()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o666)
            # A pipe or device can neither be synced nor is it ours to remove.
            self._is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        except OSError as exc:
            raise write_error("create", self.path, exc) from exc
        self._thread = threading.Thread(
            target=self._run, name=f"sink {self.path.name}", daemon=True
        )
        self._thread.start()

    @property
    def bytes_accepted(self) -> int:
        """Bytes taken by `write` so far, before compression."""
        return self._accepted

    @property
    def bytes_written(self) -> int:
        """Bytes in the file so far, after compression; behind `bytes_accepted`."""
        return self._written

    @property
    def compress_seconds(self) -> float:
        """Wall seconds the I/O thread spent compressing."""
        return self._compress_seconds

    @property
    def write_seconds(self) -> float:
        """Wall seconds the I/O thread spent in the destination: writing and syncing."""
        return self._write_seconds

    def write(self, data: BytesLike) -> None:
        """Append bytes, waiting while all buffers are in flight.

        Objects from 8 KiB on are held until they are written: do not change them after.

        Raises:
            WriteError: This or an earlier write failed.
        """
        if self._failure is not None:
            self._raise_failure()
        view = memoryview(data)
        self._accepted += view.nbytes
        room = self._buffer_bytes - self._gathered_bytes
        if view.nbytes < room:
            self._gather(view)
            return
        view = view.cast("B")
        while view.nbytes >= room:
            self._gather(view[:room])
            self._hand_over()
            view = view[room:]
            room = self._buffer_bytes
        if view.nbytes:
            self._gather(view)

    def settle(self) -> None:
        """Wait until the I/O thread has done everything accepted so far.

        `bytes_written` is then the same on every run over the same bytes; what the codec still
        holds back is not in it.

        Raises:
            WriteError: A write failed.
        """
        self._hand_over()
        with self._change:
            self._change.wait_for(lambda: self._in_flight == 0 or self._ended)
        self._raise_failure()

    def close(self) -> tuple[int, str]:
        """Write the rest and sync.

        Returns:
            The size of the file in bytes and its checksum, `xxh3:` and 16 hex digits.

        Raises:
            WriteError: The destination failed; the file is removed then.
        """
        try:
            self._hand_over()
            with self._change:
                self._finishing = True
                self._change.notify_all()
            self._thread.join()
            self._raise_failure()
        except BaseException:
            self.abort()
            raise
        return self._written, f"xxh3:{self._hash.hexdigest()}"

    def abort(self) -> None:
        """Stop writing and remove the file; may follow a failure of any call, never raises."""
        with self._change:
            self._aborting = True
            self._change.notify_all()
        self._gathered.clear()
        self._gathered_bytes = 0
        self._thread.join(_ABORT_SECONDS)
        if self._thread.is_alive():
            logger.warning("%s: a write is still hanging in the kernel; left alone", self.path)
        if self._is_file:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _gather(self, piece: memoryview) -> None:
        self._gathered_bytes += piece.nbytes
        if piece.nbytes >= _HOLD_BYTES:
            self._gathered.append(piece)
            return
        last = self._gathered[-1] if self._gathered else None
        if isinstance(last, bytearray):
            last += piece
        else:
            self._gathered.append(bytearray(piece))

    def _hand_over(self) -> None:
        """Queue the gathered buffer once there is room for it."""
        with self._change:
            self._change.wait_for(lambda: self._in_flight < self._handed_limit or self._ended)
            if not self._ended and self._gathered:
                self._queue.append(self._gathered)
                self._in_flight += 1
                self._gathered = []
                self._gathered_bytes = 0
                self._change.notify_all()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._failure
        if isinstance(failure, OSError):
            raise write_error("write", self.path, failure) from failure
        if failure is not None:
            raise failure

    def _run(self) -> None:
        """The I/O thread: the only one that touches the descriptor."""
        try:
            try:
                self._drain()
            finally:
                os.close(self._fd)
        # Whatever ends this thread has to reach the producer, who would wait for it otherwise.
        except BaseException as exc:
            self._failure = exc
        finally:
            with self._change:
                self._ended = True
                self._queue.clear()
                self._change.notify_all()

    def _drain(self) -> None:
        while (buffer := self._next_buffer()) is not None:
            self._write_buffer(buffer)
            del buffer  # Its memory counts as free from here on.
            with self._change:
                self._in_flight -= 1
                self._change.notify_all()
        if not self._aborting:
            self._put(self._compressor.finish())
            self._sync()

    def _next_buffer(self) -> list[BytesLike] | None:
        with self._change:
            self._change.wait_for(lambda: self._queue or self._finishing or self._aborting)
            return self._queue.popleft() if self._queue and not self._aborting else None

    def _write_buffer(self, buffer: list[BytesLike]) -> None:
        # A codec may end a frame with each piece (lz4 does), so it gets large ones.
        for piece in buffer if self._is_plain else [b"".join(buffer)]:
            started = perf_counter()
            compressed = self._compressor.add(piece)
            self._compress_seconds += perf_counter() - started
            self._put(compressed)

    def _put(self, data: BytesLike) -> None:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        started = perf_counter()
        while len(view) and not self._aborting:
            count = os.write(self._fd, view)
            if count == 0:
                raise OSError(errno.EIO, "nothing was written")
            self._written += count
            view = view[count:]
        if self._is_file and self._written - self._told >= STEP_BYTES:
            start_writeback(self._fd, self._told, self._written - self._told)
            self._told = self._written
        self._write_seconds += perf_counter() - started

    def _sync(self) -> None:
        started = perf_counter()
        if self._is_file:
            os.fsync(self._fd)
            os.stat(self.path)  # A file unlinked meanwhile can be synced, but is lost.
        self._write_seconds += perf_counter() - started
