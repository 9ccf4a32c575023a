"""Fetch and write at the same time: one thread fetches, the caller's thread consumes.

The queue between them holds a fixed number of items, so a slow writer stops the fetch and a slow
source idles the writer. Where items are large their bytes count as well. Nothing is fetched while
the waiting items and the one being consumed take the limit or more. Memory is then that limit and
one item, for a unit of any size.

A thread costs more than most small tables have to be fetched. Where little is expected the caller's
thread fetches, too, until more has come than that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, Literal, TypeVar

from unloader.model import FetchOrder
from writers.cpu_delay import cpu_delay

T = TypeVar("T")

DEPTH = 2
"""Items waiting between the stages. One would do for overlap; the second evens out hiccups."""

LITTLE_BYTES = 4 * 1024 * 1024
"""If no more is expected, this amount is fetched and written one after the other (guess: some 20
milliseconds that might have overlapped)."""

STILL_SECONDS = 1.0
"""After this wait for the other stage, a stage reports once why it waits."""

THREAD = "standstill"

Waits = Callable[[Literal["source", "destination"]], None]


class Pump(Generic[T]):
    """Moves the items of an iterator through a bounded queue into a consumer."""

    def __init__(
        self,
        items: Callable[[], Iterator[T]],
        *,
        depth: int = DEPTH,
        size: Callable[[T], int] | None = None,
        most_bytes: int = 0,
        expects_little: bool = False,
        waits: Waits = lambda what: None,
        gate: Callable[[threading.Event], None] = lambda over: None,
    ) -> None:
        """Take a function that makes the iterator; it is called where items are fetched first.

        Args:
            items: Makes the iterator.
            depth: Items that wait at most.
            size: Returns the bytes that an item takes; they are not counted without it.
            most_bytes: With this number of bytes in items not yet consumed, the fetch waits.
            expects_little: Fetch in the caller's thread up to `LITTLE_BYTES`.
            waits: Called with the reason of a wait, from either thread.
            gate: Called before each item is fetched, in the same thread; may wait until the event
                it is given is set.
        """
        self._items, self._depth, self._most_bytes = items, depth, most_bytes
        self._size: Callable[[T], int] = size or (lambda item: 0)
        self._little_bytes = LITTLE_BYTES if expects_little and size is not None else 0
        self._waits, self._gate = waits, gate
        self._stop = threading.Event()
        self._change = threading.Condition()
        """Guards what both threads change: all up to the failure."""
        self._fetched: deque[tuple[T, int]] = deque()
        """Items that wait, each with the bytes that it takes."""
        self._held_bytes = 0
        """Of the items that are fetched and not yet consumed."""
        self._is_over = False
        self._call_began = 0.0
        """When the caller's thread began to wait for an item; 0 while it does not."""
        self._failure: BaseException | None = None
        self.starved_seconds = 0.0
        """Wall seconds the consumer waited for items."""
        self.fetch_seconds = 0.0
        """Wall seconds spent waiting for items, not for the queue."""
        self.fetch_cpu_seconds = 0.0
        """CPU seconds of the fetch; complete once `run` has returned."""
        self.caller_cpu_seconds = 0.0
        """The caller's thread took this part of them."""
        self.fetch_delay_seconds = 0.0
        """Seconds it was ready to run and no CPU was free; complete with the CPU seconds."""
        self.blocked_seconds = 0.0
        """Wall seconds that the fetch thread waited because its items were not taken."""
        self.longest_blocked_seconds = 0.0
        """The longest single one of these waits."""

    def run(self, consume: Callable[[T], None]) -> None:
        """Consume every item; return when the last one is consumed.

        Raises:
            BaseException: Any error of the iterator or the consumer, unchanged. The fetch thread
                has ended by then and the iterator is closed.
        """
        iterator: Iterator[T] | None = None
        if self._little_bytes:
            iterator = self._items()
            if self._run_here(iterator, consume):
                return
        thread = threading.Thread(target=self._fetch, args=(iterator,), name="fetch", daemon=True)
        thread.start()
        try:
            while True:
                began = time.perf_counter()
                self._wait(lambda: bool(self._fetched) or self._is_over, "source")
                self.starved_seconds += time.perf_counter() - began
                if not self._fetched:
                    break
                with self._change:
                    item, size = self._fetched.popleft()
                    self._change.notify()
                consume(item)
                # Not kept while the next one is waited for.
                del item
                with self._change:
                    self._held_bytes -= size
                    self._change.notify()
        finally:
            with self._change:
                self._stop.set()
                self._change.notify()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run_here(self, iterator: Iterator[T], consume: Callable[[T], None]) -> bool:
        """Fetch and consume one item after the other; return False if that became too much."""
        size, over = 0, threading.Event()
        watch = threading.Thread(target=self._report_waits, args=(over,), name=THREAD, daemon=True)
        # The system may refuse a thread for now; long waits are not reported then.
        with suppress(RuntimeError):
            watch.start()
        try:
            while size < self._little_bytes:
                self._gate(self._stop)
                started, cpu = time.perf_counter(), time.thread_time()
                self._call_began = started
                try:
                    item = next(iterator, None)
                finally:
                    self._call_began = 0.0
                    seconds = time.perf_counter() - started
                    self.fetch_seconds += seconds
                    self.starved_seconds += seconds
                    self.caller_cpu_seconds += time.thread_time() - cpu
                    self.fetch_cpu_seconds = self.caller_cpu_seconds
                if item is None:
                    _close(iterator)
                    return True
                size += self._size(item)
                consume(item)
                del item
        except BaseException:
            _close(iterator)
            raise
        finally:
            over.set()
        return False

    def _report_waits(self, over: threading.Event) -> None:
        """Report each call of the source that takes long."""
        reported = 0.0
        while not over.wait(STILL_SECONDS / 4):
            began = self._call_began
            if began not in (0.0, reported) and time.perf_counter() - began >= STILL_SECONDS:
                reported = began
                self._waits("source")

    def _fetch(self, begun: Iterator[T] | None) -> None:
        failure: BaseException | None = None
        try:
            iterator = self._items() if begun is None else begun
            try:
                self._forward(iterator)
            finally:
                _close(iterator)
        except BaseException as error:
            failure = error
        # The thread is this unit's alone, so one look at its clocks is all that it costs.
        self.fetch_cpu_seconds += time.thread_time()
        self.fetch_delay_seconds = cpu_delay()
        with self._change:
            self._failure, self._is_over = failure, True
            self._change.notify()

    def _forward(self, iterator: Iterator[T]) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            self._wait(
                lambda: not self._held_bytes or self._held_bytes < self._most_bytes, "destination"
            )
            self._gate(self._stop)
            started = time.perf_counter()
            self._blocked(started - began)
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.fetch_seconds += time.perf_counter() - started
            # Asked once: of a batch, it goes through the buffers of all columns.
            size = self._size(item)
            with self._change:
                self._held_bytes += size
            began = time.perf_counter()
            self._wait(lambda: len(self._fetched) < self._depth, "destination")
            with self._change:
                self._fetched.append((item, size))
                self._change.notify()
            self._blocked(time.perf_counter() - began)
            del item

    def _wait(self, ready: Callable[[], bool], what: Literal["source", "destination"]) -> None:
        """Wait for the other stage, or until all is stopped; report a long wait once."""

        def is_free() -> bool:
            return ready() or self._stop.is_set()

        with self._change:
            if self._change.wait_for(is_free, STILL_SECONDS):
                return
        self._waits(what)
        with self._change:
            self._change.wait_for(is_free)

    def _blocked(self, seconds: float) -> None:
        self.blocked_seconds += seconds
        self.longest_blocked_seconds = max(self.longest_blocked_seconds, seconds)


def _close(iterator: object) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


_LOOK_SECONDS = 0.1


class Gate:
    """Lets the parent hold up the fetch of a running attempt between two items.

    An order names its attempt: one that comes late, when the worker is at another unit, holds
    up nothing. Items that were fetched by then are encoded and written; the session stays
    open. Orders come from one thread, the fetch asks from another.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._closed_for: tuple[str, int] | None = None

    def take(self, order: object) -> None:
        """Obey an order; any other payload of the parent is ignored."""
        if not isinstance(order, FetchOrder):
            return
        with self._change:
            self._closed_for = (order.unit, order.attempt) if order.paused else None
            self._change.notify_all()

    def pass_by(
        self, unit: str, attempt: int, waits: Callable[[bool], None], over: threading.Event
    ) -> None:
        """Return immediately, or when the gate is opened for an attempt."""
        mine = (unit, attempt)
        if self._closed_for != mine:
            return
        waits(True)
        with self._change:
            while self._closed_for == mine and not over.is_set():
                self._change.wait(_LOOK_SECONDS)
        waits(False)


GATE = Gate()
"""The gate of this process: a worker has one attempt at a time."""
