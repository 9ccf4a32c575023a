"""The buffers of a producer, and the threads that compress them and write them into an open file.

One thread writes, and encrypts before that if the output is encrypted. With a codec another thread
compresses, so that filling, compressing and writing overlap. The first error stops all threads and
is kept for the producer, which never waits for a thread that has ended. The producer writes a file
that fits one buffer: nothing could overlap, and two threads cost more than most small files.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter, thread_time
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from writers.cpu_delay import cpu_delay
from writers.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from writers.codecs.compression import BytesLike, Compressor
    from writers.files.checksums import Digest
    from writers.files.open_files import OpenFile

T = TypeVar("T")

_HOLD_BYTES = 8 * 1024
"""Pieces of this size or more are held, not copied: measured, a copy costs more than a call."""


class Buffer:
    """Bytes for the writing thread: in the buffer's memory, or in held objects of the producer.

    The memory is anonymous and starts at a page. The kernel allocates it while it is filled, so a
    buffer with held objects only takes no memory.

    Args:
        capacity: The limit for the bytes in memory and in held objects together.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # By default Python would map shared memory, which belongs to another file system.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=flags))
        self._pieces: list[memoryview] = []
        self._begun = self._used = 0
        self.filled = 0
        """Bytes in it."""

    @property
    def is_full(self) -> bool:
        """Whether it is at its capacity."""
        return self.filled == self.capacity

    def room(self) -> memoryview:
        """Return the memory for the next bytes, up to the capacity."""
        return self._memory[self._used : self._used + self.capacity - self.filled]

    def advance(self, count: int) -> None:
        """Count the first `count` bytes of `room` as filled.

        Raises:
            ValueError: They do not fit.
        """
        if not 0 <= count <= self.capacity - self.filled:
            raise ValueError(f"{count} bytes do not fit {self.capacity - self.filled} bytes")
        self._used += count
        self.filled += count

    def take(self, data: memoryview, *, hold: bool) -> int:
        """Take the bytes that fit; return their number.

        Args:
            data: A view of single bytes.
            hold: Large pieces may be kept as they are; then they must not change until `reset`.
        """
        count = data.nbytes
        if count > self.capacity - self.filled:
            count = self.capacity - self.filled
            data = data[:count]
        if hold and count >= _HOLD_BYTES:
            self._end_piece()
            self._pieces.append(data)
        else:
            end = self._used + count
            self._memory[self._used : end] = data
            self._used = end
        self.filled += count
        return count

    def pieces(self) -> list[BytesLike]:
        """Return its bytes in order; one piece if no object is held."""
        self._end_piece()
        return list(self._pieces)

    def reset(self) -> None:
        """Empty it and release held objects."""
        self._pieces.clear()
        self._begun = self._used = self.filled = 0

    def _end_piece(self) -> None:
        if self._used > self._begun:
            self._pieces.append(self._memory[self._begun : self._used])
            self._begun = self._used


class Ring:
    """A fixed number of buffers, made when they are first needed, and reused.

    A caller with several threads has to lock it. The next ring of the process reuses the buffers of
    a ring that is not used any more.

    Args:
        buffers: Their number.
        capacity: Bytes of each.
    """

    def __init__(self, buffers: int, capacity: int) -> None:
        self._capacity = capacity
        self._unmade = buffers
        self._free: list[Buffer] = []

    @property
    def has_free(self) -> bool:
        """Whether `take` can return a buffer."""
        return bool(self._free or self._unmade)

    def take(self) -> Buffer:
        """Return an empty buffer, preferably the one used last."""
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        with _lock:
            if _spare and _spare[-1].capacity == self._capacity:
                return _spare.pop()
        return Buffer(self._capacity)

    def give_back(self, buffer: Buffer) -> None:
        """Empty a buffer and make it free again."""
        buffer.reset()
        self._free.append(buffer)

    def retire(self) -> None:
        """Leave the free buffers to the next ring; this one is not used any more."""
        with _lock:
            # The same run does not use another size again.
            kept = [each for each in _spare if each.capacity == self._capacity]
            _spare[:] = (kept + self._free)[:_MOST_SPARE]
        self._free = []


