"""The threads behind a producer: full buffers in, frames and bytes out into one open file.

One thread writes, and encrypts what it writes where that is asked for. Where there is a codec
another one compresses before it, so that filling, compressing and writing overlap. The first thing
that goes wrong stops all of it and is kept for the producer, who never waits for a thread that has
ended. A file that one buffer holds is written by the producer itself: there is nothing to overlap,
and two threads cost more than most small files.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter, thread_time
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from writers.cpu_delay import cpu_delay
from writers.errors import WriteError
from writers.files.ring import Buffer, Ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from writers.codecs.compression import BytesLike, Compressor
    from writers.files.checksums import Digest
    from writers.files.open_files import OpenFile

T = TypeVar("T")


class Blocked:
    """How long a stage stood still because the next one took nothing; used with `with`."""

    __slots__ = ("_began", "longest_seconds", "seconds")

    def __init__(self) -> None:
        """Begin at nothing."""
        self.seconds = self.longest_seconds = self._began = 0.0

    def __enter__(self) -> None:
        """Begin to wait."""
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        """End the wait."""
        waited = perf_counter() - self._began
        self.seconds += waited
        self.longest_seconds = max(self.longest_seconds, waited)


Put = Callable[["Sequence[BytesLike]"], None]
Encrypt = Callable[["Iterator[Sequence[BytesLike]]", Put], None]
"""Takes the bytes to be encrypted, and hands on what they have become."""


class EndsEarly(WriteError):
    """Ends an encryption in the middle, so that what was written cannot pass for whole."""


class Outlet(Struct, frozen=True, kw_only=True):
    """Where the bytes leave."""

    file: OpenFile
    """Takes the bytes; closed when the writing thread ends."""
    digest: Digest
    """Takes every byte that is written."""
    encrypt: Encrypt | None = None
    """Applied before either of them."""


class Conveyor:
    """Moves buffers from one producer into one file, in order.

    Args:
        outlet: Where they go.
        compressor: Makes a frame of each buffer, or None.
        ring: The buffers, each of one piece where there is a compressor.
        frame_bytes: Frames waiting or being written are kept below this size before the next
            one is made, so they take twice as much at most.
    """

    def __init__(
        self,
        outlet: Outlet,
        compressor: Compressor | None,
        ring: Ring,
        frame_bytes: int,
    ) -> None:
        self._file, self._digest = outlet.file, outlet.digest
        self._encrypt = outlet.encrypt
        self._compressor = compressor
        self._ring = ring
        self._frame_bytes = frame_bytes
        self._full: deque[Buffer] = deque()
        self._frames: deque[BytesLike] = deque()
        self._frames_held = 0
        self._unwritten = 0
        self._finishing = self._framed_all = self._aborting = self._closed = False
        self._change = threading.Condition()
        self.failure: BaseException | None = None
        """What ended the work, if anything did."""
        self.compress_seconds = 0.0
        self.compress_cpu_seconds = 0.0
        self.compress_delay_seconds = 0.0
        """The compressing thread was ready and had no CPU; complete once it has ended."""
        self.write_seconds = 0.0
        self.write_cpu_seconds = 0.0
        """Of writing, checksums included; complete once that has ended."""
        self.write_delay_seconds = 0.0
        """The writing thread was ready and had no CPU."""
        self.own_cpu_seconds = 0.0
        """Of the CPU seconds above, those that the producer took where there was no thread."""
        self.producer_blocked = Blocked()
        """The producer waiting for an empty buffer."""
        self.compressor_blocked = Blocked()
        """The compressing thread waiting until frames are written."""
        self._threads: list[threading.Thread] = []

    def take(self) -> Buffer | None:
        """Return an empty buffer once there is one, None once nothing more will be written."""
        if self._unwritten:
            self._start()
        with self._change:
            if not (self._ring.has_free or self._stopped):
                with self.producer_blocked:
                    self._change.wait_for(lambda: self._ring.has_free or self._stopped)
            return None if self._stopped else self._ring.take()

    def hand_over(self, buffer: Buffer) -> None:
        """Queue a buffer that has bytes in it."""
        with self._change:
            self._full.append(buffer)
            self._unwritten += 1
            self._change.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether there are threads, and all that was handed over to them is written."""
        return bool(self._threads) and self._unwritten == 0

    def settle(self) -> None:
        """Wait until all that was handed over is written, or nothing more will be."""
        self._start()
        with self._change:
            self._change.wait_for(lambda: self._unwritten == 0 or self._stopped)

    def finish(self) -> None:
        """Write what was handed over, sync the file, and end."""
        with self._change:
            self._finishing = True
            self._change.notify_all()
        if not self._threads:
            self._work_alone()
        for thread in self._threads:
            thread.join()
        self._ring.retire()

    def abort(self, seconds: float) -> bool:
        """Drop what is not written and end.

        Args:
            seconds: How long to wait for a call the kernel does not finish.

        Returns:
            Whether the threads have ended.
        """
        with self._change:
            self._aborting = True
            self._change.notify_all()
        self._file.interrupt()
        if not self._threads:
            self._close()
        deadline = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def _stopped(self) -> bool:
        return self._aborting or self.failure is not None

    def _start(self) -> None:
        """Start the threads, unless they were."""
        if self._threads:
            return
        stages: dict[str, Callable[[], None]] = {"writing": self._write}
        if self._compressor is not None:
            stages["compressing"] = self._compress
        for name, stage in stages.items():
            thread = threading.Thread(
                target=self._run, args=(stage,), name=f"sink {name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _work_alone(self) -> None:
        """Compress and write what one buffer holds, in this thread."""
        if self._compressor is not None:
            self._run(self._compress)
            self.compress_delay_seconds = 0.0
        compressed = thread_time()
        self._run(self._write)
        self.write_cpu_seconds, self.write_delay_seconds = thread_time() - compressed, 0.0
        self.own_cpu_seconds = self.compress_cpu_seconds + self.write_cpu_seconds

    def _run(self, stage: Callable[[], None]) -> None:
        try:
            stage()
        # Whatever ends a thread has to reach the producer, who would wait for it otherwise.
        except BaseException as exc:
            with self._change:
                self.failure = self.failure or exc
                self._change.notify_all()

    def _next(self, queue: deque[T], is_last: Callable[[], bool]) -> T | None:
        """Wait for the next item of a queue; None after the last one, or once all is stopped."""
        with self._change:
            self._change.wait_for(lambda: queue or is_last() or self._stopped)
            return queue.popleft() if queue and not self._stopped else None

    def _compress(self) -> None:
        framed = False
        while (buffer := self._next(self._full, lambda: self._finishing)) is not None:
            (piece,) = buffer.pieces()
            self._make_frame(piece)
            del piece
            framed = True
            with self._change:
                self._ring.give_back(buffer)
                self._change.notify_all()
        if not framed:
            # An empty file is not a valid compressed file, an empty frame is.
            self._make_frame(b"")
        self.compress_delay_seconds = cpu_delay()
        with self._change:
            self._framed_all = True
            self._change.notify_all()

    def _make_frame(self, data: BytesLike) -> None:
        with self._change:
            if not (self._frames_held < self._frame_bytes or self._stopped):
                with self.compressor_blocked:
                    self._change.wait_for(
                        lambda: self._frames_held < self._frame_bytes or self._stopped
                    )
            if self._stopped or self._compressor is None:
                return
        started, cpu = perf_counter(), thread_time()
        frame = self._compressor.frame(data)
        self.compress_seconds += perf_counter() - started
        self.compress_cpu_seconds += thread_time() - cpu
        with self._change:
            self._frames.append(frame)
            self._frames_held += len(frame)
            self._change.notify_all()

    def _write(self) -> None:
        """The writing thread: the only one that touches the file."""
        try:
            if self._encrypt is not None:
                with suppress(EndsEarly):
                    self._encrypt(self._until_stopped(), self._put)
            else:
                for pieces in self._taken():
                    self._put(pieces)
                    del pieces  # Its memory is used again, or counts as free, from here on.
            if not self._stopped:
                started = perf_counter()
                self._file.finish()
                self.write_seconds += perf_counter() - started
        finally:
            # The thread is this file's alone, so one look at its clocks is all that it costs.
            self.write_cpu_seconds = thread_time()
            self.write_delay_seconds = cpu_delay()
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()

    def _taken(self) -> Iterator[Sequence[BytesLike]]:
        """Yield what is to be written; each counts as written once the next one is asked for."""
        return self._buffers() if self._compressor is None else self._made_frames()

    def _until_stopped(self) -> Iterator[Sequence[BytesLike]]:
        yield from self._taken()
        if self._stopped:
            raise EndsEarly("the output was abandoned before it was complete.")

    def _buffers(self) -> Iterator[Sequence[BytesLike]]:
        while (buffer := self._next(self._full, lambda: self._finishing)) is not None:
            yield buffer.pieces()
            with self._change:
                self._ring.give_back(buffer)
                self._unwritten -= 1
                self._change.notify_all()

    def _made_frames(self) -> Iterator[Sequence[BytesLike]]:
        while (frame := self._next(self._frames, lambda: self._framed_all)) is not None:
            yield [frame]
            with self._change:
                self._frames_held -= len(frame)
                self._unwritten -= 1
                self._change.notify_all()
            del frame

    def _put(self, pieces: Sequence[BytesLike]) -> None:
        for piece in pieces:
            self._digest.update(piece)
        started = perf_counter()
        self._file.put(pieces)
        self.write_seconds += perf_counter() - started
