"""The work units of a run, as the engine works on them: tasks out, results and progress back.

What becomes of a failed attempt depends on more than the failure: the snapshot may be gone with the
source, and an output may be unable to take a unit twice. Both are decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import asdict, replace

from partition_planner.model import WorkUnit
from unloader.engine.executor import Executor
from unloader.engine.schedule import Assignment, Verdict
from unloader.errors import (
    OutputFailed,
    PartialUnload,
    SnapshotGone,
    SourceError,
    UnloaderError,
    WorkerLost,
)
from unloader.events import (
    Event,
    Notice,
    Observer,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.failures import error_of, is_a
from unloader.model import (
    AttemptFailure,
    BoundSeat,
    Extract,
    FinishedUnit,
    UnitResult,
    UnitTask,
)
from unloader.nouns import counted
from unloader.run.concurrency.opening import RunSteering
from unloader.run.history import History
from unloader.run.outputs.base import RunOutput, continued
from unloader.run.room import RoomWatch
from unloader.sources.base import Catalog


@dataclass(slots=True, kw_only=True)
class UnitWork:
    """The units of one table, from the source into its output."""

    extract: Extract
    catalog: Catalog
    output: RunOutput
    executor: Executor
    history: History
    fetch_bytes: int
    checksums: bool
    """Workers compute checksums of the values that they fetch."""
    observe: Observer
    resumable: bool
    """A later process can go on with what is staged."""
    finished_units: dict[str, FinishedUnit] = field(default_factory=dict)
    """By id, in the order in which they were done."""
    workers: int = 0
    """How many there are."""
    drops_outputs: bool = False
    """See `UnitTask`."""
    room: RoomWatch | None = None
    """Whether the disks have room; None does not look."""
    concurrency: RunSteering
    """What decides how many workers work."""
    _working: int = 0
    """How many the source lets work, once it has refused one; 0 before."""
    _began: dict[str, float | None] = field(default_factory=dict)
    """When the attempts began that are finished and not on record yet, by unit."""

    def task(self, attempt: Assignment, *, name: str = "") -> UnitTask:
        """Return the task of an attempt; see `UnitTask` for its name."""
        return UnitTask(
            unit=attempt.unit,
            attempt=attempt.attempt,
            extract=self.extract,
            outputs=self.output.tasks(attempt),
            fetch_bytes=self.fetch_bytes,
            checksums=self.checksums,
            drops_outputs=self.drops_outputs,
            name=name,
        )

    def note(self, text: str) -> None:
        """Tell the user a line."""
        self._tell(Notice(text=text))

    def limited(self, places: int, *, raises: bool) -> None:
        """Tell that the source lets fewer workers work than there are, or one more again."""
        if self._working and places > self._working:
            text = (
                f"one more worker opens a session: {places} of "
                f"{counted(self.workers, 'worker')} now work"
            )
        else:
            later = "another attempt follows later" if raises else "further attempts are not made"
            text = (
                f"the database accepts no more sessions: {places} of "
                f"{counted(self.workers, 'worker')} can continue; {later}. Next: lower "
                "--parallelism, or raise the database's limit of sessions"
            )
        self._working = places
        self.note(text)

    def started(self, place: int, attempt: Assignment) -> None:
        """Report a unit that a worker has taken."""
        unit = attempt.unit
        self.history.started(place)
        if (steered := self.concurrency.current) is not None:
            steered.count.started(place)
        self._tell(
            UnitStarted(
                worker=place,
                unit=unit.id,
                partition=unit.partition,
                attempt=attempt.attempt,
                rows=unit.rows,
            )
        )

    def reported(self, place: int, attempt: Assignment, payload: object) -> None:
        """Tell how far a worker is."""
        assert isinstance(payload, UnitAdvanced)
        if self.room is not None and payload.waiting_for:
            self.room.worker_waits(payload.waiting_for)
        self.history.advanced(place, payload.rows, payload.bytes)
        if (steered := self.concurrency.current) is not None:
            steered.count.reached(place, payload.rows)
        self._tell(payload)

    def finished(
        self, place: int, attempt: Assignment, result: object, *, ago: float = 0.0
    ) -> None:
        """Report a unit that is staged, and was so many seconds ago."""
        assert isinstance(result, UnitResult)
        size = sum(file.bytes for file in result.files)
        began = self.history.finished(place, result.rows, size, result.seconds + ago)
        self._began[result.unit] = began
        if (steered := self.concurrency.current) is not None:
            steered.count.reached(place, result.rows)
            steered.count.ended(place)
        self._tell(
            UnitFinished(
                worker=place,
                unit=result.unit,
                rows=result.rows,
                bytes=size,
                seconds=result.seconds,
                result=result,
            )
        )

    def record(self, place: int, attempt: Assignment, result: object) -> None:
        """Hand a finished unit to the output."""
        assert isinstance(result, UnitResult)
        worker = self.executor.worker(place)
        unit = FinishedUnit(
            **asdict(result),
            partition=attempt.unit.partition,
            partitions=attempt.unit.partitions,
            seat=BoundSeat.of(worker.seat, worker.bound),
            worker=worker.seat.worker,
            started_s=self._began.pop(result.unit, None),
        )
        event = self.output.record(unit)
        self.finished_units[result.unit] = unit
        if event is not None:
            self.observe(event)

    def overdue(self, place: int, attempt: Assignment, seconds: float) -> AttemptFailure:
        """Report a worker that makes no progress and is replaced."""
        text = f"worker {place} made no progress with unit {attempt.unit.id} for {seconds:g} s"
        self.note(f"{text}: the worker is replaced")
        return AttemptFailure(
            error=WorkerLost.__name__,
            message=f"worker {place} made no progress for {seconds:g} s (--stall-timeout)",
            hint="check why the source or the reader of the output waits",
            retryable=True,
        )

    def verdict_on(self, attempt: Assignment, failure: AttemptFailure) -> AttemptFailure:
        """Return the failure that ends the run if a further attempt cannot succeed.

        It would where the snapshot is gone with the source, or the output takes no second.
        """
        gone = self._snapshot_gone(failure)
        why = self.output.not_repeatable()
        if gone is not None or not why:
            return gone or failure
        return replace(
            failure,
            error=OutputFailed.__name__ if is_a(failure, WorkerLost) else failure.error,
            message=f"{failure.message}; {why}",
            hint=self.output.next_step(resumable=self.resumable),
            retryable=False,
        )

    def failed(self, place: int, verdict: Verdict[WorkUnit], failure: AttemptFailure) -> None:
        """Report a failed attempt, and put it on record."""
        assignment = verdict.assignment
        if (steered := self.concurrency.current) is not None:
            steered.count.ended(place)
        self.output.failed(assignment, failure.message)
        self.history.failed(place, assignment.unit.id, assignment.attempt, failure.message)
        self._tell(
            UnitFailed(
                worker=place,
                unit=assignment.unit.id,
                attempt=assignment.attempt,
                message=failure.message,
                retry_in_seconds=verdict.retry_in_seconds,
                counted=verdict.counted,
            )
        )

    def discard(self, attempt: Assignment) -> None:
        """Remove what a failed attempt may have left."""
        self.output.discard(attempt)

    def partial(self, given_up: dict[str, AttemptFailure], units: int) -> UnloaderError:
        """Return the error of a run of one table, some of whose units were given up.

        Args:
            given_up: The last failure of each, by the number of the table, a dot and its id.
            units: How many the table has.
        """
        name, failure = next(iter(given_up.items()))
        unit = name.partition(".")[2]
        if not self.finished_units:
            return error_of(failure)
        return PartialUnload(
            f"{len(given_up)} of {units} work units failed, first {unit}: {failure.message}",
            continued(failure.hint, self.output.next_step(resumable=self.resumable)),
        )

    def _tell(self, event: Event) -> None:
        self.observe(self.output.shown_event(event))

    def _snapshot_gone(self, failure: AttemptFailure) -> AttemptFailure | None:
        if not is_a(failure, SourceError):
            return None
        try:
            self.catalog.check_snapshot()
        except UnloaderError as error:
            both = dict.fromkeys((failure.message, error.message))
            return replace(
                failure,
                error=(SnapshotGone if isinstance(error, SnapshotGone) else SourceError).__name__,
                message="; ".join(both),
                hint=error.hint,
                retryable=False,
            )
        return None