_MOST_SPARE = 4
"""The limit of idle buffers between two files: the default number of a ring."""

_spare: list[Buffer] = []
"""Measured: newly allocated memory costs a tenth of the CPU of encoding into it."""

_lock = threading.Lock()


class Blocked:
    """The time that a stage waited for the next one; used with `with`."""

    __slots__ = ("_began", "longest_seconds", "seconds")

    def __init__(self) -> None:
        self.seconds = self.longest_seconds = self._began = 0.0

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        waited = perf_counter() - self._began
        self.seconds += waited
        self.longest_seconds = max(self.longest_seconds, waited)


Put = Callable[["Sequence[BytesLike]"], None]
Encrypt = Callable[["Iterator[Sequence[BytesLike]]", Put], None]
"""Takes bytes, and passes on the encrypted bytes."""


class EndsEarly(WriteError):
    """Ends an encryption before its end, so that the file is recognised as incomplete."""


class Outlet(Struct, frozen=True, kw_only=True):
    """The destination of the bytes."""

    file: OpenFile
    """Takes the bytes; closed when the writing thread ends."""
    digest: Digest
    """Takes every byte that is written."""
    encrypt: Encrypt | None = None
    """Applied before both."""


class Conveyor:
    """Moves buffers from one producer into one file, in order.

    Args:
        outlet: The destination.
        compressor: Makes a frame of each buffer, or None.
        ring: The buffers; with a compressor each has one piece.
        frame_bytes: The next frame is made when the waiting frames are smaller than this, so they
            take at most twice as much.
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
        """The first error."""
        self.compress_seconds = 0.0
        self.compress_cpu_seconds = 0.0
        self.compress_delay_seconds = 0.0
        """The compressing thread was ready and had no CPU; complete after its end."""
        self.write_seconds = 0.0
        self.write_cpu_seconds = 0.0
        """Of writing, checksums included; complete after its end."""
        self.write_delay_seconds = 0.0
        """The writing thread was ready and had no CPU."""
        self.own_cpu_seconds = 0.0
        """The part of the CPU seconds above that the producer took, without threads."""
        self.producer_blocked = Blocked()
        """The producer waiting for an empty buffer."""
        self.compressor_blocked = Blocked()
        """The compressing thread waiting until frames are written."""
        self._threads: list[threading.Thread] = []

    def take(self) -> Buffer | None:
        """Wait for an empty buffer and return it; None if nothing more will be written."""
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
        """Whether there are threads, and they have written all buffers."""
        return bool(self._threads) and self._unwritten == 0

    def settle(self) -> None:
        """Wait until all buffers are written, or nothing more will be written."""
        self._start()
        with self._change:
            self._change.wait_for(lambda: self._unwritten == 0 or self._stopped)

    def finish(self) -> None:
        """Write the buffers, sync the file, and end."""
        with self._change:
            self._finishing = True
            self._change.notify_all()
        if not self._threads:
            self._work_alone()
        for thread in self._threads:
            thread.join()
        self._ring.retire()

    def abort(self, seconds: float) -> bool:
        """Drop the bytes that are not written, and end.

        Args:
            seconds: The longest wait for a call that the kernel does not finish.

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
        """Start the threads if they are not started."""
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
        """Compress and write one buffer in this thread."""
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
        # Every error must reach the producer, which would wait for the thread otherwise.
        except BaseException as exc:
            with self._change:
                self.failure = self.failure or exc
                self._change.notify_all()

    def _next(self, queue: deque[T], is_last: Callable[[], bool]) -> T | None:
        """Wait for the next item of a queue; None after the last one, or when all is stopped."""
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
                    del pieces  # Its memory is reused or free from here on.
            if not self._stopped:
                started = perf_counter()
                self._file.finish()
                self.write_seconds += perf_counter() - started
        finally:
            # The thread works for this file only, so one look at its clocks is enough.
            self.write_cpu_seconds = thread_time()
            self.write_delay_seconds = cpu_delay()
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()

    def _taken(self) -> Iterator[Sequence[BytesLike]]:
        """Yield the bytes to write; they count as written when the next ones are asked for."""
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
