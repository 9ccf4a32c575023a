"""Who does which unit when: order, retries and ends, event by event."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import WholeTable, WorkUnit
from unloader.engine.schedule import Attempt, Cause, Schedule
from unloader.model import AttemptFailure, RetryOptions

RETRYABLE = AttemptFailure(
    error="TransientSourceError", message="lost", hint="wait", retryable=True
)
FINAL = AttemptFailure(error="OutputFailed", message="disk full", hint="make room", retryable=False)


def schedule_of(*ids: str, retries: int = 3, delay: float = 1.0) -> Schedule:
    """Return a schedule of units with these ids, in this order."""
    units = tuple(WorkUnit(id=name, selectors=(WholeTable(),)) for name in ids)
    return Schedule(units=units, retry=RetryOptions(retries=retries, delay_seconds=delay))


def taken(schedule: Schedule, worker: int, now: float) -> tuple[str, int]:
    """Return unit and attempt that an idle worker is given."""
    assignment = schedule.take(worker, now)
    assert assignment is not None
    return assignment.unit.id, assignment.attempt


def test_units_are_handed_out_in_plan_order() -> None:
    """The planner's order, largest first, is the order of work, independent of the ids."""
    schedule = schedule_of("3", "1", "2")
    assert [taken(schedule, worker, 0.0) for worker in range(3)] == [("3", 1), ("1", 1), ("2", 1)]
    assert schedule.take(3, 0.0) is None


@pytest.mark.parametrize("how", ["failed", "lost", "connecting", "put back"])
def test_of_several_in_one_each_is_tried_by_itself_after_a_failure(how: str) -> None:
    """A failure of any kind is not counted, and units that never failed do not wait."""
    schedule = schedule_of("many", "other", retries=0)
    parts = [WorkUnit(id=f"part {number}", selectors=(WholeTable(),)) for number in range(2)]
    schedule.parts = lambda unit: parts if unit.id == "many" else ()
    assert taken(schedule, 0, 0.0) == ("many", 1)
    if how == "put back":
        schedule.finished(0)
        schedule.put_back(parts, 1)
    else:
        verdict = schedule.failed(0, RETRYABLE, 0.0, how)
        assert (verdict.retry_in_seconds, verdict.counted) == (0.0, False)
    assert [taken(schedule, worker, 9.0) for worker in (1, 2, 3)] == [
        *(("part 0", 2), ("part 1", 2)),
        ("other", 1),
    ]
    schedule.failed(1, RETRYABLE, 9.0)
    assert list(schedule.given_up) == ["part 0"]


def test_in_order_a_waiting_unit_holds_up_those_behind_it() -> None:
    """One stream takes the units one after the other, also where one is tried again."""
    schedule = schedule_of("1", "2", delay=5.0)
    schedule.in_order = True
    assert taken(schedule, 0, 0.0) == ("1", 1)
    schedule.failed(0, RETRYABLE, 0.0)
    assert schedule.take(0, 1.0) is None
    assert not schedule.over
    assert taken(schedule, 0, 5.0) == ("1", 2)
    schedule.finished(0)
    assert taken(schedule, 0, 5.0) == ("2", 1)


def test_what_is_held_up_goes_on_before_anything_new_begins() -> None:
    """A unit that has ended makes room for one that was begun."""
    schedule = schedule_of("1", "2", "3")
    schedule.allowed = 2
    assert [taken(schedule, worker, 0.0) for worker in range(2)] == [("1", 1), ("2", 1)]
    schedule.allowed, schedule.held = 1, {1}
    schedule.finished(0)
    assert schedule.take(0, 1.0) is None
    schedule.held = set()
    assert schedule.take(0, 1.0) is None
    schedule.finished(1)
    assert taken(schedule, 0, 1.0) == ("3", 1)


