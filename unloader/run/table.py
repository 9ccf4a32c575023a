"""One table of a run with its outputs, and the run as a whole, during the run.

Each output of a table has its own directory with its own record, journal and manifest, as if it
were the only one. A unit is done when every output that is to be written has it. An output that
fails ends the table, or is dropped. A dropped output publishes nothing and keeps its files for
`resume`, and the other outputs continue. On masked columns no error shows a value.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import (
    OutputFailed,
    PartialUnload,
    UnloaderError,
    VerifyMismatch,
    error_of,
    failure_of,
    translate,
)
from unloader.events import Event, Notice, Observer, PhaseStarted, RouteFinished, Tick
from unloader.manifest.build import build_manifest
from unloader.manifest.model import (
    FailedAttemptRecord,
    Manifest,
    OtherRoute,
    RouteRecord,
    SampleRecord,
)
from unloader.model import COMPARING, AttemptFailure, FinishedUnit, OutputTask, TablesOptions
from unloader.nouns import counted
from unloader.placement.evidence import CpuTime, Evidence, busy_share, node_times
from unloader.redaction import redact
from unloader.resolve.resolution import OpenRun, with_retries
from unloader.resolve.resolved import ResolvedTable, single_record
from unloader.run.concurrency import RunSteering
from unloader.run.outputs import RunOutput, Stop, check_stop, continued
from unloader.selection.listing import TableProblem
from unloader.sources.base import Catalog
from unloader.sources.registry import cancelled_by
from unloader.status.recording import LiveRun, Tally
from unloader.storage.storage_protocol import RUN_RECORD, RunStorage
from unloader.worker.masked_failures import masks_any, source_words_left_out
from writers.files.syncing import Steps

if TYPE_CHECKING:
    from unloader.tuning.ceilings import Ceilings

T = TypeVar("T")

FIRST_INTERVAL_SECONDS = 0.25
MOST_SAMPLES = 120
"""Then every second one is dropped and the interval is doubled: they always cover the whole run."""
MOST_FAILURES = 1000
"""A source that is away for hours makes more of them; the others are only counted."""


class RunState(Struct, kw_only=True):
    resolved: OpenRun
    options: TablesOptions
    home: str
    """The directory of the run's record and manifest."""
    is_single: bool
    """The home is the directory of the only table, and that table's manifest is the run's."""
    storage: RunStorage | None = None
    """The home of several tables; None for one table, or if all output is dropped."""
    live: LiveRun
    catalog_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that uses the catalog: several tables are counted in another thread."""
    tables: list[Table] = field(default_factory=list)
    problems: list[TableProblem] = field(default_factory=list)
    is_recorded: bool = False
    """The record of the run is in the home: a later process can resume the run."""
    ceilings: Ceilings | None = None
    evidence: Evidence = field(default_factory=Evidence)
    lowest_parallelism: int | None = None
    """The lowest parallelism of the schedule; known when all units are done."""
    steering: RunSteering | None = None
    """What steers the number of workers; None before there are any."""

    @property
    def places(self) -> tuple[str, ...]:
        if not self.is_single:
            return (self.home,)
        outputs = self.resolved.tables[0].outputs
        return tuple(place for each in outputs for place in each.options.destinations)

    @property
    def storages(self) -> list[RunStorage]:
        """The home, or the places of each output of a single table: any of them resumes the run."""
        found = [self.storage]
        if self.is_single:
            found = [each.storage for each in self.tables[0].outputs if each.is_open]
        return [each for each in found if each is not None]

    @property
    def is_resumable(self) -> bool:
        """Whether a later process can read at the same snapshot."""
        catalog = self.resolved.catalog
        consistency = self.resolved.tables[0].request.consistency
        if consistency == "none" or catalog.capabilities.snapshot_outlives_run:
            return True
        return bool(catalog.kept_until())

    def observer_of(self, run: ResolvedTable, observe: Observer) -> Observer:
        """Return an observer that names one of several tables, and omits events of runs."""
        if self.is_single:
            return observe
        table = run.extract.table.label

        def pass_on(event: Event) -> None:
            if isinstance(event, (PhaseStarted, RouteFinished, Tick)):
                return
            unit = getattr(event, "unit", None)
            if isinstance(unit, str):
                event = replace(event, unit=f"{table}/{unit}")
            elif isinstance(event, Notice):
                event = Notice(text=f"{table}: {event.text}")
            observe(event)

        return pass_on


class History(Struct, kw_only=True):
    """The failed attempts at a table, and samples of the progress, for the manifest.

    All times are seconds since the run began to plan, as the totals of the manifest are. Everything
    is called in the engine's thread.
    """

    began: float
    """When the run began to plan, by the clock."""
    tally: Tally
    """Of the whole run, by the same clock."""
    cpus: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each NUMA node; empty looks at none."""
    clock: Callable[[], float] = time.monotonic
    times: Callable[[Mapping[int, tuple[int, ...]]], Mapping[int, CpuTime]] = node_times
    failures: list[FailedAttemptRecord] = field(default_factory=list)
    failures_left_out: int = 0
    _samples: list[tuple[SampleRecord, Mapping[int, CpuTime]]] = field(default_factory=list)
    _interval: float = FIRST_INTERVAL_SECONDS
    _next: float = 0.0

    def seconds(self) -> float:
        return self.clock() - self.began

    def failed(self, worker: int, unit: str, attempt: int, message: str) -> None:
        """Note a failed attempt, before the tally has the event."""
        if len(self.failures) >= MOST_FAILURES:
            self.failures_left_out += 1
            return
        running, now = self.tally.running.get(worker), self.seconds()
        began = now if running is None else running.started - self.began
        self.failures.append(
            FailedAttemptRecord(
                unit=unit,
                attempt=attempt,
                worker=worker,
                started_s=round(began, 4),
                seconds=round(now - began, 4),
                message=redact(message),
            )
        )

    def look(self, *, at_once: bool = False) -> None:
        now = self.seconds()
        if now < self._next and not at_once:
            return
        rows, size = self.tally.sums()
        sample = SampleRecord(
            at_s=round(now, 3),
            rows=rows - self.tally.kept.rows,
            bytes=size - self.tally.kept.bytes,
            busy_workers=len(self.tally.running),
            cpu_by_node=None,
        )
        self._samples.append((sample, self.times(self.cpus) if self.cpus else {}))
        if len(self._samples) > MOST_SAMPLES:
            del self._samples[1::2]
            self._interval *= 2
        self._next = now + self._interval

    def samples(self) -> tuple[SampleRecord, ...]:
        """Return the samples of the run; each has the load since the previous sample."""
        found, before = [], dict[int, CpuTime]()
        for sample, nodes in self._samples:
            shares = {
                str(node): busy_share(before[node], counted)
                for node, counted in nodes.items()
                if node in before
            }
            loads = {node: round(each, 3) for node, each in shares.items() if each is not None}
            found.append(replace(sample, cpu_by_node=loads or None))
            before = dict(nodes)
        return tuple(found)


