"""One table or query of a run: what of it is done, whether it is complete, and how it ends.

Nothing is published before every unit is done and the number of rows agrees with the source's own
at the same snapshot. On masked columns no error shows a value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.engine.executor import Executor
from unloader.errors import (
    Interrupted,
    SnapshotGone,
    UnloaderError,
    VerifyMismatch,
)
from unloader.events import Notice, Observer, PhaseStarted, Tick, UnitsKept
from unloader.manifest.build import RunFacts, build_manifest
from unloader.manifest.model import Manifest
from unloader.model import COMPARING, FinishedUnit
from unloader.nouns import counted
from unloader.placement.evidence import Evidence
from unloader.resolve.outputs.one import of_output
from unloader.resolve.patience import Patience
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.run.concurrency.opening import RunSteering
from unloader.run.history import History
from unloader.run.journal import Progress
from unloader.run.outputs.base import RunOutput, Stop, WrittenRoute, continued
from unloader.run.room import RoomWatch
from unloader.run.unit_work import UnitWork
from unloader.sources.abilities import kept_until
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by
from unloader.sources.sampling import count
from unloader.verification.files import some_of
from unloader.verification.source import (
    Asking,
    SourcePart,
    source_differences,
    unhashed,
)
from unloader.worker.masked_failures import masks_any, source_words_left_out
from writers.files.syncing import Steps, alone

if TYPE_CHECKING:
    from unloader.tuning.ceiling_records import Ceilings


class Circumstances(Struct, kw_only=True):
    """What the manifest of a table tells of the run as a whole."""

    history: History
    ceilings: Ceilings | None = None
    """What the run is compared with."""
    evidence: Evidence = field(default_factory=Evidence)
    """Where the workers were."""
    lowest_parallelism: int | None = None
    """See `unloader.engine.schedule`."""
    steering: RunSteering | None = None
    """What steers the number of workers; None before there are any."""


class TableRun(Struct, kw_only=True):
    """The state of one table in the parent."""

    resolved: OpenRun
    output: RunOutput
    observe: Observer
    around: Circumstances
    then: Callable[[Manifest], None] = lambda manifest: None
    """See `RunOutput.publish`."""
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By the unit's id."""
    source_rows: int | None = None
    manifests: tuple[Manifest, ...] = ()
    """Of what is published: one, or that of each route."""
    _verify_result: str = "not verified"
    _not_compared: tuple[str, ...] | None = None
    _kept: frozenset[str] = frozenset()
    """Units of these that an earlier process of the run has done."""

    @property
    def run(self) -> ResolvedRun:
        """What is executed."""
        return self.resolved.run

    def take_up(self, stop: Stop) -> Progress:
        """Confirm what an earlier process of the run has done."""
        if not self.resolved.resumed_in:
            return Progress()

        def tick() -> None:
            self.observe(Tick())
            check_stop(stop, "while the finished files were checked")

        self.observe(PhaseStarted(phase="confirming"))
        before = self.output.progress(tick)
        # When they began was counted by the clock of another process.
        self.finished.update(
            (unit, replace(each, started_s=None)) for unit, each in before.finished.items()
        )
        self._kept = frozenset(before.finished)
        results = before.finished.values()
        rows = sum(each.rows for each in results)
        size = sum(file.bytes for each in results for file in each.files)
        self.observe(UnitsKept(units=len(results), rows=rows, bytes=size))
        return before

    def units_left(self) -> tuple[WorkUnit, ...]:
        """Return the units that are to be done, in the order in which they are handed out."""
        units = tuple(unit for unit in self.run.plan.units if unit.id not in self.finished)
        if self.output.in_order:
            units = tuple(sorted(units, key=lambda unit: unit.id))
        return units

    def work(
        self,
        executor: Executor,
        stop: Stop,
        *,
        room: RoomWatch | None,
        concurrency: RunSteering,
    ) -> UnitWork:
        """Return the units as the engine works on them."""
        request = self.run.request
        return UnitWork(
            extract=self.run.extract,
            catalog=self.resolved.catalog,
            output=self.output,
            executor=executor,
            history=self.around.history,
            fetch_bytes=request.fetch_bytes,
            checksums=request.verify in COMPARING,
            drops_outputs=request.on_route_failure == "drop",
            observe=self.observe,
            resumable=self.is_resumable,
            finished_units=self.finished,
            workers=len(self.run.seating.seats),
            room=room,
            concurrency=concurrency,
        )

    def verify(
        self,
        stop: Stop,
        catalog: Catalog,
        end_workers: Callable[[], None] = lambda: None,
        *,
        rows: int | None = None,
    ) -> None:
        """Compare the count, and as much more as was asked for, with the source.

        Args:
            stop: As everywhere.
            catalog: Holds the snapshot, and is not used by another thread meanwhile.
            end_workers: Ends the workers where their sessions are needed for that.
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
                    "counting",
                    lambda: source_rows(catalog, self.run),
                    catalog.check_snapshot,
                )
        self.check_count(rows)
        self.compare_values(stop, end_workers)

    @property
    def rows_written(self) -> int:
        """How many rows the finished units have, those that filters left out with them."""
        return sum(unit.scanned for unit in self.finished.values())

    def check_count(self, source_rows: int) -> None:
        """Compare the rows that were written with those that the source counts.

        Raises:
            VerifyMismatch: There are more or fewer of them, at one snapshot.
        """
        self.source_rows = source_rows
        written = self.rows_written
        consistent = self.run.request.consistency == "snapshot"
        if written != source_rows and consistent:
            raise VerifyMismatch(
                f"{counted(written, 'row was', 'rows were')} {self._what_was_done}, but the "
                f"source counts {source_rows} at the same snapshot",
                "run again; if it happens again, check whether the condition or query returns "
                "different rows each time (random values, samples, the current time); if not, "
                "report it with the plan",
            )
        self._verify_result = "ok" if written == source_rows else "different, no snapshot"

    def publish(self, stop: Stop) -> Manifest:
        """Give the files their final names; return the manifest."""
        return alone(self.publishing(stop))

    def publishing(self, stop: Stop) -> Steps[Manifest]:
        """Do the same in steps."""
        units = self._in_order()
        manifest = yield from self.output.publishing(units, self._manifest, stop, self.then)
        self.manifests = self.output.manifests or (manifest,)
        return manifest

    def abandon(self, *, kept: bool) -> None:
        """Leave what is done for `resume`, or no trace."""
        units = tuple(self.finished.values())
        self.output.abandon(units, partial(self._manifest, complete=False) if kept else None)

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
        return type(error)(error.message, step if alone else continued(error.hint, step))

    @property
    def is_resumable(self) -> bool:
        """Whether a later process can read at the same snapshot."""
        known = self.resolved.catalog.capabilities
        if self.run.request.consistency == "none" or known.snapshot_outlives_run:
            return True
        return bool(kept_until(self.resolved.catalog))

    @property
    def _what_was_done(self) -> str:
        """What became of the rows that are counted, in messages."""
        return "written" if self.run.request.routes is None else "read"

    def _in_order(self) -> list[FinishedUnit]:
        return [self.finished[unit] for unit in sorted(self.finished)]

    def compare_values(self, stop: Stop, end_workers: Callable[[], None] = lambda: None) -> None:
        """Compare the fetched values with those in the files, and with the source's own.

        As far as that was asked for; see `verify`.
        """
        if self.run.request.verify not in COMPARING:
            return
        units = self._in_order()
        self.observe(PhaseStarted(phase="verifying"))
        self._not_compared = self.output.read_back(units, stop) if self.output.is_kept else ()
        if self.run.request.verify != "source":
            return
        known = self.run.request.concurrency
        if known is not None and known.max_sessions is not None:
            # Each that computes checksums has a session of its own, in place of a worker's.
            end_workers()
        self.observe(PhaseStarted(phase="comparing"))
        asking = Asking(
            catalog=self.resolved.catalog,
            extract=self.run.extract,
            parallelism=len(self.run.seating.seats),
            observe=self.observe,
            check=lambda: check_stop(stop, "while values were compared with the source"),
        )
        found = compare(units, self.run.plan.units, asking)
        self._not_compared = (*self._not_compared, *found)

    def _manifest(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        route: WrittenRoute | None = None,
        *,
        complete: bool = True,
    ) -> Manifest:
        around = self.around
        facts = RunFacts(
            run=of_output(self.run, 0) if route is None else route.run,
            route=None if route is None else route.record,
            seconds=time.perf_counter() - self.resolved.started,
            cpu_seconds=time.process_time()
            + sum(unit.cpu_seconds for unit in self.finished.values()),
            source_rows=self.source_rows,
            verify_result=self._verify_result,
            not_compared=self._not_compared if route is None else route.not_compared,
            directories=directories,
            evidence=around.evidence,
            lowest_parallelism=around.lowest_parallelism,
            ceilings=around.ceilings,
            steps=None if around.steering is None else around.steering.steps(),
            kept=self._kept,
            failed_attempts=tuple(around.history.failures),
            failed_attempts_left_out=around.history.failures_left_out,
            samples=around.history.samples(),
        )
        manifest = build_manifest(facts, tuple(units), complete=complete)
        found = manifest.efficiency
        if found is None or found.parts:
            return manifest
        text = f"the run is not compared with {found.ceilings}: {'; '.join(found.not_compared)}"
        self.observe(Notice(text=text))
        return replace(manifest, efficiency=None)


def check_stop(stop: Stop, when: str) -> None:
    """Raise Interrupted if the user asks for the end."""
    if stop():
        raise Interrupted(f"stopped by a signal {when}")


def compare(
    finished: Sequence[FinishedUnit], units: Sequence[WorkUnit], asking: Asking
) -> tuple[str, ...]:
    """Compare the checksums of finished units with those that the source computes.

    Returns:
        The columns that the source cannot hash, each with why.

    Raises:
        VerifyMismatch: The source has other values.
        SourceError: The source refused, or the snapshot is gone.
    """
    left_out = unhashed(asking)
    if left_out:
        known = "; ".join(left_out)
        text = f"columns whose values are not compared with the source: {known}"
        asking.observe(Notice(text=text))
    selectors = {unit.id: unit.selectors for unit in units}
    parts = [
        SourcePart(
            label=f"unit {unit.unit}",
            selectors=selectors[unit.unit],
            fetched=unit.content,
        )
        for unit in finished
        if unit.content is not None
    ]
    found = source_differences(parts, asking)
    if found:
        raise VerifyMismatch(
            some_of(found),
            "run again; if it happens again, check whether the condition or query returns "
            "different rows each time; if not, report it with the plan",
        )
    return left_out


def source_rows(catalog: Catalog, run: ResolvedRun) -> int:
    """Return how many rows a run reads, counted by the database.

    Raises:
        SourceError: The database refused or the snapshot is gone.
    """
    masked = masks_any(output.task_transform for output in run.outputs)
    with source_words_left_out(masked, run.extract.projection.columns):
        return count(catalog, run.extract, run.plan)