def test_a_worker_is_busy_from_take_to_finish() -> None:
    """The running unit of a worker is known until it is finished; its end is reported once."""
    schedule = schedule_of("1")
    assignment = schedule.take(7, 0.0)
    assert schedule.running(7) == assignment
    assert schedule.running(8) is None
    assert not schedule.over
    assert schedule.finished(7) == assignment
    assert schedule.running(7) is None
    assert schedule.over
    assert not schedule.stopped


def test_a_failed_unit_comes_back_after_a_doubling_delay() -> None:
    """Each attempt waits twice as long as the one before, and is numbered."""
    schedule = schedule_of("1", retries=3, delay=2.0)
    now, delays = 100.0, []
    for attempt in (1, 2, 3):
        assert taken(schedule, 0, now) == ("1", attempt)
        verdict = schedule.failed(0, RETRYABLE, now)
        assert verdict.assignment.attempt == attempt
        assert verdict.retry_in_seconds is not None
        delays.append(verdict.retry_in_seconds)
        assert schedule.take(0, now + verdict.retry_in_seconds - 0.001) is None
        assert not schedule.over
        now += verdict.retry_in_seconds
    assert delays == [2.0, 4.0, 8.0]
    assert taken(schedule, 0, now) == ("1", 4)


@pytest.mark.parametrize("retries", [0, 1, 5, 2000])
def test_a_unit_is_given_up_after_its_last_attempt(retries: int) -> None:
    """There are as many attempts as retries and one more; then the last failure is on record."""
    schedule = schedule_of("1", retries=retries, delay=0.0)
    for attempt in range(1, retries + 2):
        assert taken(schedule, 0, 0.0) == ("1", attempt)
        last = AttemptFailure(error="SourceError", message=f"no {attempt}", hint="", retryable=True)
        verdict = schedule.failed(0, last, 0.0)
        assert (verdict.retry_in_seconds is None) == (attempt == retries + 1)
    assert schedule.given_up == {"1": last}
    assert schedule.over
    assert not schedule.stopped


def test_a_failed_unit_holds_up_no_other() -> None:
    """While one waits for its retry the others go on; when due it comes before fresh ones."""
    schedule = schedule_of("1", "2", "3", delay=1.0)
    taken(schedule, 0, 0.0)
    schedule.failed(0, RETRYABLE, 0.0)
    assert taken(schedule, 0, 0.5) == ("2", 1)
    assert taken(schedule, 1, 1.0) == ("1", 2)
    assert taken(schedule, 2, 1.0) == ("3", 1)


def test_the_earliest_due_goes_first() -> None:
    """A later failure with a shorter delay overtakes an earlier one with a longer delay."""
    schedule = schedule_of("1", "2", delay=1.0)
    taken(schedule, 0, 0.0)
    schedule.failed(0, RETRYABLE, 0.0)
    assert taken(schedule, 0, 1.0) == ("1", 2)
    taken(schedule, 1, 1.0)
    schedule.failed(0, RETRYABLE, 1.0)  # due at 3
    schedule.failed(1, RETRYABLE, 1.5)  # due at 2.5
    assert schedule.take(0, 2.4) is None
    assert taken(schedule, 0, 10.0) == ("2", 2)
    assert taken(schedule, 1, 10.0) == ("1", 3)


def test_two_failures_due_at_one_time_go_in_order_of_failure() -> None:
    """Of two that are due together the one that failed first goes first."""
    schedule = schedule_of("1", "2")
    taken(schedule, 0, 0.0)
    taken(schedule, 1, 0.0)
    schedule.failed(1, RETRYABLE, 0.0)
    schedule.failed(0, RETRYABLE, 0.0)
    assert [taken(schedule, worker, 1.0) for worker in (0, 1)] == [("2", 2), ("1", 2)]


