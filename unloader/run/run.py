"""A run from its resolved tables to their manifests, in the order in which it happens.

Take the places and the snapshot, put the run on record, hand out the units of all tables, count and
verify each table, publish it, write the manifest. A run over several tables has its record and its
manifest in the directory around theirs. A single table is the smallest case: its directory and its
manifest belong to the run.

Nothing is published before every unit of its table is done and the number of rows agrees with the
source's own at the same snapshot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.engine.engine import Engine
from unloader.engine.executor import Executor
from unloader.engine.schedule import Schedule, spread
from unloader.errors import (
    ConfigError,
    Interrupted,
    OutputFailed,
    PartialUnload,
    UnloaderError,
    error_of,
    failure_of,
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
from unloader.manifest.model import Manifest, TablesManifest, totals_of
from unloader.manifest.read import manifest_bytes
from unloader.model import AttemptFailure, TableCounts
from unloader.nouns import counted
from unloader.resolve.places import home_of, is_dropped
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import first_of, missing_libraries, output_notices
from unloader.retention import Following
from unloader.run.concurrency import RunSteering, watched_load
from unloader.run.ending import (
    Ended,
    Finisher,
    abandon,
    advised,
    check_tables,
    manifest_of,
    partial_error,
)
from unloader.run.outputs import check_stop, continued
from unloader.run.places import Left, TablePlaces, take_home, take_tables
from unloader.run.table import RunState, Table
from unloader.run.work import TableUnit, Units, bundled, largest_first, room_watch, size_of
from unloader.status.recording import LiveRun
from unloader.storage.place_names import is_kept
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import RUN_RECORD
from writers.errors import WriteError
from writers.files.syncing import SyncThreads, together

if TYPE_CHECKING:
    from unloader.run.loads import LoadWatch

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

    `left` has the remains of each table of a resumed run. After a `PartialUnload` the finished
    units stay staged for `resume`. After a `FollowUpFailed` all is published, but `--latest-link`
    could not be switched.
    """
    first, options = resolved.tables[0], resolved.options
    if resolved.is_single:
        home = first.output.options.destination
    else:
        home = resolved.resumed_in or options.home or home_of(options.destination, resolved.tables)
        if options.replaces and not options.home and not is_dropped(home):
            # With `{run_id}` or on another day the run has its own directory and replaces nothing.
            is_there = False
            with suppress(OSError, OutputFailed):
                record = storage_at(home).record(home, RUN_RECORD)
                is_there = first_of(record, home).run_id in options.replaces
            options = options if is_there else replace(options, replaces=())
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
                current.finisher.close()
                abandon(state, known)
            if known is not None:
                raise known from error
            raise
        if current.following.failed is not None:
            raise current.following.failed
    for output in state.tables[0].outputs if state.is_single else ():
        if output.manifest is not None and output.manifest.lake_table is not None:
            commit(output.manifest, output.destination, observe, is_own=True)
    return manifests


