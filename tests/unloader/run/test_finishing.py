"""The threads that count and publish tables: their groups of tables, and their failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from unloader.errors import OutputFailed
from unloader.events import Notice, Observer
from unloader.run.ending import Ended, Finisher
from unloader.run.table import Table

LONG = 60.0


def tables(count: int, file_per: str = "unit") -> list[Table]:
    """Return tables that have only a number, and whether a file is joined."""
    output = SimpleNamespace(options=SimpleNamespace(file_per=file_per))
    nothing = cast(Any, None)
    others = dict.fromkeys(("state", "outputs", "observe", "history"), nothing)
    run = cast(Any, SimpleNamespace(outputs=[output]))
    return [Table(number=number, run=run, **others) for number in range(count)]


def no_check(some: Sequence[Table], observe: Observer) -> Iterable[Ended]:
    """Find all tables whole."""
    return [(table, None) for table in some]


def ended(finisher: Finisher, count: int) -> dict[int, BaseException | None]:
    """Wait for `count` tables; return the error of each."""
    found: dict[int, BaseException | None] = {}
    while len(found) < count:
        found |= {table.number: error for table, error in finisher.collect(LONG)}
    return found


def no_publication(some: Sequence[Table], threads: Any, observe: Observer) -> Iterable[Ended]:
    """Publish all tables without work."""
    return [(table, None) for table in some]


def finishing(
    check: Callable[[Sequence[Table], Observer], Iterable[Ended]] = no_check,
    publish: Callable[[Sequence[Table], Any, Observer], Iterable[Ended]] = no_publication,
    **options: Any,
) -> tuple[Finisher, list[Any]]:
    """Return a finisher, and the events that it hands on."""
    events: list[Any] = []
    return Finisher(check, publish, events.append, **options), events


def test_tables_that_are_done_meanwhile_are_published_together() -> None:
    """The first is published alone; tables that arrive meanwhile are published in one group."""
    begun, goes_on = threading.Semaphore(0), threading.Event()
    together: list[list[int]] = []

    def publish(some: Sequence[Table], threads: Any, observe: Observer) -> Iterable[Ended]:
        together.append([table.number for table in some])
        begun.release()
        goes_on.wait(LONG)
        return no_publication(some, threads, observe)

    finisher, _ = finishing(publish=publish)
    first, *others = tables(12)
    finisher.publish(first)
    assert begun.acquire(timeout=LONG)
    for table in others:
        finisher.publish(table)
    goes_on.set()
    assert ended(finisher, 12) == dict.fromkeys(range(12))
    finisher.close()
    assert together == [[0], list(range(1, 12))]


def test_a_table_that_takes_long_holds_up_no_other() -> None:
    """A table with a joined file is published separately, in parallel with all other tables."""
    others, both = threading.Event(), threading.Barrier(2, timeout=LONG)

    def publish(some: Sequence[Table], threads: Any, observe: Observer) -> Iterable[Ended]:
        if some[0].takes_long:
            both.wait()
            others.wait(LONG)
            assert len(some) == 1
        return no_publication(some, threads, observe)

    finisher, _ = finishing(publish=publish)
    for table in tables(2, "table"):
        finisher.publish(table)
    for table in tables(5)[2:]:
        finisher.publish(table)
    assert ended(finisher, 3) == dict.fromkeys((2, 3, 4))
    others.set()
    assert ended(finisher, 2) == dict.fromkeys((0, 1))
    finisher.close()


def test_an_error_is_that_of_its_table() -> None:
    """One that does not count right, one that cannot be published; the third is whole."""

    def check(some: Sequence[Table], observe: Observer) -> Iterable[Ended]:
        for table in some:
            observe(Notice(text=str(table.number)))
            yield table, OutputFailed("wrong") if table.number == 0 else None

    def publish(some: Sequence[Table], threads: Any, observe: Observer) -> Iterable[Ended]:
        return [(each, OutputFailed("full") if each.number == 1 else None) for each in some]

    finisher, events = finishing(check, publish)
    for table in tables(3):
        finisher.take(table)
    found = ended(finisher, 3)
    finisher.close()
    assert [getattr(found[number], "message", "") for number in range(3)] == ["wrong", "full", ""]
    assert sorted(event.text for event in events) == ["0", "1", "2"]


def test_a_check_that_breaks_off_fails_those_that_it_has_not_told_of() -> None:
    """So no caller waits for them for ever, and the next tables are checked again."""

    def check(some: Sequence[Table], observe: Observer) -> Iterable[Ended]:
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
