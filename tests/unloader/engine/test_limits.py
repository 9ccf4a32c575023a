"""The places that limits allow, by the measured load of CPUs and database, and the time of day."""

from __future__ import annotations

from itertools import pairwise

from unloader.engine.steering import CpuLimit, LoadLimit, is_between


def simulated(limit: CpuLimit, other: float, seconds: int, start: int = 0) -> list[int]:
    """Simulate places with 20 % of the host each beside another load; return places by second."""
    seen = []
    for second in range(start, start + seconds):
        places = limit.held.places if limit.held else limit.most
        own = 0.2 * places
        limit.take(min(1.0, own + other), min(own, 1.0 - other), places, float(second))
        seen.append(limit.held.places if limit.held else limit.most)
    return seen


def test_cpus_above_the_limit_take_places_away_within_ten_seconds() -> None:
    """And no more than needed; when the other load has gone they come back, one by one."""
    limit = CpuLimit(0.75, 4)
    assert simulated(limit, 0.0, 10)[-1] == 3
    seen = simulated(limit, 0.35, 10, 10)
    assert seen[-1] == 2
    assert limit.held is not None
    assert "--max-cpu 75%" in limit.held.reason
    back = simulated(limit, 0.0, 60, 20)
    assert back[-1] == 3
    assert max(b - a for a, b in pairwise(back)) == 1


def test_one_place_goes_on_whatever_others_do() -> None:
    """A run always finishes."""
    assert simulated(CpuLimit(0.5, 8), 1.0, 30)[-1] == 1


def test_a_place_that_was_too_many_comes_back_later_and_later() -> None:
    """A load that the figures of one place do not show is not probed all the time."""
    limit, changes = CpuLimit(0.5, 4), []
    for second in range(400):
        places = limit.held.places if limit.held else 4
        # The database on the same host takes most, which is not the run's own.
        limit.take(0.3 * places, 0.02 * places, places, float(second))
        now = limit.held.places if limit.held else 4
        changes += [second] if now != places else []
    assert changes[0] <= 10
    assert len(changes) < 20


def test_active_sessions_of_others_leave_room_for_the_rest() -> None:
    """The mean of three counts takes places away, five that are lower give them back."""
    limit = LoadLimit(6, 4)
    for others in (1, 2, 2):
        limit.take(others)
    assert limit.held is None
    for others in (5, 5, 5):
        limit.take(others)
    assert limit.held is not None
    assert limit.held.places == 1
    assert "other programs have 5 active sessions (--max-db-load 6)" in limit.held.reason
    for others in (0, 0, 0, 0):
        limit.take(others)
        assert limit.held is not None
    limit.take(0)
    assert limit.held is None


def test_a_short_statement_takes_nothing_away() -> None:
    """A load seen in one count of three does not matter."""
    limit = LoadLimit(4, 4)
    for others in (0, 0, 1, 0, 0, 1, 0):
        limit.take(others)
    assert limit.held is None


def test_without_a_count_one_place_works() -> None:
    """A limit that cannot be checked is kept with one worker."""
    limit = LoadLimit(100, 4)
    limit.unknown()
    assert limit.held is not None
    assert limit.held.places == 1
    for _ in range(5):
        limit.take(0)
    assert limit.held is None


def test_with_a_count_again_the_reason_is_another() -> None:
    """What holds then is the load, and not that it is unknown."""
    limit = LoadLimit(4, 4)
    limit.unknown()
    for _ in range(3):
        limit.take(3)
    assert limit.held is not None
    assert "other programs have 3 active sessions" in limit.held.reason


def test_hours_go_over_midnight() -> None:
    """The begin is among them, the end is not."""
    assert [is_between(minute, 480, 1080) for minute in (479, 480, 1079, 1080)] == [
        *(False, True, True, False)
    ]
    assert [is_between(minute, 1320, 360) for minute in (1319, 1320, 0, 359, 360)] == [
        *(False, True, True, True, False)
    ]