class Table(Struct, kw_only=True):
    number: int
    """Among the tables of the run, from 0."""
    run: ResolvedTable
    state: RunState
    outputs: Sequence[RunOutput]
    observe: Observer
    history: History
    resumed: bool = False
    """An earlier process of the run may have staged some of its units."""
    is_published: bool = False
    then: Callable[[ResolvedTable, Manifest], None] = lambda run, manifest: None
    """Takes the manifest of each output once it is published; see `RunOutput.publishing`."""
    release: Callable[[], None] = lambda: None
    """Releases the run's hold on the table; further calls do nothing."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The last attempt at each unit that an earlier process of the run has handed out."""
    kept: frozenset[str] = frozenset()
    """Units that an earlier process of the run has done."""
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    failure: AttemptFailure | None = None
    is_checked: bool = False
    """All its rows are staged, and counted by the source."""
    source_rows: int | None = None
    _verify_result: str = "not verified"
    _is_abandoned: bool = False

    @property
    def name(self) -> str:
        return self.run.extract.table.label

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(each.manifest for each in self.outputs if each.manifest is not None)

    @property
    def takes_long(self) -> bool:
        return any(each.options.file_per == "table" for each in self.run.outputs)

    @property
    def is_over(self) -> bool:
        return self.is_published or self.failure is not None

    @property
    def rows_written(self) -> int:
        return sum(unit.scanned for unit in self.finished.values())

    @property
    def rows_staged(self) -> int:
        return sum(unit.rows for unit in self.finished.values())

    @property
    def bytes_written(self) -> int:
        return sum(
            file.bytes + file.value_bytes for each in self.finished.values() for file in each.files
        )

    def units_left(self) -> tuple[WorkUnit, ...]:
        """Return the units that are to be done, in the order in which they are handed out."""
        units = tuple(unit for unit in self.run.plan.units if unit.id not in self.finished)
        if self.outputs[0].in_order:
            units = tuple(sorted(units, key=lambda unit: unit.id))
        return units

    def _open(self) -> list[RunOutput]:
        return [output for output in self.outputs if output.is_open]

    def _try(self, output: RunOutput, do: Callable[[], T]) -> T | None:
        try:
            return do()
        except Exception as error:
            self._drop(output, error)
        return None

    def _drop(self, output: RunOutput, error: Exception | AttemptFailure) -> None:
        """Continue without an output; raise its error if it is the last one, or not to be dropped.

        A worker reports only the failures of outputs that are dropped.
        """
        if output.failure is not None:
            return
        if isinstance(error, AttemptFailure):
            failure = error
        else:
            drops = len(self.outputs) > 1 and self.run.request.on_route_failure == "drop"
            if not drops or not isinstance(translate(error), (OutputFailed, VerifyMismatch)):
                raise error
            failure = failure_of(error)
        output.failure = failure
        if not self._open():
            raise error_of(failure)
        text = f"route {output.route} is abandoned: {failure.message}"
        self.observe(Notice(text=text))

    def take_up(self) -> None:
        """Confirm the finished units of an earlier process that every output has."""
        if not self.resumed:
            return

        def tick() -> None:
            self.observe(Tick())
            check_stop(self.state.live.stop, "while the finished files were checked")

        outputs = self._open()
        for output in outputs:
            if not output.resumed and self.state.is_single and output.storage is not None:
                output.storage.keep(RUN_RECORD, single_record(self.run))
            found = output.progress(tick)
            # When they began was counted by the clock of another process.
            output.finished.update(
                (unit, replace(each, started_s=None)) for unit, each in found.finished.items()
            )
            for unit, attempt in found.attempts.items():
                self.attempts[unit] = max(attempt, self.attempts.get(unit, 0))
        for unit, first in outputs[0].finished.items():
            if not all(unit in output.finished for output in outputs):
                continue
            if len(outputs) > 1:
                # As a worker would report it that has read it for all outputs.
                parts = [output.finished[unit] for output in outputs]
                files = tuple(file for part in parts for file in part.files)
                first = replace(first, rows=first.scanned, filtered=None, files=files, content=None)
            self.finished[unit] = first
        self.kept = frozenset(self.finished)

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        lacking = [output for output in self._open() if unit.id not in output.finished]
        # Where the only one that lacked it was dropped, all take it again.
        found = [
            self._try(output, partial(output.task, unit, attempt))
            for output in lacking or self._open()
        ]
        return tuple(each for each in found if each is not None)

    def check(self) -> None:
        """Drop the outputs whose place is lost; called several times a second."""
        for output in self._open():
            self._try(output, (output.storage or output).check)

    def record(self, unit: FinishedUnit) -> None:
        """Put a finished unit on record; drop the outputs that failed with it."""
        parts = [(self.outputs[0], unit)]
        if unit.outputs is not None:
            parts = []
            for result in unit.outputs:
                output = self.outputs[result.number]
                if result.failure is not None:
                    self._drop(output, result.failure)
                part = replace(
                    unit,
                    rows=result.rows,
                    filtered=result.filtered,
                    files=result.files,
                    stages=result.stages,
                    content=result.content,
                    outputs=None,
                )
                parts.append((output, part))
        events: list[Event] = []
        for output, part in parts:
            if output.is_open and (event := self._try(output, partial(output.record, part))):
                events.append(event)
            if output.is_open:
                output.finished[unit.unit] = part
        self.finished[unit.unit] = unit
        for event in events:
            self.observe(event)

    def failed(self, unit: str, attempt: int, message: str) -> None:
        for output in self._open():
            output.failed(unit, attempt, message)

    def discard(self, unit: str, attempt: int) -> None:
        for output in self.outputs:
            if output.manifest is None and not self._is_abandoned:
                output.discard(unit, attempt)

    def verify(self, stop: Stop, catalog: Catalog, rows: int | None = None) -> None:
        """Compare the count, and as much more as was asked for, with the source."""
        run, request = self.run, self.run.request
        if request.verify == "none":
            return
        self.observe(PhaseStarted(phase="counting"))
        if rows is None:

            def counting() -> int:
                masked = masks_any(output.options.transform for output in run.outputs)
                with source_words_left_out(masked, run.extract.projection.columns):
                    if run.plan.has_all_units:
                        return catalog.count(run.extract)
                    # A sample or a part: the count takes the plan's selectors.
                    return catalog.count_selected(run.extract, run.plan.selectors)

            with cancelled_by(stop, catalog):
                rows = with_retries(
                    request,
                    run.run_id,
                    "counting",
                    counting,
                    check=catalog.check_snapshot,
                    stop=stop,
                    observe=self.observe,
                )
        self.source_rows, written = rows, self.rows_written
        if written != rows and request.consistency == "snapshot":
            done = "written" if request.routes is None else "read"
            raise VerifyMismatch(
                f"{counted(written, 'row was', 'rows were')} {done}, but the source counts {rows} "
                "at the same snapshot",
                "run again; if it happens again, check whether the log names rows outside the "
                "snapshot, and whether the condition or query returns different rows each time "
                "(random values, samples, the current time); if not, report it with the plan",
            )
        self._verify_result = "ok" if written == rows else "different, no snapshot"
        if request.verify not in COMPARING:
            return
        self.observe(PhaseStarted(phase="verifying"))
        for output in self._open():
            output.not_compared = None if len(self.outputs) > 1 else ()
            if output.is_kept:
                units = self._in_order(output)
                output.not_compared = self._try(output, partial(output.read_back, units, stop))
        if request.verify != "source":
            return
        self.observe(PhaseStarted(phase="comparing"))
        from unloader.verification.source import compare_units

        left_out = compare_units(
            [self.finished[unit] for unit in sorted(self.finished)],
            run,
            catalog,
            self.observe,
            lambda: check_stop(stop, "while values were compared with the source"),
        )
        if len(self.outputs) == 1:
            self.outputs[0].not_compared = (*(self.outputs[0].not_compared or ()), *left_out)

    def publishing(self, stop: Stop) -> Steps[None]:
        """Publish each output in steps; a `PartialUnload` names the outputs that were dropped."""
        self.observe(PhaseStarted(phase="publishing"))
        several = len(self.outputs) > 1
        for output in self.outputs:
            then = partial(self.then, output.run)
            if output.is_open:
                make = partial(self._manifest, output)
                units = self._in_order(output)
                try:
                    output.manifest = yield from output.publishing(units, make, stop, then)
                except Exception as error:
                    self._drop(output, error)
            elif output.manifest is not None:
                then(output.manifest)  # The process that published it may have died just there.
            # A route that an earlier process published is reported, too: it is a part of this run.
            if several and output.manifest is not None:
                totals = output.manifest.totals
                self.observe(
                    RouteFinished(
                        route=output.route,
                        rows=totals.rows,
                        bytes=totals.bytes,
                        files=totals.files,
                        directory=output.destination,
                    )
                )
        failures = [(each.route, each.failure) for each in self.outputs if each.failure is not None]
        if not failures:
            self.is_published = True
            return
        why = "; ".join(f"route {route}: {failure.message}" for route, failure in failures)
        done = [each for each in self.outputs if each.manifest is not None]
        where = ", ".join(f"{each.route} in {each.destination}" for each in done)
        hint = failures[0][1].hint
        if self.state.is_single:  # Several tables are resumed together.
            hint = continued(hint, self.next_step(resumable=True))
        raise PartialUnload(
            f"{len(failures)} of {counted(len(self.outputs), 'route')} failed: {why}; complete: "
            f"{where}",
            hint,
        )

    def abandon(self, *, kept: bool) -> None:
        """Keep the resumable part of each unpublished output, or remove all traces."""
        for output in () if self._is_abandoned else self.outputs:
            if output.manifest is not None:
                continue
            units = tuple(output.finished.values())
            make = partial(self._manifest, output, units, complete=False) if kept else None
            with suppress(UnloaderError, OSError):
                output.abandon(make)
        self._is_abandoned = True

    def next_step(self, *, resumable: bool) -> str:
        """Return the user's next step; it names the first output that is not published."""
        left = [each for each in self.outputs if each.manifest is None and each.is_kept]
        return (left or self.outputs)[0].next_step(resumable=resumable)

    def _in_order(self, output: RunOutput) -> list[FinishedUnit]:
        return [output.finished[unit] for unit in sorted(self.finished)]

    def _manifest(
        self,
        output: RunOutput,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        *,
        complete: bool = True,
    ) -> Manifest:
        state, route = self.state, None
        if len(self.outputs) > 1:
            route = RouteRecord(
                name=output.route,
                others=tuple(
                    OtherRoute(name=each.route, to=each.destination)
                    for each in self.outputs
                    if each is not output
                ),
                dropped=tuple(each.route for each in self.outputs if each.failure is not None),
            )
        seconds = time.perf_counter() - state.resolved.started
        cpu_seconds = sum(unit.cpu_seconds for unit in self.finished.values())
        manifest = build_manifest(
            output.run,
            units,
            complete=complete,
            route=route,
            seconds=seconds,
            cpu_seconds=time.process_time() + cpu_seconds,
            source_rows=self.source_rows,
            verify_result=self._verify_result,
            not_compared=output.not_compared,
            directories=directories,
            evidence=state.evidence,
            lowest_parallelism=state.lowest_parallelism,
            steps=None if state.steering is None else state.steering.steps(),
            kept=self.kept,
            failed_attempts=self.history.failures,
            failed_attempts_left_out=self.history.failures_left_out,
            samples=self.history.samples(),
        )
        if not complete or state.ceilings is None:
            return manifest
        found = state.ceilings.compared(output.run, manifest.totals, resumed=bool(self.kept))
        if found.parts:
            return replace(manifest, efficiency=found)
        text = f"the run is not compared with {found.ceilings}: {'; '.join(found.not_compared)}"
        self.observe(Notice(text=text))
        return manifest
