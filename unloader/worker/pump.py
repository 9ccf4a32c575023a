"""Fetch and write at the same time: one thread fetches, the caller's thread consumes.

The queue between them holds a fixed number of items, so a slow writer stops the fetch and a slow
source idles the writer. Where items are large their bytes count as well. Nothing is fetched while
the waiting items and the one being consumed take the limit or more. Memory is then that limit and
one item, for a unit of any size.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Generic, Literal, TypeVar, cast

from unloader.model import FetchOrder
from writers.cpu_delay import cpu_delay

T = TypeVar("T")

DEPTH = 2
"""Items waiting between the stages. One would do for overlap; the second evens out hiccups."""

STILL_SECONDS = 1.0
"""After this wait for the other stage, a stage reports once why it waits."""

Waits = Callable[[Literal["source", "destination"]], None]


class Pump(Generic[T]):
    """Moves the items of an iterator through a bounded queue into a consumer."""

    def __init__(
        self,
        items: Callable[[], Iterator[T]],
        *,
        size: Callable[[T], int] | None = None,
        most_bytes: int = 0,
        waits: Waits = lambda what: None,
        gate: Callable[[threading.Event], None] = lambda over: None,
    ) -> None:
        """Start nothing yet; `gate` may wait in the fetch thread until its event is set.

        With `most_bytes` in items not yet consumed the fetch waits; `waits` takes the reason.
        """
        self._items, self._most_bytes = items, most_bytes
        self._size: Callable[[T], int] = size or (lambda item: 0)
        self._waits, self._gate = waits, gate
        self._stop = threading.Event()
        self._change = threading.Condition()
        """Guards what both threads change: all up to the failure."""
        self._fetched: deque[tuple[T, int]] = deque()
        """Items that wait, each with the bytes that it takes."""
        self._held_bytes = 0
        """Of the items that are fetched and not yet consumed."""
        self._is_over = False
        self._failure: BaseException | None = None
        self.starved_seconds = 0.0
        """Wall seconds the consumer waited for items."""
        self.fetch_seconds = 0.0
        """Wall seconds spent waiting for items, not for the queue."""
        self.fetch_cpu_seconds = 0.0
        """CPU seconds of the fetch; complete once `run` has returned."""
        self.fetch_delay_seconds = 0.0
        """Seconds it was ready to run and no CPU was free; complete with the CPU seconds."""
        self.blocked_seconds = 0.0
        """Wall seconds that the fetch thread waited because its items were not taken."""
        self.longest_blocked_seconds = 0.0
        """The longest single one of these waits."""

    def run(self, consume: Callable[[T], None]) -> None:
        """Consume every item; errors of both sides come through once the fetch thread has ended."""
        thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
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

    def _fetch(self) -> None:
        failure: BaseException | None = None
        try:
            with closing(cast("Generator[T, None, None]", self._items())) as iterator:
                self._forward(iterator)
        except BaseException as error:
            failure = error
        # The thread is this unit's alone, so one look at its clocks is all that it costs.
        self.fetch_cpu_seconds = time.thread_time()
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
            self._wait(lambda: len(self._fetched) < DEPTH, "destination")
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
"""The gate of this process, whose worker has one attempt at a time."""
