"""One table of a run, and the run as a whole, during the run.

Nothing is published before every unit of a table is done and the number of rows agrees with the
source's own at the same snapshot. On masked columns no error shows a value.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import VerifyMismatch
from unloader.events import Notice, Observer, PhaseStarted, Tick
from unloader.manifest.build import RunFacts, build_manifest
from unloader.manifest.model import Manifest
from unloader.model import COMPARING, AttemptFailure, FinishedUnit, TablesOptions
from unloader.nouns import counted
from unloader.placement.evidence import Evidence
from unloader.resolve.opening import OpenRun, Patience
from unloader.resolve.resolved import ResolvedTable, of_output, of_route
from unloader.run.concurrency import RunSteering
from unloader.run.history import History
from unloader.run.journal import Progress
from unloader.run.outputs import RunOutput, Stop, WrittenRoute, check_stop
from unloader.selection.listing import TableProblem
from unloader.sources.base import Catalog
from unloader.sources.registry import cancelled_by
from unloader.sources.statement import count
from unloader.status.recording import LiveRun
from unloader.verification.files import some_of
from unloader.verification.source import (
    Asking,
    SourcePart,
    source_differences,
    unhashed,
)
from unloader.worker.masked_failures import masks_any, source_words_left_out
from writers.files.syncing import Steps

if TYPE_CHECKING:
    from unloader.tuning.ceilings import Ceilings


class SharedCatalog:
    """A catalog for several threads: a thread that finds it in use continues without it."""

    def __init__(self, catalog: Catalog) -> None:
        """Take a catalog."""
        self._catalog = catalog
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Return all other attributes of the catalog."""
        return getattr(self._catalog, name)

    @contextmanager
    def in_use(self) -> Iterator[Catalog]:
        """Use the catalog alone; its user checks the snapshot."""
        with self._lock:
            yield self._catalog

    def check_snapshot(self) -> None:
        """Check the snapshot, unless the catalog is in use: then its user notices the loss."""
        if self._lock.acquire(blocking=False):
            try:
                self._catalog.check_snapshot()
            finally:
                self._lock.release()


class RunState(Struct, kw_only=True):
    """The run as a whole."""

    resolved: OpenRun
    options: TablesOptions
    home: str
    """The directory of the run's record and manifest."""
    is_single: bool
    """The home is the directory of the only table, and that table's manifest is the run's."""
    live: LiveRun
    catalog: SharedCatalog
    tables: list[Table] = field(default_factory=list)
    """The tables that are not left out."""
    problems: list[TableProblem] = field(default_factory=list)
    """Tables that are left out."""
    is_recorded: bool = False
    """The record of the run is in the home: a later process can resume the run."""
    ceilings: Ceilings | None = None
    """What a single table is compared with."""
    evidence: Evidence = field(default_factory=Evidence)
    """Where the workers were."""
    lowest_parallelism: int | None = None
    """The lowest parallelism of the schedule; known when all units are done."""
    steering: RunSteering | None = None
    """What steers the number of workers; None before there are any."""

    def stop(self) -> bool:
        """Return whether the user asks for the end."""
        return self.live.stop()

    @property
    def places(self) -> tuple[str, ...]:
        """Where a single table goes, or the home of several."""
        if not self.is_single:
            return (self.home,)
        outputs = self.resolved.tables[0].outputs
        return tuple(place for each in outputs for place in each.options.destinations)

    @property
    def is_resumable(self) -> bool:
        """Whether a later process can read at the same snapshot."""
        consistency = self.resolved.tables[0].request.consistency
        if consistency == "none" or self.catalog.capabilities.snapshot_outlives_run:
            return True
        return bool(self.resolved.catalog.kept_until())


