"""Has several processes begin one task each at the same moment, and waits for all answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from unloader.engine.engine import Engine, Work
from unloader.engine.local import LocalExecutor
from unloader.engine.schedule import Attempt, Schedule
from unloader.errors import Interrupted, SourceError
from unloader.failures import error_of
from unloader.model import AttemptFailure, RetryOptions


class _One(Struct, frozen=True, kw_only=True):
    """What one process is to do."""

    id: str
    task: object


@dataclass(slots=True)
class _Together(Work[_One]):
    """Lets nobody begin before all processes are up."""

    executor: LocalExecutor
    wanted: int
    stop: Callable[[], bool]
    begun: bool = False
    results: dict[str, object] = field(default_factory=dict)

    def may_start(self) -> bool:
        self.begun = self.begun or len(self.executor.places()) >= self.wanted
        return self.begun

    def task(self, attempt: Attempt[_One]) -> object:
        return attempt.unit.task

    def check(self) -> None:
        if self.stop():
            raise Interrupted("stopped by a signal while ceilings were measured")

    def record(self, place: int, attempt: Attempt[_One], result: object) -> None:
        self.results[attempt.unit.id] = result

    def overdue(self, place: int, attempt: Attempt[_One], seconds: float) -> AttemptFailure:
        return AttemptFailure(
            error=SourceError.__name__,
            message=f"a measurement did not end within {seconds:g} s",
            hint="try again, or leave that part out with --without",
            retryable=False,
        )


def measure_together(
    executor: LocalExecutor,
    tasks: Sequence[object],
    *,
    patience_seconds: float,
    stop: Callable[[], bool],
) -> tuple[object, ...]:
    """Return the answers to the tasks, in their order.

    Args:
        executor: Has a seat for each task at least.
        tasks: Sent at the same time, one to each process, once all of those are up.
        patience_seconds: After which a process that has not answered is ended.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: What the first task that failed came to.
        Interrupted: `stop` returned True.
    """
    units = tuple(_One(id=f"{at:06d}", task=task) for at, task in enumerate(tasks))
    work = _Together(executor, len(units), stop)
    schedule = Schedule(units=units, retry=RetryOptions(retries=0))
    executor.start_early(len(units))
    engine = Engine(schedule=schedule, work=work, attempt_seconds=patience_seconds)
    engine.run(executor)
    failure = engine.failure or next(iter(schedule.given_up.values()), None)
    if failure is not None:
        raise error_of(failure)
    return tuple(work.results[unit.id] for unit in units)
