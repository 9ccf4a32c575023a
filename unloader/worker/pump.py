"""Fetch and write at the same time: one thread fetches, the caller's thread consumes.

The queue between them holds a fixed number of items, so a slow writer stops the fetch and a slow
source idles the writer. Where items are large their bytes count as well: nothing is fetched while
those that are waiting and the one being consumed take the limit or more. Memory is then that limit
and one item, whatever the size of the unit.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH = 2
"""Items waiting between the stages. One would do for overlap; the second evens out hiccups."""

_POLL_SECONDS = 0.1


class Pump(Generic[T]):
    """Moves the items of an iterator through a bounded queue into a consumer."""

    def __init__(
        self,
        items: Callable[[], Iterator[T]],
        *,
        depth: int = DEPTH,
        size: Callable[[T], int] | None = None,
        most_bytes: int = 0,
    ) -> None:
        """Take a function that makes the iterator; it is called in the fetch thread.

        Args:
            items: Makes the iterator.
            depth: Items that wait at most.
            size: Returns the bytes that an item takes; they are not counted without it.
            most_bytes: From so many bytes on in items not yet consumed, none is fetched.
        """
        self._items = items
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._size = size
        self._room = _Room(most_bytes, self._stop)
        self.fetch_seconds = 0.0
        """Wall seconds the fetch thread spent waiting for items, not for the queue."""

    def run(self, consume: Callable[[T], None]) -> None:
        """Consume every item; return when the last one is consumed.

        Raises:
            BaseException: Whatever the iterator or the consumer raised, unchanged. The fetch
                thread has ended by then and the iterator is closed.
        """
        thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        thread.start()
        try:
            while True:
                item = self._queue.get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                size = self._size_of(item)
                consume(item)
                # Not kept while the next one is waited for.
                del item
                self._room.give_back(size)
        finally:
            self._stop.set()
            thread.join()

    def _fetch(self) -> None:
        last: BaseException | None = None
        try:
            iterator = self._items()
            try:
                self._forward(iterator)
            finally:
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            last = error
        self._put(last)

    def _forward(self, iterator: Iterator[T]) -> None:
        while not self._stop.is_set():
            self._room.wait()
            started = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.fetch_seconds += time.perf_counter() - started
            self._room.take(self._size_of(item))
            self._put(item)
            del item

    def _put(self, item: T | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return

    def _size_of(self, item: T) -> int:
        return 0 if self._size is None else self._size(item)


class _Room:
    """Bytes of the items that are fetched and not yet consumed."""

    def __init__(self, most_bytes: int, stop: threading.Event) -> None:
        self._most = most_bytes
        self._stop = stop
        self._taken = 0
        self._change = threading.Condition()

    def take(self, size: int) -> None:
        with self._change:
            self._taken += size

    def give_back(self, size: int) -> None:
        with self._change:
            self._taken -= size
            self._change.notify()

    def wait(self) -> None:
        """Return once there is room, or all is stopped."""
        with self._change:
            while self._taken and self._taken >= self._most and not self._stop.is_set():
                self._change.wait(_POLL_SECONDS)
