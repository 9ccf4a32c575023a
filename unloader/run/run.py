"""A run from its resolved tables to their manifests, in the order in which it happens.

Take the places and the snapshot, put the run on record, hand out the units of all tables, count and
verify each table, publish it, write the manifest. A run over several tables has its record and its
manifest in the directory around theirs. A single table is the smallest case: its directory and its
manifest belong to the run.

Nothing is published before every unit of its table is done and the number of rows agrees with the
source's own at the same snapshot.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule, spread
from unloader.errors import Interrupted, OutputFailed, PartialUnload, UnloaderError, translate
from unloader.events import Notice, Observer, Phase, PhaseStarted, RunFinished, Tick
from unloader.failures import error_of
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest, TablesManifest, totals_of
from unloader.manifest.read import manifest_bytes
from unloader.model import AttemptFailure, Request
from unloader.resolve.opening import OpenRun
from unloader.resolve.places import home_of, is_followed
from unloader.retention.following import Following
from unloader.run.concurrency import RunSteering, watched_load
from unloader.run.ending import abandon, advised, manifest_of, partial_error
from unloader.run.file_output import Left
from unloader.run.finishing import Ended, Finisher, check_tables, known_failure
from unloader.run.order import TableUnit, bundled, largest_first, spread_out
from unloader.run.outputs import check_stop, continued
from unloader.run.places import Home, TablePlaces, take_tables, with_what_it_replaces
from unloader.run.reporting import Reporter
from unloader.run.room import room_watch
from unloader.run.table import RunState, Table
from unloader.run.work import Units
from unloader.run.workers import ceilings_at, prove
from unloader.status.recording import LiveRun
from unloader.storage.storage_lookup import storage_at
from writers.errors import WriteError
from writers.files.syncing import SyncThreads, together

if TYPE_CHECKING:
    from unloader.run.concurrency import LoadWatch
    from unloader.storage.storage_protocol import LiveStorage

Manifests = tuple[Manifest, ...] | TablesManifest
"""A run returns the manifest of each output of a single table, or the manifest of several
tables."""

_LAST_ORDERS = 4
"""For each worker: so few are left that tables need not wait for others to be published (guess)."""

_SAME_SECONDS = 0.05
"""For this time, the state of the workers counts as unchanged."""


def run(
    resolved: OpenRun,
    executor: Executor,
    left: Mapping[TablePlaces, Left] | None = None,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> Manifests:
    """Execute a run; return its manifest, or a manifest for each route of a single table.

    Args:
        left: The remains of each table of a resumed run.
        stop: Asked several times a second.

    Raises:
        OutputFailed: A destination refused, or a value does not fit the format; or the files are
            complete, and the table of a lakehouse that they are for has refused them.
        SourceError: The source failed for good.
        PartialUnload: Some units failed after all attempts, or some tables are not complete; the
            finished units stay staged for `resume`.
        VerifyMismatch: Rows written and rows counted by the source differ.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        FollowUpFailed: All is published, but `--latest-link` could not be switched.
    """
    first, options = resolved.tables[0], resolved.options
    if resolved.is_single:
        home = first.output.options.destination
    else:
        home = resolved.resumed_in or options.home or home_of(options.destination, resolved.tables)
        options = with_what_it_replaces(options, home)
    state = RunState(
        resolved=resolved,
        options=options,
        home=home,
        is_single=resolved.is_single,
        live=LiveRun(resolved.run_id, first.seating.seats, observe, stop),
    )
    with ExitStack() as held:
        current = _Run(state=state, executor=executor, held=held, left=left or {})
        held.callback(state.live.close)
        try:
            manifests = current.execute()
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            if known is not None:
                known = advised(state, known)
            state.live.close(known or error)
            with suppress(UnloaderError, WriteError, OSError):
                current.abandon(known)
            if known is not None:
                raise known from error
            raise
        if current.following.failed is not None:
            raise current.following.failed
    for output in state.tables[0].outputs if state.is_single else ():
        if output.manifest is not None:
            commit(output.manifest, output.destination, observe, is_own=True)
    return manifests


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one run in the parent."""

    state: RunState
    executor: Executor
    held: ExitStack
    left: Mapping[TablePlaces, Left]
    following: Following = field(init=False)
    _home: Home | None = None
    _reporter: Reporter = field(init=False)
    _finisher: Finisher = field(init=False)
    _load: LoadWatch | None = None

    def execute(self) -> Manifests:
        state, resolved = self.state, self.state.resolved
        first, runs = resolved.tables[0], resolved.tables
        at_once = state.options.publish == "table"
        self._finisher = Finisher(
            lambda tables, observe: check_tables(tables, state, observe),
            self._publish,
            state.live,
            at_once=at_once,
        )
        self.held.callback(self._finisher.close)
        # Know what follows the run, and that nothing is in the way of it.
        followed = (run for run in runs if any(is_followed(each.options) for each in run.outputs))
        template = None if state.is_single else state.options.destination
        self.following = Following.of_run(next(followed, first), state.home, template)
        if self.following.of != "nothing":
            self.following.check_before()
        # Lock the places.
        home = self._home = Home(state)
        if home.storage is not None:
            self.held.callback(home.storage.close)
        if first.request.verify == "source":
            from unloader.verification.source import check_able

            check_able(resolved.catalog, first.extract.source.kind)
        if first.request.concurrency is not None:
            load = self._load = watched_load(first.request.concurrency, resolved.catalog)
            if load is not None:
                self.held.callback(load.close)
        take_tables(state, self.following, self.held, self.left)
        # Let others see how far the run is, and end it.
        live: LiveStorage | None = state.tables[0].live() if state.is_single else home.storage
        if live is not None:
            state.live.record_in(live)
            self.held.callback(state.live.close)
        if state.is_single and first.request.ceilings is not None:
            state.ceilings = ceilings_at(first.request.ceilings, state.live)
        until = resolved.catalog.keep_until_gone(() if live is None else live.marks())
        state.live.resumable = state.is_resumable
        state.live.snapshot_kept_until = resolved.catalog.kept_until()
        # Put the run on record.
        if not resolved.resumed_in:
            home.keep_record()
        state.is_recorded = True
        reporter = self._reporter = Reporter(state)
        reporter.start(until)
        # Execute.
        state.live(PhaseStarted(phase="unloading"))
        units = [
            TableUnit(table=table.number, unit=unit)
            for table in state.tables
            if not table.is_over
            for unit in table.units_left()
        ]
        if not state.tables[0].outputs[0].in_order:
            units = largest_first(units)
            if len(state.tables) > 1:
                # Small tables are bundled, and come between the large ones.
                able = {
                    table.number
                    for table in state.tables
                    # One output of files takes its units in any order, each as often as need be.
                    if len(table.run.plan.units) == len(table.outputs) == 1
                    and table.outputs[0].is_kept
                    and not table.attempts
                }
                workers = len(first.seating.seats)
                units = spread_out(list(bundled(units, able, workers)), able, workers)
        self._unload(units)
        # Count, verify and publish unpublished tables.
        self._wait("publishing" if at_once else "counting")
        if not at_once:
            state.live(PhaseStarted(phase="publishing"))
            if state.options.on_failure == "stop":
                check_stop(state.live.stop, "before the files had their final names")
            for table in state.tables:
                if table.is_checked and not table.is_over:
                    self._finisher.publish(table)
            self._wait()
        return self._end()

    def _unload(self, orders: Sequence[TableUnit]) -> None:
        state, executor = self.state, self.executor
        first = state.tables[0]
        request = first.run.request
        places = max(1, min(len(first.run.seating.seats), len(orders)))
        steering = state.steering = RunSteering(
            request=request,
            most=places,
            live=state.live,
            pids=executor.pids,
            load=self._load,
            seconds=first.history.seconds,
        )
        if request.concurrency is not None:
            steering.begin(request.concurrency)
        until = 0.0

        def done(table: Table) -> None:
            nonlocal until
            # Many come with one answer, and nothing has happened between them.
            if time.monotonic() >= until:
                state.evidence = executor.evidence()
                until = time.monotonic() + _SAME_SECONDS
            # A single table is counted when its workers have ended.
            if not state.is_single:
                self._finisher.take(table)

        def collect() -> None:
            if schedule.fresh <= _LAST_ORDERS * places:
                # At the end of reading, tables that are published early need no wait.
                self._finisher.hurry()
            self._collect()

        units = Units(
            state=state,
            executor=executor,
            steered=steering,
            left=Counter(
                {each.number: len(each.units_left()) for each in state.tables if not each.is_over}
            ),
            on_done=done,
            on_failed=self._reporter.table,
            collect=collect,
            room=room_watch(state.places, [table.run for table in state.tables], state.live),
        )
        schedule: Schedule[TableUnit] = Schedule(
            units=orders,
            retry=request.retry,
            in_order=first.outputs[0].in_order,
            before={
                f"{table.number}.{unit}": attempts
                for table in state.tables
                for unit, attempts in table.attempts.items()
            },
            parts=lambda unit: unit.parts,
            jitter=spread(state.resolved.run_id),
        )
        units.drop, units.put_back = schedule.drop, schedule.put_back
        engine = Engine(schedule=schedule, work=units, stall_seconds=request.retry.stall_seconds)
        for table in state.tables:
            if not table.is_over and not table.units_left():
                # All was staged before the run was interrupted.
                done(table)
        wanted = places if steering.steering is None else steering.steering.control.places
        executor.use(min(wanted, places), places)
        if request.uses_cluster:
            prove(executor, first.run, state.places)
        if state.is_single:
            first.history.look()
        try:
            engine.run(executor)
        finally:
            if state.is_single:
                first.history.look(at_once=True)
                state.evidence = executor.evidence()
                state.lowest_parallelism = schedule.capacity.lowest
            if self._load is not None:
                self._load.close()
        if engine.failure is not None:
            raise self._ended_by(engine.failure)
        if schedule.given_up:
            name, failure = next(iter(schedule.given_up.items()))
            if state.is_single and first.finished:
                of, unit = len(first.run.plan.units), name.partition(".")[2]
                raise PartialUnload(
                    f"{len(schedule.given_up)} of {of} work units failed, first {unit}: "
                    f"{failure.message}",
                    continued(failure.hint, first.next_step(resumable=state.is_resumable)),
                )
            if state.is_single:
                raise error_of(failure)
            if state.options.on_failure == "stop":
                raise self._ended_by(failure)
        if state.is_single and not first.is_over:
            self._finisher.take(first)
        limits = request.concurrency
        if request.verify == "source" and limits is not None and limits.max_sessions is not None:
            # Each thread that computes checksums has a session, in place of a worker's.
            executor.close()

    def _ended_by(self, failure: AttemptFailure) -> UnloaderError:
        """Return the error of a run that ends with one of its tables; it names one of several."""
        tables = self.state.tables
        if self.state.is_single:
            # Errors of the output come first: for example, that its reader has gone.
            tables[0].check()
        elif name := next((table.name for table in tables if table.failure is not None), ""):
            failure = replace(failure, message=f"{name}: {failure.message}")
        return error_of(failure)

    def _publish(
        self, tables: Sequence[Table], threads: SyncThreads, observe: Observer
    ) -> Iterator[Ended]:
        """Publish tables that are checked, together; in a thread."""
        for table in tables:
            table.observe = self.state.observer_of(table.run, observe)
        steps = [table.publishing(self.state.live.stop) for table in tables]
        for number, found in together(steps, threads):
            if isinstance(found, BaseException):
                yield tables[number], found
                continue
            tables[number].release()
            yield tables[number], None

    def _collect(self, timeout_seconds: float = 0.0) -> None:
        state = self.state
        for table, error in self._finisher.collect(timeout_seconds):
            if error is not None:
                failure = known_failure(error)
                if state.is_single or isinstance(error, Interrupted):
                    raise error
                table.failure = failure
            self._reporter.table(table)
            if table.failure is not None and state.options.on_failure == "stop":
                raise self._ended_by(table.failure)

    def _wait(self, phase: Phase | None = None) -> None:
        """Wait until the last tables are counted and published.

        The threads that do this end when the user asks for it. Tables that are published by then
        stay published.

        Args:
            phase: Begins with it, if there is anything to wait for. A single table reports its
                phases.
        """
        self._finisher.hurry()
        if self._finisher.is_busy and phase and not self.state.is_single:
            self.state.live(PhaseStarted(phase=phase))
        while self._finisher.is_busy:
            self.state.live(Tick())
            self._collect(0.2)

    def _end(self) -> Manifests:
        """Write the manifest of several tables, or raise where some are not complete."""
        state = self.state
        failed = [table for table in state.tables if not table.is_published]
        if failed or state.problems:
            raise partial_error(state, failed)
        totals = [totals_of(table.manifests) for table in state.tables]
        seconds = max(each.seconds for each in totals)
        manifests: Manifests = state.tables[0].manifests
        if not state.is_single:
            manifests = whole = manifest_of(state, complete=True)
            seconds = whole.totals.seconds

            def then() -> None:
                self.following.after_all(whole, state.live)

            if self._home is not None and self._home.storage is not None:
                self._home.storage.commit((), manifest_bytes(whole), then)
            else:
                then()
        rows, size = sum(each.rows for each in totals), sum(each.bytes for each in totals)
        state.live(RunFinished(rows=rows, bytes=size, seconds=seconds))
        # Other parts of the plan may still read the snapshot. It ends with the plan's file.
        if state.resolved.tables[0].plan.part is None:
            try:
                state.resolved.catalog.end_keeping()
            except UnloaderError as error:
                # The run is complete. The keeper notices that it is not needed any more.
                state.live(Notice(text=error.message))
        return manifests

    def abandon(self, error: UnloaderError | None) -> None:
        self._finisher.close()
        abandon(self.state, None if self._home is None else self._home.storage, error)


