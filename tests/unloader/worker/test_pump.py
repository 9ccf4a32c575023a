"""The pump between fetch thread and consumer: order, bounds, errors and ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from unloader.worker import pump as pump_module
from unloader.worker.pump import DEPTH, Pump

ENOUGH_SECONDS = 180.0
"""Longer than anything here takes; only a broken promise waits that long."""


@dataclass
class Numbers:
    """A source of numbers that knows how far it was read and whether it was closed."""

    count: int
    fail_at: int | None = None
    error: BaseException = field(default_factory=lambda: ValueError("row 3 is broken"))
    made: int = 0
    closed: bool = False
    thread: threading.Thread | None = None

    def items(self) -> Iterator[int]:
        """Yield 0, 1, ... and fail where asked to."""
        self.thread = threading.current_thread()
        try:
            for number in range(self.count):
                if number == self.fail_at:
                    raise self.error
                self.made += 1
                yield number
        finally:
            self.closed = True

    def ended(self) -> bool:
        """Return whether the generator is closed and its thread gone."""
        return self.closed and self.thread is not None and not self.thread.is_alive()


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("count", [0, 1, DEPTH, 1000])
def test_items_arrive_once_and_in_order(count: int) -> None:
    """Every item is consumed once, in the order of the iterator, then the thread is gone."""
    numbers, got = Numbers(count), []
    Pump(numbers.items).run(got.append)
    assert got == list(range(count))
    assert numbers.ended()


def test_fetch_and_consumption_have_a_thread_each() -> None:
    """The iterator is made and read in a separate thread, the consumer runs in the caller's."""
    numbers, consumers = Numbers(3), set()
    Pump(numbers.items).run(lambda _: consumers.add(threading.current_thread()))
    assert consumers == {threading.current_thread()}
    assert numbers.thread is not threading.current_thread()


def test_items_in_flight_are_bounded() -> None:
    """A consumer that takes its time never has more than DEPTH + 2 items made and not consumed."""
    numbers = Numbers(200)
    consumed, most = 0, 0

    def consume(_: int) -> None:
        nonlocal consumed, most
        most = max(most, numbers.made - consumed)
        consumed += 1

    Pump(numbers.items).run(consume)
    assert consumed == 200
    assert most <= DEPTH + 2


def test_a_stopped_consumer_stops_the_fetch() -> None:
    """While the consumer is busy with one item, the fetch halts when the queue is full."""
    full, numbers = threading.Event(), Numbers(100)
    seen: list[int] = []

    def items() -> Iterator[int]:
        for number in numbers.items():
            if number == DEPTH + 1:
                full.set()
            yield number

    def consume(number: int) -> None:
        if number == 0:
            assert full.wait(ENOUGH_SECONDS)
            # The assertion is about an absence: a longer wait would not prove more.
            threading.Event().wait(0.3)
            seen.append(numbers.made)

    Pump(items).run(consume)
    assert seen == [DEPTH + 2]


@pytest.mark.parametrize("fail_at", [0, 3, 50])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_of_the_iterator_comes_out_unchanged(fail_at: int, error: BaseException) -> None:
    """The very exception is raised, after the items before it were consumed."""
    numbers, got = Numbers(100, fail_at=fail_at, error=error), []
    with pytest.raises(type(error)) as caught:
        Pump(numbers.items).run(got.append)
    assert caught.value is error
    assert got == list(range(fail_at))
    assert numbers.ended()


def test_an_error_before_the_first_item_comes_out_unchanged() -> None:
    """A function that cannot even make its iterator is heard, too."""
    error = OSError("no connection")

    def items() -> Iterator[int]:
        raise error

    with pytest.raises(OSError, match="no connection") as caught:
        Pump(items).run(lambda _: None)
    assert caught.value is error


