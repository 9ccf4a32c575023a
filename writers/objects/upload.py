"""An object being written: its parts are sent while its next bytes are made.

An upload is an `OpenFile` of `writers.files`. Readers see nothing of it before it is completed.
`Upload` completes it in `finish`, and another process completes a `HeldUpload` later. The parts of
an upload that is given up are removed; a killed process leaves them. All methods raise WriteError
if the store refuses or fails; after a StoreFailed another attempt may succeed.

obstore sends the parts of an `Upload`. It cannot begin, list or abort an upload, and only the
process that began an upload can complete it. boto3 has these requests, but its own threads complete
the uploads that they send. So a `HeldUpload` has threads for its parts.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from typing import Any

from writers.codecs.compression import BytesLike
from writers.errors import StoreFailed, Superseded, WriteError
from writers.model import UncompletedUpload, UploadedPart
from writers.objects import s3_requests
from writers.objects.bucket import Bucket
from writers.objects.location import Location

_SMALLEST_PART_BYTES = 8 * 1024 * 1024
"""S3 takes no parts below 5 MiB, and each part costs a request."""
_PATIENCE_SECONDS = 5.0
"""The wait for parts that are being sent when the object is given up."""
MOST_PARTS = 10_000
"""Of S3, and fewer than Azure's: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""


def _abandoned(location: Location) -> StoreFailed:
    return StoreFailed(f"{location} was abandoned.", "write it again.")


def _check_size(location: Location, size: int, part_bytes: int) -> None:
    if size > part_bytes * MOST_PARTS:
        raise WriteError(
            f"{location.name} needs more than {MOST_PARTS:,} parts of {part_bytes:,} bytes, which "
            "is the limit of a store.",
            "ask for smaller files with --file-size, or for larger parts with --overlap-buffer.",
        )


class Upload:
    """An `OpenFile` in an object store; an existing object is replaced at the end.

    A part has at least `buffer_bytes`. `in_flight` parts are sent at the same time; one more is
    held in memory.
    """

    is_regular = False
    block_bytes = 1

    def __init__(self, location: Location, *, buffer_bytes: int, in_flight: int) -> None:
        self._location = location
        self._bucket = Bucket(location)
        self._part_bytes = max(_SMALLEST_PART_BYTES, buffer_bytes)
        self._writer: Any = self._bucket.writer(location.key, self._part_bytes, max(1, in_flight))
        self._interrupted = self._finished = False
        self.written = 0

    def put(self, piece: BytesLike) -> None:
        if self._interrupted:
            raise _abandoned(self._location)
        _check_size(self._location, self.written + len(piece), self._part_bytes)
        try:
            # obstore keeps the piece and sends it later, so it must not be memory that is reused.
            self._writer.write(piece if isinstance(piece, bytes) else bytes(piece))
        except Exception as error:
            raise self._bucket.failed("write", self._location.key, error) from None
        self.written += len(piece)

    def finish(self) -> None:
        """Complete the object, and compare its size with the bytes that were sent."""
        try:
            self._writer.close()
            self._finished = True
            size = self._bucket.size(self._location.key)
            if size == self.written:
                return
            failed = StoreFailed(
                f"{self._location.name} has {size} bytes in the store, but {self.written} were "
                "sent.",
                "check the store, and the network between it and this machine.",
            )
        except Exception as error:
            refusal = self._bucket.failed("complete", self._location.key, error)
            failed = StoreFailed(refusal.message, refusal.hint)
        # The last request may have been carried out although its answer was lost. So the object is
        # removed, and another attempt writes it.
        with contextlib.suppress(WriteError):
            self._bucket.delete([self._location.key])
        raise failed

    def interrupt(self) -> None:
        """Let the next `put` fail; a request that is being sent ends after its own time limit."""
        self._interrupted = True

    def close(self) -> None:
        """Give up an unfinished object: its parts are removed."""
        if self._finished:
            return
        self._finished = True
        with contextlib.suppress(Exception):
            error = StoreFailed("abandoned")
            self._writer.__exit__(type(error), error, None)


