"""The tasks of measuring processes, their answers, and how several processes work in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from msgspec import Struct

from unloader.engine.engine import Engine, Work
from unloader.engine.executor import LocalExecutor
from unloader.engine.schedule import Attempt, Schedule
from unloader.errors import Interrupted, SourceError, error_of
from unloader.model import AttemptFailure, Extract, RetryOptions, UnitTask

Answer = TypeVar("Answer")

ENTRY = "unloader.tuning.measuring_process:work"


class WriteSettings(Struct, frozen=True, kw_only=True):
    """How files were written: as the options of the run say."""

    overlap_buffer: int
    overlap_buffers: int
    checksum: str
    direct_io: bool


class WriteTask(Struct, frozen=True, kw_only=True):
    """Write one file as a worker would, and remove it."""

    directory: str
    """An existing one."""
    writing: WriteSettings
    bytes: int
    seconds: float
    """No buffer is begun after them."""


class Written(Struct, frozen=True, kw_only=True):
    """One file that was written and synced."""

    bytes: int
    began: float
    """By the monotonic clock, which all processes of a machine share."""
    ended: float


class ConnectTask(Struct, frozen=True, kw_only=True):
    """Open the source, and keep it open for the next task."""

    extract: Extract


class FetchTask(Struct, frozen=True, kw_only=True):
    """Fetch rows as a worker would, and throw them away; the source is closed after that."""

    units: tuple[UnitTask, ...]
    """One after the other, and from the first one again once all are read."""
    seconds: float
    """No batch is asked for after them."""


class Fetched(Struct, frozen=True, kw_only=True):
    """What one worker fetched."""

    rows: int
    bytes: int
    began: float
    ended: float
    cpu_seconds: float
    wraps: int
    """How often it began with the first unit again."""
    network_bytes: int | None
    """Received by its connections; None where that is not known."""
    network_round_trip_seconds: float | None


class _One(Struct, frozen=True, kw_only=True):
    """What one process is to do."""

    id: str
    task: object


@dataclass(slots=True)
class _Together(Work[_One]):
    """Lets no process begin before all of them are ready."""

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
            raise Interrupted("stopped by a signal during the measurement")

    def record(self, place: int, attempt: Attempt[_One], result: object) -> None:
        self.results[attempt.unit.id] = result

    def overdue(self, place: int, attempt: Attempt[_One], seconds: float) -> AttemptFailure:
        return AttemptFailure(
            error=SourceError.__name__,
            message=f"a measurement did not end within {seconds:g} s",
            hint="try again, or measure less",
            retryable=False,
        )


def measure_together(
    executor: LocalExecutor,
    tasks: Sequence[object],
    kind: type[Answer],
    *,
    patience_seconds: float,
    stop: Callable[[], bool],
) -> tuple[Answer, ...]:
    """Return the answers to tasks, in their order, all of a kind.

    The tasks are sent at the same time, one to each process, once all of those are up. A process
    that has not answered after `patience_seconds` is ended. The error of the first task that failed
    is raised, or `Interrupted` if `stop`, which is asked several times a second, returns True.
    """
    units = tuple(_One(id=f"{at:06d}", task=task) for at, task in enumerate(tasks))
    work = _Together(executor, len(units), stop)
    schedule = Schedule(units=units, retry=RetryOptions(retries=0))
    executor.start(len(units))
    engine = Engine(schedule=schedule, work=work, attempt_seconds=patience_seconds)
    engine.run(executor)
    failure = engine.failure or next(iter(schedule.given_up.values()), None)
    if failure is not None:
        raise error_of(failure)
    answers = [work.results[unit.id] for unit in units]
    assert all(isinstance(each, kind) for each in answers)
    return cast(tuple[Answer, ...], tuple(answers))
