"""The search for the best number of workers, over simulated curves of throughput."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from unloader.engine.schedule import RowCount
from unloader.engine.steering import MOST_WINDOWS, Climber, Measurement, Move, Windows, compare

Curve = Callable[[int], float]
TICK = 0.2


def usl(contention: float, crosstalk: float) -> Curve:
    """Return a curve by the universal scalability law, of 100,000 rows/s for one worker."""
    return lambda n: 1e5 * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))


CURVES: dict[str, tuple[Curve, int]] = {
    "two cores": (lambda n: (1.0e5, 1.8e5, 1.78e5, 1.7e5)[n - 1], 4),
    "a knee at 8": (usl(0.03, 0.012), 32),
    "no end": (usl(0.0, 0.0), 16),
    "a late knee": (usl(0.02, 0.003), 64),
    "nothing gained": (lambda n: 1e5, 8),
    "retrograde": (lambda n: 1e5 / n, 8),
}


@dataclass
class Simulated:
    """Workers whose rows come as a curve has it, with noise in each fifth of a second."""

    curve: Curve
    most: int
    noise: float = 0.0
    seed: int = 1
    now: float = 0.0
    levels: list[int] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with a climber that knows nothing."""
        self.climber, self.windows, self.count = Climber(self.most), Windows(), RowCount()
        self._chance = random.Random(self.seed)

    def run(self, seconds: float, *, allowed: int | None = None) -> Simulated:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            level = self.climber.level
            if not self.levels or self.levels[-1] != level:
                self.levels.append(level)
                self.windows.restart()
            self.now += TICK
            part = max(0.0, 1 + self._chance.gauss(0, self.noise * (1 / TICK) ** 0.5))
            self.count.rows += int(self.curve(level) * part * TICK)
            self.count.reports += level
            if not self.windows.look(self.count, level, self.now):
                continue
            here = self.windows.measured()
            if here is not None:
                move = self.climber.consider(here, allowed or self.most, self.now)
                self.moves += [move] if move else []
        return self

    @property
    def share(self) -> float:
        """Return the speed of the best number found, as a part of the best of all."""
        best = max(self.curve(number) for number in range(1, self.most + 1))
        return self.curve(self.climber.base) / best


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("name", CURVES)
def test_it_ends_within_five_percent_of_the_best(name: str, noise: float) -> None:
    """This holds on every curve, for every noise of single seconds and every random seed."""
    curve, most = CURVES[name]
    for seed in range(10):
        found = Simulated(curve, most, noise, seed).run(300)
        assert found.share >= 0.95, (name, seed, found.levels)


def test_it_begins_with_few_and_doubles() -> None:
    """A database sees few sessions until more have proved to be worth it."""
    assert Simulated(usl(0.0, 0.0), 16).run(20).levels[:4] == [2, 4, 8, 16]
    assert Simulated(usl(0.0, 0.0), 1).run(20).levels == [1]


def test_what_cannot_keep_up_is_not_tried() -> None:
    """Three workers bring at most three times one, so after four times one they are not tried."""
    assert Simulated(usl(0.0, 0.0), 4).run(50).levels == [2, 4]


@pytest.mark.parametrize("curve", [usl(0.0, 0.0), CURVES["two cores"][0]])
def test_the_search_costs_few_rows(curve: Curve) -> None:
    """In a minute and a half it brings almost as many as the best fixed number."""
    best = max(curve(number) for number in range(1, 5))
    for seed in range(10):
        assert Simulated(curve, 4, 0.03, seed).run(90).count.rows >= 0.96 * 90 * best


def test_workers_that_gain_nothing_are_given_back() -> None:
    """Where one worker is as fast as eight it ends with one."""
    found = Simulated(lambda n: 1e5, 8).run(60)
    assert found.climber.base == 1
    assert found.moves[-1][0] in ("faster", "trial")


def test_it_tries_less_and_less() -> None:
    """Once it has found the best number, searches that gain nothing come rarely."""
    found = Simulated(usl(0.03, 0.012), 32).run(120)
    early = len(found.levels)
    found.run(1200)
    assert len(found.levels) - early <= 24
    assert found.climber.settled


def test_another_load_is_noticed() -> None:
    """When the curve changes it searches again, soon, and finds the new best number."""
    speed = [usl(0.03, 0.012)]
    found = Simulated(lambda n: speed[0](n), 32, 0.02).run(120)
    assert 6 <= found.climber.base <= 10
    speed[0] = lambda n: 1e5 * min(n, 2) * 0.9 ** max(0, n - 2)
    found.run(120)
    assert found.climber.base == 2
    speed[0] = usl(0.0, 0.0)
    found.run(200)
    assert found.climber.base >= 16


def test_no_more_are_tried_than_are_allowed() -> None:
    """A limit bounds the search."""
    assert max(Simulated(usl(0.0, 0.0), 16).run(60, allowed=5).levels) == 5


def rate(value: float, error: float, windows: int) -> Measurement:
    """Return a measured rate."""
    return Measurement(rows_per_second=value, error=error, windows=windows)


def test_what_is_not_known_well_enough_is_left_open() -> None:
    """A difference counts once it is beyond its error, or when there has been enough time."""
    base = rate(100, 1, 5)
    assert compare(base, rate(110, 1, 5)) == "better"
    assert compare(base, rate(90, 1, 5)) == "worse"
    assert compare(base, rate(101, 0.5, 5)) == "same"
    assert compare(base, rate(110, 10, 5)) is None
    assert compare(base, rate(110, 10, MOST_WINDOWS)) == "better"
    assert compare(base, rate(110, 0, 2)) is None
    assert compare(base, rate(200, 5, 2)) == "better"
    assert compare(rate(0, 0, 5), rate(5, 0, 5)) == "better"


def test_batches_that_take_seconds_are_waited_for() -> None:
    """A window of such a source ends when every worker has come twice, on average."""
    count, windows = RowCount(), Windows()
    windows.look(count, 2, 0.0)
    for second in range(1, 12):
        if second % 3 == 0:
            count.reached(second, 300)
        assert windows.look(count, 2, float(second)) == (second == 12)
    count.reached(12, 300)
    assert windows.look(count, 2, 12.0)


def test_rows_that_are_reported_again_count_once() -> None:
    """An attempt that reads again, or whose estimate was too high, adds only new rows."""
    count = RowCount()
    for rows in (10, 30, 5, 30, 31):
        count.reached(0, rows)
    count.reached(0, 0, ends=True)
    count.reached(0, 4)
    assert (count.rows, count.reports) == (35, 4)
