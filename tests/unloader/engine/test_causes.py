"""What follows from a failure by its cause: which attempts count, and who waits; in simulated time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_planner.model import WholeTable, WorkUnit
from unloader.engine.schedule import Cause, Schedule, delay_seconds, spread
from unloader.model import AttemptFailure, RetryOptions

LOST = AttemptFailure(error="WorkerLost", message="killed", hint="see the log", retryable=True)


def schedule_of(units: int, retries: int = 3, delay: float = 1.0) -> Schedule[WorkUnit]:
    """Return a schedule of units named 0, 1, 2, ..."""
    made = tuple(WorkUnit(id=str(number), selectors=(WholeTable(),)) for number in range(units))
    return Schedule(units=made, retry=RetryOptions(retries=retries, delay_seconds=delay))


def begun(schedule: Schedule[WorkUnit], places: int, now: float) -> dict[int, str]:
    """Give every idle place its next unit; return the units by place."""
    found = {}
    idle = [place for place in range(places) if schedule.running(place) is None]
    for place in schedule.preferred(idle):
        if (attempt := schedule.take(place, now)) is not None:
            found[place] = attempt.unit.id
    return found


@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(1, 3000), st.integers(0, 9), st.text())
def test_delays_double_up_to_the_longest_and_lose_a_half_at_most(
    first: float, longest: float, failures: int, unit: int, seed: str
) -> None:
    """The whole delay doubles and is capped; the jitter leaves half of it at least."""
    retry = RetryOptions(delay_seconds=first, delay_max_seconds=longest)
    whole = delay_seconds(retry, failures)
    assert whole == min(max(first, longest), first * 2.0 ** min(failures - 1, 30))
    share = spread(seed)(str(unit), failures)
    assert 0 <= share <= 1
    assert whole / 2 <= delay_seconds(retry, failures, share) <= whole


def test_workers_that_fail_together_come_back_one_by_one() -> None:
    """32 units that fail at one instant are due at 32 different ones, the same on each run."""
    dues = []
    for _ in range(2):
        schedule = schedule_of(32)
        schedule.jitter = spread("run")
        begun(schedule, 32, 0.0)
        verdicts = [schedule.failed(place, LOST, 0.0) for place in range(32)]
        dues.append([verdict.retry_in_seconds for verdict in verdicts])
    assert dues[0] == dues[1]
    assert len(set(dues[0])) == 32
    assert all(due is not None and 0.5 <= due <= 1.0 for due in dues[0])


def refused_down_to(sessions: int, schedule: Schedule[WorkUnit], places: int, now: float) -> None:
    """Refuse every place that tries to connect, after the first `sessions`."""
    working = [place for place in range(places) if schedule.running(place) is not None]
    for place in working[sessions:]:
        verdict = schedule.failed(place, LOST, now, "refused")
        assert not verdict.counted
        assert verdict.retry_in_seconds == 0.0


def test_refused_sessions_lower_the_parallelism_and_cost_no_attempt() -> None:
    """The places that have a session do all the units; the others wait."""
    schedule = schedule_of(6, retries=0)
    assert len(begun(schedule, 5, 0.0)) == 5
    refused_down_to(2, schedule, 5, 0.0)
    assert schedule.capacity.limit == 2
    assert begun(schedule, 5, 1.0) == {}
    done = []
    while not schedule.over:
        for place in (0, 1):
            if schedule.running(place) is not None:
                done.append(schedule.finished(place).unit.id)
        assert set(begun(schedule, 5, 2.0)) <= {0, 1}
    assert sorted(done) == [str(number) for number in range(6)]
    assert schedule.given_up == {}
    assert schedule.capacity.lowest == 2


def test_an_idle_place_with_a_session_comes_before_one_without() -> None:
    """If the source takes no more sessions, only the place that kept its session gets a unit."""
    schedule = schedule_of(2, retries=3)
    begun(schedule, 2, 0.0)
    schedule.finished(1)
    schedule.failed(0, LOST, 0.0)
    assert begun(schedule, 2, 1.0) == {1: "0"}
    schedule.failed(1, LOST, 1.0)
    schedule.vacated(1)
    assert schedule.preferred((1, 0)) == [0, 1]


def test_one_more_session_is_tried_after_a_minute_and_not_after_two_refusals() -> None:
    """The limit is raised by one at a time; two refused trials are enough."""
    schedule = schedule_of(50)
    begun(schedule, 4, 0.0)
    refused_down_to(1, schedule, 4, 0.0)
    assert begun(schedule, 4, 59.9) == {}
    assert len(begun(schedule, 4, 60.0)) == 1
    assert schedule.capacity.limit == 2
    assert begun(schedule, 4, 60.0) == {}
    assert len(begun(schedule, 4, 120.0)) == 1
    schedule.failed(2, LOST, 121.0, "refused")
    assert schedule.capacity.limit == 2
    assert begun(schedule, 4, 180.9) == {}
    assert len(begun(schedule, 4, 181.0)) == 1
    schedule.failed(2, LOST, 182.0, "refused")
    assert begun(schedule, 4, 1e9) == {}
    assert not schedule.capacity.raises
    assert (schedule.capacity.limit, schedule.capacity.lowest) == (2, 1)


def test_what_the_source_allows_is_told_once_it_has_settled() -> None:
    """Three refusals in a moment are reported once; at the end the report is immediate."""
    schedule = schedule_of(9)
    begun(schedule, 5, 0.0)
    assert schedule.capacity.news(0.0) is None
    refused_down_to(2, schedule, 5, 10.0)
    assert schedule.capacity.news(10.5) is None
    assert schedule.capacity.news(11.0) == 2
    assert schedule.capacity.news(99.0) is None
    begun(schedule, 5, 100.0)
    assert schedule.capacity.news(100.0, at_end=True) == 3


def test_refusals_without_any_session_are_failures_like_others() -> None:
    """Without any session the attempts count, with a delay, and run out."""
    schedule = schedule_of(3, retries=1)
    assert len(begun(schedule, 2, 0.0)) == 2
    assert not schedule.failed(0, LOST, 0.0, "refused").counted
    verdict = schedule.failed(1, LOST, 0.0, "refused")
    assert verdict.counted
    assert verdict.retry_in_seconds == 1.0
    now = 0.0
    assert begun(schedule, 2, 0.9) == {}
    for _ in range(20):
        now += 1.0
        for place in begun(schedule, 2, now):
            schedule.failed(place, LOST, now, "refused")
    assert schedule.over
    assert len(schedule.given_up) == 3


def test_an_outage_uses_up_no_attempts_of_units_that_were_not_begun() -> None:
    """A place that cannot connect waits with its unit, and takes no further unit."""
    schedule = schedule_of(1000, retries=3)
    begun(schedule, 2, 0.0)
    schedule.finished(0)
    schedule.vacated(0)
    now, tried = 0.0, set()
    while now < 6.0:
        for place in range(2):
            if (attempt := schedule.running(place)) is not None:
                tried.add(attempt.unit.id)
                schedule.failed(place, LOST, now, "connecting")
        begun(schedule, 2, now)
        now += 0.1
    assert len(tried) <= 3
    assert schedule.given_up == {}


@pytest.mark.parametrize("cause", ["connecting", "refused"])
def test_nobody_tries_while_nobody_can_connect(cause: Cause) -> None:
    """Where the last one has no session either, all wait for the delay of its unit."""
    schedule = schedule_of(5)
    begun(schedule, 1, 0.0)
    schedule.failed(0, LOST, 0.0, cause)
    assert begun(schedule, 4, 0.9) == {}
    assert begun(schedule, 4, 1.0)


def test_a_unit_that_ends_each_process_uses_up_its_own_attempts_alone() -> None:
    """It is lost at several places, which do other units in between; only it is given up."""
    schedule = schedule_of(30, retries=3, delay=0.1)
    now = 0.0
    while not schedule.over:
        begun(schedule, 3, now)
        for place in range(3):
            attempt = schedule.running(place)
            if attempt is not None and attempt.unit.id == "0":
                assert schedule.failed(place, LOST, now, "lost").counted
            elif attempt is not None:
                assert attempt.attempt == 1
                schedule.finished(place)
        now += 0.1
    assert schedule.given_up == {"0": LOST}


def test_a_lost_unit_goes_to_another_place_if_it_can() -> None:
    """The place that lost it takes other units first; without any it takes it again."""
    schedule = schedule_of(3, retries=3)
    begun(schedule, 2, 0.0)
    schedule.failed(0, LOST, 0.0, "lost")
    assert begun(schedule, 1, 5.0) == {0: "2"}
    schedule.finished(1)
    assert begun(schedule, 2, 5.0) == {1: "0"}
    schedule.failed(1, LOST, 5.0, "lost")
    schedule.finished(0)
    assert schedule.take(1, 50.0) is not None


def test_when_all_places_lose_everything_the_run_ends() -> None:
    """Losses count again where no place is better, so that the attempts come to an end."""
    schedule = schedule_of(4, retries=2, delay=1.0)
    now, losses = 0.0, 0
    while not schedule.over and now < 10_000:
        for place in begun(schedule, 2, now):
            schedule.failed(place, LOST, now, "lost")
            losses += 1
        now += 1.0
    assert len(schedule.given_up) == 4
    assert losses == 12
