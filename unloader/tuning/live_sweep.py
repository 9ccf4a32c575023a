"""Runs the points of a sweep: warm up, measure all points in rounds, repeat unsteady ones, report.

Each point writes into a directory that the sweep makes in each destination and removes at the end.
Nothing else in a destination is touched. A destination that holds a run is refused.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import Plan, WorkUnit
from unloader import api
from unloader.errors import Interrupted, OutputFailed, SourceError, UnloaderError, UsageError
from unloader.events import Event, Notice, Observer, PhaseStarted, PointMeasured, Tick
from unloader.model import OutputOptions, Request
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.directory_names import has_fields
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.place_names import destination_kind
from unloader.tuning.analysis import Analysis, Rules
from unloader.tuning.load_sampler import Sampler
from unloader.tuning.machine_load import Machine, machine_of, psutil_or_none
from unloader.tuning.sweep_document import (
    Measurement,
    PointReport,
    PointState,
    SampleTaken,
    SweepDocument,
    SweepOptions,
    Variant,
    curves_of,
    label,
    spread_of,
)
from unloader.tuning.sweep_measurement import Watch

MOST_MEASUREMENTS = 2000

WITHOUT_PSUTIL = (
    "CPUs, disks and memory are not measured: psutil is not installed. Next: pip install "
    "'unloader[sweep]'"
)


def sweep(
    variants: Sequence[Variant],
    options: SweepOptions,
    *,
    rules: Rules,
    observe: Observer,
    stop: Callable[[], bool] = lambda: False,
) -> SweepDocument:
    """Measure each variant several times, and report.

    Each measurement is a separate run of `unloader.api.unload` into a separate directory below the
    destination, which is removed. Rows are not counted in the source.

    Args:
        variants: The points, all of the same source, selection and destination.
        options: How they are measured.
        rules: Which of them are valid.
        observe: Called with each event that a user should see; in this thread.
        stop: Asked several times a second; True ends the sweep, with a report of the
            finished measurements.

    Raises:
        UnloaderError: As `unloader.api.unload`, of the first measurement. A point that fails later
            is reported. Interrupted, if `stop` returned True before anything was measured.
    """
    if not variants:
        raise UsageError("a sweep without points measures nothing", "give --parallelism 1,2,4")
    runs = len(variants) * options.repeats + options.warm_up
    if runs > MOST_MEASUREMENTS:
        raise UsageError(
            f"the sweep has {runs:,} measurements, but the limit is {MOST_MEASUREMENTS:,}",
            "give fewer values, or fewer --repeats",
        )
    variants = [replace(each, request=_for_sweep(each.request)) for each in variants]
    destinations = variants[0].request.output.destinations
    running = _Sweep(
        variants=variants,
        options=options,
        rules=rules,
        machine=machine_of(destinations if destination_kind(destinations) != "null" else ()),
        observe=observe,
        stop=stop,
    )
    with places(destinations, _sweep_id()) as where:
        return running.run(where)


class _Sweep(Struct, kw_only=True):
    """A sweep in progress."""

    variants: Sequence[Variant]
    options: SweepOptions
    rules: Rules
    machine: Machine
    observe: Observer
    stop: Callable[[], bool]
    measured: dict[int, list[Measurement]] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    interrupted: bool = False
    estimated_rows: int | None = None
    """Of all that a measurement without a sample was to read."""

    def run(self, where: Places) -> SweepDocument:
        """Measure everything."""
        if psutil_or_none() is None:
            self._warn(WITHOUT_PSUTIL)
        planned, taken = self._sample()
        largest = max(range(len(self.variants)), key=lambda at: self.variants[at].parallelism)
        for _ in range(self.options.warm_up):
            self._notice(f"warming up with {label(self.variants[largest].settings)}")
            self._one(largest, planned, where)
        for order in rounds(len(self.variants), self.options.repeats, self.options.seed):
            self._round(order, planned, where)
        for _ in range(self.options.most_repeats - self.options.repeats):
            unsteady = [at for at in range(len(self.variants)) if self._is_unsteady(at)]
            if self.interrupted or not unsteady:
                break
            self._notice(f"measuring {counted(len(unsteady), 'unsteady point')} once more")
            self._round(unsteady, planned, where)
        if self.interrupted and not any(self.measured.values()):
            raise Interrupted("stopped by a signal before a point was measured", "sweep again")
        return self._report(taken)

    def _sample(self) -> tuple[ResolvedTable | None, SampleTaken | None]:
        if self.options.sample is None:
            return None, None
        most = max(each.parallelism for each in self.variants)
        request = self.variants[0].request
        planned, taken = sampled(request, most, self.options.sample, self._shown)
        self._notice(f"each measurement reads {taken.units} of {taken.of_units} work units")
        if taken.units < UNITS_A_WORKER * most and taken.units < taken.of_units:
            self._warn(
                f"a sample of {counted(taken.units, 'work unit')} is small for {most} workers, "
                "which wait for the last unit. Next: give a larger --sample, or a smaller "
                "--unit-bytes"
            )
        return planned, taken

    def _round(self, order: Sequence[int], planned: ResolvedTable | None, where: Places) -> None:
        for at in order:
            if self.interrupted or at in self.problems:
                continue
            found = self._one(at, planned, where)
            if found is None:
                continue
            self.measured.setdefault(at, []).append(found)
            self.order.append(at)
            self._tell(at, found)

    def _tell(self, at: int, found: Measurement) -> None:
        event = PointMeasured(
            number=found.number,
            of=len(self.variants) * self.options.repeats,
            settings=label(self.variants[at].settings),
            parallelism=self.variants[at].parallelism,
            rows_per_second=found.rows_per_second,
        )
        self.observe(event)

    def _one(self, at: int, planned: ResolvedTable | None, where: Places) -> Measurement | None:
        """Make one measurement; None if it failed, or the user has ended it."""
        variant = self.variants[at]
        request = variant.request
        watch = Watch(
            sampler=Sampler(self.machine, request.source.kind),
            shown=self._shown,
            seconds=self.options.seconds,
            asked_to_stop=self.stop,
        )
        run = None if planned is None else with_parallelism(planned, variant.parallelism)
        try:
            with where.for_one(request.output) as output:
                asked = replace(request, output=output)
                api.unload(asked, planned=run, observe=watch, stop=watch.stop)
        except Interrupted:
            if not watch.timed_out:
                self.interrupted = True
                return None
        except UnloaderError as error:
            self._failed(at, error)
            return None
        finally:
            watch.close()
        self.estimated_rows = watch.estimated_rows or self.estimated_rows
        found = watch.measurement(len(self.order) + 1)
        if found is None:
            empty = SourceError(
                "no row arrived during the measurement",
                "give a longer --seconds, or another table",
            )
            self._failed(at, empty)
        return found

    def _failed(self, at: int, error: UnloaderError) -> None:
        """Put a failed point on record; the first of all ends the sweep."""
        if not any(self.measured.values()):
            raise error
        self.problems[at] = error.message
        self._notice(f"{label(self.variants[at].settings)} failed: {error.message}")

    def _is_unsteady(self, at: int) -> bool:
        spread = spread_of(self.measured.get(at, ()))
        return spread is not None and spread > self.options.widest_spread

    def _report(self, taken: SampleTaken | None) -> SweepDocument:
        request = self.variants[0].request
        points = tuple(self._point(at) for at in range(len(self.variants)))
        whole_rows = self._whole_rows(taken)
        found = curves_of(points, self.rules, whole_rows)
        notices = [
            f"{label(each.settings)}: {text}" if each.settings else text
            for each in found
            for text in each.notices
        ]
        best, table = found[0], request.selection.table
        analysis = {name: getattr(best, name) for name in Analysis.__struct_fields__}
        analysis["notices"] = (*self.notices, *_differing_rows(points), *notices)
        return SweepDocument(
            **analysis,
            recommended_options=best.recommended_options,
            whole_table=best.whole_table,
            curves=found,
            source=redact(request.source.location),
            subject="query" if table is None else str(table),
            destination=",".join(request.output.destinations),
            options=self.options,
            sample=taken,
            whole_rows=whole_rows,
            cores=self.machine.cores,
            caches=_caches(self.options.warm_up),
            points=points,
            interrupted=self.interrupted,
            order=tuple(label(self.variants[at].settings) for at in self.order),
        )

    def _point(self, at: int) -> PointReport:
        measured = tuple(self.measured.get(at, ()))
        speeds = [each.rows_per_second for each in measured]
        return PointReport(
            settings=self.variants[at].settings,
            parallelism=self.variants[at].parallelism,
            measurements=measured,
            state=self._state(at),
            problem=self.problems.get(at, ""),
            rows_per_second=statistics.median_low(speeds) if speeds else None,
            spread=spread_of(measured),
        )

    def _whole_rows(self, taken: SampleTaken | None) -> int | None:
        if taken is not None:
            return taken.of_rows
        every = [each for found in self.measured.values() for each in found]
        return next((each.rows for each in every if each.complete), self.estimated_rows)

    def _state(self, at: int) -> PointState:
        count = len(self.measured.get(at, ()))
        if at in self.problems:
            return "failed"
        if count < 2:
            return "once" if count else "not measured"
        return "unsteady" if self._is_unsteady(at) else "steady"

    def _notice(self, text: str) -> None:
        self.observe(Notice(text=text))

    def _warn(self, text: str) -> None:
        """Tell the user something that belongs to the result, too."""
        self._notice(text)
        self.notices.append(text)

    def _shown(self, event: Event) -> None:
        """Pass on ticks and phases; other events belong to one run."""
        if isinstance(event, (Tick, PhaseStarted)):
            self.observe(event)


def _for_sweep(request: Request) -> Request:
    """Return the request of a point without the options of single runs."""
    output = replace(request.output, overwrite=False, keep=None, latest_link=None)
    session = replace(request.source.session, keep_snapshot_seconds=0.0)
    return replace(
        request,
        output=output,
        source=replace(request.source, session=session),
        verify="none",
    )


def _caches(warm_up: int) -> str:
    if not warm_up:
        return "as they were; later measurements find more rows in the caches than the first"
    return (
        "warm: the same rows were read before the first measurement, so all points find them in "
        "the caches of database and system"
    )


def _differing_rows(points: Sequence[PointReport]) -> tuple[str, ...]:
    """Tell if points have read different numbers of rows: the table changes meanwhile."""
    counts = {each.rows for point in points for each in point.measurements if each.complete}
    if len(counts) < 2:
        return ()
    return (
        f"the measurements read from {min(counts):,} to {max(counts):,} rows: the table has "
        "changed, or the points have different selections",
    )


def _sweep_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"


def rounds(points: int, repeats: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield rounds in which each point comes once, each round in another order.

    The same seed gives the same order. A point does not come twice in a row if there are others.

    Args:
        points: How many there are.
        repeats: Number of rounds.
        seed: Decides the order.
    """
    shuffler = random.Random(seed)
    last = -1
    for _ in range(repeats):
        order = list(range(points))
        shuffler.shuffle(order)
        if points > 1 and order[0] == last:
            order.append(order.pop(0))
        last = order[-1]
        yield tuple(order)


