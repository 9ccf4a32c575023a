"""One run from plan to published output: hand out, collect, count, check, publish.

Nothing is published before every unit is done and the row count agrees with the source's own at the
same snapshot. What publishing is, and where the bytes go meanwhile, is the output's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unloader.engine.backoff import spread
from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule
from unloader.errors import (
    FollowUpFailed,
    Interrupted,
    SnapshotGone,
    UnloaderError,
    VerifyMismatch,
    translate,
)
from unloader.events import (
    Notice,
    Observer,
    PhaseStarted,
    RunFinished,
    RunStarted,
    Tick,
    UnitsKept,
)
from unloader.failures import error_of
from unloader.manifest.build import FinishedUnit, RunFacts, build_manifest
from unloader.manifest.model import Manifest
from unloader.model import COMPARING, Snapshot
from unloader.placement.evidence import Evidence
from unloader.placement.load import node_cpus
from unloader.resolve.patience import Patience
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.run.ceilings import ceilings_of
from unloader.run.comparing import compare
from unloader.run.concurrency.opening import RunSteering, is_adaptive, watched_load
from unloader.run.history import History
from unloader.run.journal import Progress
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.opening import open_output
from unloader.run.room import RoomWatch
from unloader.run.units import UnitWork
from unloader.sources.abilities import (
    end_keeping,
    end_sessions_sql,
    keep_until_gone,
    kept_until,
)
from unloader.sources.cancelling import cancelled_by
from unloader.status.recording import LiveRun
from unloader.storage.model import RUN_RECORD
from unloader.verification.source_values import Asking, check_able

if TYPE_CHECKING:
    from unloader.ceilings.model import Ceilings
    from unloader.run.concurrency.load_watch import LoadWatch


def run(
    resolved: OpenRun,
    executor: Executor,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> Manifest:
    """Execute a resolved run; return the manifest.

    Args:
        resolved: The run with its open source.
        executor: Does the work units; given back by the caller.
        observe: Called with each event.
        stop: Asked several times a second.

    Raises:
        OutputFailed: The destination refused, or a value does not fit the format.
        SourceError: The source failed for good.
        PartialUnload: Some units failed after all attempts; the finished ones stay staged until
            the next run.
        VerifyMismatch: Rows written and rows counted by the source differ.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        FollowUpFailed: All is published, but `--latest-link` could not be switched.
    """
    options = resolved.run.output.options
    places = resolved.resumed_in or options.destinations
    if options.keep is None and options.latest_link is None:
        return _executed(resolved, executor, observe, stop)
    from unloader.retention.following import check_before, follow

    failed = []

    def then(manifest: Manifest) -> None:
        try:
            follow(resolved.run, manifest, places[0], observe)
        except FollowUpFailed as error:
            failed.append(error)

    check_before(resolved.run, places[0])
    manifest = _executed(resolved, executor, observe, stop, then)
    if failed:
        raise failed[0]
    return manifest


def _executed(
    resolved: OpenRun,
    executor: Executor,
    observe: Observer,
    stop: Callable[[], bool],
    then: Callable[[Manifest], None] = lambda manifest: None,
) -> Manifest:
    output = open_output(resolved.run, resolved.resumed_in)
    with closing(output):
        seats, storage = resolved.run.seating.seats, output.live()
        live = LiveRun(resolved.run.run_id, seats, storage, observe, stop)
        history = History(began=resolved.started, cpus=node_cpus(resolved.run.topology))
        current = _Run(resolved=resolved, output=output, observe=live, then=then, history=history)
        current.ceilings = ceilings_of(resolved.run.request, observe)
        live.resumable = current.is_resumable
        live.snapshot_kept_until = kept_until(resolved.catalog)
        try:
            return current.execute(executor, live.stop)
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            kept = current.is_worth_keeping(known)
            if known is not None:
                told = _told_by(live, known)
                known = _with_what_left(current.advised(told) if kept else told, output)
            live.close(storage, known or error)
            with suppress(UnloaderError, OSError):
                current.abandon(kept=kept)
            if known is not None:
                raise known from error
            raise
        finally:
            live.close()
            current.close()


@dataclass(slots=True)
class _Run:
    """The state of one run in the parent."""

    resolved: OpenRun
    output: RunOutput
    observe: LiveRun
    then: Callable[[Manifest], None]
    """See `RunOutput.publish`."""
    history: History
    source_rows: int | None = None
    verify_result: str = "not verified"
    not_compared: tuple[str, ...] | None = None
    ceilings: Ceilings | None = None
    """What the run is compared with."""
    _evidence: Evidence = field(default_factory=Evidence)
    _is_recorded: bool = False
    """What the run is to do lies where its files go."""
    _finished: dict[str, FinishedUnit] = field(default_factory=dict)
    _kept: frozenset[str] = frozenset()
    """Units of these that an earlier process of the run has done."""
    _lowest: int | None = None
    """See `unloader.engine.capacity`."""
    _end_workers: Callable[[], None] = lambda: None
    _load: LoadWatch | None = None
    _steering: RunSteering | None = None
    """What steers the number of workers; None before there are any."""

    @property
    def run(self) -> ResolvedRun:
        """What is executed."""
        return self.resolved.run

    def execute(self, executor: Executor, stop: Callable[[], bool]) -> Manifest:
        plan = self.run.plan
        if self.run.request.verify == "source":
            check_able(self.resolved.catalog, self.run.extract.source.kind)
        self._load = watched_load(self.run.request, self.resolved.catalog)
        self.output.begin(self.observe, stop)
        until = self._keep_snapshot()
        if not self.resolved.resumed_in:
            self.output.keep(RUN_RECORD, self.run.record())
        self._is_recorded = True
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
                destinations=self.resolved.resumed_in or self.run.output.options.destinations,
                nodes=tuple(seat.node for seat in self.run.seating.seats),
                adaptive=is_adaptive(self.run.request),
            )
        )
        for text in self.run.seating.notices:
            self.observe(Notice(text=text))
        if until:
            text = f"if the run dies its snapshot is kept until {until}; see unloader keepers"
            self.observe(Notice(text=text))
        before = self._take_up(stop)
        self.observe(PhaseStarted(phase="unloading"))
        self._unload(executor, before, stop)
        ordered = [self._finished[unit] for unit in sorted(self._finished)]
        self._verify(ordered, stop)
        _check_stop(stop, "before the files had their final names")
        self.observe(PhaseStarted(phase="publishing"))
        manifest = self.output.publish(ordered, self._manifest, stop, self.then)
        totals = manifest.totals
        self.observe(RunFinished(rows=totals.rows, bytes=totals.bytes, seconds=totals.seconds))
        self._end_keeping()
        return manifest

    def _keep_snapshot(self) -> str:
        """Have the snapshot outlive the run from here on, where that was asked for; say how long.

        Before the run is on record: what is on record can be resumed.
        """
        storage = self.output.live()
        return keep_until_gone(self.resolved.catalog, storage.marks() if storage else ())

    def _end_keeping(self) -> None:
        try:
            end_keeping(self.resolved.catalog)
        except UnloaderError as error:
            # The run is complete. The keeper finds that out by itself.
            self.observe(Notice(text=error.message))

    def is_worth_keeping(self, error: UnloaderError | None) -> bool:
        """Return whether `resume` could go on with what a failed run leaves.

        Args:
            error: What ended the run; None for what nobody expected.
        """
        again = isinstance(error, Interrupted) or (error is not None and error.retryable)
        done = bool(self._finished) or bool(self.resolved.resumed_in)
        return self._is_recorded and (done or (again and self.is_resumable))

    def abandon(self, *, kept: bool) -> None:
        """Leave what is done for `resume`, or no trace."""
        partial = self._manifest(tuple(self._finished.values()), complete=False)
        self.output.abandon(partial if kept else None)

    def advised(self, error: UnloaderError) -> UnloaderError:
        """Return the error of a run that is kept with the way to go on."""
        until = "" if isinstance(error, SnapshotGone) else kept_until(self.resolved.catalog)
        if until:
            text = f"{error.message.rstrip('. ')}; its snapshot is kept until {until}"
            error = type(error)(text, error.hint)
        step = self.output.next_step(resumable=self.is_resumable)
        if isinstance(error, (SnapshotGone, VerifyMismatch)) or step in error.hint:
            return error
        alone = isinstance(error, Interrupted)
        return type(error)(error.message, step if alone else f"{error.hint}; then {step}")

    @property
    def is_resumable(self) -> bool:
        """Whether a later process can read at the same snapshot."""
        known = self.resolved.catalog.capabilities
        if self.run.request.consistency == "none" or known.snapshot_outlives_run:
            return True
        return bool(kept_until(self.resolved.catalog))

    def _take_up(self, stop: Callable[[], bool]) -> Progress:
        """Confirm what an earlier process of the run has done."""
        if not self.resolved.resumed_in:
            return Progress()

        def tick() -> None:
            self.observe(Tick())
            _check_stop(stop, "while the files that are done were checked")

        self.observe(PhaseStarted(phase="confirming"))
        before = self.output.progress(tick)
        # When they began was counted by the clock of another process.
        self._finished.update(
            (unit, replace(each, started_s=None)) for unit, each in before.finished.items()
        )
        self._kept = frozenset(before.finished)
        results = [unit.result for unit in before.finished.values()]
        rows = sum(each.rows for each in results)
        size = sum(file.bytes for each in results for file in each.files)
        self.observe(UnitsKept(units=len(results), rows=rows, bytes=size))
        return before

    def _unload(self, executor: Executor, before: Progress, stop: Callable[[], bool]) -> None:
        request = self.run.request
        units = tuple(unit for unit in self.run.plan.units if unit.id not in before.finished)
        in_order = self.output.in_order
        if in_order:
            units = tuple(sorted(units, key=lambda unit: unit.id))
        places = max(1, min(len(self.run.seating.seats), len(units)))
        steering = self._steering = RunSteering(
            request=request,
            most=places,
            live=self.observe,
            pids=executor.pids,
            load=self._load,
            seconds=self.history.seconds,
        )
        work = UnitWork(
            extract=self.run.extract,
            catalog=self.resolved.catalog,
            output=self.output,
            executor=executor,
            history=self.history,
            fetch_bytes=request.fetch_bytes,
            checksums=request.verify in COMPARING,
            observe=self.observe,
            stop=lambda: _check_stop(stop, "before all work units were done"),
            resumable=self.is_resumable,
            finished_units=self._finished,
            workers=len(self.run.seating.seats),
            room=self._room_watch(),
            concurrency=steering,
        )
        schedule = Schedule(
            units=units,
            retry=request.retry,
            in_order=in_order,
            before=before.attempts,
            jitter=spread(self.run.run_id),
        )
        engine = Engine(schedule=schedule, work=work, stall_seconds=request.retry.stall_seconds)
        executor.begin_with(min(steering.first_workers, places), places)
        self.history.look()
        try:
            engine.run(executor)
        finally:
            self.history.look(at_once=True)
            self._evidence = executor.evidence()
            self._end_workers = executor.close
            self._lowest = schedule.capacity.lowest
            self.close()
        if engine.failure is not None:
            self.output.check()
            raise error_of(engine.failure)
        if schedule.given_up:
            raise work.partial(schedule.given_up, len(self.run.plan.units))

    def close(self) -> None:
        """End what watches the database; may be called again."""
        if self._load is not None:
            self._load.close()
            self._load = None

    def _room_watch(self) -> RoomWatch | None:
        options = self.run.output.options
        if not options.min_free_bytes:
            return None
        return RoomWatch(
            directories=self.resolved.resumed_in or options.destinations,
            min_free_bytes=options.min_free_bytes,
            pause_seconds=options.pause_seconds,
            tell=lambda text: self.observe(Notice(text=text)),
        )

    def _verify(self, units: Sequence[FinishedUnit], stop: Callable[[], bool]) -> None:
        level = self.run.request.verify
        if level == "none":
            return
        self.observe(PhaseStarted(phase="counting"))
        written = sum(unit.result.rows for unit in self._finished.values())
        catalog = self.resolved.catalog
        request = self.run.request
        patience = Patience(
            retry=request.retry, run_id=self.run.run_id, stop=stop, observe=self.observe
        )
        with cancelled_by(stop, catalog):
            self.source_rows = patience.with_retries(
                "counting", lambda: catalog.count(self.run.extract), catalog.check_snapshot
            )
        consistent = self.run.request.consistency == "snapshot"
        if written != self.source_rows and consistent:
            raise VerifyMismatch(
                f"{written} rows were written, the source counts {self.source_rows} at the same "
                "snapshot",
                "run again; if it happens again, check whether the condition or query returns "
                "other rows each time (random values, samples, the current time), else report it "
                "with the plan",
            )
        self.verify_result = "ok" if written == self.source_rows else "different, no snapshot"
        if level in COMPARING:
            self._compare_values(units, stop)

    def _compare_values(self, units: Sequence[FinishedUnit], stop: Callable[[], bool]) -> None:
        """Compare the fetched values with those in the files, and with the source's own."""
        self.observe(PhaseStarted(phase="verifying"))
        self.not_compared = self.output.read_back(units, stop) if self.output.is_kept else ()
        if self.run.request.verify != "source":
            return
        known = self.run.request.concurrency
        if known is not None and known.max_sessions is not None:
            # Each that computes checksums has a session of its own, in place of a worker's.
            self._end_workers()
        self.observe(PhaseStarted(phase="comparing"))
        asking = Asking(
            catalog=self.resolved.catalog,
            extract=self.run.extract,
            parallelism=len(self.run.seating.seats),
            observe=self.observe,
            check=lambda: _check_stop(stop, "while values were compared with the source"),
        )
        found = compare(units, self.run.plan.units, asking)
        self.not_compared = (*self.not_compared, *found)

    def _manifest(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        *,
        complete: bool = True,
    ) -> Manifest:
        facts = RunFacts(
            run=self.run,
            seconds=time.perf_counter() - self.resolved.started,
            cpu_seconds=time.process_time()
            + sum(unit.result.cpu_seconds for unit in self._finished.values()),
            source_rows=self.source_rows,
            verify_result=self.verify_result,
            not_compared=self.not_compared,
            directories=directories,
            evidence=self._evidence,
            lowest_parallelism=self._lowest,
            ceilings=self.ceilings,
            steps=None if self._steering is None else self._steering.steps(),
            kept=self._kept,
            failed_attempts=tuple(self.history.failures),
            failed_attempts_left_out=self.history.failures_left_out,
            samples=self.history.samples(),
        )
        manifest = build_manifest(facts, tuple(units), complete=complete)
        found = manifest.efficiency
        if found is None or found.parts:
            return manifest
        text = f"nothing is compared with {found.ceilings}: {'; '.join(found.not_compared)}"
        self.observe(Notice(text=text))
        return replace(manifest, efficiency=None)


def _told_by(live: LiveRun, error: UnloaderError) -> UnloaderError:
    """Return the error with who asked for the end: whoever raised it knows of signals alone."""
    if not (isinstance(error, Interrupted) and live.stopped_by_others):
        return error
    message = error.message.replace("stopped by a signal", "stopped by `unloader stop`", 1)
    return Interrupted(message, error.hint)


def _with_what_left(error: UnloaderError, output: RunOutput) -> UnloaderError:
    """Return the error with what of the broken run is already in somebody's hands."""
    delivered = output.already_delivered()
    if not delivered:
        return error
    step = output.next_step(resumable=False)
    hint = step if isinstance(error, Interrupted) else error.hint
    return type(error)(f"{error.message.rstrip('. ')}; {delivered}", hint)


def _check_stop(stop: Callable[[], bool], when: str) -> None:
    if stop():
        raise Interrupted(f"stopped by a signal {when}")


def _point(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip()


def _total(values: Any) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