class HeldUpload:
    """An `OpenFile` in S3 that another process makes visible later.

    After `finish` all parts are in the store and have been compared, and another process can
    complete `uncompleted`. `close` removes the parts of an unfinished upload. The location has the
    final name; the other arguments are as for `Upload`.
    """

    is_regular = False
    block_bytes = 1

    def __init__(self, location: Location, *, buffer_bytes: int, in_flight: int) -> None:
        self._location = location
        self._part_bytes = max(_SMALLEST_PART_BYTES, buffer_bytes)
        self._algorithm = s3_requests.algorithm_of(location.store)
        self._most = max(1, in_flight)
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="part")
        # The first rows come while the store answers.
        self._id = self._threads.submit(s3_requests.begin, location, self._algorithm)
        self._parts: list[Future[UploadedPart]] = []
        self._sending: set[Future[Any]] = set()
        self._filling = bytearray()
        self._interrupted: Future[None] = Future()
        """Has a result after `interrupt`, which ends each wait for a part."""
        self._ended = False
        self.written = 0
        self.uncompleted: UncompletedUpload | None = None
        """After `finish`."""

    def put(self, piece: BytesLike) -> None:
        rest = memoryview(piece).cast("B")
        _check_size(self._location, self.written + len(rest), self._part_bytes)
        self.written += len(rest)
        while rest:
            taken = rest[: self._part_bytes - len(self._filling)]
            self._filling += taken
            rest = rest[len(taken) :]
            if len(self._filling) == self._part_bytes:
                self._send()

    def _send(self) -> None:
        while len(self._sending) >= self._most:
            self._await_part()
        body, self._filling = self._filling, bytearray()
        number = len(self._parts) + 1
        try:
            part = self._threads.submit(
                lambda: s3_requests.send(
                    self._location, self._id.result(), number, body, self._algorithm
                )
            )
        except RuntimeError:  # Another thread has called `interrupt`.
            raise _abandoned(self._location) from None
        self._parts.append(part)
        self._sending.add(part)

    def _await_part(self) -> None:
        done, self._sending = wait({*self._sending, self._interrupted}, return_when=FIRST_COMPLETED)
        self._sending.discard(self._interrupted)
        if self._interrupted in done:
            raise _abandoned(self._location)
        for each in done:
            each.result()

    def finish(self) -> None:
        """Send the rest, and compare all parts with the parts in the store."""
        if self._filling or not self._parts:
            # An object without bytes has one part without bytes.
            self._send()
        while self._sending:
            self._await_part()
        found = UncompletedUpload(
            name=self._location.name,
            id=self._id.result(),
            algorithm=self._algorithm,
            parts=tuple(part.result() for part in self._parts),
        )
        try:
            s3_requests.compare(self._location, found)
        except Superseded as error:
            # No record names this upload yet, so another attempt may succeed.
            raise StoreFailed(error.message, error.hint) from error
        self._threads.shutdown()
        self.uncompleted, self._ended = found, True

    def interrupt(self) -> None:
        with contextlib.suppress(InvalidStateError):
            self._interrupted.set_result(None)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.interrupt()
        # `wait` does not count futures that a shutdown has cancelled.
        wait([each for each in self._sending if not each.cancelled()], _PATIENCE_SECONDS)
        self._id.add_done_callback(self._remove)

    def _remove(self, began: Future[str]) -> None:
        """Remove the upload, when the store has answered that it began."""
        if not began.cancelled() and began.exception() is None:
            _abort(self._location, began.result())


def remove(location: Location, upload: UncompletedUpload | None) -> None:
    """Remove an object if it exists, or abort its upload; the next run here tries again."""
    if upload is None:
        Bucket(location).delete([location.key])
    else:
        _abort(location, upload.id)


def _abort(location: Location, upload: str) -> None:
    with contextlib.suppress(WriteError):
        s3_requests.abort_uploads(location.store, [s3_requests.Pending(location.key, upload)])
