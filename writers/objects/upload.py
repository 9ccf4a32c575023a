"""One object being written: sent in parts while its next bytes are made, and there at the end.

It stands where a file does in `writers.files`. Nothing of it can be seen before `finish`. Where it
is given up its parts are removed; a process that is killed leaves them, see
`writers.objects.s3.pending_uploads`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from writers.errors import StoreFailed, WriteError
from writers.objects.bucket import Bucket
from writers.objects.location import Location

if TYPE_CHECKING:
    from writers.codecs.compression import BytesLike

_SMALLEST_PART_BYTES = 8 * 1024 * 1024
"""S3 takes none below 5 MiB; each costs a request."""
MOST_PARTS = 10_000
"""Of S3, and fewer than Azure's: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""


def part_bytes_of(buffer_bytes: int) -> int:
    """Return the size of parts where a buffer of the output has that size."""
    return max(_SMALLEST_PART_BYTES, buffer_bytes)


def too_large(location: Location, part_bytes: int) -> WriteError:
    """Return the error for an object that would have too many parts."""
    return WriteError(
        f"{location.name} needs more than {MOST_PARTS:,} parts of {part_bytes:,} bytes, which is "
        "the limit of a store.",
        "ask for smaller files with --file-size, or for larger parts with --overlap-buffer.",
    )


class Upload:
    """An `OpenFile` in an object store.

    Args:
        location: Of the object; one that is there is replaced at the end.
        buffer_bytes: Of the output; a part has at least as much.
        in_flight: Parts that are sent at once. So many, and one more, are held in memory.

    Raises:
        WriteError: The store refused or cannot be opened.
    """

    is_regular = False

    def __init__(self, location: Location, *, buffer_bytes: int, in_flight: int) -> None:
        self._location = location
        self._bucket = Bucket(location)
        self._part_bytes = part_bytes_of(buffer_bytes)
        self._writer: Any = self._bucket.writer(location.key, self._part_bytes, max(1, in_flight))
        self._interrupted = self._finished = False
        self.written = 0

    def whole(self, buffer_bytes: int) -> int:
        """Return the size as it is."""
        return buffer_bytes

    def put(self, pieces: Sequence[BytesLike]) -> None:
        """Append the pieces; wait while as many parts are on their way as may be.

        Raises:
            WriteError: The store refused or failed, or the object gets larger than one may be.
        """
        for piece in pieces:
            # obstore keeps what it is given, and sends it later: memory that is used again would
            # be sent with what it holds by then.
            self._put(piece if isinstance(piece, bytes) else bytes(piece))

    def _put(self, piece: bytes) -> None:
        if self._interrupted:
            raise StoreFailed(f"{self._location} was abandoned.", "write it again.")
        if self.written + len(piece) > self._part_bytes * MOST_PARTS:
            raise too_large(self._location, self._part_bytes)
        try:
            self._writer.write(piece)
        except Exception as error:
            raise self._bucket.failed("write", self._location.key, error) from None
        self.written += len(piece)

    def finish(self) -> None:
        """Have the store put it together, and compare its size with what was sent.

        Raises:
            WriteError: The store refused or failed.
        """
        try:
            self._writer.close()
        except Exception as error:
            raise self._failed_at_the_end(error) from None
        self._finished = True
        try:
            size = self._bucket.size(self._location.key)
        except OSError as error:
            raise self._failed_at_the_end(error) from None
        if size != self.written:
            self._remove()
            raise StoreFailed(
                f"{self._location.name} has {size} bytes in the store, but {self.written} were "
                "sent.",
                "check the store, and the network between it and this machine.",
            )

    def _failed_at_the_end(self, error: BaseException) -> WriteError:
        failed = self._bucket.failed("complete", self._location.key, error)
        # Whether the last request was carried out is not known: its answer may be lost, and the
        # upload be unknown to the store when it was made again. It is written anew.
        self._remove()
        return StoreFailed(failed.message, failed.hint)

    def _remove(self) -> None:
        with contextlib.suppress(WriteError):
            self._bucket.delete([self._location.key])

    def interrupt(self) -> None:
        """Have the next `put` fail; a request that is on its way ends by its own limit of time."""
        self._interrupted = True

    def close(self) -> None:
        """Give up what is not finished: its parts are removed."""
        if self._finished:
            return
        self._finished = True
        with contextlib.suppress(Exception):
            error = StoreFailed("abandoned")
            self._writer.__exit__(type(error), error, None)


def remove(location: Location) -> None:
    """Remove an object, if it is there.

    Raises:
        WriteError: The store refused or failed.
    """
    Bucket(location).delete([location.key])
