"""What follows when the last unit of a table is done: count, compare, publish.

In a thread of its own, so that no worker waits for it. The thread is the only one that uses the
catalog meanwhile; whoever else wants it goes without (`Catalogs`). What the thread has to tell is
kept until the run's own thread asks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from unloader.errors import UnloaderError, translate
from unloader.events import Event, Observer
from unloader.failures import failure_of
from unloader.model import AttemptFailure
from unloader.run.tables.state import TableState
from unloader.sources.base import Catalog

_END_SECONDS = 600.0
"""Guess: a publication that takes longer is stuck in the file system."""


Ended = tuple[TableState, BaseException | None]


class Finisher:
    """Takes tables that are done, one after the other."""

    def __init__(
        self,
        finish: Callable[[TableState, Observer], None],
        observe: Observer,
    ) -> None:
        """Begin to wait for tables.

        Args:
            finish: What is to be done with each; called in the thread, with an observer for it.
            observe: Gets the events, by `collect`.
        """
        self._finish = finish
        self._observe = observe
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._tables: queue.SimpleQueue[TableState | None] = queue.SimpleQueue()
        self._pending = 0
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tables", daemon=True)
        self._thread.start()

    def take(self, table: TableState) -> None:
        """Finish a table; returns at once."""
        self._pending += 1
        self._tables.put(table)

    def collect(
        self, timeout_seconds: float = 0.0
    ) -> list[tuple[TableState, BaseException | None]]:
        """Hand on what there is to tell; return the tables that are finished, and what went wrong.

        Args:
            timeout_seconds: Wait so long for the first one.
        """
        found = []
        wait = timeout_seconds if self._pending else 0.0
        while self._pending:
            try:
                found.append(self._ended.get(timeout=wait) if wait else self._ended.get_nowait())
            except queue.Empty:
                break
            self._pending -= 1
            wait = 0.0
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return found
            self._observe(event)

    @property
    def is_busy(self) -> bool:
        """Whether a table that was taken is not finished yet."""
        return self._pending > 0

    def close(self) -> None:
        """Let the table that is in hand come to its end, and begin no other."""
        while True:
            try:
                self._tables.get_nowait()
            except queue.Empty:
                break
        self._tables.put(None)
        self._thread.join(_END_SECONDS)

    def _work(self) -> None:
        while (table := self._tables.get()) is not None:
            try:
                self._finish(table, self._events.put)
            except BaseException as error:
                self._ended.put((table, error))
            else:
                self._ended.put((table, None))


class SharedCatalog:
    """A catalog that several threads have: whoever finds it in use goes without."""

    def __init__(self, catalog: Catalog) -> None:
        """Take a catalog."""
        self._catalog = catalog
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the catalog has."""
        return getattr(self._catalog, name)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Have the catalog alone."""
        with self._lock:
            yield

    def check_snapshot(self) -> None:
        """Check the snapshot as the catalog does, unless it is in use: then that finds out."""
        if self._lock.acquire(blocking=False):
            try:
                self._catalog.check_snapshot()
            finally:
                self._lock.release()


def known_failure(error: BaseException) -> AttemptFailure:
    """Return what became of a table that could not be finished.

    Raises:
        BaseException: The error itself, where it is no error of ours.
    """
    known = translate(error) if isinstance(error, Exception) else None
    if not isinstance(known, UnloaderError):
        raise error
    return failure_of(known)