T = TypeVar("T")

UNITS_A_WORKER = 4
"""Units of a sample for each worker, if units can be cut. With fewer of them most of the workers
wait for the last one."""

_LEAST_UNIT_BYTES = 1024 * 1024


def sampled(
    request: Request, parallelism: int, share: float, observe: Observer
) -> tuple[ResolvedTable, SampleTaken]:
    """Return a run that reads a part of what a request asks for, and how large that is.

    The plan is made once, for the largest parallelism of the sweep, so that all points read the
    same rows. Units are cut smaller than usual where the part would have too few of them.

    Args:
        request: The request of the sweep.
        parallelism: The largest of all points.
        share: Of the table, above 0.
        observe: Takes the events of planning.

    Raises:
        UnloaderError: As `unloader.api.plan`.
    """
    wanted = parallelism * UNITS_A_WORKER
    run = _planned(request, parallelism, observe)
    size = _total([unit.bytes for unit in run.plan.units])
    few = math.ceil(len(run.plan.units) * share) < wanted
    if few and size and request.limits.unit_bytes is None:
        unit_bytes = max(_LEAST_UNIT_BYTES, int(size * share / wanted))
        limits = replace(request.limits, unit_bytes=unit_bytes)
        run = _planned(replace(request, limits=limits), parallelism, observe)
    units = run.plan.units
    number = max(math.ceil(len(units) * share), min(len(units), parallelism))
    chosen = evenly(sorted(units, key=lambda unit: unit.id), number)
    return _with_units(run, chosen), _taken(run.plan, chosen)


