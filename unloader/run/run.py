"""A run from its resolved tables to their manifests, in the order in which it happens.

Take the places and the snapshot, put the run on record, hand out the units of all tables, count and
verify each table, publish it, write the manifest. A run of one table has its record and its
manifest in the directory of that table. Several tables have a directory around theirs for these
(`home`), and a table is counted and published while others are read.

Nothing is published before every unit of its table is done and the number of rows agrees with the
source's own at the same snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule, spread
from unloader.errors import Interrupted, OutputFailed, UnloaderError, translate
from unloader.events import Notice, Observer, Phase, PhaseStarted, RunFinished, Tick
from unloader.failures import error_of
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest, TablesManifest, totals_of
from unloader.manifest.read import manifest_bytes
from unloader.model import AttemptFailure, Request, TablesOptions
from unloader.placement.evidence import Evidence
from unloader.resolve.outputs.directories import is_followed
from unloader.resolve.outputs.one import of_output, of_route
from unloader.resolve.resolution import OpenRun
from unloader.resolve.tables.homes import home_of, is_dropped
from unloader.resolve.tables.resolving import OpenTables
from unloader.run.bundles import bundled, spread_out
from unloader.run.concurrency.opening import RunSteering, watched_load
from unloader.run.ending import abandon, advised, manifest_of, partial_error
from unloader.run.finishing import Ended, Finisher, SharedCatalog, check_tables, known_failure
from unloader.run.following import Following
from unloader.run.home import Abandoned, NoHome, tables_record, take_home, with_what_it_replaces
from unloader.run.outputs.left import Left
from unloader.run.room import room_watch
from unloader.run.state import RunState, TableState
from unloader.run.table_run import check_stop
from unloader.run.taking_places import Opening, TablePlaces, Taking, take_up
from unloader.run.telling import Counting, tell_of, tell_start
from unloader.run.work import TablesWork, TableUnit, largest_first, named
from unloader.run.workers import prove
from unloader.sources.abilities import end_keeping, keep_until_gone, kept_until
from unloader.status.recording import LiveRun
from unloader.storage.base import RunStorage
from unloader.storage.model import RUN_RECORD
from unloader.storage.opening import storage_at
from unloader.verification.source import check_able
from writers.errors import WriteError
from writers.files.syncing import SyncThreads, together

if TYPE_CHECKING:
    from unloader.run.concurrency.load_watch import LoadWatch


_LAST_ORDERS = 4
"""For each worker: so few are left that tables need not wait for others to be published (guess)."""

_SAME_SECONDS = 0.05
"""For so long what is known of the workers is what was known before."""


def run(
    resolved: OpenRun,
    executor: Executor,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> tuple[Manifest, ...]:
    """Execute a run of one table or query; return its manifest, of several routes that of each.

    Args:
        resolved: The run with its open source.
        executor: Does the work units; given back by the caller.
        observe: Called with each event.
        stop: Asked several times a second.

    Raises:
        OutputFailed: The destination refused, or a value does not fit the format; or the files are
            complete, and the table of a lakehouse that they are for has refused them.
        SourceError: The source failed for good.
        PartialUnload: Some units failed after all attempts; the finished ones stay staged until
            the next run.
        VerifyMismatch: Rows written and rows counted by the source differ.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        FollowUpFailed: All is published, but `--latest-link` could not be switched.
    """
    home = resolved.place_of(of_output(resolved.run, 0))
    tables = OpenTables(
        run_id=resolved.run.run_id,
        runs=(resolved.run,),
        catalog=resolved.catalog,
        started=resolved.started,
        resumed_in=home if resolved.resumed_in else "",
    )
    state = RunState(
        resolved=tables,
        options=TablesOptions(destination=home),
        home=home,
        live=LiveRun(tables.run_id, resolved.run.seating.seats, observe, stop),
        alone=resolved,
    )
    _execute(state, executor)
    manifests = state.tables[0].run.manifests
    for manifest in manifests:
        own = of_route(resolved.run, manifest.route.name if manifest.route else "")
        commit(manifest, resolved.place_of(own), observe, is_own=True)
    return manifests


def run_tables(
    resolved: OpenTables,
    executor: Executor,
    options: TablesOptions,
    left: Mapping[TablePlaces, Left] | None = None,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> TablesManifest:
    """Execute the runs of several tables as one; return its manifest.

    Args:
        resolved: The runs with their open source.
        executor: Does the work units; given back by the caller.
        options: Of the run as a whole.
        left: Of a run that is resumed, what is there of each table.
        observe: Called with each event, in this thread.
        stop: Asked several times a second.

    Raises:
        OutputFailed: A destination refused before anything was read.
        PartialUnload: Some tables are not complete; the others are.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        UnloaderError: Whatever ended the run.
    """
    home = resolved.resumed_in or options.home or home_of(options.destination, resolved.runs)
    state = RunState(
        resolved=resolved,
        options=with_what_it_replaces(options, home),
        home=home,
        live=LiveRun(resolved.run_id, resolved.runs[0].seating.seats, observe, stop),
    )
    manifest = _execute(state, executor, left)
    assert manifest is not None
    return manifest


def _execute(
    state: RunState, executor: Executor, left: Mapping[TablePlaces, Left] | None = None
) -> TablesManifest | None:
    """Take the places, execute the run, and leave what a broken run can be resumed from."""
    resolved, live = state.resolved, state.live
    with ExitStack() as held:
        current = _Run(state=state, held=held, left=left or {}, following=_following(state))
        held.callback(live.close)
        if state.alone is None and not is_dropped(state.home):
            if not resolved.resumed_in:
                current.abandoned = Abandoned.in_home(state.home, resolved.runs)
            resumed = bool(resolved.resumed_in)
            taken = take_home(state.home, resolved.run_id, state.options, resumed=resumed)
            held.callback(taken.close)
            current.storage = taken
            live.record_in(taken)
        try:
            manifest = current.execute(executor)
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            if known is not None:
                known = advised(state, known)
            live.close(known or error)
            with suppress(UnloaderError, WriteError, OSError):
                current.abandon(known)
            if known is not None:
                raise known from error
            raise
        current.following.raise_failed()
        return manifest


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one run in the parent."""

    state: RunState
    held: ExitStack
    """Gives everything back in the end."""
    following: Following
    left: Mapping[TablePlaces, Left]
    """Of a run that is resumed, what is there of each of several tables."""
    storage: RunStorage | NoHome = field(default_factory=NoHome)
    """The directory around those of several tables."""
    abandoned: Abandoned = field(default_factory=Abandoned)
    _counting: Counting = field(init=False)
    _catalog: SharedCatalog = field(init=False)
    _opening: Opening = field(init=False)
    _load: LoadWatch | None = None
    _taking: Taking | None = None
    """Of directories that are taken while others are read."""
    _done_before_record: list[TableState] = field(default_factory=list)
    """Tables that are staged while the run is not on record."""
    _finisher: Finisher | None = None
    """Of several tables; one is counted and published when its units are done."""
    _work: TablesWork | None = None

    def execute(self, executor: Executor) -> TablesManifest | None:
        """Do all of it; return the manifest of several tables."""
        state = self.state
        catalog, first = state.resolved.catalog, state.resolved.runs[0]
        if first.request.verify == "source":
            check_able(catalog, first.extract.source.kind)
        self._load = watched_load(first.request, catalog)
        self.held.callback(self._close_load)
        # The thread that counts has the catalog, too.
        self._catalog = SharedCatalog(catalog)
        opening = self._opening = Opening(
            state=state,
            catalog=self._catalog,
            following=self.following,
            held=self.held,
            left=self.left,
        )
        self._counting = opening.take_all()
        until = keep_until_gone(catalog, self._marks())
        state.live.resumable = state.tables[0].run.is_resumable
        state.live.snapshot_kept_until = kept_until(catalog)
        if not opening.later:
            if not state.resolved.resumed_in:
                self._keep_record()
            state.is_recorded = True
        tell_start(state, self._counting, until)
        take_up(state, self._counting)
        state.live(PhaseStarted(phase="unloading"))
        if state.alone is not None:
            table = state.tables[0]
            units = [TableUnit(table=0, unit=unit) for unit in table.run.units_left()]
            self._unload(executor, units)
            self._finish(table, executor)
        else:
            units = self._units()
            if opening.later:
                order = (number for unit in units for number in unit.tables)
                self._taking = opening.take_later(order, self._keep_record)
                self.held.callback(self._taking.close)
            at_once = state.options.publish == "table"
            self._finisher = Finisher(self._check, self._publish, state.live, at_once=at_once)
            self.held.callback(self._finisher.close)
            self._unload(executor, units)
            self._wait("publishing" if at_once else "counting")
            if not at_once:
                self._publish_all()
        return self._end()

    def _marks(self) -> tuple[str, ...]:
        """Return what is gone once nobody can resume the run."""
        if self.state.alone is None:
            return self.storage.marks()
        live = self.state.tables[0].run.output.live()
        return () if live is None else live.marks()

    def _keep_record(self) -> None:
        """Put on record what is to be done; of several tables maybe in a thread."""
        state = self.state
        if state.alone is not None:
            state.tables[0].run.output.keep(RUN_RECORD, state.alone.run.record())
            return
        record = tables_record(state.resolved, state.options, state.home, state.problems)
        self.storage.keep(RUN_RECORD, record)
        self.abandoned.clear()

    def _unload(self, executor: Executor, units: Sequence[TableUnit]) -> None:
        state = self.state
        first = state.tables[0].run
        request = first.run.request
        places = max(1, min(len(first.run.seating.seats), len(units)))
        steering = RunSteering(
            request=request,
            most=places,
            live=state.live,
            pids=executor.pids,
            load=self._load,
            seconds=first.around.history.seconds,
        )
        room = room_watch(self._places(), [table.run.run for table in state.tables], state.live)
        known, until = Evidence(), 0.0

        def done(table: TableState) -> None:
            nonlocal known, until
            if state.alone is not None:
                return
            # Many come with one answer, and nothing has happened between them.
            if time.monotonic() >= until:
                known, until = executor.evidence(), time.monotonic() + _SAME_SECONDS
            table.run.around.evidence = known
            if state.is_recorded:
                self._finisher_of().take(table)
            else:
                self._done_before_record.append(table)

        for table in state.tables:
            table.run.around.steering = steering
        work = self._work = TablesWork(
            state=state,
            stop=lambda: check_stop(state.stop, "before all work units were done"),
            concurrency=steering,
            works={
                table.number: table.run.work(executor, state.stop, room=room, concurrency=steering)
                for table in state.tables
                if not table.is_over
            },
            on_done=done,
            on_failed=self._tell_of,
            room=room,
        )
        schedule: Schedule[TableUnit] = Schedule(
            units=units,
            retry=request.retry,
            in_order=first.output.in_order,
            before={
                f"{table.number}.{unit}": attempts
                for table in state.tables
                for unit, attempts in table.before.attempts.items()
            },
            parts=lambda unit: unit.parts,
            jitter=spread(state.resolved.run_id),
            ready=lambda unit: all(state.tables[each].is_settled for each in unit.tables),
        )
        work.drop, work.put_back = schedule.drop, schedule.put_back

        def collect() -> None:
            if self._finisher is None:
                return
            if schedule.fresh <= _LAST_ORDERS * places:
                # What is published now is not waited for when all is read.
                self._finisher.hurry()
            self._collect()

        work.collect = collect
        engine = Engine(schedule=schedule, work=work, stall_seconds=request.retry.stall_seconds)
        for table in state.tables:
            if not table.is_over and not table.run.units_left():
                # All was staged before the run was interrupted.
                done(table)
        executor.begin_with(min(steering.first_workers, places), places)
        prove(executor, first.run, self._places())
        work.look()
        try:
            engine.run(executor)
        finally:
            work.look(at_once=True)
            if state.alone is not None:
                first.around.evidence = executor.evidence()
                first.around.lowest_parallelism = schedule.capacity.lowest
            self._close_load()
        if engine.failure is not None:
            raise self._ended_by(engine.failure)
        if schedule.given_up and state.alone is not None:
            raise work.works[0].partial(schedule.given_up, len(first.run.plan.units))
        if schedule.given_up and state.options.on_failure == "stop":
            raise self._ended_by(next(iter(schedule.given_up.values())))

    def _places(self) -> tuple[str, ...]:
        """Return where the run has its lock and its files."""
        alone = self.state.alone
        if alone is not None:
            return alone.resumed_in or alone.run.directories
        return (self.state.home,)

    def _finish(self, table: TableState, executor: Executor) -> None:
        """Verify the only table, and publish it."""
        state = self.state
        table.run.verify(state.stop, state.resolved.catalog, executor.close)
        check_stop(state.stop, "before the files had their final names")
        state.live(PhaseStarted(phase="publishing"))
        table.manifest = table.run.publish(state.stop)

    def _finisher_of(self) -> Finisher:
        """Return what finishes several tables."""
        assert self._finisher is not None
        return self._finisher

    def _close_load(self) -> None:
        """End what watches the database; may be called again."""
        if self._load is not None:
            self._load.close()
            self._load = None

    def _units(self) -> list[TableUnit]:
        """Return what is to be read of several tables, in the order in which it is handed out."""
        units = largest_first(
            TableUnit(table=table.number, unit=unit)
            for table in self.state.tables
            if not table.is_over
            for unit in table.run.units_left()
        )
        able = {
            table.number
            for table in self.state.tables
            if len(table.units) == 1 and table.is_plain and not table.before.attempts
        }
        workers = len(self.state.tables[0].run.run.seating.seats)
        return spread_out(list(bundled(units, able, workers)), able, workers)

    def _ended_by(self, failure: AttemptFailure) -> UnloaderError:
        """Return the error of a run that ends with one of its tables; it names one of several."""
        if self.state.alone is not None:
            # What the output says comes first: that its reader has gone, for example.
            self.state.tables[0].run.output.check()
        names = [table.name for table in self.state.tables if table.failure is not None]
        if names and self.state.alone is None:
            failure = replace(failure, message=f"{names[0]}: {failure.message}")
        return error_of(failure)

    def _check(self, tables: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
        """Count tables whose units are done; in a thread."""
        return check_tables(
            tables, self._catalog, self.state.stop, lambda table: named(observe, table.name)
        )

    def _publish(
        self, tables: Sequence[TableState], threads: SyncThreads, observe: Observer
    ) -> Iterator[Ended]:
        """Publish tables that are checked, together; in a thread."""
        for table in tables:
            table.run.observe = named(observe, table.name)
        acts = [table.run.publishing(self.state.stop) for table in tables]
        for number, found in together(acts, threads):
            table = tables[number]
            if isinstance(found, BaseException):
                yield table, found
                continue
            table.release()
            table.manifest = found
            yield table, None

    def _collect(self, timeout_seconds: float = 0.0) -> None:
        """Take up what has become of tables."""
        finisher = self._finisher_of()
        # Whichever of the two is busy is waited for; the tables come before what is beside them.
        self._collect_taken(finisher, 0.0 if finisher.is_busy else timeout_seconds)
        for table, error in finisher.collect(timeout_seconds):
            if error is not None:
                failure = known_failure(error)
                if isinstance(error, Interrupted):
                    raise error_of(failure)
                table.failure = failure
                self._tell_of(table)
                if self.state.options.on_failure == "stop":
                    raise self._ended_by(failure)
            else:
                self._tell_of(table)

    def _collect_taken(self, finisher: Finisher, timeout_seconds: float) -> None:
        """Take up the tables whose directories are taken since, or cannot be."""
        taking, work = self._taking, self._work
        if taking is None or work is None or not taking.is_busy:
            return
        for table, error in taking.collect(timeout_seconds):
            error = error or self._opening.begun(table)
            if error is None:
                continue
            failure = known_failure(error)
            if isinstance(error, Interrupted):
                raise error_of(failure)
            work.give_up(table, failure)
            if self.state.options.on_failure == "stop":
                raise self._ended_by(failure)
        if taking.is_recorded and not self.state.is_recorded:
            self.state.is_recorded = True
            for table in self._done_before_record:
                finisher.take(table)

    def _tell_of(self, table: TableState) -> None:
        tell_of(self.state, self._counting, table)

    def abandon(self, error: UnloaderError | None) -> None:
        """Leave of each table what can be resumed, or no trace.

        Args:
            error: What ended the run; None for what nobody expected.
        """
        if self._taking is not None:
            self._taking.close()
        if self._finisher is not None:
            self._finisher.close()
        abandon(self.state, self.storage, error)

    def _wait(self, phase: Phase | None = None) -> None:
        """Wait until the last tables are counted and published.

        Args:
            phase: Begins with it, if there is anything to wait for.
        """
        finisher = self._finisher_of()
        finisher.hurry()
        if finisher.is_busy and phase:
            self.state.live(PhaseStarted(phase=phase))
        while finisher.is_busy or (self._taking is not None and self._taking.is_busy):
            self.state.live(Tick())
            check_stop(self.state.stop, "before all tables were published")
            self._collect(0.2)

    def _publish_all(self) -> None:
        self.state.live(PhaseStarted(phase="publishing"))
        if self.state.options.on_failure == "stop":
            check_stop(self.state.stop, "before the files had their final names")
        finisher = self._finisher_of()
        for table in self.state.tables:
            if table.is_checked and not table.is_over:
                finisher.publish(table)
        self._wait()

    def _end(self) -> TablesManifest | None:
        """Write the manifest of several tables, or raise where some are not complete."""
        state = self.state
        failed = [table for table in state.tables if table.manifest is None]
        if failed or state.problems:
            raise partial_error(state, failed)
        totals = [totals_of(table.run.manifests) for table in state.tables]
        seconds = max(each.seconds for each in totals)
        manifest = None
        if state.alone is None:
            manifest = manifest_of(state, complete=True)
            seconds = manifest.totals.seconds
            self.storage.commit(
                (),
                manifest_bytes(manifest),
                lambda: self.following.after_all(manifest, state.live),
            )
        rows, size = sum(each.rows for each in totals), sum(each.bytes for each in totals)
        state.live(RunFinished(rows=rows, bytes=size, seconds=seconds))
        self._end_keeping()
        return manifest

    def _end_keeping(self) -> None:
        if self.state.resolved.runs[0].plan.part is not None:
            return  # Other parts may still read it. It goes with the plan's file.
        try:
            end_keeping(self.state.resolved.catalog)
        except UnloaderError as error:
            # The run is complete. The keeper finds that out by itself.
            self.state.live(Notice(text=error.message))


def _following(state: RunState) -> Following:
    """Return what follows the run, once it is known that nothing is in the way of it."""
    runs = state.resolved.runs
    if state.alone is not None:
        following = Following.of_one(state.alone)
    else:
        followed = (run for run in runs if any(is_followed(each.options) for each in run.outputs))
        run = next(followed, runs[0])
        following = Following.of_run(run, state.home, state.options.destination)
    following.check_before()
    return following


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
    """Tell of earlier runs for a table that are not part of it.

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
