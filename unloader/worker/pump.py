"""Fetch and write at the same time: one thread fetches, the caller's thread consumes.

The queue between them holds a fixed number of items, so a slow writer stops the fetch and a slow
source idles the writer. Where items are large their bytes count as well. Nothing is fetched while
the waiting items and the one being consumed take the limit or more. Memory is then that limit and
one item, for a unit of any size.

A thread costs more than most small tables have to be fetched. Where little is expected the caller's
thread fetches, too, until more has come than that.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, Literal, TypeVar

from unloader.model import FetchOrder
from writers.cpu_delay import cpu_delay

T = TypeVar("T")

_Sized = tuple[T, int]
"""An item, and the bytes that it takes."""

DEPTH = 2
"""Items waiting between the stages. One would do for overlap; the second evens out hiccups."""

_POLL_SECONDS = 0.1

LITTLE_BYTES = 4 * 1024 * 1024
"""If no more is expected, this amount is fetched and written one after the other (guess: some 20
milliseconds that might have overlapped)."""

STILL_SECONDS = 1.0
"""After this wait for the other stage, a stage reports once why it waits."""

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
        self._items = items
        self._queue: queue.Queue[_Sized[T] | BaseException | None] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._size = size
        self._room = _Room(most_bytes, self._stop)
        self._waits = waits
        self._gate = gate
        self._little_bytes = LITTLE_BYTES if expects_little and size is not None else 0
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
        fetch = partial(self._fetch, iterator)
        thread = threading.Thread(target=fetch, name="fetch", daemon=True)
        thread.start()
        try:
            while True:
                found = self._next()
                if found is None:
                    return
                if isinstance(found, BaseException):
                    raise found
                item, size = found
                consume(item)
                # Not kept while the next one is waited for.
                del item, found
                self._room.give_back(size)
        finally:
            self._stop.set()
            thread.join()

    def _run_here(self, iterator: Iterator[T], consume: Callable[[T], None]) -> bool:
        """Fetch and consume one item after the other; return False if that became too much."""
        size = 0
        try:
            while size < self._little_bytes:
                self._gate(self._stop)
                item = self._fetched_here(iterator)
                if item is None:
                    _close(iterator)
                    return True
                size += self._size_of(item)
                consume(item)
                del item
        except BaseException:
            _close(iterator)
            raise
        return False

    def _fetched_here(self, iterator: Iterator[T]) -> T | None:
        started, cpu = time.perf_counter(), time.thread_time()
        STANDSTILL.begin(self, STILL_SECONDS, lambda: self._waits("source"))
        try:
            return next(iterator, None)
        finally:
            STANDSTILL.end(self)
            seconds = time.perf_counter() - started
            self.fetch_seconds += seconds
            self.starved_seconds += seconds
            self.caller_cpu_seconds += time.thread_time() - cpu
            self.fetch_cpu_seconds = self.caller_cpu_seconds

    def _next(self) -> _Sized[T] | BaseException | None:
        began = time.perf_counter()
        try:
            return self._queue.get(timeout=STILL_SECONDS)
        except queue.Empty:
            self._waits("source")
            return self._queue.get()
        finally:
            self.starved_seconds += time.perf_counter() - began

    def _fetch(self, begun: Iterator[T] | None) -> None:
        last: BaseException | None = None
        try:
            iterator = self._items() if begun is None else begun
            try:
                self._forward(iterator)
            finally:
                _close(iterator)
        except BaseException as error:
            last = error
        # The thread is this unit's alone, so one look at its clocks is all that it costs.
        self.fetch_cpu_seconds += time.thread_time()
        self.fetch_delay_seconds = cpu_delay()
        self._put(last)

    def _forward(self, iterator: Iterator[T]) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            while not self._room.wait(STILL_SECONDS):
                self._waits("destination")
                self._room.wait()
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
            size = self._size_of(item)
            self._room.take(size)
            began = time.perf_counter()
            self._put((item, size))
            self._blocked(time.perf_counter() - began)
            del item

    def _blocked(self, seconds: float) -> None:
        self.blocked_seconds += seconds
        self.longest_blocked_seconds = max(self.longest_blocked_seconds, seconds)

    def _put(self, item: _Sized[T] | BaseException | None) -> None:
        until: float | None = time.monotonic() + STILL_SECONDS
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                if until is not None and time.monotonic() >= until:
                    until = None
                    self._waits("destination")
                continue
            return

    def _size_of(self, item: T) -> int:
        return 0 if self._size is None else self._size(item)


def _close(iterator: object) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


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

    def wait(self, seconds: float | None = None) -> bool:
        """Return True once there is room, or all is stopped; False after `seconds`."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._change:
            while self._taken and self._taken >= self._most and not self._stop.is_set():
                if until is not None and time.monotonic() >= until:
                    return False
                self._change.wait(_POLL_SECONDS)
        return True


THREAD = "standstill"
_LOOKS = 4
"""In the time after which a call is reported."""


class Standstill:
    """Knows the calls that go on.

    Its thread is started by the first one, and ends when none has begun for a while: a thread for
    each call would cost more than most calls.
    """

    def __init__(self) -> None:
        self._change = threading.Lock()
        self._calls: dict[object, tuple[float, Callable[[], None]]] = {}
        """When each is reported, and how."""
        self._begun = 0
        self._is_running = False

    def begin(self, who: object, seconds: float, tell: Callable[[], None]) -> None:
        """Note a call; it is reported once, by another thread, if it takes longer than that."""
        with self._change:
            self._calls[who] = (time.monotonic() + seconds, tell)
            self._begun += 1
            if self._is_running:
                return
            self._is_running = True
        watch = threading.Thread(
            target=self._watch, args=(seconds / _LOOKS,), name=THREAD, daemon=True
        )
        try:
            watch.start()
        except RuntimeError:
            # The system refuses a thread for now, so this call is not reported.
            self._is_running = False

    def end(self, who: object) -> None:
        with self._change:
            self._calls.pop(who, None)

    def _watch(self, seconds: float) -> None:
        begun = -1
        while True:
            time.sleep(seconds)
            with self._change:
                if begun == self._begun and not self._calls:
                    self._is_running = False
                    return
                begun, now = self._begun, time.monotonic()
                late = [who for who, (due, _) in self._calls.items() if now >= due]
                told = [self._calls.pop(who)[1] for who in late]
            for tell in told:
                tell()


STANDSTILL = Standstill()
"""The one of this process."""


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
