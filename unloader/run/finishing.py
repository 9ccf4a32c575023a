"""What follows when the last unit of a table is done: count, compare, publish.

Several tables are finished in threads, so that no worker waits for it. One thread counts. Only this
thread uses the catalog meanwhile (`SharedCatalog`). Tables that are done while it counts are
counted together after that: small tables in one statement for many. If that statement fails, each
table is counted by its own statement, so that the error names one table.

Each publication syncs its files and names in an order that must be kept. Tables that are published
together wait for the disk together. A table whose file is joined from parts takes longer, and is
published alone. The events of the threads are kept until the run's own thread asks for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from unloader.errors import SourceError, UnloaderError, translate
from unloader.events import Event, Observer
from unloader.failures import failure_of
from unloader.model import AttemptFailure
from unloader.run.table import SharedCatalog, Table
from unloader.sources.base import Catalog
from unloader.sources.registry import cancelled_by
from writers.files.syncing import SyncThreads

_LONG_ONES = 4
"""Tables at most that take long and are published at the same time."""

_COUNTED_TOGETHER = 100
_COUNTED_SECONDS = 0.4
"""Guess: a count of many tables costs about as much as the count of one small table. Tables that
are counted together are published together, too. So a count waits this long for further tables."""

_PUBLISHERS = 1
"""Measured on 500 tables of PostgreSQL and two busy cores: a second one made the run no faster, and
cost a tenth of its CPU, as the two and their syncs took the interpreter from each other."""

_PUBLISHED_TOGETHER = 48
"""Guess: they share the waits for the disk, and none of them waits long for the others. Each has
four files open meanwhile."""
_GATHER_SECONDS = 0.1
"""Guess: small tables are done by the hundred a second."""

END_SECONDS = 600.0
"""Guess: a publication that takes longer is stuck in the file system."""

Ended = tuple[Table, BaseException | None]
"""A table, and what went wrong with it."""

Publish = Callable[[Sequence[Table], SyncThreads, Observer], Iterable[Ended]]


class Finisher:
    """Takes tables that are done, counts them, and publishes each."""

    def __init__(
        self,
        check: Callable[[Sequence[Table], Observer], Iterable[Ended]],
        publish: Publish,
        observe: Observer,
        *,
        at_once: bool = True,
    ) -> None:
        """Begin to wait for tables.

        Args:
            check: Counts and compares some; yields each as soon as that is known. Called in a
                thread, with an observer for it.
            publish: Publishes some; yields each as soon as it is published. Called in several
                threads, each with further threads that sync.
            observe: Gets the events, by `collect`.
            at_once: A table is published when it is checked; otherwise `publish` is called.
        """
        self._observe = observe
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._pending = 0
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._soon = threading.Event()

        def checking(tables: Sequence[Table], threads: SyncThreads) -> Iterable[Ended]:
            return check(tables, self._events.put)

        def publishing(tables: Sequence[Table], threads: SyncThreads) -> Iterable[Ended]:
            return publish(tables, threads, self._events.put)

        def checked(ended: Ended) -> None:
            table, error = ended
            if error is None and at_once:
                self._hand_on(table)
            else:
                self._ended.put(ended)

        self._counting = _Threads(
            checking, checked, self._soon, seconds=_COUNTED_SECONDS, together=_COUNTED_TOGETHER
        )
        self._small = _Threads(
            publishing,
            self._ended.put,
            self._soon,
            seconds=_GATHER_SECONDS,
            together=_PUBLISHED_TOGETHER,
            most=_PUBLISHERS,
        )
        self._long = _Threads(publishing, self._ended.put, self._soon, most=_LONG_ONES)

    def take(self, table: Table) -> None:
        """Check a table, and publish it if it is due; returns immediately."""
        self._pending += 1
        self._counting.take(table)

    def publish(self, table: Table) -> None:
        """Publish a checked table; returns immediately."""
        self._pending += 1
        self._hand_on(table)

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
        """Hand on what there is to tell; return the tables that are finished, and what went wrong.

        Args:
            timeout_seconds: Time to wait for the first table.
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
        """Wait no longer for further tables: few units are left to be handed out, or none."""
        self._soon.set()

    @property
    def is_busy(self) -> bool:
        """Whether a table that was taken is not finished yet."""
        return self._pending > 0

    def close(self) -> None:
        """Finish the tables in hand, and begin no further table."""
        self._counting.close()
        self.hurry()
        self._small.close()
        self._long.close()

    def _hand_on(self, table: Table) -> None:
        (self._long if table.takes_long else self._small).take(table)


