"""One run over several tables: hand out the units of all, publish each, tell what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

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
    Observer,
    Phase,
    PhaseStarted,
    RunFinished,
    Tick,
)
from unloader.failures import error_of
from unloader.manifest.routes import totals_of
from unloader.manifest.tables import (
    TablesManifest,
    tables_manifest_bytes,
)
from unloader.model import AttemptFailure, TablesOptions
from unloader.resolve.outputs.directories import is_followed
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.homes import home_of, is_dropped
from unloader.resolve.tables.resolving import OpenTables
from unloader.run.concurrency.opening import RunSteering, watched_load
from unloader.run.history import History
from unloader.run.outputs.left import Left
from unloader.run.table_run import check_stop
from unloader.run.tables.bundles import bundled, spread_out
from unloader.run.tables.checking import check_tables
from unloader.run.tables.counting import Counting
from unloader.run.tables.ending import abandon, advised, manifest_of, partial_error
from unloader.run.tables.finishing import Ended, Finisher, SharedCatalog, known_failure
from unloader.run.tables.following import Following
from unloader.run.tables.home import Abandoned, take_home, with_what_it_replaces
from unloader.run.tables.left import TablePlaces
from unloader.run.tables.nowhere import NoHome
from unloader.run.tables.opening import Opening, take_up
from unloader.run.tables.record import tables_record
from unloader.run.tables.room import room_watch
from unloader.run.tables.state import RunState, TableState
from unloader.run.tables.taking import Taking
from unloader.run.tables.telling import tell_of, tell_start
from unloader.run.tables.units import TablesWork, TableUnit, largest_first, named
from unloader.run.workers import prove
from unloader.sources.abilities import end_keeping, keep_until_gone, kept_until
from unloader.status.recording import LiveRun
from unloader.storage.base import RunStorage
from unloader.storage.model import RUN_RECORD
from writers.errors import WriteError
from writers.files.syncing import SyncThreads, together

_LAST_ORDERS = 4
"""For each worker: so few are left that tables need not wait for others to be published (guess)."""

_SAME_SECONDS = 0.05
"""For so long what is known of the workers is what was known before."""


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
        left: Of a run that is gone on with, what is there of each table.
        observe: Called with each event, in this thread.
        stop: Asked several times a second.

    Raises:
        OutputFailed: A destination refused before anything was read.
        PartialUnload: Some tables are not complete; the others are.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        UnloaderError: Whatever ended the run.
    """
    home = resolved.resumed_in or options.home or home_of(options.destination, resolved.runs)
    options = with_what_it_replaces(options, home)
    anew = not (resolved.resumed_in or is_dropped(home))
    abandoned = Abandoned.in_home(home, resolved.runs) if anew else Abandoned()
    with ExitStack() as held:
        taken = (
            None
            if is_dropped(home)
            else take_home(home, resolved.run_id, options, resumed=bool(resolved.resumed_in))
        )
        storage = taken or NoHome()
        held.callback(storage.close)
        following = Following.of_run(_followed(resolved.runs), home, options.destination)
        following.check_before()
        seats = resolved.runs[0].seating.seats
        live = LiveRun(resolved.run_id, seats, taken, observe, stop)
        held.callback(live.close)
        state = RunState(resolved=resolved, options=options, home=home, live=live)
        current = _TablesRun(
            state=state,
            storage=storage,
            held=held,
            following=following,
            left=left or {},
            abandoned=abandoned,
        )
        try:
            return following.raised_after(current.execute(executor))
        except FollowUpFailed:
            raise
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            if known is not None:
                known = advised(state, live.told_by(known))
            live.close(taken, known or error)
            with suppress(UnloaderError, WriteError, OSError):
                current.abandon()
            if known is not None:
                raise known from error
            raise