def test_a_failure_beyond_retry_stops_the_schedule() -> None:
    """Nothing is handed out after it, retries neither; what runs may still finish."""
    schedule = schedule_of("1", "2", "3", "4", delay=0.0)
    for worker in range(3):
        taken(schedule, worker, 0.0)
    schedule.failed(2, RETRYABLE, 0.0)
    verdict = schedule.failed(0, FINAL, 0.0)
    assert verdict.retry_in_seconds is None
    assert schedule.given_up == {"1": FINAL}
    assert schedule.stopped
    assert schedule.take(0, 99.0) is None
    assert not schedule.over
    assert schedule.finished(1).unit.id == "2"
    assert schedule.over


class _Places:
    """Workers that follow a list of actions, and a record of how each unit ended."""

    def __init__(self, units: int, retries: int) -> None:
        """Start with everybody idle."""
        self.schedule = schedule_of(*(str(unit) for unit in range(units)), retries=retries)
        self.busy: dict[int, Attempt[WorkUnit]] = {}
        self.attempts: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        """Failures that were counted."""
        self.ended: Counter[str] = Counter()
        self.now = 0.0

    def step(self, worker: int, action: str) -> None:
        """Take, finish or fail a unit on a worker if possible, or advance the time."""
        if action == "wait":
            self.now += 0.5
        elif worker not in self.busy:
            self._take(worker)
        elif action in CAUSES:
            self._fail(worker, RETRYABLE, action)
        elif action == "end":
            self._fail(worker, FINAL)
        else:
            assignment = self.busy.pop(worker)
            assert self.schedule.finished(worker) == assignment
            self.ended[assignment.unit.id] += 1

    def _take(self, worker: int) -> None:
        assignment = self.schedule.take(worker, self.now)
        if assignment is None:
            return
        unit = assignment.unit.id
        assert unit not in {other.unit.id for other in self.busy.values()}
        self.attempts[unit] += 1
        assert assignment.attempt == self.attempts[unit]
        self.busy[worker] = assignment

    def _fail(self, worker: int, failure: AttemptFailure, cause: Cause = "failed") -> None:
        assignment = self.busy.pop(worker)
        verdict = self.schedule.failed(worker, failure, self.now, cause)
        assert verdict.assignment.unit == assignment.unit
        self.counted[assignment.unit.id] += verdict.counted
        if verdict.retry_in_seconds is None:
            self.ended[assignment.unit.id] += 1
            assert self.schedule.given_up[assignment.unit.id] == failure

    def drain(self) -> None:
        """Finish the remaining units."""
        while not self.schedule.over:
            self.step(0, "finish")
            for worker in list(self.busy):
                self.step(worker, "finish")
            self.step(0, "wait")


CAUSES = ("failed", "connecting", "refused", "lost")
"""Ways in which an attempt fails, as the schedule calls them."""

actions = st.tuples(st.integers(0, 3), st.sampled_from(["take", "wait", "finish", *CAUSES]))


@given(st.integers(0, 6), st.integers(0, 2), st.lists(actions, max_size=60))
def test_every_unit_ends_exactly_once(
    units: int, retries: int, events: list[tuple[int, str]]
) -> None:
    """With any failures, each unit is finished once or given up once, never both."""
    places = _Places(units, retries)
    for worker, action in events:
        places.step(worker, action)
    places.drain()
    assert places.ended == Counter({str(unit): 1 for unit in range(units)})
    assert max(places.counted.values(), default=0) <= retries + 1
    assert places.schedule.take(0, places.now + 1e9) is None


@given(st.lists(actions, max_size=40), st.integers(0, 40), st.booleans())
def test_after_a_stop_no_unit_begins(
    events: list[tuple[int, str]], at: int, by_failure: bool
) -> None:
    """From the stop on no attempt begins, and none ends twice; what runs may end."""
    places = _Places(5, 1)
    for number, (worker, action) in enumerate(events):
        if number == at:
            if by_failure and places.busy:
                places.step(next(iter(places.busy)), "end")
            else:
                places.schedule.stopped = True
            begun = places.attempts.copy()
        places.step(worker, action)
        if number >= at:
            assert places.schedule.stopped
            assert places.attempts == begun
    places.drain()
    assert all(count == 1 for count in places.ended.values())