class _Threads:
    """Threads that do something with tables; they are started when there is something to do."""

    def __init__(
        self,
        act: Callable[[Sequence[Table], SyncThreads], Iterable[Ended]],
        ended: Callable[[Ended], None],
        soon: threading.Event,
        *,
        seconds: float = 0.0,
        together: int = 1,
        most: int = 1,
    ) -> None:
        """Begin with none.

        Args:
            act: Counts or publishes some tables.
            ended: Takes each of them.
            soon: Set once tables are not to wait for others any more.
            seconds: How long a table waits for others until then.
            together: How many tables each thread takes at a time.
            most: How many threads there are at most.
        """
        self._act = act
        self._ended = ended
        self._soon = soon
        self._seconds = seconds
        self._together = together
        self._most = most
        self._waiting: queue.SimpleQueue[Table | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def take(self, table: Table) -> None:
        """Do it with a table; returns immediately."""
        started = len(self._threads) >= self._most or self._start()
        if not started and not self._threads:
            # The system refuses any thread: then it is done here.
            with SyncThreads() as threads:
                self._do([table], threads)
            return
        self._waiting.put(table)

    def close(self) -> None:
        """Finish the tables in hand, and begin no further table."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(END_SECONDS)

    def _start(self) -> bool:
        """Start one more thread; return whether the system let it."""
        thread = threading.Thread(target=self._work, name="publishing", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _work(self) -> None:
        with SyncThreads() as threads:
            while (table := self._waiting.get()) is not None:
                if self._together > 1:
                    self._soon.wait(self._seconds)
                self._do([table, *self._more()], threads)

    def _more(self) -> Iterator[Table]:
        """Yield further tables that wait."""
        with suppress(queue.Empty):
            for _ in range(self._together - 1):
                table = self._waiting.get_nowait()
                if table is None:
                    self._waiting.put(None)
                    return
                yield table

    def _do(self, tables: Sequence[Table], threads: SyncThreads) -> None:
        """Act on tables; hand each on once. An error is handed on with each unreported table."""
        left = {each.number: each for each in tables}
        try:
            for each, error in self._act(tables, threads):
                del left[each.number]
                self._ended((each, error))
        except BaseException as error:
            for each in left.values():
                self._ended((each, error))


def known_failure(error: BaseException) -> AttemptFailure:
    """Return what became of a table that could not be finished.

    Raises:
        BaseException: The error itself, if `unloader` does not know it.
    """
    known = translate(error) if isinstance(error, Exception) else None
    if not isinstance(known, UnloaderError):
        raise error
    return failure_of(known)


_FEW_ROWS = 100_000
"""Guess: fewer rows are counted faster than a statement comes and goes a few times. Other tables do
not wait for the count of a larger table."""


def check_tables(
    tables: Sequence[Table],
    catalog: SharedCatalog,
    stop: Callable[[], bool],
    observer_of: Callable[[Table], Observer],
) -> Iterator[Ended]:
    """Count tables, and compare their values where that was asked for; yield each when it is known.

    Args:
        tables: All their rows are staged.
        catalog: Holds the snapshot.
        stop: Asked several times a second; True cancels a count.
        observer_of: Returns who gets the events of a table.
    """
    for table in tables:
        table.observe = observer_of(table)
    small = [table for table in tables if table.rows_written <= _FEW_ROWS]
    large = [table for table in tables if table.rows_written > _FEW_ROWS]
    with catalog.in_use() as alone:
        for some in (small, *([table] for table in large)):
            counts = _counts(some, alone, stop)
            for table in some:
                try:
                    table.verify(stop, alone, counts.get(table.number))
                except BaseException as error:
                    yield table, error
                else:
                    table.is_checked = True
                    yield table, None


def _counts(tables: Sequence[Table], catalog: Catalog, stop: Callable[[], bool]) -> dict[int, int]:
    """Return the rows of the tables that could be counted together, by the table's number."""
    counted = [
        table
        for table in tables
        if table.run.request.verify != "none" and table.run.plan.sampled is None
    ]
    if len(counted) < 2:
        return {}
    extracts = [table.run.extract for table in counted]
    try:
        with cancelled_by(stop, catalog):
            found = catalog.count_tables(extracts)
    except UnloaderError:
        return {}
    return {
        table.number: rows
        for table, rows in zip(counted, found, strict=True)
        if not isinstance(rows, SourceError)
    }
