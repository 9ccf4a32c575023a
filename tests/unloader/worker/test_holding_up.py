"""The fetch of an attempt, held up between two items and let go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from unloader.model import FetchOrder
from unloader.worker.pump import Gate, Pump

ENOUGH_SECONDS = 180.0


def order(unit: str = "1", attempt: int = 1, *, paused: bool = True) -> FetchOrder:
    """Return an order for an attempt."""
    return FetchOrder(unit=unit, attempt=attempt, paused=paused)


def test_nothing_is_fetched_until_leave_to_go_on() -> None:
    """Items that were fetched by then are consumed; the rest comes afterwards, in order."""
    gate, fetched, got, told = Gate(), list[int](), list[int](), list[bool]()
    stopped = threading.Event()

    def items() -> Iterator[int]:
        for number in range(6):
            fetched.append(number)
            if number == 2:
                gate.take(order())
            yield number

    def waits(held_up: bool) -> None:
        told.append(held_up)
        stopped.set()

    def let_go() -> None:
        assert stopped.wait(ENOUGH_SECONDS)
        assert fetched == [0, 1, 2]
        gate.take(order(paused=False))

    thread = threading.Thread(target=let_go)
    thread.start()
    Pump(items, gate=partial(gate.pass_by, "1", 1, waits)).run(got.append)
    thread.join()
    assert got == list(range(6))
    assert told == [True, False]


def test_an_order_for_another_attempt_holds_up_nobody() -> None:
    """It arrived late: the worker already has another unit."""
    gate = Gate()
    gate.take(order("1", 1))
    gate.take("what nobody knows")
    over, told = threading.Event(), list[bool]()
    gate.pass_by("2", 1, told.append, over)
    gate.pass_by("1", 2, told.append, over)
    assert told == []


def test_a_consumer_that_fails_ends_the_wait() -> None:
    """An attempt that is held up can fail, and its thread is gone."""
    gate = Gate()

    def items() -> Iterator[int]:
        yield 1
        gate.take(order())
        yield 2

    def consume(number: int) -> None:
        if number == 2:
            raise OSError("the disk is gone")

    pump = Pump(items, gate=partial(gate.pass_by, "1", 1, lambda held_up: None))
    with pytest.raises(OSError, match="the disk is gone"):
        pump.run(consume)
    assert all(thread.name != "fetch" for thread in threading.enumerate())