@dataclass(slots=True, kw_only=True)
class _TablesRun:
    state: RunState
    storage: RunStorage | NoHome
    held: ExitStack
    following: Following
    left: Mapping[TablePlaces, Left]
    abandoned: Abandoned
    _counting: Counting = field(init=False)
    _catalog: SharedCatalog = field(init=False)
    _history: History = field(init=False)
    _opening: Opening = field(init=False)
    _taking: Taking | None = None
    """Of directories that are taken while others are read."""
    _done_before_record: list[TableState] = field(default_factory=list)
    """Tables that are staged while the run is not on record."""
    _finisher: Finisher | None = None
    _work: TablesWork | None = None

    def __post_init__(self) -> None:
        """Share the catalog with the thread that counts."""
        self._catalog = SharedCatalog(self.state.resolved.catalog)
        self._history = History(began=self.state.resolved.started)

    def execute(self, executor: Executor) -> TablesManifest:
        state = self.state
        opening = self._opening = Opening(
            state=state,
            catalog=self._catalog,
            following=self.following,
            held=self.held,
            left=self.left,
        )
        self._counting = opening.take_all()
        catalog = state.resolved.catalog
        first = state.resolved.runs[0]
        load = watched_load(first.request, catalog)
        if load is not None:
            self.held.callback(load.close)
        until = keep_until_gone(catalog, self.storage.marks())
        state.live.resumable = state.tables[0].run.is_resumable
        state.live.snapshot_kept_until = kept_until(catalog)
        if not opening.later:
            if not state.resolved.resumed_in:
                self._keep_record()
            state.is_recorded = True
        tell_start(state, self._counting, until)
        take_up(state, self._counting)
        state.live(PhaseStarted(phase="unloading"))
        units = self._units()
        if opening.later:
            order = (number for unit in units for number in unit.tables)
            self._taking = opening.take_later(order, self._keep_record)
            self.held.callback(self._taking.close)
        finisher = self._finisher = Finisher(
            self._check,
            self._publish,
            state.live,
            at_once=state.options.publish == "table",
        )
        self.held.callback(finisher.close)
        self._unload(executor, load, units)
        self._wait("publishing" if state.options.publish == "table" else "counting")
        if state.options.publish == "run":
            self._publish_all()
        return self._end()

    def _keep_record(self) -> None:
        """Put on record what is to be done; maybe in a thread."""
        state = self.state
        record = tables_record(state.resolved, state.options, state.home, state.problems)
        self.storage.keep(RUN_RECORD, record)
        self.abandoned.clear()

    def _unload(self, executor: Executor, load: Any, units: Sequence[TableUnit]) -> None:
        state = self.state
        request = state.tables[0].run.run.request
        places = max(1, min(self._most_workers(), len(units)))
        steering = RunSteering(
            request=request,
            most=places,
            live=state.live,
            pids=executor.pids,
            load=load,
            seconds=self._history.seconds,
        )
        finisher = self._finisher
        assert finisher is not None
        room = room_watch(state.home, [table.run.run for table in state.tables], state.live)

        known = executor.evidence()
        until = time.monotonic()

        def done(table: TableState) -> None:
            nonlocal known, until
            # Many come with one answer, and nothing has happened between them.
            if time.monotonic() >= until:
                known, until = executor.evidence(), time.monotonic() + _SAME_SECONDS
            table.run.around.evidence = known
            table.run.around.steering = steering
            if state.is_recorded:
                finisher.take(table)
            else:
                self._done_before_record.append(table)

        work = self._work = TablesWork(
            tables=state.tables,
            history=self._history,
            observe=state.live,
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
            goes_on=state.options.on_failure == "continue",
        )
        schedule: Schedule[TableUnit] = Schedule(
            units=units,
            retry=request.retry,
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
            if schedule.fresh <= _LAST_ORDERS * places:
                # What is published now is not waited for when all is read.
                finisher.hurry()
            self._collect()

        work.collect = collect
        engine = Engine(schedule=schedule, work=work, stall_seconds=request.retry.stall_seconds)
        for table in state.tables:
            if not table.is_over and not table.run.units_left():
                # All was staged before the run was broken off.
                done(table)
        executor.begin_with(min(steering.first_workers, places), places)
        first = replace(state.resolved.runs[0], run_id=state.resolved.run_id)
        prove(executor, first, (state.home,))
        engine.run(executor)
        if engine.failure is not None:
            raise self._ended_by(engine.failure)
        if schedule.given_up and state.options.on_failure == "stop":
            raise self._ended_by(next(iter(schedule.given_up.values())))

    def _units(self) -> list[TableUnit]:
        """Return all that is to be read, in the order in which it is handed out."""
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
        workers = self._most_workers()
        return spread_out(list(bundled(units, able, workers)), able, workers)

    def _ended_by(self, failure: AttemptFailure) -> UnloaderError:
        """Return the error of a run that ends with one of its tables, which it names."""
        names = [table.name for table in self.state.tables if table.failure is not None]
        if names:
            failure = replace(failure, message=f"{names[0]}: {failure.message}")
        return error_of(failure)

    def _most_workers(self) -> int:
        return self.state.tables[0].run.run.plan.limits.parallelism

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
        finisher = self._finisher
        assert finisher is not None
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

    def abandon(self) -> None:
        """Leave of each table what can be gone on with, or no trace."""
        if self._taking is not None:
            self._taking.close()
        if self._finisher is not None:
            self._finisher.close()
        abandon(self.state, self.storage)

    def _wait(self, phase: Phase | None = None) -> None:
        """Wait until the last tables are counted and published.

        Args:
            phase: Begins with it, if there is anything to wait for.
        """
        finisher = self._finisher
        assert finisher is not None
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
        finisher = self._finisher
        assert finisher is not None
        for table in self.state.tables:
            if table.is_checked and not table.is_over:
                finisher.publish(table)
        self._wait()

    def _end(self) -> TablesManifest:
        """Write the manifest of the run, or raise where tables are not complete."""
        failed = [table for table in self.state.tables if table.manifest is None]
        if failed or self.state.problems:
            raise partial_error(self.state, failed)
        manifest = manifest_of(self.state, complete=True)
        self.storage.commit(
            (),
            tables_manifest_bytes(manifest),
            lambda: self.following.after_all(manifest, self.state.live),
        )
        totals = manifest.totals
        read = sum(totals_of(table.run.manifests).rows for table in self.state.tables)
        self.state.live(RunFinished(rows=read, bytes=totals.bytes, seconds=totals.seconds))
        with suppress(UnloaderError):
            end_keeping(self.state.resolved.catalog)
        return manifest


def _followed(runs: Sequence[ResolvedRun]) -> ResolvedRun:
    """Return a table that is followed by something; any where none is."""
    found = (run for run in runs if any(is_followed(each.options) for each in run.outputs))
    return next(found, runs[0])
