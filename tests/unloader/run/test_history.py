"""The failed attempts and the samples of the progress that a run records."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from unloader.events import Event, UnitAdvanced, UnitFailed, UnitFinished, UnitStarted
from unloader.placement.evidence import CpuTime
from unloader.run.table import FIRST_INTERVAL_SECONDS, MOST_FAILURES, MOST_SAMPLES, History
from unloader.status.recording import Tally


class Clock:
    """A clock and the counters of two CPUs, moved by the test."""

    def __init__(self) -> None:
        """Start at some time that is not zero."""
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def times(self, cpus: Mapping[int, tuple[int, ...]]) -> dict[int, CpuTime]:
        """Node 0 is busy a quarter of the time, node 1 all of it."""
        ticks = round(self.now * 100)
        return {0: (ticks // 4, ticks), 1: (ticks, ticks)}


def history(clock: Clock) -> History:
    """Return an empty history of a run that begins now."""
    return History(
        began=clock.now,
        tally=Tally(clock.now),
        cpus={0: (0,), 1: (1,)},
        clock=clock,
        times=clock.times,
    )


def started(worker: int) -> Event:
    """Return the start of an attempt."""
    return UnitStarted(worker=worker, unit=f"{worker}", partition=None, attempt=1, rows=None)


def advanced(worker: int, rows: int) -> Event:
    """Return the progress of an attempt, with ten bytes a row."""
    return UnitAdvanced(worker=worker, unit=f"{worker}", rows=rows, bytes=10 * rows)


def test_failed_attempts() -> None:
    """A failed attempt is recorded with its worker, its time and a message without secrets."""
    clock = Clock()
    found = history(clock)
    clock.now += 1
    found.tally.add(started(3), clock.now)
    clock.now += 2
    found.failed(3, "0007", 2, "lost: password=tiger77 is wrong")
    (failure,) = found.failures
    assert (failure.unit, failure.attempt, failure.worker) == ("0007", 2, 3)
    assert (failure.started_s, failure.seconds) == (1.0, 2.0)
    assert "tiger77" not in failure.message
    for number in range(MOST_FAILURES + 1):
        found.failed(3, "0007", number, "again")
    assert len(found.failures) == MOST_FAILURES
    assert found.failures_left_out == 2


def test_samples_tell_how_the_run_goes_on() -> None:
    """Rows are of finished units and running attempts; the rows of a failed attempt are removed."""
    clock = Clock()
    found = history(clock)
    found.look()
    for event in (started(0), started(1), advanced(0, 100), advanced(1, 50)):
        found.tally.add(event, clock.now)
    found.look()  # Too early.
    clock.now += FIRST_INTERVAL_SECONDS
    found.look()
    failed = UnitFailed(worker=1, unit="1", attempt=1, message="lost", retry_in_seconds=None)
    done = UnitFinished(worker=0, unit="0", rows=120, bytes=1200, seconds=1.0)
    for event in (failed, done):
        found.tally.add(event, clock.now)
    clock.now += FIRST_INTERVAL_SECONDS
    found.look()
    samples = found.samples()
    assert [each.rows for each in samples] == [0, 150, 120]
    assert [each.bytes for each in samples] == [0, 1500, 1200]
    assert [each.busy_workers for each in samples] == [0, 2, 0]
    assert [each.at_s for each in samples] == [0.0, 0.25, 0.5]
    assert [each.cpu_by_node for each in samples[:1]] == [None], "there is no sample before it"
    assert all(each.cpu_by_node == {"0": 0.24, "1": 1.0} for each in samples[1:])


def test_a_long_run_has_no_more_samples() -> None:
    """Samples cover the whole run at equal intervals, however long it takes."""
    clock = Clock()
    found = history(clock)
    for _ in range(5000):
        found.look()
        clock.now += 0.2
    found.look(at_once=True)
    samples = found.samples()
    assert MOST_SAMPLES // 3 < len(samples) <= MOST_SAMPLES + 1
    assert (samples[0].at_s, samples[-1].at_s) == (0.0, 1000.0)
    # The last one is taken at the end, whenever that is.
    gaps = [b.at_s - a.at_s for a, b in pairwise(samples[:-1])]
    assert max(gaps) < 2.1 * min(gaps)
    assert all(abs((each.cpu_by_node or {})["0"] - 0.25) < 0.01 for each in samples[1:])