class Table(Struct, kw_only=True):
    """One table of a run."""

    number: int
    """Among the tables of the run, from 0."""
    run: ResolvedTable
    state: RunState
    output: RunOutput
    observe: Observer
    history: History
    resumed: bool = False
    """An earlier process of the run may have staged some of its units."""
    is_taken: bool = True
    """Its directory is locked, so that its units can be read."""
    then: Callable[[Manifest], None] = lambda manifest: None
    """The action of `RunOutput.publishing`."""
    release: Callable[[], None] = lambda: None
    """Releases the run's hold on the table; further calls do nothing."""
    before: Progress = field(default_factory=Progress)
    """What an earlier process of the run has done of it."""
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By the unit's id."""
    failure: AttemptFailure | None = None
    """Why it cannot become complete in this run."""
    is_checked: bool = False
    """All its rows are staged, and counted by the source."""
    source_rows: int | None = None
    manifests: tuple[Manifest, ...] = ()
    """After publication: one manifest, or one for each route."""
    _verify_result: str = "not verified"
    _not_compared: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The table, with its schema."""
        return self.run.extract.table.label

    @property
    def takes_long(self) -> bool:
        """Whether the files of its units are joined as it is published."""
        return any(each.options.file_per == "table" for each in self.run.outputs)

    @property
    def is_plain(self) -> bool:
        """Whether it has one output, of files: units in any order, each as often as need be."""
        return len(self.run.outputs) == 1 and self.output.is_kept

    @property
    def is_settled(self) -> bool:
        """Whether it can be read, or is not to be read any more."""
        return self.is_taken or self.failure is not None

    @property
    def is_over(self) -> bool:
        """Whether it is published or has failed."""
        return bool(self.manifests) or self.failure is not None

    def place_of(self, manifest: Manifest) -> str:
        """Return the directory of one of its manifests."""
        route = manifest.route.name if manifest.route else ""
        return of_route(self.run, route).output.options.destination

    def take_up(self, stop: Stop) -> None:
        """Confirm what an earlier process of the run has done."""
        if not self.resumed:
            return

        def tick() -> None:
            self.observe(Tick())
            check_stop(stop, "while the finished files were checked")

        self.before = self.output.progress(tick)
        # When they began was counted by the clock of another process.
        self.finished.update(
            (unit, replace(each, started_s=None)) for unit, each in self.before.finished.items()
        )

    def units_left(self) -> tuple[WorkUnit, ...]:
        """Return the units that are to be done, in the order in which they are handed out."""
        units = tuple(unit for unit in self.run.plan.units if unit.id not in self.finished)
        if self.output.in_order:
            units = tuple(sorted(units, key=lambda unit: unit.id))
        return units

    @property
    def rows_written(self) -> int:
        """How many rows the finished units have, with the rows that filters left out."""
        return sum(unit.scanned for unit in self.finished.values())

    def verify(self, stop: Stop, catalog: Catalog, rows: int | None = None) -> None:
        """Compare the count, and as much more as was asked for, with the source.

        Args:
            stop: Asked several times a second; True ends the run.
            catalog: Holds the snapshot, and is not used by another thread meanwhile.
            rows: The rows that the source counted already; None counts them.

        Raises:
            VerifyMismatch: Something differs.
            SourceError: The source failed for good.
            Interrupted: `stop` returned True.
        """
        request = self.run.request
        if request.verify == "none":
            return
        self.observe(PhaseStarted(phase="counting"))
        if rows is None:
            patience = Patience(
                retry=request.retry, run_id=self.run.run_id, stop=stop, observe=self.observe
            )
            with cancelled_by(stop, catalog):
                rows = patience.with_retries(
                    "counting", partial(self._count, catalog), catalog.check_snapshot
                )
        self.source_rows, written = rows, self.rows_written
        if written != rows and request.consistency == "snapshot":
            done = "written" if request.routes is None else "read"
            raise VerifyMismatch(
                f"{counted(written, 'row was', 'rows were')} {done}, but the source counts {rows} "
                "at the same snapshot",
                "run again; if it happens again, check whether the condition or query returns "
                "different rows each time (random values, samples, the current time); if not, "
                "report it with the plan",
            )
        self._verify_result = "ok" if written == rows else "different, no snapshot"
        if request.verify in COMPARING:
            self._compare_values(stop, catalog)

    def _count(self, catalog: Catalog) -> int:
        masked = masks_any(output.task_transform for output in self.run.outputs)
        with source_words_left_out(masked, self.run.extract.projection.columns):
            return count(catalog, self.run.extract, self.run.plan)

    def _compare_values(self, stop: Stop, catalog: Catalog) -> None:
        """Compare the fetched values with those in the files, and with the source's own."""
        units = self._in_order()
        self.observe(PhaseStarted(phase="verifying"))
        self._not_compared = self.output.read_back(units, stop) if self.output.is_kept else ()
        if self.run.request.verify != "source":
            return
        self.observe(PhaseStarted(phase="comparing"))
        asking = Asking(
            catalog=catalog,
            extract=self.run.extract,
            parallelism=len(self.run.seating.seats),
            observe=self.observe,
            check=lambda: check_stop(stop, "while values were compared with the source"),
        )
        left_out = unhashed(asking)
        if left_out:
            text = f"columns whose values are not compared with the source: {'; '.join(left_out)}"
            self.observe(Notice(text=text))
        selectors = {unit.id: unit.selectors for unit in self.run.plan.units}
        parts = [
            SourcePart(
                label=f"unit {unit.unit}", selectors=selectors[unit.unit], fetched=unit.content
            )
            for unit in units
            if unit.content is not None
        ]
        if found := source_differences(parts, asking):
            raise VerifyMismatch(
                some_of(found),
                "run again; if it happens again, check whether the condition or query returns "
                "different rows each time; if not, report it with the plan",
            )
        self._not_compared = (*self._not_compared, *left_out)

    def publishing(self, stop: Stop) -> Steps[None]:
        """Give the files their final names, in steps."""
        self.observe(PhaseStarted(phase="publishing"))
        units = self._in_order()
        manifest = yield from self.output.publishing(units, self._manifest, stop, self.then)
        self.manifests = self.output.manifests or (manifest,)

    def abandon(self, *, kept: bool) -> None:
        """Keep the finished part for `resume`, or remove all traces."""
        units = tuple(self.finished.values())
        self.output.abandon(units, partial(self._manifest, complete=False) if kept else None)

    def _in_order(self) -> list[FinishedUnit]:
        return [self.finished[unit] for unit in sorted(self.finished)]

    def _manifest(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        route: WrittenRoute | None = None,
        *,
        complete: bool = True,
    ) -> Manifest:
        state = self.state
        facts = RunFacts(
            run=of_output(self.run, 0) if route is None else route.run,
            route=None if route is None else route.record,
            seconds=time.perf_counter() - state.resolved.started,
            cpu_seconds=time.process_time()
            + sum(unit.cpu_seconds for unit in self.finished.values()),
            source_rows=self.source_rows,
            verify_result=self._verify_result,
            not_compared=self._not_compared if route is None else route.not_compared,
            directories=directories,
            evidence=state.evidence,
            lowest_parallelism=state.lowest_parallelism,
            steps=None if state.steering is None else state.steering.steps(),
            kept=frozenset(self.before.finished),
            failed_attempts=tuple(self.history.failures),
            failed_attempts_left_out=self.history.failures_left_out,
            samples=self.history.samples(),
        )
        manifest = build_manifest(facts, tuple(units), complete=complete)
        if not complete or state.ceilings is None:
            return manifest
        found = state.ceilings.compared(facts.run, manifest.totals, resumed=bool(facts.kept))
        if found.parts:
            return replace(manifest, efficiency=found)
        text = f"the run is not compared with {found.ceilings}: {'; '.join(found.not_compared)}"
        self.observe(Notice(text=text))
        return manifest
