"""One staged file, written while the producer prepares the next bytes.

Three stages overlap: the producer fills a buffer, a second thread compresses the buffer before it
(only with a codec), and a third thread writes and hashes the buffer before that. Buffers are
reused, so memory is bounded by `buffers * buffer_bytes`. Compression adds two buffers, and direct
writes add 1 MiB. A producer that is faster than the destination waits. The error of a failed
destination is raised at the producer's next call.

A sink handles bytes, and neither rows nor formats.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from writers.codecs.compression import open_compressor
from writers.encryption import age
from writers.errors import FormatError, WriteError
from writers.files.checksums import DEFAULT, open_digest
from writers.files.conveyor import Conveyor
from writers.files.open_files import open_file
from writers.files.regular import write_error
from writers.model import StageSeconds
from writers.objects.location import Location

if TYPE_CHECKING:
    from writers.codecs.compression import BytesLike, Compress
    from writers.files.conveyor import Buffer
    from writers.files.open_files import OpenFile
    from writers.model import Compression, UncompletedUpload

logger = logging.getLogger(__name__)

_EARLY_BYTES = 1024 * 1024
"""This part of a buffer is handed over while the writing thread is idle. Then a cache still has it:
measured, the kernel takes a quarter less CPU for it than for 4 MiB."""

_ABORT_SECONDS = 10.0
"""The wait of `abort` for a write that the kernel does not finish (a guess)."""


class Sink:
    """A file under its staging name that is being written.

    Used by one producer thread. End it with `close` or `abort`.

    Args:
        path: The file; it is created or emptied. A pipe or device is written to as it is. An object
            appears when it is complete.
        held: An object does not appear: another process completes `upload`.
        compression: Applied to each buffer: its bytes become one whole frame, so the file
            depends on the bytes and the size of the buffers only.
        buffer_bytes: Size of one buffer, before compression.
        buffers: The limit of buffers in flight: one is filled, the others wait, are compressed or
            are written. With 1 nothing overlaps.
        checksum: One of `writers.files.checksums.CHECKSUMS`.
        direct_io: Write past the page cache where the file system can; buffers of bytes that
            are not compressed are then cut to whole blocks.
        min_free_bytes: Bytes that stay free on the disk: writing waits for it. 0 does not look.
        recipients: Public keys of age that the compressed bytes are encrypted for; empty for none.
        synced_from_bytes: A smaller file is not synced, unless it is written directly.
        stays_cached: A synced file stays in the page cache; otherwise it leaves the cache.

    Raises:
        WriteError: The file cannot be created.
        FormatError: The codec, its level or the checksum is impossible, or a limit is below 1.
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
        self._digest = open_digest(checksum)
        encrypt = None
        if recipients:
            # The keys are checked before the file exists.
            age.check_recipients(recipients)
            encrypt = partial(age.encrypt, recipients=recipients)
        self._file: OpenFile
        if isinstance(self.path, Location):
            self._file = _open_object(self.path, buffer_bytes, buffers, held=held)
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
        plain = self._compressor is None
        # The parts of an object have a size, and blocks are written whole.
        self._is_early = plain and not direct_io and self._file.is_regular
        self._accepted = 0
        self._filling: Buffer | None = None
        self._conveyor = Conveyor(
            self._file,
            self._digest,
            encrypt,
            self._compressor,
            buffers=buffers,
            capacity=self._file.whole(buffer_bytes) if plain else buffer_bytes,
        )

    @property
    def upload(self) -> UncompletedUpload | None:
        """The uncompleted upload of a held object after `close`; otherwise None."""
        return getattr(self._file, "uncompleted", None)

    @property
    def bytes_accepted(self) -> int:
        """Bytes taken so far, before compression."""
        return self._accepted

    @property
    def bytes_written(self) -> int:
        """Bytes in the file so far, after compression and encryption."""
        return self._file.written

    def stages(self) -> StageSeconds:
        """Return the times and bytes so far; CPU times and delays are complete after `close`."""
        done = self._conveyor
        waits = done.producer_blocked, done.compressor_blocked
        return StageSeconds(
            write_s=done.write_seconds,
            compress_s=done.compress_seconds,
            compress_cpu_s=done.compress_cpu_seconds,
            uncompressed_bytes=self._accepted,
            write_cpu_s=done.write_cpu_seconds,
            own_cpu_s=done.own_cpu_seconds,
            write_delay_s=done.write_delay_seconds,
            compress_delay_s=done.compress_delay_seconds,
            encode_blocked_s=waits[0].seconds,
            compress_blocked_s=waits[1].seconds,
            longest_blocked_s=max(each.longest_seconds for each in waits),
        )

    def write(self, data: BytesLike) -> None:
        """Append bytes, waiting while all buffers are in flight; an earlier failure is raised."""
        self._raise_failure()
        view = memoryview(data).cast("B")
        self._accepted += view.nbytes
        while view.nbytes:
            buffer = self._begin()
            view = view[buffer.take(view) :]
            self._hand_over_if_due(buffer)

    def room(self) -> memoryview:
        """Return the writable rest of the buffer being filled, at least one byte.

        It waits while all buffers are in flight. Bytes written there count after `advance`.
        The memory may be used until then, or until the next call of another method.
        """
        self._raise_failure()
        return self._begin().room()

    def advance(self, count: int) -> None:
        """Append the first `count` bytes of the memory that `room` returned."""
        if self._filling is None:
            raise ValueError(f"no space was reserved for {count} bytes")
        self._filling.advance(count)
        self._accepted += count
        self._hand_over_if_due(self._filling)

    def settle(self) -> None:
        """Wait until all accepted bytes are written, and end the frame there.

        Then `bytes_written` is the same on every run over the same bytes and calls.
        """
        self._hand_over()
        self._conveyor.settle()
        self._raise_failure()

    def close(self) -> tuple[int, str]:
        """Write the rest and sync; return the size of the file and its checksum, `name:hex`.

        Raises:
            WriteError: The destination failed; the file is removed then.
        """
        try:
            self._hand_over()
            self._conveyor.finish()
            self._raise_failure()
        except BaseException:
            self.abort()
            raise
        return self._file.written, self._digest.text()

    def abort(self) -> None:
        """Stop writing and remove the file; may follow a failure of any call, never raises."""
        self._filling = None
        if not self._conveyor.abort(_ABORT_SECONDS):
            logger.warning(
                "%s: a write is still hanging in the kernel; it is left alone", self.path
            )
        if isinstance(self.path, Path) and self._file.is_regular:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _begin(self) -> Buffer:
        if self._filling is None:
            self._filling = self._conveyor.take()
            self._raise_failure()
        if self._filling is None:
            raise WriteError(f"cannot write {self.path}: it was abandoned.", "write it again.")
        return self._filling

    def _hand_over_if_due(self, buffer: Buffer) -> None:
        """Queue a buffer that is full, or that the idle writing thread can begin with."""
        early = self._is_early and buffer.filled >= _EARLY_BYTES and self._conveyor.is_idle
        if early or buffer.filled == buffer.capacity:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._filling is not None and self._filling.filled:
            self._conveyor.hand_over(self._filling)
            self._filling = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self._conveyor.failure
        if isinstance(failure, OSError):
            raise write_error("write", self.path, failure) from failure
        if failure is not None:
            raise failure


def _open_object(location: Location, buffer_bytes: int, buffers: int, *, held: bool) -> OpenFile:
    # Imported on use: object stores are an optional extra.
    from writers.objects.upload import HeldUpload, Upload

    opened = HeldUpload if held else Upload
    return opened(location, buffer_bytes=buffer_bytes, in_flight=buffers)
