"""The staged files of a work unit: each is written while the producer prepares the next bytes.

Three stages overlap: the producer fills a buffer, a second thread compresses the buffer before it
(only with a codec), and a third thread encrypts, hashes and writes the buffer before that. Buffers
are reused, so memory is bounded by `buffers * buffer_bytes`. Compression adds two buffers, and
direct writes add 1 MiB. A producer that is faster than the destination waits.

The first error stops all threads and is raised at the producer's next call. The producer never
waits for a thread that has ended. It writes a file that fits one buffer without threads: nothing
could overlap, and two threads cost more than most small files.

A sink handles bytes, and neither rows nor formats.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, perf_counter, thread_time
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from writers.codecs.compression import BytesLike, Compress, open_compressor
from writers.cpu_delay import cpu_delay
from writers.encryption import age
from writers.errors import FormatError, WriteError
from writers.files.checksums import DEFAULT, open_digest
from writers.files.open_files import OpenFile, open_file
from writers.files.publish import PART_SUFFIX
from writers.files.regular import write_error
from writers.model import Compression, OutputSpec, StageSeconds, UncompletedUpload, WrittenFile
from writers.objects.location import Location, is_location

T = TypeVar("T")

logger = logging.getLogger(__name__)

_EARLY_BYTES = 1024 * 1024
"""This part of a buffer is handed over while the writing thread is idle. Then a cache still has it:
measured, the kernel takes a quarter less CPU for it than for 4 MiB."""

_ABORT_SECONDS = 10.0
"""The wait of `abort` for a write that the kernel does not finish (a guess)."""


class Buffer:
    """Anonymous memory from a page on; the kernel allocates it as it is filled."""

    def __init__(self, capacity: int) -> None:
        # By default Python would map shared memory, which belongs to another file system.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = memoryview(mmap.mmap(-1, capacity, flags=flags))
        self.filled = 0


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


class EndsEarly(WriteError):
    """Ends an encryption before its end, so that the file is recognised as incomplete."""


class Sink:
    """A file under its staging name that is being written.

    Used by one producer thread. End it with `close` or `abort`.

    The file is created or emptied; a pipe or device is written to as it is. An object appears when
    it is complete. With `held` another process completes its `upload`.

    Each buffer of `buffer_bytes` is compressed to one whole frame, so the file depends on the bytes
    and the size of the buffers only. At most `buffers` are in flight: one is filled, the others
    wait, are compressed or are written. With 1 nothing overlaps. With `recipients`, public keys of
    age, the compressed bytes are encrypted. The other arguments are as in `open_file`; direct
    writes cut buffers that are not compressed to whole blocks.

    Raises WriteError if the file cannot be created, and FormatError if the codec, its level or the
    checksum is impossible, or a limit is below 1.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Location,
        *,
        compression: Compression,
        buffer_bytes: int,
        buffers: int,
        checksum: str = DEFAULT,
        direct_io: bool = False,
        min_free_bytes: int = 0,
        recipients: tuple[str, ...] = (),
        synced_from_bytes: int = 0,
        stays_cached: bool = False,
        held: bool = False,
    ) -> None:
        if buffer_bytes < 1 or buffers < 1:
            raise FormatError(
                f"{buffers} output buffers of {buffer_bytes} bytes are impossible.",
                "use at least 1 buffer of at least 1 byte.",
            )
        self.path = path if isinstance(path, Location) else Path(path)
        self._compressor: Compress | None = None
        if compression.codec != "none":
            self._compressor = open_compressor(compression)
        self._checksum, self._digest = checksum, open_digest(checksum)
        self._recipients = recipients
        if recipients:
            # The keys are checked before the file exists.
            age.check_recipients(recipients)
        self._file: OpenFile
        if isinstance(self.path, Location):
            # Imported on use: object stores are an optional extra.
            from writers.objects.upload import HeldUpload, Upload

            opened = HeldUpload if held else Upload
            self._file = opened(self.path, buffer_bytes=buffer_bytes, in_flight=buffers)
        else:
            try:
                self._file = open_file(
                    self.path,
                    direct=direct_io,
                    min_free_bytes=min_free_bytes,
                    synced_from_bytes=synced_from_bytes,
                    stays_cached=stays_cached,
                )
            except OSError as exc:
                raise write_error("create", self.path, exc) from exc
        is_plain = self._compressor is None
        # The parts of an object have a size, and blocks are written whole.
        self._is_early = is_plain and not direct_io and self._file.is_regular
        block = self._file.block_bytes if is_plain else 1
        self._capacity = max(block, buffer_bytes - buffer_bytes % block)
        self.bytes_accepted = 0
        """Bytes taken so far, before compression."""
        self._filling: Buffer | None = None
        self._unmade = buffers
        self._free: list[Buffer] = []
        self._full: deque[Buffer] = deque()
        self._frames: deque[BytesLike] = deque()
        self._frames_held = 0
        """Bytes of frames that are not written. The next frame is made when they are fewer than a
        buffer, so frames take at most twice as much."""
        self._unwritten = 0
        self._finishing = self._framed_all = self._aborting = self._closed = False
        self._change = threading.Condition()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._compress_seconds = self._compress_cpu_seconds = self._compress_delay_seconds = 0.0
        self._write_seconds = self._write_cpu_seconds = self._write_delay_seconds = 0.0
        self._own_cpu_seconds = 0.0
        self._producer_blocked, self._compressor_blocked = Blocked(), Blocked()

    @classmethod
    def of(
        cls, spec: OutputSpec, path: Path | Location, compression: Compression, **more: Any
    ) -> Self:
        """Return the sink of a file of an output; `more` are other arguments than the output's."""
        own = {
            "buffer_bytes": spec.buffer_bytes,
            "buffers": spec.buffers,
            "checksum": spec.checksum,
            "direct_io": spec.direct_io,
            "min_free_bytes": spec.min_free_bytes,
            "recipients": spec.encryption.recipients,
            "synced_from_bytes": spec.synced_from_bytes,
            "stays_cached": spec.stays_cached,
        }
        return cls(path, compression=compression, **{**own, **more})

    @property
    def upload(self) -> UncompletedUpload | None:
        """The uncompleted upload of a held object after `close`; otherwise None."""
        return getattr(self._file, "uncompleted", None)

    @property
    def bytes_written(self) -> int:
        """Bytes in the file so far, after compression and encryption."""
        return self._file.written

    def stages(self) -> StageSeconds:
        """Return the times and bytes so far; CPU times and delays are complete after `close`."""
        waits = self._producer_blocked, self._compressor_blocked
        return StageSeconds(
            write_s=self._write_seconds,
            compress_s=self._compress_seconds,
            compress_cpu_s=self._compress_cpu_seconds,
            uncompressed_bytes=self.bytes_accepted,
            write_cpu_s=self._write_cpu_seconds,
            own_cpu_s=self._own_cpu_seconds,
            write_delay_s=self._write_delay_seconds,
            compress_delay_s=self._compress_delay_seconds,
            encode_blocked_s=waits[0].seconds,
            compress_blocked_s=waits[1].seconds,
            longest_blocked_s=max(each.longest_seconds for each in waits),
        )

    def write(self, data: BytesLike) -> None:
        """Append bytes, waiting while all buffers are in flight; an earlier failure is raised."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            room = self.room()
            count = min(view.nbytes, room.nbytes)
            room[:count] = view[:count]
            self.advance(count)
            view = view[count:]
        self._raise_failure()

    def room(self) -> memoryview:
        """Return the writable rest of the buffer being filled, at least one byte.

        It waits while all buffers are in flight. Bytes written there count after `advance`.
        The memory may be used until then, or until the next call of another method.
        """
        self._raise_failure()
        if self._filling is None:
            self._filling = self._empty_buffer()
            self._raise_failure()
        if self._filling is None:
            raise WriteError(f"cannot write {self.path}: it was abandoned.", "write it again.")
        return self._filling.memory[self._filling.filled :]

    def advance(self, count: int) -> None:
        """Append the first `count` bytes of the memory that `room` returned."""
        buffer = self._filling
        if buffer is None or not 0 <= count <= self._capacity - buffer.filled:
            raise ValueError(f"no space was reserved for {count} bytes")
        buffer.filled += count
        self.bytes_accepted += count
        # The idle writing thread can begin with a part of a buffer.
        early = self._is_early and buffer.filled >= _EARLY_BYTES
        if buffer.filled == self._capacity or (early and self._threads and not self._unwritten):
            self._hand_over()

    def settle(self) -> None:
        """Write all accepted bytes and end the frame: then `bytes_written` repeats every run."""
        self._hand_over()
        self._start()
        with self._change:
            self._change.wait_for(lambda: self._unwritten == 0 or self._stopped)
        self._raise_failure()

    def close(self) -> tuple[int, str]:
        """Write and sync; return size and checksum, `name:hex`, or remove it: a WriteError."""
        try:
            self._hand_over()
            with self._change:
                self._finishing = True
                self._change.notify_all()
            for thread in self._threads:
                thread.join()
            if not self._threads:
                # One buffer is compressed and written in this thread.
                if self._compressor is not None:
                    self._run(self._compress)
                    self._compress_delay_seconds = 0.0
                compressed = thread_time()
                self._run(self._write)
                self._write_cpu_seconds = thread_time() - compressed
                self._write_delay_seconds = 0.0
                self._own_cpu_seconds = self._compress_cpu_seconds + self._write_cpu_seconds
            self._raise_failure()
        except BaseException:
            self.abort()
            raise
        while self._free and len(_spare) < _MOST_SPARE:
            _spare.append(self._free.pop())
        return self._file.written, f"{self._checksum}:{self._digest.hexdigest()}"

    def abort(self) -> None:
        """Stop writing and remove the file; may follow a failure of any call, never raises."""
        self._filling = None
        with self._change:
            self._aborting = True
            self._change.notify_all()
        self._file.interrupt()
        if not self._threads:
            self._close_file()
        deadline = monotonic() + _ABORT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            logger.warning(
                "%s: a write is still hanging in the kernel; it is left alone", self.path
            )
        if isinstance(self.path, Path) and self._file.is_regular:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _empty_buffer(self) -> Buffer | None:
        """Wait for an empty buffer and return it; None if nothing more will be written."""
        if self._unwritten:
            self._start()
        with self._change:
            if not (self._free or self._unmade or self._stopped):
                with self._producer_blocked:
                    self._change.wait_for(lambda: self._free or self._stopped)
            if self._stopped:
                return None
            if self._free:
                return self._free.pop()
            self._unmade -= 1
        with contextlib.suppress(IndexError):
            if len((spare := _spare.pop()).memory) == self._capacity:
                return spare
        return Buffer(self._capacity)

    def _hand_over(self) -> None:
        if self._filling is not None and self._filling.filled:
            with self._change:
                self._full.append(self._filling)
                self._unwritten += 1
                self._change.notify_all()
            self._filling = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._failure
        if isinstance(failure, OSError):
            raise write_error("write", self.path, failure) from failure
        if failure is not None:
            raise failure

    @property
    def _stopped(self) -> bool:
        return self._aborting or self._failure is not None

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
                self._failure = self._failure or exc
                self._change.notify_all()

    def _next(self, queue: deque[T], is_last: Callable[[], bool]) -> T | None:
        """Wait for the next item of a queue; None after the last one, or when all is stopped."""
        with self._change:
            self._change.wait_for(lambda: queue or is_last() or self._stopped)
            return queue.popleft() if queue and not self._stopped else None

    def _compress(self) -> None:
        framed = False
        while (buffer := self._next(self._full, lambda: self._finishing)) is not None:
            self._make_frame(buffer.memory[: buffer.filled])
            framed = True
            self._give_back(buffer)
        if not framed:
            # An empty file is not a valid compressed file, an empty frame is.
            self._make_frame(b"")
        self._compress_delay_seconds = cpu_delay()
        with self._change:
            self._framed_all = True
            self._change.notify_all()

    def _give_back(self, buffer: Buffer, written: int = 0) -> None:
        with self._change:
            buffer.filled = 0
            self._free.append(buffer)
            self._unwritten -= written
            self._change.notify_all()

    def _make_frame(self, data: BytesLike) -> None:
        with self._change:
            if not (self._frames_held < self._capacity or self._stopped):
                with self._compressor_blocked:
                    self._change.wait_for(
                        lambda: self._frames_held < self._capacity or self._stopped
                    )
            if self._stopped or self._compressor is None:
                return
        started, cpu = perf_counter(), thread_time()
        frame = self._compressor(data)
        self._compress_seconds += perf_counter() - started
        self._compress_cpu_seconds += thread_time() - cpu
        with self._change:
            self._frames.append(frame)
            self._frames_held += len(frame)
            self._change.notify_all()

    def _write(self) -> None:
        """The writing thread: the only one that touches the file."""
        try:
            if self._recipients:
                with contextlib.suppress(EndsEarly):
                    age.encrypt(self._until_stopped(), self._put, self._recipients)
            else:
                for piece in self._pieces():
                    self._put(piece)
                    del piece  # Its memory is reused or free from here on.
            if not self._stopped:
                started = perf_counter()
                self._file.finish()
                self._write_seconds += perf_counter() - started
        finally:
            # The thread works for this file only, so one look at its clocks is enough.
            self._write_cpu_seconds = thread_time()
            self._write_delay_seconds = cpu_delay()
            self._close_file()

    def _close_file(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()

    def _pieces(self) -> Iterator[BytesLike]:
        """Yield the bytes to write; they count as written when the next ones are asked for."""
        if self._compressor is None:
            while (buffer := self._next(self._full, lambda: self._finishing)) is not None:
                yield buffer.memory[: buffer.filled]
                self._give_back(buffer, written=1)
            return
        while (frame := self._next(self._frames, lambda: self._framed_all)) is not None:
            yield frame
            with self._change:
                self._frames_held -= len(frame)
                self._unwritten -= 1
                self._change.notify_all()
            del frame

    def _until_stopped(self) -> Iterator[BytesLike]:
        yield from self._pieces()
        if self._stopped:
            raise EndsEarly("the output was abandoned before it was complete.")

    def _put(self, piece: BytesLike) -> None:
        self._digest.update(piece)
        started = perf_counter()
        self._file.put(piece)
        self._write_seconds += perf_counter() - started


class StagedFiles:
    """Opens and records files `<stem>[.001].<extension>.part`, the first even without a row."""

    def __init__(
        self, spec: OutputSpec, stem: str, extension: str, compression: Compression
    ) -> None:
        self._spec = spec
        self._stem = stem
        self._extension = extension
        self._compression = compression
        self._done: list[WrittenFile] = []
        self._done_stages = StageSeconds(uncompressed_bytes=0)
        self._sink: Sink | None = None
        self.sink()

    def sink(self) -> Sink:
        """Return the file being written; open the next one if necessary."""
        if self._sink is None:
            path = Path(self._spec.stream) if self._spec.stream else self._place(len(self._done))
            held = self._spec.finals is not None
            self._sink = Sink.of(self._spec, path, self._compression, held=held)
        return self._sink

    @property
    def is_open(self) -> bool:
        return self._sink is not None

    def finish(self, rows: int) -> None:
        sink = self.sink()
        size, checksum = sink.close()
        name = sink.path.name if sink.upload is None else self._name(len(self._done))
        self._done.append(
            WrittenFile(path=name, rows=rows, bytes=size, checksum=checksum, upload=sink.upload)
        )
        self._done_stages = total(self._done_stages, sink.stages())
        self._sink = None

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file; never raises."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None
        # Bytes that went through a pipe cannot be removed, and the pipe is not ours.
        for number, file in enumerate(() if self._spec.stream else self._done):
            place = self._place(number)
            # The next run removes a file, an object or an upload that stays.
            with contextlib.suppress(OSError, WriteError):
                if isinstance(place, Path):
                    place.unlink()
                else:
                    from writers.objects.upload import remove

                    remove(place, file.upload)
        self._done.clear()

    def _name(self, number: int) -> str:
        """Return the name of a file while it is staged, and in the records of its unit."""
        part = f".{number + 1:03d}" if self._spec.file_size_bytes else ""
        return f"{self._stem}{part}.{self._extension}{PART_SUFFIX}"

    def _place(self, number: int) -> Path | Location:
        finals, name = self._spec.finals, self._name(number)
        if finals is not None:
            return Location.parse(finals.place).below(finals.name(number))
        if is_location(self._spec.directory):
            return Location.parse(self._spec.directory).below(name)
        return Path(self._spec.directory, name)

    @property
    def bytes_written(self) -> int:
        writing = self._sink.bytes_written if self._sink is not None else 0
        return sum(file.bytes for file in self._done) + writing

    def stages(self, encode_seconds: float) -> StageSeconds:
        stages = self._done_stages
        if self._sink is not None:
            stages = total(stages, self._sink.stages())
        return replace(stages, encode_s=encode_seconds)


def total(some: StageSeconds, more: StageSeconds) -> StageSeconds:
    """Return the stages of two files together; bytes are unknown if those of one are."""
    names = [name for name in some.__struct_fields__ if name != "uncompressed_bytes"]
    sums = {name: getattr(some, name) + getattr(more, name) for name in names}
    sizes = some.uncompressed_bytes, more.uncompressed_bytes
    return StageSeconds(
        **{**sums, "longest_blocked_s": max(some.longest_blocked_s, more.longest_blocked_s)},
        uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)),
    )
