"""What follows when the last unit of a table is done: count, compare, publish.

In threads of their own, so that no worker waits for it. One counts: it is the only one that uses
the catalog meanwhile, and whoever else wants it goes without (`SharedCatalog`). Tables that are
done while it counts are counted together after that. Several publish: each publication syncs its
files and names in an order that must be kept, and what it waits for is the disk, so that the waits
of several tables overlap. What the threads have to tell is kept until the run's own thread asks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unloader.errors import UnloaderError, translate
from unloader.events import Event, Observer
from unloader.failures import failure_of
from unloader.model import AttemptFailure
from unloader.run.tables.state import TableState
from unloader.sources.base import Catalog

PUBLISHERS = 4
"""Their waits overlap; more take the interpreter from the thread that hands out units. Measured on
300 tables of PostgreSQL and two busy cores, eight were no sooner done and took more CPU."""

AT_THE_END = 16
"""Guess: about as many syncs as a disk brings to their end together, when no unit is left."""

_COUNTED_TOGETHER = 100
_END_SECONDS = 600.0
"""Guess: a publication that takes longer is stuck in the file system."""


Ended = tuple[TableState, BaseException | None]
"""A table, and what went wrong with it."""


class Finisher:
    """Takes tables that are done, counts them, and publishes each."""

    def __init__(
        self,
        check: Callable[[Sequence[TableState], Observer], Iterable[Ended]],
        publish: Callable[[TableState, Observer], None],
        observe: Observer,
        *,
        at_once: bool = True,
    ) -> None:
        """Begin to wait for tables.

        Args:
            check: Counts and compares some; yields each as soon as that is known. Called in a
                thread, with an observer for it.
            publish: Publishes one; called in several threads.
            observe: Gets the events, by `collect`.
            at_once: A table is published when it is checked; otherwise `publish` is called.
        """
        self._check = check
        self._publish = publish
        self._observe = observe
        self._at_once = at_once
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[TableState | None] = queue.SimpleQueue()
        self._checked: queue.SimpleQueue[TableState | None] = queue.SimpleQueue()
        self._pending = 0
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._publishers: list[threading.Thread] = []
        self._most = PUBLISHERS
        self._counter = threading.Thread(target=self._check_all, name="tables", daemon=True)
        self._counter.start()

    def take(self, table: TableState) -> None:
        """Check a table, and publish it if that is its time; returns at once."""
        self._pending += 1
        self._done.put(table)

    def publish(self, table: TableState) -> None:
        """Publish a table that is checked; returns at once."""
        self._pending += 1
        self._hand_on(table)

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
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

    def hurry(self) -> None:
        """Publish more tables at a time from now on: no unit is left to be handed out."""
        self._most = max(AT_THE_END, PUBLISHERS)
        for _ in range(min(self._checked.qsize(), self._most - len(self._publishers))):
            self._start_publisher()

    @property
    def is_busy(self) -> bool:
        """Whether a table that was taken is not finished yet."""
        return self._pending > 0

    def close(self) -> None:
        """Let the tables that are in hand come to their end, and begin no other."""
        _empty(self._done)
        self._done.put(None)
        self._counter.join(_END_SECONDS)
        _empty(self._checked)
        for _ in self._publishers:
            self._checked.put(None)
        for thread in self._publishers:
            thread.join(_END_SECONDS)

    def _check_all(self) -> None:
        while (table := self._done.get()) is not None:
            tables = [table, *self._more(_COUNTED_TOGETHER - 1)]
            left = {each.number: each for each in tables}
            try:
                for each, error in self._check(tables, self._events.put):
                    del left[each.number]
                    if error is None and self._at_once:
                        self._hand_on(each)
                    else:
                        self._ended.put((each, error))
            except BaseException as error:
                for each in left.values():
                    self._ended.put((each, error))

    def _more(self, most: int) -> Iterator[TableState]:
        for _ in range(most):
            try:
                table = self._done.get_nowait()
            except queue.Empty:
                return
            if table is None:
                self._done.put(None)
                return
            yield table

    def _hand_on(self, table: TableState) -> None:
        """Give a table to the threads that publish; start one more while there are few."""
        started = len(self._publishers) >= self._most or self._start_publisher()
        if not started and not self._publishers:
            # The system refuses any thread: then it is done here.
            self._publish_one(table)
            return
        self._checked.put(table)

    def _start_publisher(self) -> bool:
        """Start one more thread that publishes; return whether the system let it."""
        thread = threading.Thread(target=self._publish_all, name="publishing", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._publishers.append(thread)
        return True

    def _publish_all(self) -> None:
        while (table := self._checked.get()) is not None:
            self._publish_one(table)

    def _publish_one(self, table: TableState) -> None:
        try:
            self._publish(table, self._events.put)
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
    def in_use(self) -> Iterator[Catalog]:
        """Have the catalog alone; whoever has it checks it himself."""
        with self._lock:
            yield self._catalog

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


def _empty(tables: queue.SimpleQueue[TableState | None]) -> None:
    while True:
        try:
            tables.get_nowait()
        except queue.Empty:
            return
