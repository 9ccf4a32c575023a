"""The one loop over an executor that only computes: hours of a run in no time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from processes.engine_runs import RecordedWork, engine_of, run_over
from stages import stages

from numa.model import Finished, Lost, Message
from unloader.engine.executor import ExecutorEvent
from unloader.engine.schedule import Attempt
from unloader.model import AttemptFailure, UnitResult
from unloader.placement.evidence import Evidence, WorkerEvidence


@dataclass
class SimulatedExecutor:
    """Places whose tasks take simulated seconds: 1, but `slow` ones 100, and so `chatty` ones, which
    report all the time."""

    count: int
    up_at: float = 0.0
    """Until then no place is ready."""
    sleeps: float = 0.0
    """Seconds for which the machine sleeps in the middle of a task."""
    now: float = 0.0
    ends: dict[int, tuple[float, Attempt]] = field(default_factory=dict)
    stopped: list[ExecutorEvent] = field(default_factory=list)

    def places(self) -> list[int]:
        """Those without a task."""
        if self.now < self.up_at:
            return []
        return [place for place in range(self.count) if place not in self.ends]

    def send(self, place: int, task: object) -> None:
        """Note when it will be done."""
        assert isinstance(task, Attempt)
        took = 100.0 if task.unit.id.startswith(("slow", "chatty")) else 1.0
        self.ends[place] = (self.now + took, task)

    def events(self, timeout_seconds: float) -> list[ExecutorEvent]:
        """Let the time pass until the next end."""
        stopped, self.stopped = self.stopped, []
        until = min([self.now + timeout_seconds, *(end for end, _ in self.ends.values())])
        self.now = until
        done = [place for place, (end, _) in self.ends.items() if end <= until]
        results = [self._result(place, self.ends.pop(place)[1]) for place in done]
        if self.sleeps and self.ends:
            # The remaining work is still there when it wakes up.
            self.now += self.sleeps
            self.ends = {
                place: (end + self.sleeps, task) for place, (end, task) in self.ends.items()
            }
            self.sleeps = 0.0
        told = [
            Message(worker=place, payload=task.unit.id)
            for place, (_, task) in self.ends.items()
            if task.unit.id.startswith("chatty")
        ]
        return [*stopped, *results, *told]

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """End tasks immediately."""
        for place, failure in reasons.items():
            del self.ends[place]
            self.stopped.append(Lost(worker=place, detail="stopped", cause=failure))

    def use(self, places: int, of: int) -> None:
        """All are used."""

    def finish(self) -> tuple[ExecutorEvent, ...]:
        """Nothing to look at."""
        return ()

    def worker(self, place: int) -> WorkerEvidence:
        """Fail: this test needs no evidence."""
        raise NotImplementedError

    def evidence(self) -> Evidence:
        """Nothing is known."""
        return Evidence()

    def close(self) -> None:
        """Nothing to give back."""

    def _result(self, place: int, attempt: Attempt) -> Finished:
        figures = {"seconds": 1.0, "cpu_seconds": 0.0}
        value = UnitResult(unit=attempt.unit.id, attempt=attempt.attempt, rows=1, files=(),
                           stages=stages(), peak_rss_bytes=0, **figures)  # fmt: skip
        return Finished(worker=place, result=value)


def test_the_engine_runs_in_simulated_time() -> None:
    """The loop never waits: an executor that only computes simulates hours in moments."""
    executor = SimulatedExecutor(3)
    work = RecordedWork()
    engine = engine_of(work, *(f"ok-{at}" for at in range(30)), "slow-1", stall_seconds=20.0)
    engine.clock = lambda: executor.now
    began = time.monotonic()
    run_over(engine, executor, 3)
    assert len(work.results) == 30
    assert set(engine.schedule.given_up) == {"slow-1"}
    assert 10 + 4 * 20 <= executor.now <= 10 + 4 * 21
    assert time.monotonic() - began < 30


def test_who_talks_is_not_stalled() -> None:
    """Each message restarts the time of a stall; the limit of a whole attempt continues."""
    for limit, given_up in (("stall_seconds", set()), ("attempt_seconds", {"chatty-1"})):
        executor = SimulatedExecutor(1)
        engine = engine_of(RecordedWork(), "chatty-1", **{limit: 20.0})
        engine.clock = lambda executor=executor: executor.now
        run_over(engine, executor, 1)
        assert set(engine.schedule.given_up) == given_up


def test_neither_a_slow_start_nor_a_machine_that_sleeps_is_a_stall() -> None:
    """The limit is about the unit: no place was up before, and none could work meanwhile."""
    executor = SimulatedExecutor(1, up_at=50.0, sleeps=3600.0)
    work = RecordedWork()
    engine = engine_of(work, "ok-1", "ok-2", retries=0, stall_seconds=20.0)
    engine.clock = lambda: executor.now
    run_over(engine, executor, 1)
    assert [result.unit for result in work.results] == ["ok-1", "ok-2"]
    assert executor.now > 3650