class _Run(Units):
    def __init__(
        self, state: RunState, executor: Executor, held: ExitStack, left: Mapping[TablePlaces, Left]
    ) -> None:
        super().__init__(state, executor)
        self.held, self.left = held, left
        self.load: LoadWatch | None = None
        self.finisher = Finisher(
            lambda tables, observe: check_tables(tables, state, observe),
            self._publish,
            state.live,
            at_once=state.options.publish == "table",
        )
        held.callback(self.finisher.close)
        template = None if state.is_single else state.options.destination
        self.following = Following.of_run(state.resolved.tables, state.home, template)
        self.by_size: list[Table] = []
        """The smallest first; the largest tables that are over are removed."""
        self.counts = TableCounts(total=0)
        self.places = 0
        """How many units are worked on together, at most."""
        self._evidence_until = 0.0

    def execute(self) -> Manifests:
        state, resolved = self.state, self.state.resolved
        first, at_once = resolved.tables[0], state.options.publish == "table"
        self.following.check_before()
        # Lock the places.
        keep_record = take_home(state)
        if state.storage is not None:
            self.held.callback(state.storage.close)
        if first.request.verify == "source":
            from unloader.verification.source import check_able

            check_able(resolved.catalog, first.extract.source.kind)
        if first.request.concurrency is not None:
            self.load = watched_load(first.request.concurrency, resolved.catalog)
            if self.load is not None:
                self.held.callback(self.load.close)
        take_tables(state, self.following, self.held, self.left)
        # Let others see how far the run is, and end it.
        state.live.record_in(*state.storages)
        self.held.callback(state.live.close)
        if state.is_single and first.request.ceilings is not None:
            from unloader.tuning.ceilings import read_ceilings

            try:
                state.ceilings = read_ceilings(Path(first.request.ceilings))
            except ConfigError as error:
                # The file has gone since the run was begun: a resumed run must not fail for it.
                text = f"the run is not compared with the ceilings: {error.message}"
                state.live(Notice(text=text))
        marks = [mark for each in state.storages for mark in each.marks]
        until = resolved.catalog.keep_until_gone(marks)
        state.live.resumable = state.is_resumable
        state.live.snapshot_kept_until = resolved.catalog.kept_until()
        # Put the run on record.
        if not resolved.resumed_in:
            keep_record()
        state.is_recorded = True
        self._report_start(until)
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
                able = {
                    table.number
                    for table in state.tables
                    # One output of files takes its units in any order, each as often as need be.
                    if len(table.run.plan.units) == len(table.outputs) == 1
                    and table.outputs[0].is_kept
                    and not table.attempts
                }
                units = list(bundled(units, able, len(first.seating.seats)))
        self._unload(units)
        # Count, verify and publish unpublished tables.
        self._wait("publishing" if at_once else "counting")
        if not at_once:
            state.live(PhaseStarted(phase="publishing"))
            if state.options.on_failure == "stop":
                check_stop(state.live.stop, "before the files had their final names")
            for table in state.tables:
                if table.is_checked and not table.is_over:
                    self.finisher.publish(table)
            self._wait()
        return self._end()

    def _report_start(self, kept: str) -> None:
        """Report the work to do, the omitted tables, and what an earlier process has done."""
        state, single, left_out = self.state, self.state.is_single, len(self.state.problems)
        runs = [table.run for table in state.tables]
        units = [unit for run in runs for unit in run.plan.units]
        seats = max((run.seating.seats for run in runs), key=len)
        snapshot, limits = runs[0].extract.snapshot, runs[0].request.concurrency
        sizes = {
            table.number: sum(filter(math.isfinite, map(size_of, table.run.plan.units)))
            for table in state.tables
        }
        self.by_size = sorted(state.tables, key=lambda table: sizes[table.number])
        self.counts = TableCounts(
            total=len(runs) + left_out,
            done=sum(table.is_published for table in state.tables),
            failed=left_out,
            left_out=left_out,
        )
        tables = self._counted()
        rows, size = [unit.rows for unit in units], [unit.bytes for unit in units]
        state.live(
            RunStarted(
                run_id=state.resolved.run_id,
                table=state.tables[0].name if single else counted(tables.total, "table"),
                units=len(units),
                workers=len(seats),
                rows=None if None in rows else sum(filter(None, rows)),
                bytes=None if None in size else sum(filter(None, size)),
                snapshot="" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip(),
                end_sessions_sql=state.resolved.catalog.end_sessions_sql(),
                destinations=state.places,
                nodes=tuple(seat.node for seat in seats),
                adaptive=limits is not None and limits.adaptive,
                tables=tables.total,
                largest_table="" if single else tables.largest_open,
            )
        )
        for each in state.problems:
            text = each.error.message
            state.live(
                TableFinished(
                    table=each.table, rows=0, bytes=0, directory="", error=text, tables=tables
                )
            )
        libraries = {text: None for run in runs for text in missing_libraries(run)}
        for text in (*libraries, *runs[0].seating.notices):
            state.live(Notice(text=text))
        for table in state.tables:
            for text in output_notices(table.run):
                state.live(Notice(text=text if single else f"{table.name}: {text}"))
        if kept:
            text = f"if the run dies, its snapshot is kept until {kept}; see unloader keepers"
            state.live(Notice(text=text))
        if not state.resolved.resumed_in:
            return
        state.live(PhaseStarted(phase="confirming"))
        done_rows = done_bytes = done = 0
        for table in state.tables:
            if table.is_published:
                totals = totals_of(table.manifests)
                done += len(table.run.plan.units)
                done_rows += totals.rows
                done_bytes += totals.bytes
            else:
                table.take_up()
                done += len(table.finished)
                done_rows += table.rows_staged
                done_bytes += table.bytes_written
        state.live(UnitsKept(units=done, rows=done_rows, bytes=done_bytes, tables=tables.done))

    def report(self, table: Table) -> None:
        """Report that one of several tables is published, has failed, or waits for the others."""
        if self.state.is_single:
            return
        was, failure = self.counts, table.failure
        if not table.is_over:
            self.counts = replace(was, staged=was.staged + 1)
            rows, size = table.rows_staged, table.bytes_written
            self.state.live(
                TableStaged(table=table.name, rows=rows, bytes=size, tables=self._counted())
            )
            return
        self.counts = replace(
            was,
            done=was.done + table.is_published,
            failed=was.failed + (not table.is_published),
            staged=was.staged - bool(was.staged and table.is_checked),
        )
        totals = totals_of(table.manifests) if table.is_published else None
        self.state.live(
            TableFinished(
                table=table.name,
                rows=0 if totals is None else totals.rows,
                bytes=0 if totals is None else totals.bytes,
                error="" if failure is None else failure.message,
                directory=table.run.output.options.destination,
                tables=self._counted(),
            )
        )

    def _counted(self) -> TableCounts:
        while self.by_size and (self.by_size[-1].is_over or self.by_size[-1].is_checked):
            self.by_size.pop()
        return replace(self.counts, largest_open=self.by_size[-1].name if self.by_size else "")

    def _unload(self, orders: Sequence[TableUnit]) -> None:
        state, executor = self.state, self.executor
        first = state.tables[0]
        request = first.run.request
        self.places = places = max(1, min(len(first.run.seating.seats), len(orders)))
        self.steering = state.steering = steering = RunSteering(
            request=request,
            most=places,
            live=state.live,
            pids=executor.pids,
            load=self.load,
            seconds=first.history.seconds,
        )
        if request.concurrency is not None:
            steering.begin(request.concurrency)
        self.schedule = schedule = Schedule(
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
        self.room = room_watch(state.places, [table.run for table in state.tables], state.live)
        engine = Engine(schedule=schedule, work=self, stall_seconds=request.retry.stall_seconds)
        for table in state.tables:
            if not table.is_over:
                self.units_left[table.number] = len(table.units_left())
                if not self.units_left[table.number]:
                    # All was staged before the run was interrupted.
                    self.done(table)
        wanted = places if steering.control is None else steering.control.places
        executor.use(min(wanted, places), places)
        if request.uses_cluster:
            from unloader.engine.cluster.executor import DaskExecutor

            # Each machine shows that it reads the source and sees the destination.
            assert isinstance(executor, DaskExecutor)
            extract, kept = first.run.extract, [each for each in state.places if is_kept((each,))]
            executor.prove(extract.source, extract.snapshot, first.run.run_id, kept)
        if state.is_single:
            first.history.look()
        try:
            engine.run(executor)
        finally:
            if state.is_single:
                first.history.look(at_once=True)
                state.evidence = executor.evidence()
                state.lowest_parallelism = schedule.capacity.lowest
            if self.load is not None:
                self.load.close()
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
            self.finisher.take(first)
        limits = request.concurrency
        if request.verify == "source" and limits is not None and limits.max_sessions is not None:
            # Each thread that computes checksums has a session, in place of a worker's.
            executor.close()

    def done(self, table: Table) -> None:
        # Many come with one answer, and nothing has happened between them.
        if time.monotonic() >= self._evidence_until:
            self.state.evidence = self.executor.evidence()
            self._evidence_until = time.monotonic() + _SAME_SECONDS
        # A single table is counted when its workers have ended.
        if not self.state.is_single:
            self.finisher.take(table)

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

    def collect(self, timeout_seconds: float = 0.0) -> None:
        state = self.state
        if self.schedule.fresh <= _LAST_ORDERS * self.places:
            # At the end of reading, tables that are published early need no wait.
            self.finisher.soon.set()
        for table, error in self.finisher.collect(timeout_seconds):
            if error is not None:
                known = translate(error) if isinstance(error, Exception) else None
                if known is None or state.is_single or isinstance(error, Interrupted):
                    raise error
                table.failure = failure_of(known)
            self.report(table)
            if table.failure is not None and state.options.on_failure == "stop":
                raise self._ended_by(table.failure)

    def _wait(self, phase: Phase | None = None) -> None:
        """Wait until the last tables are counted and published; several tables report the phase."""
        self.finisher.soon.set()
        if self.finisher.pending and phase and not self.state.is_single:
            self.state.live(PhaseStarted(phase=phase))
        while self.finisher.pending:
            self.state.live(Tick())
            self.collect(0.2)

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
                self.following.after(self.following.run, whole, state.live)

            if state.storage is not None:
                state.storage.commit((), manifest_bytes(whole), then)
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


def commit(manifest: Manifest, place: str, observe: Observer, *, is_own: bool) -> bool:
    """Commit a published run to its lakehouse table; return whether that was new."""
    # Imported on use: most runs are not for a table.
    from unloader.lakehouse.lake_runs import commit_run

    observe(PhaseStarted(phase="committing"))
    done = commit_run(manifest, place, is_own=is_own)
    assert manifest.lake_table is not None
    name = manifest.lake_table.name
    if done.is_new:
        observe(Notice(text=f"committed to {name}: snapshot {done.snapshot}"))
    else:
        observe(Notice(text=f"already committed to {name}: snapshot {done.snapshot}"))
    return done.is_new


def check_committed(name: str, observe: Observer) -> None:
    """Report earlier runs for a lakehouse table; refuse one that is complete but not committed."""
    from unloader.lakehouse.lake_runs import has_begun, uncommitted

    for place, manifest in uncommitted(name):
        if manifest is not None:
            raise OutputFailed(
                f"run {manifest.run_id} is complete in {place}, but it is not committed to {name}",
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
