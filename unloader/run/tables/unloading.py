"""One run over several tables: hand out the units of all, publish each, tell what became of it."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from unloader import __version__
from unloader.engine.backoff import spread
from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule
from unloader.errors import (
    FollowUpFailed,
    Interrupted,
    PartialUnload,
    SnapshotGone,
    UnloaderError,
    VerifyMismatch,
    translate,
)
from unloader.events import (
    Notice,
    Observer,
    Phase,
    PhaseStarted,
    RunFinished,
    RunStarted,
    TableFinished,
    TableStaged,
    Tick,
    UnitsKept,
)
from unloader.failures import error_of
from unloader.manifest.model import SettingRecord, SourceRecord, TableRecord
from unloader.manifest.tables import (
    TableEntry,
    TablesManifest,
    TablesRecord,
    TablesTotals,
    tables_manifest_bytes,
)
from unloader.model import AttemptFailure, TablesOptions
from unloader.redaction import redact
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.homes import home_of, is_dropped, tables_label
from unloader.resolve.tables.problems import TableProblem, told_at_once
from unloader.resolve.tables.resolving import OpenTables
from unloader.run.concurrency.opening import RunSteering, is_adaptive, watched_load
from unloader.run.history import History
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.left import left_of
from unloader.run.outputs.null import NullOutput
from unloader.run.outputs.opening import open_output
from unloader.run.table_run import Circumstances, TableRun, check_stop
from unloader.run.tables.checking import check_tables
from unloader.run.tables.counting import Counting, rows_of
from unloader.run.tables.entries import entries_of, published_manifests
from unloader.run.tables.finishing import Ended, Finisher, SharedCatalog, known_failure
from unloader.run.tables.following import Following
from unloader.run.tables.home import take_home
from unloader.run.tables.nowhere import NoHome
from unloader.run.tables.open_files import allow_for
from unloader.run.tables.record import tables_record
from unloader.run.tables.room import room_watch
from unloader.run.tables.state import TableState
from unloader.run.tables.units import TablesWork, TableUnit, largest_first, named
from unloader.sources.abilities import end_keeping, end_sessions_sql, keep_until_gone, kept_until
from unloader.sources.base import Catalog
from unloader.status.recording import LiveRun
from unloader.status.tables import is_published
from unloader.storage.base import RunStorage
from unloader.storage.model import RUN_RECORD
from unloader.storage.opening import storage_at
from writers.errors import WriteError

MOST_NAMED = 20
"""So many tables are named in a message."""


def run_tables(
    resolved: OpenTables,
    executor: Executor,
    options: TablesOptions,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> TablesManifest:
    """Execute the runs of several tables as one; return its manifest.

    Args:
        resolved: The runs with their open source.
        executor: Does the work units; given back by the caller.
        options: Of the run as a whole.
        observe: Called with each event, in this thread.
        stop: Asked several times a second.

    Raises:
        OutputFailed: A destination refused before anything was read.
        PartialUnload: Some tables are not complete; the others are.
        Interrupted: `stop` returned True, or `unloader stop` asked for the end.
        UnloaderError: Whatever ended the run.
    """
    home = home_of(options.destination, resolved.runs)
    home = resolved.resumed_in or options.home or home
    with ExitStack() as held:
        taken = (
            None
            if is_dropped(home)
            else take_home(
                home,
                resolved.run_id,
                overwrite=options.overwrite,
                resumed=bool(resolved.resumed_in),
            )
        )
        storage = taken or NoHome()
        held.callback(storage.close)
        following = Following.of_run(resolved.runs[0], home, options.destination)
        following.check_before()
        seats = resolved.runs[0].seating.seats
        live = LiveRun(resolved.run_id, seats, taken, observe, stop)
        held.callback(live.close)
        current = _TablesRun(
            resolved=resolved,
            options=options,
            home=home,
            storage=storage,
            live=live,
            held=held,
            following=following,
        )
        try:
            return following.raised_after(current.execute(executor))
        except FollowUpFailed:
            raise
        except BaseException as error:
            known = translate(error) if isinstance(error, Exception) else None
            if known is not None:
                known = current.advised(live.told_by(known))
            live.close(taken, known or error)
            with suppress(UnloaderError, WriteError, OSError):
                current.abandon(known)
            if known is not None:
                raise known from error
            raise


@dataclass(slots=True, kw_only=True)
class _TablesRun:
    resolved: OpenTables
    options: TablesOptions
    home: str
    storage: RunStorage | NoHome
    live: LiveRun
    held: ExitStack
    following: Following
    tables: list[TableState] = field(default_factory=list)
    problems: list[TableProblem] = field(default_factory=list)
    _counting: Counting = field(init=False)
    _catalog: SharedCatalog = field(init=False)
    _history: History = field(init=False)
    _is_recorded: bool = False
    _finisher: Finisher | None = None
    _work: TablesWork | None = None

    def __post_init__(self) -> None:
        """Share the catalog with the thread that counts."""
        self._catalog = SharedCatalog(self.resolved.catalog)
        self._history = History(began=self.resolved.started)

    def execute(self, executor: Executor) -> TablesManifest:
        self._open_outputs()
        catalog = self.resolved.catalog
        first = self.resolved.runs[0]
        load = watched_load(first.request, catalog)
        if load is not None:
            self.held.callback(load.close)
        until = keep_until_gone(catalog, self.storage.marks())
        self.live.resumable = self.tables[0].run.is_resumable
        self.live.snapshot_kept_until = kept_until(catalog)
        if not self.resolved.resumed_in:
            self.storage.keep(
                RUN_RECORD, tables_record(self.resolved, self.options, self.home, self.problems)
            )
        self._is_recorded = True
        self._tell_start(until)
        self._take_up()
        self.live(PhaseStarted(phase="unloading"))
        finisher = self._finisher = Finisher(
            self._check, self._publish, self.live, at_once=self.options.publish == "table"
        )
        self.held.callback(finisher.close)
        self._unload(executor, load)
        self._wait("publishing" if self.options.publish == "table" else "counting")
        if self.options.publish == "run":
            self._publish_all()
        return self._end()

    def _open_outputs(self) -> None:
        """Take the directory of each table, and check all names, before anything is read."""
        problems = list(self.resolved.problems)
        allow_for(len(self.resolved.runs))
        self._complete()
        for run in self.resolved.runs:
            name = run.extract.table.label
            try:
                state = self._opened(run)
            except UnloaderError as error:
                problems.append(TableProblem(table=name, error=error))
            else:
                self.tables.append(state)
        if problems and not (self.options.on_failure == "continue" and self.tables):
            raise told_at_once(problems, len(problems) + len(self.tables))
        self.problems = problems
        self._counting = Counting(self.tables, len(problems))

    def _complete(self) -> None:
        """Bring publications of earlier runs that were cut short to their end."""
        outputs = [output for run in self.resolved.runs for output in run.outputs]
        places = [place for output in outputs for place in output.options.destinations]
        for each in storage_at(self.home).complete_all(places):
            for text in each.messages:
                self.live(Notice(text=text))

    def _opened(self, run: ResolvedRun) -> TableState:
        """Return a table with its directory taken, or with its manifest if it is complete."""
        before = left_of(run) if self.resolved.resumed_in else None
        run = self._replacing(run)
        resumed_in = run.output.options.destinations if before == "units" else ()
        if before == "all":
            output: RunOutput = NullOutput(run)
        else:
            output = open_output(run, resumed_in, one_of_many=True)
        # A table that is published gives its files back at once: there may be thousands.
        own = ExitStack()
        own.callback(output.close)
        self.held.callback(own.close)
        observe = named(self.live, run.extract.table.label)
        output.begin(observe, self._stop)
        catalog = cast(Catalog, self._catalog)
        started = self.resolved.started
        state = TableRun(
            resolved=OpenRun(run=run, catalog=catalog, started=started, resumed_in=resumed_in),
            output=output,
            observe=observe,
            around=Circumstances(history=History(began=started)),
        )
        state.then = lambda manifest: self.following.after(run, manifest, state.observe)
        if before == "all":
            state.manifests = published_manifests(run)
        manifest = state.manifests[0] if state.manifests else None
        return TableState(number=len(self.tables), run=state, manifest=manifest, release=own.close)

    def _replacing(self, run: ResolvedRun) -> ResolvedRun:
        """Return a table that may replace what a run has published in whose place this one is."""
        outputs = []
        for output in run.outputs:
            place, earlier = output.options.destination, self.options.replaces
            if any(is_published(storage_at(place), place, each) for each in earlier):
                output = replace(output, options=replace(output.options, overwrite=True))
            outputs.append(output)
        return replace(run, outputs=tuple(outputs))

    def _take_up(self) -> None:
        """Confirm what an earlier process of the run has done."""
        if not self.resolved.resumed_in:
            return
        self.live(PhaseStarted(phase="confirming"))
        rows = size = units = 0
        for table in self.tables:
            if table.manifest is None:
                table.before = table.run.take_up(self._stop)
                results = [unit.result for unit in table.run.finished.values()]
                units += len(results)
                rows += sum(each.rows for each in results)
                size += sum(file.bytes for each in results for file in each.files)
            else:
                units += len(table.units)
                rows += table.manifest.totals.rows
                size += table.manifest.totals.bytes
        done = self._counting.now.done
        self.live(UnitsKept(units=units, rows=rows, bytes=size, tables=done))

    def _stop(self) -> bool:
        return self.live.stop()

    def _tell_start(self, kept: str) -> None:
        runs = [table.run.run for table in self.tables]
        units = [unit for run in runs for unit in run.plan.units]
        seats = self._seats()
        snapshot = runs[0].extract.snapshot
        self.live(
            RunStarted(
                run_id=self.resolved.run_id,
                table=tables_label(self._counting.now.total),
                units=len(units),
                workers=len(seats),
                rows=rows_of(units),
                bytes=_total([unit.bytes for unit in units]),
                snapshot="" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip(),
                end_sessions_sql=end_sessions_sql(self.resolved.catalog),
                destinations=(self.home,),
                nodes=tuple(seat.node for seat in seats),
                adaptive=is_adaptive(runs[0].request),
                tables=self._counting.now.total,
                largest_table=self._counting.now.largest_open,
            )
        )
        for each in self.problems:
            self.live(
                TableFinished(
                    table=each.table,
                    rows=0,
                    bytes=0,
                    directory="",
                    error=each.error.message,
                    tables=self._counting.now,
                )
            )
        for text in runs[0].seating.notices:
            self.live(Notice(text=text))
        if kept:
            text = f"if the run dies its snapshot is kept until {kept}; see unloader keepers"
            self.live(Notice(text=text))

    def _seats(self) -> tuple[Any, ...]:
        return max((table.run.run.seating.seats for table in self.tables), key=len)

    def _unload(self, executor: Executor, load: Any) -> None:
        request = self.tables[0].run.run.request
        units = largest_first(
            TableUnit(table=table.number, unit=unit)
            for table in self.tables
            if not table.is_over
            for unit in table.run.units_left()
        )
        places = max(1, min(self._most_workers(), len(units)))
        steering = RunSteering(
            request=request,
            most=places,
            live=self.live,
            pids=executor.pids,
            load=load,
            seconds=self._history.seconds,
        )
        finisher = self._finisher
        assert finisher is not None
        room = room_watch(self.home, [table.run.run for table in self.tables], self.live)

        def done(table: TableState) -> None:
            table.run.around.evidence = executor.evidence()
            table.run.around.steering = steering
            finisher.take(table)

        work = self._work = TablesWork(
            tables=self.tables,
            history=self._history,
            observe=self.live,
            stop=lambda: check_stop(self._stop, "before all work units were done"),
            concurrency=steering,
            works={
                table.number: table.run.work(executor, self._stop, room=room, concurrency=steering)
                for table in self.tables
                if not table.is_over
            },
            on_done=done,
            on_failed=self._tell_of,
            collect=self._collect,
            room=room,
            goes_on=self.options.on_failure == "continue",
        )
        schedule: Schedule[TableUnit] = Schedule(
            units=units,
            retry=request.retry,
            before={
                f"{table.number}.{unit}": attempts
                for table in self.tables
                for unit, attempts in table.before.attempts.items()
            },
            jitter=spread(self.resolved.run_id),
        )
        work.drop = schedule.drop
        engine = Engine(schedule=schedule, work=work, stall_seconds=request.retry.stall_seconds)
        for table in self.tables:
            if not table.is_over and not table.run.units_left():
                # All was staged before the run was broken off.
                done(table)
        executor.begin_with(min(steering.first_workers, places), places)
        engine.run(executor)
        if engine.failure is not None:
            raise self._ended_by(engine.failure)
        if schedule.given_up and self.options.on_failure == "stop":
            raise self._ended_by(next(iter(schedule.given_up.values())))

    def _ended_by(self, failure: AttemptFailure) -> UnloaderError:
        """Return the error of a run that ends with one of its tables, which it names."""
        names = [table.name for table in self.tables if table.failure is not None]
        if names:
            failure = replace(failure, message=f"{names[0]}: {failure.message}")
        return error_of(failure)

    def _most_workers(self) -> int:
        return self.tables[0].run.run.plan.limits.parallelism

    def _check(self, tables: Sequence[TableState], observe: Observer) -> Iterable[Ended]:
        """Count tables whose units are done; in a thread."""
        return check_tables(
            tables, self._catalog, self._stop, lambda table: named(observe, table.name)
        )

    def _publish(self, table: TableState, observe: Observer) -> None:
        """Publish a table that is checked; in a thread."""
        table.run.observe = named(observe, table.name)
        manifest = table.run.publish(self._stop)
        table.release()
        table.manifest = manifest

    def _collect(self, timeout_seconds: float = 0.0) -> None:
        """Take up what has become of tables."""
        finisher = self._finisher
        assert finisher is not None
        for table, error in finisher.collect(timeout_seconds):
            if error is not None:
                failure = known_failure(error)
                if isinstance(error, Interrupted):
                    raise error_of(failure)
                table.failure = failure
                self._tell_of(table)
                if self.options.on_failure == "stop":
                    raise self._ended_by(failure)
            else:
                self._tell_of(table)

    def _tell_of(self, table: TableState) -> None:
        """Tell that a table is published, has failed, or waits until all are published."""
        manifest, failure = table.manifest, table.failure
        if not table.is_over:
            results = [unit.result for unit in table.run.finished.values()]
            self.live(
                TableStaged(
                    table=table.name,
                    rows=sum(each.rows for each in results),
                    bytes=sum(file.bytes for each in results for file in each.files),
                    tables=self._counting.staged(),
                )
            )
            return
        self.live(
            TableFinished(
                table=table.name,
                rows=0 if manifest is None else manifest.totals.rows,
                bytes=0 if manifest is None else manifest.totals.bytes,
                error="" if failure is None else failure.message,
                directory=table.run.run.output.options.destination,
                tables=self._counting.ended(table),
            )
        )

    def _wait(self, phase: Phase | None = None) -> None:
        """Wait until the last tables are counted and published.

        Args:
            phase: Begins with it, if there is anything to wait for.
        """
        finisher = self._finisher
        assert finisher is not None
        finisher.hurry()
        if finisher.is_busy and phase:
            self.live(PhaseStarted(phase=phase))
        while finisher.is_busy:
            self.live(Tick())
            check_stop(self._stop, "before all tables were published")
            self._collect(0.2)

    def _publish_all(self) -> None:
        self.live(PhaseStarted(phase="publishing"))
        if self.options.on_failure == "stop":
            check_stop(self._stop, "before the files had their final names")
        finisher = self._finisher
        assert finisher is not None
        for table in self.tables:
            if table.is_checked and not table.is_over:
                finisher.publish(table)
        self._wait()

    def _end(self) -> TablesManifest:
        """Write the manifest of the run, or raise where tables are not complete."""
        failed = [table for table in self.tables if table.manifest is None]
        if failed or self.problems:
            raise self._partial(failed)
        manifest = self.manifest(complete=True)
        self.storage.commit(
            (),
            tables_manifest_bytes(manifest),
            lambda: self.following.after_all(manifest, self.live),
        )
        totals = manifest.totals
        self.live(RunFinished(rows=totals.rows, bytes=totals.bytes, seconds=totals.seconds))
        with suppress(UnloaderError):
            end_keeping(self.resolved.catalog)
        return manifest

    def _partial(self, failed: list[TableState]) -> UnloaderError:
        of = len(self.tables) + len(self.problems)
        named = [f"{table.name}: {_why(table.failure)}" for table in failed]
        named += [f"{each.table}: {each.error.message}" for each in self.problems]
        more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return PartialUnload(
            f"{len(named)} of {of} tables are not complete: "
            + "; ".join([each.rstrip(". ") for each in named[:MOST_NAMED]] + more),
            "fix the cause; the other tables are complete"
            + ("" if failed else ", and those left out take another run"),
        )

    def abandon(self, error: UnloaderError | None) -> None:
        """Leave of each table what can be gone on with, or no trace; and of the run its record."""
        if self._finisher is not None:
            self._finisher.close()
        kept = False
        for table in self.tables:
            if table.manifest is not None:
                kept = True
                continue
            worth = self._is_recorded and (
                bool(table.run.finished) or self.tables[0].run.is_resumable
            )
            kept = kept or worth
            with suppress(UnloaderError, WriteError, OSError):
                table.run.abandon(kept=worth)
        partial = (
            tables_manifest_bytes(self.manifest(complete=False)) if self._is_recorded else None
        )
        self.storage.abandon(partial if kept else None)

    def advised(self, error: UnloaderError) -> UnloaderError:
        """Return an error with the way to go on, where there is something to go on with."""
        kept = isinstance(error, Interrupted) or error.retryable
        begun = any(table.manifest or table.run.finished for table in self.tables)
        if not self._is_recorded or not (begun or kept) or isinstance(error, VerifyMismatch):
            return error
        if isinstance(error, PartialUnload) and all(table.manifest for table in self.tables):
            # What was left out is not in the snapshot's plan: nothing can be gone on with.
            return error
        until = kept_until(self.resolved.catalog)
        if until:
            text = f"{error.message.rstrip('. ')}; its snapshot is kept until {until}"
            error = type(error)(text, error.hint)
        step = f"continue with: unloader resume {shlex.quote(self.home)}"
        if isinstance(error, SnapshotGone) or not self.tables[0].run.is_resumable:
            step = (
                "its snapshot has ended with it: read all tables again at another one with: "
                f"unloader resume {shlex.quote(self.home)} --new-snapshot"
            )
        alone = isinstance(error, Interrupted)
        return type(error)(error.message, step if alone else f"{error.hint}; then {step}")

    def manifest(self, *, complete: bool) -> TablesManifest:
        """Return what became of each table."""
        first = self.resolved.runs[0]
        entries = [
            entry
            for table in self.tables
            for entry in entries_of(table, _why(table.failure), self.home)
        ]
        entries += [
            TableEntry(
                table=TableRecord(schema=None, name=each.table),
                directory="",
                status="left out",
                error=redact(each.error.message),
            )
            for each in self.problems
        ]
        done = [each for each in entries if each.status == "complete"]
        return TablesManifest(
            run_id=self.resolved.run_id,
            unloader_version=__version__,
            status="complete" if complete else "partial",
            source=SourceRecord(
                kind=first.extract.source.kind,
                location=redact(first.extract.source.location),
                server_version=first.server_version,
            ),
            snapshot=first.extract.snapshot,
            options=TablesRecord(
                to=self.options.destination,
                directory=self.home if is_dropped(self.home) else os.path.abspath(self.home),
                publish=self.options.publish,
                on_table_failure=self.options.on_failure,
            ),
            settings=tuple(
                SettingRecord(name=each.name, value=each.value, origin=each.origin)
                for each in self.options.settings
            ),
            tables=tuple(entries),
            totals=TablesTotals(
                tables=sum(table.manifest is not None for table in self.tables),
                rows=sum(each.rows or 0 for each in done),
                bytes=sum(each.bytes or 0 for each in done),
                files=sum(each.files or 0 for each in done),
                seconds=round(time.perf_counter() - self.resolved.started, 4),
                cpu_seconds=round(
                    time.process_time()
                    + sum(
                        unit.result.cpu_seconds
                        for table in self.tables
                        for unit in table.run.finished.values()
                    ),
                    4,
                ),
            ),
        )


def _why(failure: AttemptFailure | None) -> str:
    return "the run ended before" if failure is None else failure.message


def _total(values: list[int | None]) -> int | None:
    return None if any(each is None for each in values) else sum(filter(None, values))
