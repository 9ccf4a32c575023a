"""Tasks between their iterable and their end: what is handed out, and when."""

from collections.abc import Iterator

from numa.backlog import Attempt, Backlog


def backlog(tasks: object, **changes: float) -> Backlog:
    """Return a backlog of three attempts."""
    values = {"attempts": 3, "retry_seconds": 1.0, "most": 4, **changes}
    return Backlog(tasks, **values)  # type: ignore[arg-type]


def test_tasks_come_in_order_and_end() -> None:
    """Each task comes once, numbered; all is over when each has come to its end."""
    some = backlog("ab")
    first, second = some.take(0.0), some.take(0.0)
    assert first == Attempt(index=0, task="a", number=1)
    assert second == Attempt(index=1, task="b", number=1)
    assert some.wanting
    assert some.take(0.0) is None
    assert not some.wanting
    some.settle()
    assert not some.over
    some.settle()
    assert some.over


def test_no_task_is_taken_before_it_is_asked_for() -> None:
    """Making a backlog takes nothing, and unsettled tasks are bounded."""
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    some = backlog(tasks(), most=2)
    assert taken == []
    assert [some.take(0.0) is None for _ in range(4)] == [False, False, True, True]
    some.settle()
    assert some.take(0.0) is not None
    assert taken == [0, 1, 2]


def test_a_failed_task_waits_twice_as_long_each_time_and_is_given_up() -> None:
    """Due tasks come before new ones; after the last attempt there is no other."""
    some = backlog("ab")
    first = some.take(0.0)
    assert first is not None
    assert some.again(first, 10.0)
    assert some.due == 11.0
    other = some.take(10.9)
    assert other is not None
    assert other.task == "b"
    second = some.take(11.0)
    assert second == Attempt(index=0, task="a", number=2)
    assert some.again(second, 11.0)
    third = some.take(13.0)
    assert third == Attempt(index=0, task="a", number=3)
    assert not some.again(third, 13.0)
    assert some.due is None


def test_attempts_without_end_stay_possible() -> None:
    """Thousands of attempts at a task are no number too large for a pause."""
    some = Backlog(["a"], attempts=5000, retry_seconds=0.0, most=1)
    attempt = some.take(0.0)
    while attempt is not None and some.again(attempt, 0.0):
        attempt = some.take(0.0)
    assert attempt == Attempt(index=0, task="a", number=5000)


def test_stop_returns_what_waits() -> None:
    """After a stop nothing is handed out or tried again; tasks that waited keep their count."""
    some = backlog("abc")
    first, second = some.take(0.0), some.take(0.0)
    assert first is not None
    assert second is not None
    assert some.again(first, 0.0)
    assert some.stop() == (first,)
    assert some.take(100.0) is None
    assert not some.again(second, 0.0)
    some.settle()
    some.settle()
    assert some.over
