"""The threads that count and publish tables: what they do together, and what goes wrong there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from unloader.errors import OutputFailed
from unloader.events import Notice, Observer
from unloader.run.tables.finishing import Ended, Finisher
from unloader.run.tables.state import TableState

LONG = 60.0


def tables(count: int) -> list[TableState]:
    """Return tables of which no more than the number is asked."""
    return [TableState(number=number, run=cast(Any, None)) for number in range(count)]


def no_check(some: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
    """Find all tables whole."""
    return [(table, None) for table in some]


def ended(finisher: Finisher, count: int) -> dict[int, BaseException | None]:
    """Wait for so many tables; return what went wrong with each."""
    found: dict[int, BaseException | None] = {}
    while len(found) < count:
        found |= {table.number: error for table, error in finisher.collect(LONG)}
    return found


def finishing(
    check: Callable[[Sequence[TableState], Observer], Iterable[Ended]] = no_check,
    publish: Callable[[TableState, Observer], None] = lambda table, observe: None,
    **options: Any,
) -> tuple[Finisher, list[Any]]:
    """Return a finisher, and the events that it hands on."""
    events: list[Any] = []
    return Finisher(check, publish, events.append, **options), events


def test_several_tables_are_published_at_a_time() -> None:
    """Each waits in its publication until another one is in its own."""
    both = threading.Barrier(2, timeout=LONG)
    finisher, _ = finishing(publish=lambda table, observe: cast(None, both.wait() and None))
    for table in tables(2):
        finisher.take(table)
    assert ended(finisher, 2) == {0: None, 1: None}
    finisher.close()


def test_more_are_published_at_a_time_when_no_unit_is_left() -> None:
    """Those that wait by then get threads of their own."""
    all_of_them = threading.Barrier(10, timeout=LONG)
    finisher, _ = finishing(publish=lambda table, observe: cast(None, all_of_them.wait() and None))
    for table in tables(10):
        finisher.publish(table)
    finisher.hurry()
    assert ended(finisher, 10) == dict.fromkeys(range(10))
    finisher.close()


def test_what_is_done_while_others_are_counted_is_counted_together() -> None:
    """The second count is of all tables that were done during the first."""
    goes_on = threading.Event()
    counted: list[list[int]] = []

    def check(some: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
        goes_on.wait(LONG)
        counted.append([table.number for table in some])
        return no_check(some, observe)

    finisher, _ = finishing(check)
    first, *others = tables(5)
    finisher.take(first)
    for table in others:
        finisher.take(table)
    goes_on.set()
    ended(finisher, 5)
    finisher.close()
    assert sorted(number for some in counted for number in some) == [0, 1, 2, 3, 4]
    assert len(counted) <= 3


def test_an_error_is_that_of_its_table() -> None:
    """One that does not count right, one that cannot be published; the third is whole."""

    def check(some: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
        for table in some:
            observe(Notice(text=str(table.number)))
            yield table, OutputFailed("wrong") if table.number == 0 else None

    def publish(table: TableState, observe: Observer) -> None:
        if table.number == 1:
            raise OutputFailed("full")

    finisher, events = finishing(check, publish)
    for table in tables(3):
        finisher.take(table)
    found = ended(finisher, 3)
    finisher.close()
    assert [getattr(found[number], "message", "") for number in range(3)] == ["wrong", "full", ""]
    assert sorted(event.text for event in events) == ["0", "1", "2"]


def test_a_check_that_breaks_off_fails_those_that_it_has_not_told_of() -> None:
    """So that nobody waits for them for ever, and the next tables are checked again."""

    def check(some: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
        for table in some:
            if table.number == 1:
                raise RuntimeError("broken")
            yield table, None

    finisher, _ = finishing(check)
    finisher.take(tables(1)[0])
    assert ended(finisher, 1) == {0: None}
    finisher.take(tables(2)[1])
    assert str(ended(finisher, 1)[1]) == "broken"
    finisher.take(tables(3)[2])
    assert ended(finisher, 1) == {2: None}
    finisher.close()


def test_nothing_is_published_before_its_time() -> None:
    """Where all tables are published at the end, that is asked for."""
    published: list[int] = []
    finisher, _ = finishing(
        publish=lambda table, observe: published.append(table.number), at_once=False
    )
    (table,) = tables(1)
    finisher.take(table)
    assert ended(finisher, 1) == {0: None}
    assert published == []
    finisher.publish(table)
    assert ended(finisher, 1) == {0: None}
    assert published == [0]
    finisher.close()


def test_no_thread_is_left() -> None:
    """Neither after work nor without any."""
    before = set(threading.enumerate())
    finisher, _ = finishing()
    finisher.close()
    finisher, _ = finishing()
    for table in tables(20):
        finisher.take(table)
    ended(finisher, 20)
    finisher.close()
    assert set(threading.enumerate()) <= before
