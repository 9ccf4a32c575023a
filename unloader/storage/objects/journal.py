"""A record that lines are appended to, in a store whose objects cannot grow.

It is a row of objects. Lines that come while one is being written are in the next one together, so
that a run of many short units does not wait for each of them.
"""

from __future__ import annotations

import threading
from itertools import groupby

from unloader.storage.objects.room import Room

_MOST_PIECES = 500
"""Whoever reads the journal asks for each of them."""


class Journal:
    """The journal of one run, written by one thread of its own.

    Args:
        room: Of the place with the records.
        folder: Of the run.

    Raises:
        OSError: What is there cannot be read.
    """

    def __init__(self, room: Room, folder: str) -> None:
        self._room, self._folder, self._prefix = room, folder, room.journal(folder)
        self._waiting: list[bytes] = []
        self._change = threading.Condition()
        self._busy = self._ended = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        numbers = [_number(each.key) for each in room.bucket.within(self._prefix)]
        self._epoch, self._piece = max(numbers, default=(0, 0))

    def append(self, line: bytes) -> None:
        """Have a line written soon.

        Raises:
            WriteError: What was appended before could not be written.
        """
        with self._change:
            self._check()
            self._waiting.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def settle(self) -> None:
        """Wait until all that was appended is in the store.

        Raises:
            WriteError: It could not be written.
        """
        with self._change:
            self._change.wait_for(lambda: self._failure or not (self._waiting or self._busy))
            self._check()

    def replace(self, data: bytes) -> None:
        """Begin it anew, in one step.

        Raises:
            WriteError: It could not be written.
        """
        self.settle()
        with self._change:
            old = [each.key for each in self._room.bucket.within(self._prefix)]
            self._room.bucket.put(self._key(self._epoch + 1, 0), data)
            self._epoch, self._piece = self._epoch + 1, 0
            self._room.bucket.delete(old)

    def close(self) -> None:
        """Write what is waiting, and end the thread; a failure was or will be told elsewhere."""
        with self._change:
            self._ended = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting or self._failure:
                    return
                data = b"".join(self._waiting)
                self._waiting.clear()
                self._busy = True
                self._piece += 1
                key = self._key(self._epoch, self._piece)
            try:
                self._room.bucket.put(key, data)
                if self._piece >= _MOST_PIECES:
                    self._join()
            # Whatever it is, whoever appends next is to know.
            except Exception as error:
                self._failure = error
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _join(self) -> None:
        """Make one object of all pieces, in one step."""
        old = [each.key for each in self._room.bucket.within(self._prefix)]
        data = read_journal(self._room, self._folder)
        self._room.bucket.put(self._key(self._epoch + 1, 0), data)
        self._epoch, self._piece = self._epoch + 1, 0
        self._room.bucket.delete(old)

    def _key(self, epoch: int, piece: int) -> str:
        return f"{self._prefix}{epoch:06d}-{piece:09d}"


def read_journal(room: Room, folder: str) -> bytes:
    """Return all lines of a journal; empty where there is none.

    Raises:
        OSError: It cannot be read.
    """
    keys = [each.key for each in room.bucket.within(room.journal(folder))]
    latest: list[str] = []
    for _, group in groupby(sorted(keys), key=lambda key: _number(key)[0]):
        latest = list(group)
    return b"".join(room.bucket.read_all(latest))


def _number(key: str) -> tuple[int, int]:
    epoch, _, piece = key.rpartition("/")[2].partition("-")
    return int(epoch), int(piece)
