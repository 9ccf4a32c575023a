"""One run from plan to published output: hand out, collect, count, check, publish.

Nothing is published before every unit is done and the row count agrees with the source's own at the
same snapshot. What publishing is, and where the bytes go meanwhile, is the output's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from numa.pool import Pool
from partition_planner.model import WorkUnit
from unloader.errors import (
    Interrupted,
    PartialUnload,
    SourceError,
    UnloaderError,
    VerifyMismatch,
    error_class,
    translate,
)
from unloader.events import Event, Notice, Observer, PhaseStarted, RunFinished, RunStarted
from unloader.manifest.build import FinishedUnit, RunFacts, build_manifest
from unloader.model import Failure, Snapshot, UnitResult, UnitTask
from unloader.placement.evidence import Evidence
from unloader.placement.observation import Watch
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.run.engine import Engine, Orders
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.opening import open_output
from unloader.run.schedule import Assignment, Schedule
from unloader.sources.abilities import end_sessions_sql
from unloader.sources.cancelling import cancelled_by

logger = logging.getLogger(__name__)


def run(
    resolved: OpenRun,
    pool: Pool,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Execute a resolved run; return the manifest.

    Args:
        resolved: The run with its open source.
        pool: An open pool from `unloader.run.processes`.
        observe: Told what happens.
        stop: Asked several times a second.

    Raises:
        OutputFailed: The destination refused, or a value does not fit the format.
        SourceError: The source failed for good.
        PartialUnload: Some units failed after all attempts; the finished ones stay staged until
            the next run.
        VerifyMismatch: Rows written and rows counted by the source differ.
        Interrupted: `stop` returned True.
    """
    output = open_output(resolved.run)
    with closing(output):
        current = _Run(resolved=resolved, output=output, observe=observe)
        try:
            return current.execute(pool, stop)
        except BaseException as error:
            with suppress(UnloaderError, OSError):
                current.abandon()
            if isinstance(error, Exception) and (known := translate(error)):
                raise _with_what_left(known, output) from error
            raise


