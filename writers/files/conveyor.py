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

from writers.cpu_delay import cpu_delay
from writers.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from writers.codecs.compression import BytesLike, Compress
    from writers.files.checksums import Digest
    from writers.files.open_files import OpenFile

T = TypeVar("T")


class Buffer:
    """Memory for the writing thread, filled from its start.

    It is anonymous and starts at a page. The kernel allocates it while it is filled.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # By default Python would map shared memory, which belongs to another file system.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=flags))
        self.filled = 0

    def room(self) -> memoryview:
        """Return the memory for the next bytes."""
        return self._memory[self.filled :]

    def advance(self, count: int) -> None:
        """Count the first `count` bytes of `room` as filled."""
        if not 0 <= count <= self.capacity - self.filled:
            raise ValueError(f"{count} bytes do not fit {self.capacity - self.filled} bytes")
        self.filled += count

    def take(self, data: memoryview) -> int:
        """Copy the bytes that fit; return their number."""
        count = min(data.nbytes, self.capacity - self.filled)
        self._memory[self.filled : self.filled + count] = data[:count]
        self.filled += count
        return count

    def content(self) -> memoryview:
        """Return its bytes."""
        return self._memory[: self.filled]


_MOST_SPARE = 4
_spare: list[Buffer] = []
"""Buffers of finished files, for the next file. Measured with files of 16 MB: newly allocated
memory costs a third of the CPU of encoding into it."""


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


class Conveyor:
    """Moves buffers from one producer into one file, in order.

    Args:
        file: The destination; closed when the writing thread ends.
        digest: Takes every byte that is written.
        encrypt: Applied before both.
        compressor: Makes a frame of each buffer. The next frame is made when the waiting frames
            are smaller than a buffer, so they take at most twice as much.
        buffers: Their number. They are made when they are first needed, and reused.
        capacity: Bytes of each.
    """

    def __init__(
        self,
        file: OpenFile,
        digest: Digest,
        encrypt: Encrypt | None,
        compressor: Compress | None,
        *,
        buffers: int,
        capacity: int,
    ) -> None:
        self._file, self._digest, self._encrypt = file, digest, encrypt
        self._compressor = compressor
        self._capacity = capacity
        self._unmade = buffers
        self._free: list[Buffer] = []
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
            if not (self._free or self._unmade or self._stopped):
                with self.producer_blocked:
                    self._change.wait_for(lambda: self._free or self._stopped)
            if self._stopped:
                return None
            if self._free:
                return self._free.pop()
            self._unmade -= 1
            with suppress(IndexError):
                if (spare := _spare.pop()).capacity == self._capacity:
                    return spare
            return Buffer(self._capacity)

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
        self._start()
        with self._change:
            self._change.wait_for(lambda: self._unwritten == 0 or self._stopped)

    def finish(self) -> None:
        """Write the buffers, sync the file, and end."""
        with self._change:
            self._finishing = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        if not self._threads:
            # One buffer is compressed and written in this thread.
            if self._compressor is not None:
                self._run(self._compress)
                self.compress_delay_seconds = 0.0
            compressed = thread_time()
            self._run(self._write)
            self.write_cpu_seconds, self.write_delay_seconds = thread_time() - compressed, 0.0
            self.own_cpu_seconds = self.compress_cpu_seconds + self.write_cpu_seconds
        while self._free and len(_spare) < _MOST_SPARE:
            _spare.append(self._free.pop())

    def abort(self, seconds: float) -> bool:
        """Drop the bytes that are not written, and end; return whether the threads have ended. A
        call that the kernel does not finish is waited for up to `seconds`."""
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
            self._make_frame(buffer.content())
            framed = True
            with self._change:
                buffer.filled = 0
                self._free.append(buffer)
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
            if not (self._frames_held < self._capacity or self._stopped):
                with self.compressor_blocked:
                    self._change.wait_for(
                        lambda: self._frames_held < self._capacity or self._stopped
                    )
            if self._stopped or self._compressor is None:
                return
        started, cpu = perf_counter(), thread_time()
        frame = self._compressor(data)
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
        if self._compressor is None:
            while (buffer := self._next(self._full, lambda: self._finishing)) is not None:
                yield [buffer.content()]
                with self._change:
                    buffer.filled = 0
                    self._free.append(buffer)
                    self._unwritten -= 1
                    self._change.notify_all()
            return
        while (frame := self._next(self._frames, lambda: self._framed_all)) is not None:
            yield [frame]
            with self._change:
                self._frames_held -= len(frame)
                self._unwritten -= 1
                self._change.notify_all()
            del frame

    def _until_stopped(self) -> Iterator[Sequence[BytesLike]]:
        yield from self._taken()
        if self._stopped:
            raise EndsEarly("the output was abandoned before it was complete.")

    def _put(self, pieces: Sequence[BytesLike]) -> None:
        for piece in pieces:
            self._digest.update(piece)
        started = perf_counter()
        self._file.put(pieces)
        self.write_seconds += perf_counter() - started
