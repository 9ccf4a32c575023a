"""An engine over the units of `engine_tasks`, and all that it told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from numa.model import ProcessLimits, Seat
from partition_planner.model import WholeTable, WorkUnit
from unloader.engine.engine import Engine, Work
from unloader.engine.executor import Executor, LocalExecutor
from unloader.engine.schedule import Attempt, Schedule, Verdict
from unloader.errors import Interrupted, WorkerLost
from unloader.model import AttemptFailure, RetryOptions, UnitResult
from unloader.placement.seating import Seating

ENTRY = "processes.engine_tasks:work"


@dataclass
class RecordedWork(Work[WorkUnit]):
    """Records the reports of the engine, in order."""

    stop: Callable[[], bool] = lambda: False
    fatal: Callable[[Attempt[WorkUnit], AttemptFailure], AttemptFailure | None] = lambda *_: None
    on_start: Callable[[Attempt[WorkUnit]], None] = lambda attempt: None
    on_failure: Callable[[], None] = lambda: None
    results: list[UnitResult] = field(default_factory=list)
    discarded: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    begun: list[tuple[str, int]] = field(default_factory=list)
    """Unit and place."""
    done: list[tuple[str, int]] = field(default_factory=list)
    """Unit and place."""
    messages: list[str] = field(default_factory=list)
    """Units that reported, message by message."""
    failures: list[tuple[AttemptFailure, float | None]] = field(default_factory=list)
    """Each failure with the seconds until the next attempt."""

    def task(self, attempt: Attempt[WorkUnit]) -> object:
        """The attempt is the task."""
        return attempt

    def check(self) -> None:
        """Stop when the test asks for it."""
        if self.stop():
            raise Interrupted("stopped")

    def note(self, text: str) -> None:
        """Keep the line."""
        self.notes.append(text)

    def started(self, place: int, attempt: Attempt[WorkUnit]) -> None:
        """Keep who began."""
        self.begun.append((attempt.unit.id, place))
        self.on_start(attempt)

    def reported(self, place: int, attempt: Attempt[WorkUnit], payload: object) -> None:
        """Keep who reported."""
        self.messages.append(attempt.unit.id)

    def finished(self, place: int, attempt: Attempt[WorkUnit], result: object) -> None:
        """Keep who was done."""
        self.done.append((attempt.unit.id, place))

    def record(self, place: int, attempt: Attempt[WorkUnit], result: object) -> None:
        """Keep the result."""
        assert isinstance(result, UnitResult)
        self.results.append(result)

    def overdue(self, place: int, attempt: Attempt[WorkUnit], seconds: float) -> AttemptFailure:
        """Record the unit."""
        text = f"{attempt.unit.id} passed {seconds:g} s"
        return AttemptFailure(error=WorkerLost.__name__, message=text, hint="", retryable=True)

    def judge(
        self, attempt: Attempt[WorkUnit], failure: AttemptFailure
    ) -> tuple[AttemptFailure, bool]:
        """Let the test decide."""
        return (failure.retryable and self.fatal(attempt, failure)) or failure, True

    def failed(self, place: int, verdict: Verdict[WorkUnit], failure: AttemptFailure) -> None:
        """Keep the failure."""
        self.failures.append((failure, verdict.retry_in_seconds))
        self.on_failure()

    def discard(self, attempt: Attempt[WorkUnit]) -> None:
        """Record the discarded attempt."""
        self.discarded.append((attempt.unit.id, attempt.attempt))


def engine_of(work: RecordedWork, *ids: str, retries: int = 3, **limits: float) -> Engine[WorkUnit]:
    """Return an engine over units with these ids."""
    units = tuple(WorkUnit(id=name, selectors=(WholeTable(),)) for name in ids)
    retry = RetryOptions(retries=retries, delay_seconds=0.01)
    options: Any = limits
    return Engine(schedule=Schedule(units=units, retry=retry), work=work, **options)


def seating_of(*seats: Seat) -> Seating:
    """Return a seating of these seats on this machine."""
    return Seating(seats=seats, memory_policy="local")


def unbound(count: int) -> Seating:
    """Return seats that bind nothing."""
    return seating_of(*(Seat(worker=at, node=0, cpus=(), memory_node=None) for at in range(count)))


def run_locally(
    engine: Engine[WorkUnit], workers: int, entry: str = ENTRY, **limits: float
) -> None:
    """Run an engine over that many processes."""
    values: Any = limits
    with closing(LocalExecutor(unbound(workers), entry, ProcessLimits(**values))) as executor:
        run_over(engine, executor, workers)


def run_over(engine: Engine[WorkUnit], executor: Executor, places: int) -> None:
    """Run an engine over that many places."""
    executor.use(places, places)
    engine.run(executor)