def commit(manifest: Manifest, place: str, observe: Observer, *, is_own: bool) -> bool:
    """Make a published run part of its table, if it has one; return whether that was new.

    Raises:
        OutputFailed: See `unloader.lakehouse.lake_runs.commit_run`.
        ConfigError: See there.
    """
    if manifest.lake_table is None:
        return False
    # Imported on use: most runs are not for a table.
    from unloader.lakehouse.lake_runs import commit_run

    observe(PhaseStarted(phase="committing"))
    done = commit_run(manifest, place, is_own=is_own)
    name = manifest.lake_table.name
    if done.is_new:
        observe(Notice(text=f"committed to {name}: snapshot {done.snapshot}"))
    else:
        observe(Notice(text=f"already committed to {name}: snapshot {done.snapshot}"))
    return done.is_new


def check_before(request: Request, observe: Observer) -> None:
    """Report earlier runs for a table that are not part of it.

    Raises:
        OutputFailed: One is complete: whether its rows are wanted is the user's to say.
    """
    names = {each.output.destination for each in request.of_outputs()}
    for name in filter(lake_kind, sorted(names)):
        from unloader.lakehouse.lake_runs import has_begun, uncommitted

        for place, manifest in uncommitted(name):
            if manifest is not None:
                raise OutputFailed(
                    f"run {manifest.run_id} is complete in {place}, but it is not committed to "
                    f"{name}",
                    f"commit it with: unloader resume '{place}'; or remove it with: unloader clean "
                    f"'{place}'",
                )
            who = storage_at(place).who_was_here(place, counted=False)
            if who is not None and not who.is_running:
                text = f"run {who.run_id} for {name} was interrupted in {place}: "
                if has_begun(place):
                    text += f"resume it with: unloader resume '{place}'; or "
                text += f"remove it with: unloader clean '{place}'"
                observe(Notice(text=text))
