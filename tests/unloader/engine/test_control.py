"""The number of workers: the request, the measured optimum and the limits, combined."""

from __future__ import annotations

from unloader.engine.steering import Concurrency, Held

TICK = 0.2


class Simulated:
    """A run whose first four places bring 1,000 rows/s each, and further places nothing.

    It obeys immediately.
    """

    def __init__(self, most: int, wanted: int | None) -> None:
        """Begin at time 0."""
        self.control = Concurrency(most=most, wanted=wanted, began=0.0)
        self.now = 0.0
        self.limits: dict[str, Held] = {}
        self.sessions: int | None = None
        self.left: int | None = None
        """Places that have work, where it comes to an end."""
        self.up = 99
        """Places that have a process."""
        self.late = 0
        """Places that go on although they are not to."""
        self.slow_seconds = 0.0
        """Until a place that was added brings its first rows."""
        self.reasons: list[str] = []
        self._since: list[float] = []

    def run(self, seconds: float) -> list[tuple[int, str]]:
        """Let time pass; return the steps, as workers and cause."""
        until = self.now + seconds
        while self.now < until:
            told = max(self.control.places, self.late)
            at_work = min(told, self.left or 99, self.sessions or 99, self.up)
            self.now += TICK
            self._since = [*self._since, *[self.now] * at_work][:at_work]
            bring = [at for at, since in enumerate(self._since) if self._is_open(since)]
            self.control.count.rows += int(1000 * min(len(bring), 4) * TICK)
            self.control.count.reports += len(bring)
            self.control.count.heard.update(bring)
            self.control.decide(self.limits, at_work, self.sessions, self.now)
        steps = [(each.workers, each.cause) for each in self.control.steps]
        self.reasons = [each.reason.split(", so")[0] for each in self.control.steps]
        self.control.steps.clear()
        return steps

    def _is_open(self, since: float) -> bool:
        return self.now - since >= self.slow_seconds


def test_a_fixed_number_stays() -> None:
    """Nothing is measured and nothing tried."""
    run = Simulated(8, 8)
    assert run.run(100) == [(8, "start")]


def test_the_best_number_is_found_and_the_way_is_told() -> None:
    """From few, with a reason for each step and the rate before it."""
    run = Simulated(8, None)
    run.run(0.2)
    for step in run.control.steps:
        assert step.reason
    steps = run.run(60)
    assert steps[:2] == [(4, "trial"), (4, "faster")]
    assert run.control.places == 4


def test_the_lowest_limit_holds_and_is_named() -> None:
    """Over a fixed number, over a search, and no longer when it has gone."""
    for wanted in (8, None):
        run = Simulated(8, wanted)
        run.run(60)
        found = run.control.places
        run.limits = {"a": Held(places=3, reason="a"), "b": Held(places=2, reason="b")}
        assert run.run(5) == [(2, "limit")]
        assert run.control.limit == Held(places=2, reason="b")
        run.limits = {}
        assert run.run(1) == [(found, "limit")]
        assert run.control.limit is None


def test_nothing_is_measured_while_a_limit_holds() -> None:
    """Speeds of workers above the limit, slowed by the other load, are not measurements."""
    run = Simulated(8, None)
    run.run(0.2)
    run.limits, run.late = {"a": Held(places=1, reason="a")}, 2
    assert run.run(60) == [(1, "limit")]
    run.limits, run.late = {}, 0
    assert run.run(0.2) == [(2, "limit")]
    run.run(60)
    assert run.control.places == 4


def test_a_limit_above_what_works_is_none() -> None:
    """It is not named where it takes nothing away."""
    run = Simulated(8, 2)
    run.limits = {"a": Held(places=2, reason="a")}
    assert run.run(5) == [(2, "start")]
    assert run.control.limit is None


def test_no_more_is_tried_than_limits_and_the_source_allow() -> None:
    """A source that refuses sessions bounds the search; a trial beyond it is given up."""
    run = Simulated(8, None)
    run.limits = {"a": Held(places=3, reason="a")}
    assert max(workers for workers, _ in run.run(60)) == 3
    refused = Simulated(8, None)
    refused.sessions = 3
    refused.run(60)
    assert refused.control.places <= 3


def test_places_that_are_not_heard_of_are_waited_for() -> None:
    """A session that takes seconds to open says nothing about the speed of its place."""
    run = Simulated(8, None)
    run.slow_seconds = 8.0
    run.run(200)
    assert run.control.places == 4


def test_a_number_that_is_never_at_work_is_given_up() -> None:
    """If the system refuses a process, the run continues with its existing processes."""
    run = Simulated(8, None)
    run.up = 2
    steps = run.run(50)
    assert steps[:3] == [(2, "start"), (4, "trial"), (2, "not faster")]
    assert "4 workers were not at work for 30 s" in run.reasons
    run.up = 99
    run.run(200)
    assert run.control.places == 4


def test_the_end_of_the_work_is_no_measurement() -> None:
    """With fewer units left than workers the rate falls, and nothing follows from that."""
    run = Simulated(8, None)
    run.run(60)
    run.left = 1
    assert run.run(600) == []


def test_a_hand_sets_the_number_and_gives_it_back() -> None:
    """From then on it is fixed; `adaptive` searches on from there."""
    run = Simulated(8, None)
    run.run(60)
    run.control.ask(7, run.now, "somebody")
    assert run.control.steps[-1].reason == "somebody asks for 7"
    assert run.run(100) == [(7, "asked")]
    assert not run.control.is_adaptive
    run.control.ask(None, run.now, "somebody")
    assert run.control.places == 7
    run.run(100)
    assert run.control.places == 4
