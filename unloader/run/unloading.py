"""One run from plan to published output: hand out, collect, count, check, publish.

Nothing is published before every unit is done and the row count agrees with the source's own at the
same snapshot. What publishing is, and where the bytes go meanwhile, is the output's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader.engine.backoff import spread
from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule
from unloader.errors import (
    FollowUpFailed,
    Interrupted,
    UnloaderError,
    translate,
)
from unloader.events import (
    Notice,
    Observer,
    PhaseStarted,
    RunFinished,
    RunStarted,
)
from unloader.failures import error_of
from unloader.manifest.model import Manifest
from unloader.manifest.routes import totals_of
from unloader.model import Snapshot
from unloader.placement.load import node_cpus
from unloader.resolve.outputs.directories import is_followed
from unloader.resolve.outputs.one import of_output, of_route, output_notices
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.slow_installation import missing_libraries
from unloader.run.ceilings import ceilings_of
from unloader.run.concurrency.opening import RunSteering, is_adaptive, watched_load
from unloader.run.history import History
from unloader.run.journal import Progress
from unloader.run.lake_tables import commit
from unloader.run.outputs.base import RunOutput, of_removed, removed_place
from unloader.run.outputs.opening import open_output
from unloader.run.table_run import Circumstances, TableRun, check_stop
from unloader.run.workers import prove
from unloader.sources.abilities import (
    end_keeping,
    end_sessions_sql,
    keep_until_gone,
    kept_until,
)
from unloader.status.recording import LiveRun
from unloader.verification.source_values import check_able

if TYPE_CHECKING:
    from unloader.run.concurrency.load_watch import LoadWatch


def run(
    resolved: OpenRun,
    executor: Executor,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> tuple[Manifest, ...]:
    """Execute a resolved run; return the manifest, of several routes that of each.

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
        OutputFailed: The files are complete, and the table that they are for has refused them.
    """
    manifests = _published(resolved, executor, observe, stop)
    for manifest in manifests:
        own = of_route(resolved.run, manifest.route.name if manifest.route else "")
        commit(manifest, _place_of(resolved, own), observe, is_own=True)
    return manifests


def _each(run: ResolvedRun) -> Iterator[ResolvedRun]:
    return (of_output(run, number) for number in range(len(run.outputs)))


def _place_of(resolved: OpenRun, own: ResolvedRun) -> str:
    alone = len(resolved.run.outputs) == 1 and resolved.resumed_in
    return (alone or own.output.options.destinations)[0]


def _published(
    resolved: OpenRun, executor: Executor, observe: Observer, stop: Callable[[], bool]
) -> tuple[Manifest, ...]:
    """Execute a run with what follows it in directories; see `run`."""
    whole = resolved.run
    if not any(is_followed(each.options) for each in whole.outputs):
        return _executed(resolved, executor, observe, stop)
    from unloader.retention.following import check_before, follow

    failed = []

    def then(manifest: Manifest) -> None:
        own = of_route(whole, manifest.route.name if manifest.route else "")
        try:
            follow(own, manifest, _place_of(resolved, own), observe)
        except FollowUpFailed as error:
            failed.append(error)

    for own in _each(whole):
        check_before(own, _place_of(resolved, own))
    manifests = _executed(resolved, executor, observe, stop, then)
    if failed:
        raise failed[0]
    return manifests


def _executed(
    resolved: OpenRun,
    executor: Executor,
    observe: Observer,
    stop: Callable[[], bool],
    then: Callable[[Manifest], None] = lambda manifest: None,
) -> tuple[Manifest, ...]:
    output = open_output(resolved.run, resolved.resumed_in)
    with closing(output):
        seats, storage = resolved.run.seating.seats, output.live()
        live = LiveRun(resolved.run.run_id, seats, storage, observe, stop)
        history = History(began=resolved.started, cpus=node_cpus(resolved.run.topology))
        around = Circumstances(history=history)
        around.ceilings = ceilings_of(resolved.run.request, observe)
        table = TableRun(resolved=resolved, output=output, observe=live, around=around, then=then)
        current = _Run(table=table, observe=live)
        live.resumable = table.is_resumable
        live.snapshot_kept_until = kept_until(resolved.catalog)
        try:
            current.execute(executor, live.stop)
            return table.manifests
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            places = resolved.resumed_in or resolved.run.directories
            removed = "" if table.manifests else removed_place(places)
            kept = not removed and table.is_worth_keeping(known)
            if known is not None and removed:
                known = of_removed(live.told_by(known), removed)
            elif known is not None:
                told = live.told_by(known)
                known = _with_what_left(table.advised(told) if kept else told, output)
            live.close(storage, known or error)
            with suppress(UnloaderError, OSError):
                table.abandon(kept=kept)
            if known is not None:
                raise known from error
            raise
        finally:
            live.close()
            current.close()


class _Run(Struct):
    """The state of one run of one table in the parent."""

    table: TableRun
    observe: LiveRun
    _end_workers: Callable[[], None] = lambda: None
    _load: LoadWatch | None = None

    @property
    def resolved(self) -> OpenRun:
        """What is executed, with its open source."""
        return self.table.resolved

    def execute(self, executor: Executor, stop: Callable[[], bool]) -> None:
        table, run, catalog = self.table, self.table.run, self.resolved.catalog
        if run.request.verify == "source":
            check_able(catalog, run.extract.source.kind)
        self._load = watched_load(run.request, catalog)
        table.output.begin(self.observe, stop)
        until = self._keep_snapshot()
        table.keep_record()
        self._tell_start(until)
        before = table.take_up(stop)
        self.observe(PhaseStarted(phase="unloading"))
        self._unload(executor, before, stop)
        table.verify(stop, self._end_workers)
        check_stop(stop, "before the files had their final names")
        self.observe(PhaseStarted(phase="publishing"))
        table.publish(stop)
        totals = totals_of(table.manifests)
        self.observe(RunFinished(rows=totals.rows, bytes=totals.bytes, seconds=totals.seconds))
        self._end_keeping()

    def _tell_start(self, kept_until: str) -> None:
        run = self.table.run
        plan = run.plan
        self.observe(
            RunStarted(
                run_id=run.run_id,
                table=run.extract.table.label,
                units=len(plan.units),
                workers=len(run.seating.seats),
                rows=_total(unit.rows for unit in plan.units),
                bytes=_total(unit.bytes for unit in plan.units),
                snapshot=_point(run.extract.snapshot),
                end_sessions_sql=end_sessions_sql(self.resolved.catalog),
                destinations=self._places(),
                nodes=tuple(seat.node for seat in run.seating.seats),
                adaptive=is_adaptive(run.request),
            )
        )
        for text in (*missing_libraries(run), *run.seating.notices, *output_notices(run)):
            self.observe(Notice(text=text))
        if kept_until:
            text = f"if the run dies, its snapshot is kept until {kept_until}; see unloader keepers"
            self.observe(Notice(text=text))

    def _places(self) -> tuple[str, ...]:
        """Return where the output goes, as displays show it."""
        run = self.table.run
        if len(run.outputs) > 1:
            return tuple(place for each in run.outputs for place in each.options.destinations)
        return self.resolved.resumed_in or run.output.options.destinations

    def _keep_snapshot(self) -> str:
        """Have the snapshot outlive the run from here on, where that was asked for; say how long.

        Before the run is on record: what is on record can be resumed.
        """
        storage = self.table.output.live()
        return keep_until_gone(self.resolved.catalog, storage.marks() if storage else ())

    def _end_keeping(self) -> None:
        if self.table.run.plan.part is not None:
            return  # Other parts may still read it. It goes with the plan's file.
        try:
            end_keeping(self.resolved.catalog)
        except UnloaderError as error:
            # The run is complete. The keeper finds that out by itself.
            self.observe(Notice(text=error.message))

    def _unload(self, executor: Executor, before: Progress, stop: Callable[[], bool]) -> None:
        table, around = self.table, self.table.around
        request = table.run.request
        units = table.units_left()
        places = max(1, min(len(table.run.seating.seats), len(units)))
        steering = around.steering = RunSteering(
            request=request,
            most=places,
            live=self.observe,
            pids=executor.pids,
            load=self._load,
            seconds=around.history.seconds,
        )
        work = table.work(executor, stop, room=table.room_watch(), concurrency=steering)
        schedule = Schedule(
            units=units,
            retry=request.retry,
            in_order=table.output.in_order,
            before=before.attempts,
            jitter=spread(table.run.run_id),
        )
        engine = Engine(schedule=schedule, work=work, stall_seconds=request.retry.stall_seconds)
        executor.begin_with(min(steering.first_workers, places), places)
        prove(executor, table.run, self.resolved.resumed_in or table.run.directories)
        around.history.look()
        try:
            engine.run(executor)
        finally:
            around.history.look(at_once=True)
            around.evidence = executor.evidence()
            self._end_workers = executor.close
            around.lowest_parallelism = schedule.capacity.lowest
            self.close()
        if engine.failure is not None:
            table.output.check()
            raise error_of(engine.failure)
        if schedule.given_up:
            raise work.partial(schedule.given_up, len(table.run.plan.units))

    def close(self) -> None:
        """End what watches the database; may be called again."""
        if self._load is not None:
            self._load.close()
            self._load = None


def _with_what_left(error: UnloaderError, output: RunOutput) -> UnloaderError:
    """Return the error with what of the broken run is already in somebody's hands."""
    delivered = output.already_delivered()
    if not delivered:
        return error
    step = output.next_step(resumable=False)
    hint = step if isinstance(error, Interrupted) else error.hint
    return type(error)(f"{error.message.rstrip('. ')}; {delivered}", hint)


def _point(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip()


def _total(values: Any) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