@pytest.mark.parametrize("fail_at", [0, 3, 99])
@pytest.mark.parametrize("error", [ValueError("disk full"), KeyboardInterrupt()])
def test_an_error_of_the_consumer_ends_the_fetch(fail_at: int, error: BaseException) -> None:
    """The very exception is raised, the generator is closed and its thread gone by then."""
    numbers = Numbers(100)

    def consume(number: int) -> None:
        if number == fail_at:
            raise error

    with pytest.raises(type(error)) as caught:
        Pump(numbers.items).run(consume)
    assert caught.value is error
    assert numbers.ended()
    assert numbers.made <= fail_at + DEPTH + 2


def test_an_error_in_closing_the_iterator_is_not_lost() -> None:
    """A generator that fails in its last act fails the run, for its rows may not be whole."""

    def items() -> Iterator[int]:
        yield 1
        raise RuntimeError("COPY reported another count")

    with pytest.raises(RuntimeError, match="another count"):
        Pump(items).run(lambda _: None)


def test_fetch_seconds_leave_out_the_wait_for_the_consumer() -> None:
    """Time in which the fetch waits for a slow consumer does not count as fetching."""
    pump = Pump(Numbers(5).items)
    pause = threading.Event()
    pump.run(lambda _: pause.wait(0.1) and None)
    assert 0 <= pump.fetch_seconds < 5 * 0.1


def test_bytes_in_flight_are_bounded() -> None:
    """Nothing is fetched while the items not yet consumed take the limit or more."""
    alive, most = 0, []

    def items() -> Iterator[int]:
        nonlocal alive
        for size in [3, 12, 1, 1, 30, 2, 9, 9]:
            most.append(alive)
            alive += size
            yield size

    def consume(size: int) -> None:
        nonlocal alive
        alive -= size

    Pump(items, size=lambda size: size, most_bytes=10).run(consume)
    assert len(most) == 8
    assert max(most) < 10


@pytest.mark.parametrize(
    ("most_bytes", "slow", "told"),
    [
        pytest.param(0, "source", ["source"], id="nothing comes"),
        pytest.param(0, "destination", ["destination"], id="the queue is full"),
        pytest.param(1, "destination", ["destination"], id="the bytes are too many"),
    ],
)
def test_a_long_wait_is_told(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, slow: str, told: list[str]
) -> None:
    """A side that waits for long reports its reason, and continues when the wait is over."""
    monkeypatch.setattr(pump_module, "STILL_SECONDS", 0.05)
    found: list[str] = []
    known = threading.Event()

    def waits(what: str) -> None:
        found.append(what)
        known.set()

    def items() -> Iterator[int]:
        for number in range(2 * DEPTH):
            if slow == "source" and number == 1:
                assert known.wait(ENOUGH_SECONDS)
            yield number

    def consume(number: int) -> None:
        if slow == "destination" and number == 0:
            assert known.wait(ENOUGH_SECONDS)
        got.append(number)

    got: list[int] = []
    pump = Pump(items, size=lambda _: 1, most_bytes=most_bytes or 1000, waits=waits)
    pump.run(consume)
    assert got == list(range(2 * DEPTH))
    assert found[:1] == told
    # On a busy machine the fetch is late without being slow.
    assert slow != "source" or pump.starved_seconds >= 0.05


def test_the_waits_of_the_fetch_are_counted() -> None:
    """A consumer that takes nothing for a while blocks the fetch, and is itself not starved."""
    full = threading.Event()
    # More than are consumed and queued, so that the fetch thread has to wait.
    numbers = Numbers(DEPTH + 3)

    def items() -> Iterator[int]:
        for number in numbers.items():
            if number == DEPTH + 1:
                full.set()
            yield number

    def consume(number: int) -> None:
        if not number:
            assert full.wait(ENOUGH_SECONDS)
            threading.Event().wait(0.5)

    pump = Pump(items)
    pump.run(consume)
    assert pump.longest_blocked_seconds > 0.1
    assert pump.blocked_seconds >= pump.longest_blocked_seconds
    assert pump.fetch_cpu_seconds > 0