def with_parallelism(run: ResolvedTable, parallelism: int) -> ResolvedTable:
    """Return the same units for another number of workers."""
    limits = replace(run.plan.limits, parallelism=parallelism)
    return replace(run, plan=replace(run.plan, limits=limits))


def evenly(items: Sequence[T], number: int) -> tuple[T, ...]:
    """Return a number of the items, at equal distances."""
    step = len(items) / number
    return tuple(items[int((at + 0.5) * step)] for at in range(number))


def _planned(request: Request, parallelism: int, observe: Observer) -> ResolvedTable:
    limits = replace(request.limits, parallelism=parallelism)
    return api.plan(replace(request, limits=limits), observe=observe).run


def _with_units(run: ResolvedTable, chosen: Sequence[WorkUnit]) -> ResolvedTable:
    ids = {unit.id for unit in chosen}
    # In the order of the plan, the largest first: the order in which seats take them.
    units = tuple(unit for unit in run.plan.units if unit.id in ids)
    return replace(run, plan=replace(run.plan, units=units))


def _taken(plan: Plan, chosen: Sequence[WorkUnit]) -> SampleTaken:
    rows, of_rows = (_total([unit.rows for unit in units]) for units in (chosen, plan.units))
    size, of_size = (_total([unit.bytes for unit in units]) for units in (chosen, plan.units))
    share = len(chosen) / len(plan.units)
    if size and of_size:
        share = size / of_size
    elif rows and of_rows:
        share = rows / of_rows
    return SampleTaken(
        units=len(chosen), of_units=len(plan.units), rows=rows, of_rows=of_rows, share=share
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


PREFIX = "_sweep-"
"""Of the directories; what a killed sweep has left is found by it."""

_OF_A_RUN = ("_manifest.json", "_run")


class Places:
    """The destinations of a sweep in progress."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Take the directories made for the sweep; none where everything is dropped."""
        self._roots = tuple(roots)
        self._number = 0

    @contextmanager
    def for_one(self, output: OutputOptions) -> Iterator[OutputOptions]:
        """Yield the output of one run in separate directories, and remove them."""
        if not self._roots:
            yield output
            return
        self._number += 1
        mine = [root / f"{self._number:04d}" for root in self._roots]
        first, *others = map(str, mine)
        try:
            yield replace(output, destination=first, others=tuple(others))
        finally:
            for each in mine:
                shutil.rmtree(each, ignore_errors=True)


@contextmanager
def places(destinations: tuple[str, ...], sweep_id: str) -> Iterator[Places]:
    """Make a directory for the sweep in each destination, and remove it in the end.

    Args:
        destinations: As `--to` has them.
        sweep_id: Distinguishes the directories from other sweeps.

    Raises:
        UsageError: A destination is a stream, or has fields.
        OutputFailed: One holds a run, or a directory cannot be made there.
    """
    kind = destination_kind(destinations)
    if kind == "null":
        yield Places(())
        return
    check_destinations(destinations)
    made: list[Path] = []
    roots: list[Path] = []
    try:
        for place in map(Path, destinations):
            made += _make(place)
            if not place.is_dir():
                raise OutputFailed(
                    f"{place} is not a directory",
                    "give another directory with --to, or --to null:",
                )
            root = place / f"{PREFIX}{sweep_id}"
            root.mkdir()
            roots.append(root)
        yield Places(roots)
    except OSError as error:
        raise OutputFailed(
            f"the sweep cannot create a directory in {error.filename}: {error.strerror}",
            "give another directory with --to, or --to null:",
        ) from error
    finally:
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)
        for path in reversed(made):
            # Only directories that this sweep made, and only while they are empty.
            with suppress(OSError):
                path.rmdir()


def check_destinations(destinations: tuple[str, ...]) -> None:
    """Refuse a destination that a sweep cannot write to, or should not.

    Raises:
        UsageError: It is a stream, or has fields.
        OutputFailed: It holds a run.
    """
    if destination_kind(destinations) == "null":
        return
    if destination_kind(destinations) != "directories":
        raise UsageError(
            f"a sweep cannot write to {destinations[0]}, which accepts data only once",
            "give a directory with --to, or --to null:",
        )
    for place in destinations:
        if has_fields(place):
            raise UsageError(
                f"--to {place} has fields, but a sweep names its directories itself",
                "give the directory above the fields",
            )
        for name in _OF_A_RUN:
            if os.path.lexists(Path(place) / name):
                raise OutputFailed(
                    f"{place} holds a run ({name}), which a sweep does not change",
                    "give a directory on the same disk without a run",
                )


def _make(place: Path) -> list[Path]:
    """Make a directory and those above it; return the new ones, outermost first."""
    missing = []
    while not place.exists():
        missing.append(place)
        place = place.parent
    missing.reverse()
    for each in missing:
        each.mkdir()
    return missing
