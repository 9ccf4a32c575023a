"""What follows when the last unit of a table is done: count, compare, publish.

Several tables are finished in threads, so that no worker waits for it. One thread counts. Only it
uses the catalog meanwhile (`RunState.catalog_lock`). Tables that are done while it counts are
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
from dataclasses import dataclass, field

from unloader.errors import SourceError, UnloaderError
from unloader.events import Event, Observer
from unloader.run.table import RunState, Table
from unloader.sources.registry import cancelled_by
from writers.files.syncing import SyncThreads

_LONG_ONES = 4

_COUNTED_TOGETHER = 100
_COUNTED_SECONDS = 0.4
"""Guess: a count of many tables costs about as much as the count of one small table. Tables that
are counted together are published together, too. So a count waits this long for further tables."""

_PUBLISHED_TOGETHER = 48
"""Guess: they share the waits for the disk, and none of them waits long for the others. Each has
four files open meanwhile. A second publisher made a run over 500 tables no faster: the two and
their syncs took the interpreter from each other."""
_GATHER_SECONDS = 0.1
"""Guess: small tables are done by the hundred a second."""

END_SECONDS = 600.0
"""Guess: a publication that takes longer is stuck in the file system."""

Ended = tuple[Table, BaseException | None]


class Finisher:
    """Takes tables that are done, counts them, and publishes each."""

    def __init__(
        self,
        check: Callable[[Sequence[Table], Observer], Iterable[Ended]],
        publish: Callable[[Sequence[Table], SyncThreads, Observer], Iterable[Ended]],
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

        def publishing(tables: Sequence[Table], threads: SyncThreads) -> Iterable[Ended]:
            return publish(tables, threads, self._events.put)

        def checked(ended: Ended) -> None:
            if ended[1] is None and at_once:
                self._hand_on(ended[0])
            else:
                self._ended.put(ended)

        self._counting = _Threads(
            act=lambda tables, threads: check(tables, self._events.put),
            ended=checked,
            soon=self._soon,
            seconds=_COUNTED_SECONDS,
            together=_COUNTED_TOGETHER,
        )
        self._small = _Threads(
            act=publishing,
            ended=self._ended.put,
            soon=self._soon,
            seconds=_GATHER_SECONDS,
            together=_PUBLISHED_TOGETHER,
        )
        self._long = _Threads(
            act=publishing, ended=self._ended.put, soon=self._soon, most=_LONG_ONES
        )

    def take(self, table: Table) -> None:
        """Check a table, and publish it if it is due; returns immediately."""
        self._pending += 1
        self._counting.take(table)

    def publish(self, table: Table) -> None:
        """Publish a checked table; returns immediately."""
        self._pending += 1
        self._hand_on(table)

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
        """Hand on the events; return the tables that are finished, and what went wrong."""
        found: list[Ended] = []
        with suppress(queue.Empty):
            while self._pending:
                found.append(self._ended.get(timeout=0 if found else timeout_seconds))
                self._pending -= 1
        with suppress(queue.Empty):
            while True:
                self._observe(self._events.get_nowait())
        return found

    def hurry(self) -> None:
        """Wait no longer for further tables: few units are left to be handed out, or none."""
        self._soon.set()

    @property
    def is_busy(self) -> bool:
        return self._pending > 0

    def close(self) -> None:
        """Finish the tables in hand, and begin no further table."""
        self._counting.close()
        self.hurry()
        self._small.close()
        self._long.close()

    def _hand_on(self, table: Table) -> None:
        (self._long if table.takes_long else self._small).take(table)


@dataclass(kw_only=True)
class _Threads:
    """Threads that do something with tables; they are started when there is something to do."""

    act: Callable[[Sequence[Table], SyncThreads], Iterable[Ended]]
    """Counts or publishes some tables."""
    ended: Callable[[Ended], None]
    soon: threading.Event
    """Set once tables are not to wait for others any more."""
    seconds: float = 0.0
    """How long a table waits for others until then."""
    together: int = 1
    """How many tables each thread takes at a time."""
    most: int = 1
    """How many threads there are at most."""
    _waiting: queue.SimpleQueue[Table | None] = field(default_factory=queue.SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)

    def take(self, table: Table) -> None:
        """Do it with a table; returns immediately."""
        if len(self._threads) < self.most:
            thread = threading.Thread(target=self._work, name="publishing", daemon=True)
            with suppress(RuntimeError):
                thread.start()
                self._threads.append(thread)
        if self._threads:
            self._waiting.put(table)
            return
        # The system refuses any thread: then it is done here.
        with SyncThreads() as threads:
            self._do([table], threads)

    def close(self) -> None:
        """Finish the tables in hand, and begin no further table."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(END_SECONDS)

    def _work(self) -> None:
        with SyncThreads() as threads:
            while (table := self._waiting.get()) is not None:
                tables = [table]
                if self.together > 1:
                    self.soon.wait(self.seconds)
                with suppress(queue.Empty):
                    while len(tables) < self.together:
                        more = self._waiting.get_nowait()
                        if more is None:
                            self._waiting.put(None)
                            break
                        tables.append(more)
                self._do(tables, threads)

    def _do(self, tables: Sequence[Table], threads: SyncThreads) -> None:
        """Act on tables; hand each on once. An error is handed on with each unreported table."""
        left = {each.number: each for each in tables}
        try:
            for each, error in self.act(tables, threads):
                del left[each.number]
                self.ended((each, error))
        except BaseException as error:
            for each in left.values():
                self.ended((each, error))


_FEW_ROWS = 100_000
"""Guess: fewer rows are counted faster than a statement comes and goes a few times. Other tables do
not wait for the count of a larger table."""


def check_tables(tables: Sequence[Table], state: RunState, observe: Observer) -> Iterator[Ended]:
    """Count staged tables, and compare values if that is asked for; yield each when known."""
    for table in tables:
        table.observe = state.observer_of(table.run, observe)
    small = [table for table in tables if table.rows_written <= _FEW_ROWS]
    large = [table for table in tables if table.rows_written > _FEW_ROWS]
    catalog = state.resolved.catalog
    with state.catalog_lock:
        for some in (small, *([table] for table in large)):
            counted = [
                table
                for table in some
                if table.run.request.verify != "none" and table.run.plan.sampled is None
            ]
            counts: dict[int, int] = {}
            if len(counted) > 1:
                # If it fails, each table is counted alone.
                with suppress(UnloaderError), cancelled_by(state.live.stop, catalog):
                    extracts = [table.run.extract for table in counted]
                    rows = catalog.count_tables(extracts)
                    counts = {
                        table.number: number
                        for table, number in zip(counted, rows, strict=True)
                        if not isinstance(number, SourceError)
                    }
            for table in some:
                try:
                    table.verify(state.live.stop, catalog, counts.get(table.number))
                except BaseException as error:
                    yield table, error
                else:
                    table.is_checked = True
                    yield table, None
