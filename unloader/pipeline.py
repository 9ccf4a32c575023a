"""Fetch and write at the same time: one thread fetches, the caller's thread consumes.

The queue between them holds a fixed number of items, so a slow writer stops the fetch and a slow
source idles the writer; memory is the items in flight, whatever the size of the unit.
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

    def __init__(self, items: Callable[[], Iterator[T]], *, depth: int = DEPTH) -> None:
        """Take a function that makes the iterator; it is called in the fetch thread."""
        self._items = items
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
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
                consume(item)
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
            started = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.fetch_seconds += time.perf_counter() - started
            self._put(item)

    def _put(self, item: T | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return
