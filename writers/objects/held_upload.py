"""One object being written whose parts are all sent, and which somebody else makes visible later.

It stands where a file does in `writers.files`. After `finish` all its parts are in the store, and
have been compared; `uncompleted` tells what completes it. Where it is given up they are removed; a
process that is killed leaves them, see `writers.objects.multipart.pending_uploads`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from writers.errors import StoreFailed, Superseded, WriteError
from writers.model import UncompletedUpload, UploadedPart
from writers.objects import multipart
from writers.objects.location import Location
from writers.objects.part_checksums import algorithm
from writers.objects.upload import MOST_PARTS, part_bytes_of, too_large

if TYPE_CHECKING:
    from writers.codecs.compression import BytesLike

_PATIENCE_SECONDS = 5.0
"""For parts that are on their way when the object is given up."""


class HeldUpload:
    """An `OpenFile` in S3.

    Args:
        location: Of the object, as it will be called.
        buffer_bytes: Of the output; a part has at least as much.
        in_flight: Parts that are sent at once. So many, and one more, are held in memory.

    Raises:
        WriteError: The store cannot be opened.
    """

    is_regular = False

    def __init__(self, location: Location, *, buffer_bytes: int, in_flight: int) -> None:
        self._location = location
        self._part_bytes = part_bytes_of(buffer_bytes)
        self._algorithm = algorithm(location.store)
        # The library that asks takes its time to load: that goes by while the first rows come.
        self._id: Future[str] = Future()
        threading.Thread(target=self._begin, name="upload", daemon=True).start()
        self._senders = _Senders(self._send, max(1, in_flight))
        self._filling = bytearray()
        self._filled = 0
        self._sent = 0
        self._ended = False
        self.written = 0
        self.uncompleted: UncompletedUpload | None = None
        """After `finish`."""

    def whole(self, buffer_bytes: int) -> int:
        """Return the size as it is."""
        return buffer_bytes

    def put(self, pieces: Sequence[BytesLike]) -> None:
        """Append the pieces; wait while as many parts are on their way as may be.

        Raises:
            WriteError: The store refused or failed, or the object gets larger than one may be.
        """
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            if self.written + len(rest) > self._part_bytes * MOST_PARTS:
                raise too_large(self._location, self._part_bytes)
            self.written += len(rest)
            while rest:
                rest = rest[self._take(rest) :]

    def _take(self, data: memoryview) -> int:
        """Put what there is room for into the part being filled; return how much that was."""
        if not self._filling:
            self._filling = self._senders.buffer(self._part_bytes)
        count = min(len(data), self._part_bytes - self._filled)
        # Assigned to the bytearray itself, they would be copied twice.
        with memoryview(self._filling) as view:
            view[self._filled : self._filled + count] = data[:count]
        self._filled += count
        if self._filled == self._part_bytes:
            self._hand_over()
        return count

    def _begin(self) -> None:
        try:
            self._id.set_result(multipart.begin(self._location, self._algorithm))
        # Whatever it is, whoever sends a part is to know.
        except BaseException as error:
            self._id.set_exception(error)

    def _hand_over(self) -> None:
        self._sent += 1
        self._senders.hand_over(self._sent, self._filling, self._filled)
        self._filling, self._filled = bytearray(), 0

    def _send(self, number: int, body: bytes | bytearray) -> UploadedPart:
        return multipart.send(self._location, self._id.result(), number, body, self._algorithm)

    def finish(self) -> None:
        """Send the rest, and compare all parts with those in the store.

        Raises:
            StoreFailed: The store failed, or has other parts: what is written anew may be right.
            WriteError: The store refused.
        """
        if self._filled or not self._sent:
            # An object without bytes has one part without any.
            self._filling = self._filling or bytearray(1)
            self._hand_over()
        found = UncompletedUpload(
            name=self._location.name,
            id=self._id.result(),
            algorithm=self._algorithm,
            parts=self._senders.finish(),
        )
        try:
            multipart.compare(self._location, found)
        except Superseded as error:
            # Nobody counts on this upload yet: it is a failure on the way, as a cut connection is.
            raise StoreFailed(error.message, error.hint) from error
        self.uncompleted, self._ended = found, True

    def interrupt(self) -> None:
        """Have the next `put` fail; a request that is on its way ends by its own limit of time."""
        self._senders.give_up(StoreFailed(f"{self._location} was abandoned.", "write it again."))

    def close(self) -> None:
        """Give up what is not finished: its parts are removed."""
        if self._ended:
            return
        self._ended = True
        self.interrupt()
        self._senders.wait(_PATIENCE_SECONDS)
        self._id.add_done_callback(self._remove)

    def _remove(self, began: Future[str]) -> None:
        """Remove what was begun, as soon as that is known."""
        if began.exception() is None:
            remove(self._location, began.result())


def remove(location: Location, upload: str) -> None:
    """Abort an upload, or leave it to whoever clears the place."""
    with contextlib.suppress(WriteError):
        multipart.abort_uploads(location.store, [multipart.Pending(location.key, upload)])


class _Senders:
    """Threads that send parts, and the memory of these, which is used again.

    Args:
        send: Sends the part of a number.
        threads: So many at most; each is started once it is needed.
    """

    def __init__(
        self, send: Callable[[int, bytes | bytearray], UploadedPart], threads: int
    ) -> None:
        self._send, self._most = send, threads
        self._started = self._busy = self._buffers = 0
        self._free: list[bytearray] = []
        self._waiting: deque[tuple[int, bytearray, int]] = deque()
        self._done: dict[int, UploadedPart] = {}
        self._failure: BaseException | None = None
        self._finished = False
        self._change = threading.Condition()

    def buffer(self, size: int) -> bytearray:
        """Return memory for a part, once there is some.

        Raises:
            WriteError: A part could not be sent.
        """
        with self._change:
            self._change.wait_for(
                lambda: self._failure or self._free or self._buffers <= self._most
            )
            self._check()
            if self._free:
                return self._free.pop()
            self._buffers += 1
        return bytearray(size)

    def hand_over(self, number: int, buffer: bytearray, filled: int) -> None:
        """Have a part sent.

        Raises:
            WriteError: An earlier one could not be sent.
        """
        with self._change:
            self._check()
            self._waiting.append((number, buffer, filled))
            if self._busy + len(self._waiting) > self._started < self._most:
                self._started += 1
                # Daemons: a process that ends does not wait for a store that does not answer.
                threading.Thread(target=self._work, name="part", daemon=True).start()
            self._change.notify_all()

    def finish(self) -> tuple[UploadedPart, ...]:
        """Wait until all parts are sent; return them in their order.

        Raises:
            WriteError: One could not be sent.
        """
        with self._change:
            self._finished = True
            self._change.notify_all()
            self._change.wait_for(lambda: self._failure or not (self._waiting or self._busy))
            self._check()
            self._free.clear()
            return tuple(self._done[number] for number in sorted(self._done))

    def give_up(self, error: BaseException) -> None:
        """Send nothing more."""
        with self._change:
            self._failure = self._failure or error
            self._waiting.clear()
            self._change.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for parts that are on their way."""
        with self._change:
            self._change.wait_for(lambda: not self._busy, seconds)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._finished or self._failure)
                if not self._waiting or self._failure:
                    return
                number, buffer, filled = self._waiting.popleft()
                self._busy += 1
            try:
                # The library takes no view of memory. Only a last part is not full.
                whole = filled == len(buffer)
                part = self._send(number, buffer if whole else bytes(memoryview(buffer)[:filled]))
            # Whatever it is, whoever writes is to know.
            except BaseException as error:
                self.give_up(error)
            else:
                with self._change:
                    self._done[number] = part
            with self._change:
                self._busy -= 1
                self._free.append(buffer)
                self._change.notify_all()