@dataclass(slots=True)
class _Run:
    """The state of one run in the parent."""

    resolved: OpenRun
    output: RunOutput
    observe: Observer
    source_rows: int | None = None
    verify_result: str = "not verified"
    _evidence: Evidence = field(default_factory=Evidence)
    _finished: dict[str, FinishedUnit] = field(default_factory=dict)
    _units: dict[str, WorkUnit] = field(default_factory=dict)

    @property
    def run(self) -> ResolvedRun:
        """What is executed."""
        return self.resolved.run

    def execute(self, pool: Pool, stop: Callable[[], bool]) -> dict[str, Any]:
        plan = self.run.plan
        self._units = {unit.id: unit for unit in plan.units}
        self.output.begin(self.observe, stop)
        self.observe(
            RunStarted(
                run_id=self.run.run_id,
                table=self.run.extract.table.label,
                units=len(plan.units),
                workers=len(self.run.seating.seats),
                rows=_total(unit.rows for unit in plan.units),
                bytes=_total(unit.bytes for unit in plan.units),
                snapshot=_point(self.run.extract.snapshot),
                end_sessions_sql=end_sessions_sql(self.resolved.catalog),
            )
        )
        for text in self.run.seating.notices:
            self.observe(Notice(text=text))
        self.observe(PhaseStarted(phase="unloading"))
        self._unload(pool, stop)
        ordered = [self._finished[unit] for unit in sorted(self._finished)]
        self._verify(ordered, stop)
        _check_stop(stop)
        self.observe(PhaseStarted(phase="publishing"))
        manifest: dict[str, Any] = self.output.publish(ordered, self._manifest, stop)
        totals = {name: manifest["totals"][name] for name in ("rows", "bytes", "seconds")}
        self.observe(RunFinished(**totals))
        return manifest

    def abandon(self) -> None:
        """Leave the finished units for later, or no trace where there are none."""
        partial = self._manifest(tuple(self._finished.values()), complete=False)
        self.output.abandon(partial if self._finished else None)

    def _unload(self, pool: Pool, stop: Callable[[], bool]) -> None:
        seating = self.run.seating
        in_order = self.output.in_order
        units = self.run.plan.units
        if in_order:
            units = tuple(sorted(units, key=lambda unit: unit.id))

        def stop_or_fail() -> bool:
            self.output.check()
            return stop()

        engine = Engine(
            schedule=Schedule(units=units, retry=self.run.request.retry, in_order=in_order),
            orders=Orders(
                seats=seating.seats,
                stall_seconds=self.run.request.retry.stall_seconds,
                worker_memory_bytes=self.run.request.worker_memory_bytes,
                told=seating.notices,
                task=self._task,
                done=lambda worker, result: self._done(engine, worker, result),
                discard=self.output.discard,
                fatal=self._fatal,
            ),
            observe=self._tell,
            stop=stop_or_fail,
            watch=Watch(seating.seats, self._tell, looks=self.run.request.seats.numa != "off"),
        )
        try:
            engine.run(pool)
        finally:
            self._evidence = engine.watch.evidence(engine.restarts)
            engine.watch.close()
        if engine.failure is not None:
            self.output.check()
            raise _raised(engine.failure)
        given_up = engine.schedule.given_up
        if given_up:
            raise self._partial(given_up)

    def _tell(self, event: Event) -> None:
        for shown in self.output.filter_event(event):
            self.observe(shown)

    def _task(self, assignment: Assignment) -> UnitTask:
        return UnitTask(
            unit=assignment.unit,
            attempt=assignment.attempt,
            extract=self.run.extract,
            outputs=(self.output.task(assignment),),
            fetch_bytes=self.run.request.fetch_bytes,
        )

    def _done(self, engine: Engine, worker: int, result: UnitResult) -> None:
        unit = self._units[result.unit]
        finished = FinishedUnit(
            result=result,
            partitions=unit.partitions,
            seat=self.run.seating.seats[worker],
            bound=engine.watch.bound.get(worker),
            finals=(),
        )
        event = self.output.record(finished)
        self._finished[result.unit] = finished
        if event is not None:
            self.observe(event)

    def _fatal(self, assignment: Assignment, failure: Failure) -> Failure | None:
        """Return the failure that ends the run if a further attempt would be in vain.

        It would where the snapshot has gone with the source, or the destination takes no second.
        """
        gone = self._snapshot_gone(failure)
        why = self.output.not_repeatable(assignment.unit.id)
        if gone is not None or not why:
            return gone
        lost = failure.kind == "PartialUnload"
        return Failure(
            kind="OutputFailed" if lost else failure.kind,
            message=f"{failure.message}; {why}",
            hint=self.output.next_step(),
            retryable=False,
            traceback=failure.traceback,
        )

    def _snapshot_gone(self, failure: Failure) -> Failure | None:
        if not issubclass(error_class(failure.kind), SourceError):
            return None
        try:
            self.resolved.catalog.check_snapshot()
        except UnloaderError as error:
            both = dict.fromkeys((failure.message, error.message))
            return Failure(
                kind="SourceError",
                message="; ".join(both),
                hint=error.hint,
                retryable=False,
                traceback=failure.traceback,
            )
        return None

    def _partial(self, given_up: dict[str, Failure]) -> UnloaderError:
        unit, failure = next(iter(given_up.items()))
        if not self._finished:
            return _raised(failure)
        return PartialUnload(
            f"{len(given_up)} of {len(self._units)} work units failed, first {unit}: "
            f"{failure.message}",
            f"mend the cause ({failure.hint}) and {self.output.next_step()}",
        )

    def _verify(self, units: Sequence[FinishedUnit], stop: Callable[[], bool]) -> None:
        level = self.run.request.verify
        if level == "none":
            return
        self.observe(PhaseStarted(phase="counting"))
        written = sum(unit.result.rows for unit in self._finished.values())
        catalog = self.resolved.catalog
        with cancelled_by(stop, catalog):
            self.source_rows = catalog.count(self.run.extract)
        consistent = self.run.request.consistency == "snapshot"
        if written != self.source_rows and consistent:
            raise VerifyMismatch(
                f"{written} rows were written, the source counts {self.source_rows} at the same "
                "snapshot",
                "run again; if it comes back, see whether the condition or query gives other rows "
                "each time (random, samples, the present time), else report it with the plan",
            )
        self.verify_result = "ok" if written == self.source_rows else "different, no snapshot"
        if level == "full":
            self.observe(PhaseStarted(phase="verifying"))
            self.output.read_back(units, stop)

    def _manifest(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        *,
        complete: bool = True,
    ) -> dict[str, Any]:
        facts = RunFacts(
            run=self.run,
            seconds=time.perf_counter() - self.resolved.started,
            cpu_seconds=time.process_time()
            + sum(unit.result.cpu_seconds for unit in self._finished.values()),
            source_rows=self.source_rows,
            verify_result=self.verify_result,
            directories=directories,
            evidence=self._evidence,
        )
        return build_manifest(facts, tuple(units), complete=complete)


def _with_what_left(error: UnloaderError, output: RunOutput) -> UnloaderError:
    """Return the error with what of the broken run is already in somebody's hands."""
    delivered = output.already_delivered()
    if not delivered:
        return error
    hint = output.next_step() if isinstance(error, Interrupted) else error.hint
    return type(error)(f"{error.message.rstrip('. ')}; {delivered}", hint)


def _check_stop(stop: Callable[[], bool]) -> None:
    if stop():
        raise Interrupted("stopped by a signal before the files had their final names")


def _raised(failure: Failure) -> UnloaderError:
    error = error_class(failure.kind)(failure.message, failure.hint)
    if failure.traceback:
        logger.debug("in a worker:\n%s", failure.traceback)
    return error


def _point(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip()


def _total(values: Any) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
