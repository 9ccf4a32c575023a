"""Runs the points of a sweep: warm up, measure all points in rounds, repeat unsteady ones, report.

Each point writes into a directory that the sweep makes in each destination and removes at the end.
Nothing else in a destination is touched. A destination that holds a run is refused.

A run is followed by its events. Finished units show their stages: the CPU, the queues, and the
waits. A stage that waits is not yet the limit: the next one waits for something outside, has work
to do, or is ready and gets no CPU. Each wait is divided among these as the stage that is waited for
has spent its time.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.planner import known_sum
from unloader import api
from unloader.errors import Interrupted, OutputFailed, SourceError, UnloaderError, UsageError
from unloader.events import (
    Event,
    Notice,
    Observer,
    PhaseStarted,
    PointMeasured,
    RunStarted,
    Tick,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.model import Request, UnitResult
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.request.name_templates import has_fields
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.place_names import destination_kind
from unloader.tuning.analysis import Analysis, Rules
from unloader.tuning.ceilings import read_ceilings
from unloader.tuning.codec_choice import spread_units
from unloader.tuning.machine_load import Sampler, machine_of
from unloader.tuning.sweep_document import (
    Measurement,
    PointReport,
    PointState,
    SampleTaken,
    StageCosts,
    SweepDocument,
    SweepOptions,
    UnitTime,
    Variant,
    curves_of,
    label,
    spread_of,
)
from writers import cpu_delay

MOST_MEASUREMENTS = 2000

UNITS_A_WORKER = 4
"""Units of a sample for each worker, if units can be cut. With fewer of them most of the workers
wait for the last one."""
_LEAST_UNIT_BYTES = 1024 * 1024

PREFIX = "_sweep-"
"""Of the directories; what a killed sweep has left is found by it."""

_LEAST_SECONDS = 1e-6


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
    destination, which is removed. Rows are not counted in the source. The variants have the same
    source, selection and destination. Where `stop`, which is asked several times a second, returns
    True, the finished measurements are reported, or `Interrupted` is raised without any. The first
    measurement raises the errors of its run; a point that fails later is reported.
    """
    runs = len(variants) * options.repeats + options.warm_up
    if runs > MOST_MEASUREMENTS:
        raise UsageError(
            f"the sweep has {runs:,} measurements, but the limit is {MOST_MEASUREMENTS:,}",
            "give fewer values, or fewer --repeats",
        )
    alone = []
    for each in variants:
        # Without the options of single runs.
        source, output = each.request.source, each.request.output
        source = replace(source, session=replace(source.session, keep_snapshot_seconds=0.0))
        output = replace(output, overwrite=False, keep=None, latest_link=None)
        request = replace(each.request, output=output, source=source, verify="none")
        alone.append(replace(each, request=request))
    sweep_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"
    with places(alone[0].request.output.destinations, sweep_id) as roots:
        return _Sweep(alone, options, roots, observe, stop).run(rules)


class _Sweep:
    """A sweep in progress."""

    def __init__(
        self,
        variants: Sequence[Variant],
        options: SweepOptions,
        roots: Sequence[Path],
        observe: Observer,
        stop: Callable[[], bool],
    ) -> None:
        self.variants = variants
        self.options = options
        self.roots = roots
        self.observe = observe
        self.stop = stop
        self.machine = machine_of(tuple(map(str, roots)))
        ceilings = variants[0].request.ceilings
        network = read_ceilings(Path(ceilings)).network if ceilings else None
        if network is not None and network.interface is not None:
            # A measured rate is lower than the nominal speed, and is known for more interfaces.
            speeds = {**self.machine.link_speeds, network.interface: network.bytes_per_second}
            self.machine = replace(self.machine, link_speeds=speeds)
        self.measured: list[list[Measurement]] = [[] for _ in variants]
        self.problems: dict[int, str] = {}
        self.order: list[int] = []
        self.notices: list[str] = []
        self.runs = 0
        self.interrupted = False
        self.planned: ResolvedTable | None = None
        """The units that all points read, of a sample."""
        self.estimated_rows: int | None = None
        """Of all that a measurement without a sample was to read."""

    def run(self, rules: Rules) -> SweepDocument:
        options, taken = self.options, None
        if find_spec("psutil") is None:
            self._warn(
                "CPUs, disks and memory are not measured: psutil is not installed. Next: pip "
                "install 'unloader[sweep]'"
            )
        most = max(each.parallelism for each in self.variants)
        if options.sample is not None:
            request = self.variants[0].request
            self.planned, taken = _sampled(request, most, options.sample, self._shown)
            self._notice(f"each measurement reads {taken.units} of {taken.of_units} work units")
            if taken.units < UNITS_A_WORKER * most and taken.units < taken.of_units:
                self._warn(
                    f"a sample of {counted(taken.units, 'work unit')} is small for {most} workers, "
                    "which wait for the last unit. Next: give a larger --sample, or a smaller "
                    "--unit-bytes"
                )
        largest = [each.parallelism for each in self.variants].index(most)
        for _ in range(options.warm_up):
            self._notice(f"warming up with {label(self.variants[largest].settings)}")
            self._measure(largest)
        for order in rounds(len(self.variants), options.repeats, options.seed):
            self._round(order)
        for _ in range(options.most_repeats - options.repeats):
            unsteady = [at for at in range(len(self.variants)) if self._is_unsteady(at)]
            if self.interrupted or not unsteady:
                break
            self._notice(f"measuring {counted(len(unsteady), 'unsteady point')} once more")
            self._round(unsteady)
        if self.interrupted and not self.order:
            raise Interrupted("stopped by a signal before a point was measured", "sweep again")
        return self._report(taken, rules)

    def _round(self, order: Sequence[int]) -> None:
        for at in order:
            if self.interrupted or at in self.problems or (found := self._measure(at)) is None:
                continue
            self.measured[at].append(found)
            self.order.append(at)
            self.observe(
                PointMeasured(
                    number=found.number,
                    of=len(self.variants) * self.options.repeats,
                    settings=label(self.variants[at].settings),
                    parallelism=self.variants[at].parallelism,
                    rows_per_second=found.rows_per_second,
                )
            )

    def _measure(self, at: int) -> Measurement | None:
        """Make one measurement; None if it failed, or the user has ended it."""
        parallelism, request = self.variants[at].parallelism, self.variants[at].request
        watch = Watch(
            sampler=Sampler(self.machine, request.source.kind),
            shown=self._shown,
            seconds=self.options.seconds,
            asked_to_stop=self.stop,
        )
        planned = self.planned
        if planned is not None:
            limits = replace(planned.plan.limits, parallelism=parallelism)
            planned = replace(planned, plan=replace(planned.plan, limits=limits))
        self.runs += 1
        mine = [root / f"{self.runs:04d}" for root in self.roots]
        try:
            if mine:
                first, *others = map(str, mine)
                output = replace(request.output, destination=first, others=tuple(others))
                request = replace(request, output=output)
            api.unload(request, planned=planned, observe=watch, stop=watch.stop)
        except Interrupted:
            if not watch.timed_out:
                self.interrupted = True
                return None
        except UnloaderError as error:
            self._failed(at, error)
            return None
        finally:
            watch.close()
            for each in mine:
                shutil.rmtree(each, ignore_errors=True)
        self.estimated_rows = watch.estimated_rows or self.estimated_rows
        found = watch.measurement(len(self.order) + 1)
        if found is None:
            hint = "give a longer --seconds, or another table"
            self._failed(at, SourceError("no row arrived during the measurement", hint))
        return found

    def _failed(self, at: int, error: UnloaderError) -> None:
        """Put a failed point on record; the first of all ends the sweep."""
        if not self.order:
            raise error
        self.problems[at] = error.message
        self._notice(f"{label(self.variants[at].settings)} failed: {error.message}")

    def _is_unsteady(self, at: int) -> bool:
        spread = spread_of(self.measured[at])
        return spread is not None and spread > self.options.widest_spread

    def _report(self, taken: SampleTaken | None, rules: Rules) -> SweepDocument:
        request, options = self.variants[0].request, self.options
        points = tuple(map(self._point, range(len(self.variants))))
        every = [each for point in points for each in point.measurements]
        counts = {each.rows for each in every if each.complete}
        if len(counts) > 1:
            self.notices.append(
                f"the measurements read from {min(counts):,} to {max(counts):,} rows: the table "
                "has changed, or the points have different selections"
            )
        if taken is not None:
            whole_rows = taken.of_rows
        else:
            whole_rows = next((each.rows for each in every if each.complete), self.estimated_rows)
        curves = curves_of(points, rules, whole_rows)
        for each in curves:
            head = f"{label(each.settings)}: " if each.settings else ""
            self.notices += [f"{head}{text}" for text in each.notices]
        best, table = curves[0], request.selection.table
        recommended = {} if best.recommended is None else {"parallelism": str(best.recommended)}
        analysis = {name: getattr(best, name) for name in Analysis.__struct_fields__}
        return SweepDocument(
            **{**analysis, "notices": tuple(self.notices)},
            recommended_options={**recommended, **best.settings},
            whole_table=best.whole_table,
            curves=curves,
            source=redact(request.source.location),
            subject="query" if table is None else str(table),
            destination=",".join(request.output.destinations),
            options=options,
            sample=taken,
            whole_rows=whole_rows,
            cores=self.machine.cores,
            caches="warm: the same rows were read before the first measurement, so all points find "
            "them in the caches of database and system"
            if options.warm_up
            else "as they were; later measurements find more rows in the caches than the first",
            points=points,
            interrupted=self.interrupted,
            order=tuple(label(self.variants[at].settings) for at in self.order),
        )

    def _point(self, at: int) -> PointReport:
        variant, measured = self.variants[at], tuple(self.measured[at])
        state: PointState = "unsteady" if self._is_unsteady(at) else "steady"
        if at in self.problems:
            state = "failed"
        elif len(measured) < 2:
            state = "once" if measured else "not measured"
        speeds = [each.rows_per_second for each in measured]
        return PointReport(
            settings=variant.settings,
            parallelism=variant.parallelism,
            measurements=measured,
            state=state,
            problem=self.problems.get(at, ""),
            rows_per_second=statistics.median_low(speeds) if speeds else None,
            spread=spread_of(measured),
        )

    def _notice(self, text: str) -> None:
        self.observe(Notice(text=text))

    def _warn(self, text: str) -> None:
        """Show a notice that belongs to the result, too."""
        self._notice(text)
        self.notices.append(text)

    def _shown(self, event: Event) -> None:
        """Pass on ticks and phases; other events belong to one run."""
        if isinstance(event, (Tick, PhaseStarted)):
            self.observe(event)


class Watch(Struct, kw_only=True):
    """A run in progress: it observes the events of the run, and ends it after its time."""

    sampler: Sampler
    shown: Observer
    """Gets the events that a user of the sweep should see."""
    seconds: float | None
    """Longest time; None is any."""
    asked_to_stop: Callable[[], bool]
    """The user's own wish."""
    began: float = field(default_factory=time.monotonic)
    timed_out: bool = False
    estimated_rows: int | None = None
    """Of all that the run was to read, by the source."""
    _unloading: float | None = None
    _ended: float | None = None
    _failed: int = 0
    _results: list[UnitResult] = field(default_factory=list)
    _timeline: list[UnitTime] = field(default_factory=list)
    _started: dict[str, float] = field(default_factory=dict)
    _under_way: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows and bytes of units that are not finished."""

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, PhaseStarted):
            self.close()
        elif isinstance(event, RunStarted):
            self.estimated_rows = event.rows
        elif isinstance(event, UnitStarted):
            # Not with the phase: the first worker still loads its libraries.
            if self._unloading is None:
                self._unloading = now
                self.sampler.start()
            self._started[event.unit] = now
        elif isinstance(event, UnitAdvanced):
            self._under_way[event.unit] = (event.rows, event.bytes)
        elif isinstance(event, UnitFailed):
            self._failed += 1
            self._under_way.pop(event.unit, None)
        elif isinstance(event, UnitFinished):
            self._under_way.pop(event.unit, None)
            if event.result is not None:
                self._results.append(event.result)
            self._timeline.append(
                UnitTime(
                    worker=event.worker,
                    unit=event.unit,
                    began_seconds=self._started.get(event.unit, now) - (self._unloading or now),
                    seconds=event.seconds,
                    rows=event.rows,
                    bytes=event.bytes,
                )
            )
        self.shown(event)

    def stop(self) -> bool:
        """Return whether the run must end: the user stops it, or its time is over."""
        if self.asked_to_stop():
            return True
        if self._unloading is not None and self._ended is None and self.seconds is not None:
            self.timed_out = time.monotonic() - self._unloading >= self.seconds
            if self.timed_out:
                self.close()
        return self.timed_out

    def close(self) -> None:
        """End the watching; may be called again."""
        if self._unloading is not None and self._ended is None:
            self._ended = time.monotonic()
            self.sampler.stop()

    def measurement(self, number: int) -> Measurement | None:
        """Return the measurement with its number in the sweep; None if no row came."""
        self.close()
        results = self._results
        cut = list(self._under_way.values()) if self.timed_out else []
        rows = sum(each.rows for each in results) + sum(rows for rows, _ in cut)
        if self._unloading is None or self._ended is None or not rows:
            return None
        size = sum(f.bytes + f.value_bytes for each in results for f in each.files)
        size += sum(written for _, written in cut)
        seconds = max(self._ended - self._unloading, _LEAST_SECONDS)
        loads = [each.stages.load for each in results if each.stages.load is not None]
        queued = [each.longest_blocked_s for each in loads] if len(loads) == len(results) else []
        texts = [each.stages.uncompressed_bytes or 0 for each in results]
        finished = sum(each.rows for each in results)
        return Measurement(
            number=number,
            seconds=seconds,
            whole_seconds=time.monotonic() - self.began,
            rows=rows,
            bytes=size,
            complete=not self.timed_out,
            units=len(results),
            failed_attempts=self._failed,
            costs=_costs(results),
            load=replace(
                self.sampler.load(), queued=max(queued, default=None), **waits_of(results)
            ),
            peak_worker_bytes=max((r.peak_rss_bytes for r in results), default=None),
            row_bytes=sum(texts) / finished if finished and all(texts) else None,
            timeline=tuple(self._timeline),
            rows_per_second=rows / seconds,
            bytes_per_second=size / seconds,
        )


def _costs(results: Sequence[UnitResult]) -> StageCosts:
    loads = [each.stages.load for each in results if each.stages.load is not None]
    million = sum(each.rows for each in results) / 1e6
    if not million or len(loads) != len(results):
        return StageCosts()
    # A text format knows its size before it is compressed; Parquet compresses as it encodes.
    is_stage = all(each.stages.uncompressed_bytes is not None for each in results)
    costs = {
        name: sum(getattr(each, f"{name}_cpu_s") for each in loads) / million
        for name in ("fetch", "encode", "write")
    }
    compress = sum(each.stages.compress_cpu_s for each in results) / million
    total = sum(each.process_cpu_s for each in loads) / million
    return StageCosts(
        **costs,
        compress=compress if is_stage else None,
        rest=max(0.0, total - sum(costs.values()) - compress),
        total=total,
    )


def waits_of(results: Sequence[UnitResult]) -> dict[str, float]:
    """Return the shares of the workers' time that passed in waiting, by cause.

    source: for rows, while nothing of the worker had to run for them; output: for the destination
    of the files, in writing or syncing; delay: for a CPU, with a thread ready to run. Empty if a
    unit has no such figures.
    """
    seconds = sum(each.seconds for each in results)
    if not seconds or any(each.stages.load is None for each in results):
        return {}
    waits = dict.fromkeys(("source", "output", "delay"), 0.0)

    def divide(waited: float, cause: str, wall: float, busy: float, delayed: float) -> None:
        """Divide a wait for a stage by the stage's seconds: wall, CPU, and ready without a CPU."""
        outside = max(0.0, wall - busy - delayed)
        if whole := outside + busy + delayed:
            waits[cause] = waits.get(cause, 0.0) + waited * outside / whole
            waits["delay"] += waited * delayed / whole

    for stages in (each.stages for each in results):
        load = stages.load
        assert load is not None
        known = load.fetch_cpu_s + load.encode_cpu_s + stages.compress_cpu_s + load.write_cpu_s
        # Threads of a driver work for the fetch.
        fetching = load.fetch_cpu_s + max(0.0, load.process_cpu_s - known)
        divide(load.starved_s, "source", stages.fetch_s, fetching, load.fetch_delay_s)
        # Without a compressing thread none is blocked, and writing alone is waited for.
        compressing = stages.compress_s + load.compress_blocked_s
        by_writing = load.compress_blocked_s / compressing if compressing else 1.0
        blocked = load.encode_blocked_s
        for_writing = blocked * by_writing + load.closing_s
        divide(for_writing, "output", stages.write_s, load.write_cpu_s, load.write_delay_s)
        busy, delayed = stages.compress_cpu_s, load.compress_delay_s
        divide(blocked * (1 - by_writing), "codec", stages.compress_s, busy, delayed)
        waits["delay"] += load.encode_delay_s
    causes = ("source", "output", "delay") if cpu_delay.is_known() else ("source", "output")
    return {cause: min(1.0, waits[cause] / seconds) for cause in causes}


def rounds(points: int, repeats: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield rounds in the order of a seed; no point comes twice in a row if there are others."""
    shuffler = random.Random(seed)
    last = -1
    for _ in range(repeats):
        order = list(range(points))
        shuffler.shuffle(order)
        if points > 1 and order[0] == last:
            order.append(order.pop(0))
        last = order[-1]
        yield tuple(order)


def _sampled(
    request: Request, parallelism: int, share: float, observe: Observer
) -> tuple[ResolvedTable, SampleTaken]:
    """Return a run that reads a part of what a request asks for, and how large that is.

    The plan is made once, for the largest parallelism of the sweep, so that all points read the
    same rows. Units are cut smaller than usual where the part would have too few of them.
    """
    wanted = parallelism * UNITS_A_WORKER
    request = replace(request, parallelism=parallelism)
    run = api.plan(request, observe=observe).run
    size = known_sum(unit.bytes for unit in run.plan.units)
    few = math.ceil(len(run.plan.units) * share) < wanted
    if few and size and request.unit_bytes is None:
        unit_bytes = max(_LEAST_UNIT_BYTES, int(size * share / wanted))
        request = replace(request, unit_bytes=unit_bytes)
        run = api.plan(request, observe=observe).run
    every = run.plan.units
    number = max(math.ceil(len(every) * share), min(len(every), parallelism))
    chosen = {unit.id for unit in spread_units(every, number)}
    # In the order of the plan, the largest first: the order in which seats take them.
    units = tuple(unit for unit in every if unit.id in chosen)
    rows, size, of_rows, of_size = (
        known_sum(getattr(unit, name) for unit in those)
        for those in (units, every)
        for name in ("rows", "bytes")
    )
    part = len(units) / len(every)
    for amount, of_amount in ((rows, of_rows), (size, of_size)):
        if amount and of_amount:
            part = amount / of_amount
    return replace(run, plan=replace(run.plan, units=units)), SampleTaken(
        units=len(units), of_units=len(every), rows=rows, of_rows=of_rows, share=part
    )


@contextmanager
def places(destinations: tuple[str, ...], sweep_id: str) -> Iterator[tuple[Path, ...]]:
    """Make a directory for the sweep in each destination, if any, and remove it in the end.

    A stream, or fields in a name, are a `UsageError`; a run there, or a refusal, an `OutputFailed`.
    """
    kind = destination_kind(destinations)
    if kind == "null":
        yield ()
        return
    if kind != "directories":
        raise UsageError(
            f"a sweep cannot write to {destinations[0]}, which accepts data only once",
            "give a directory with --to, or --to null:",
        )
    hint = "give another directory with --to, or --to null:"
    made, roots = list[Path](), list[Path]()
    for place in destinations:
        if has_fields(place):
            raise UsageError(
                f"--to {place} has fields, but a sweep names its directories itself",
                "give the directory above the fields",
            )
        for name in ("_manifest.json", "_run"):
            if os.path.lexists(Path(place) / name):
                raise OutputFailed(
                    f"{place} holds a run ({name}), which a sweep does not change",
                    "give a directory on the same disk without a run",
                )
    try:
        for directory in map(Path, destinations):
            missing = [each for each in (directory, *directory.parents) if not each.exists()]
            root = directory / f"{PREFIX}{sweep_id}"
            for each in (*reversed(missing), root):
                each.mkdir()
                (roots if each == root else made).append(each)
        yield tuple(roots)
    except OSError as error:
        raise OutputFailed(
            f"the sweep cannot create a directory in {error.filename}: {error.strerror}", hint
        ) from error
    finally:
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)
        for path in reversed(made):
            # Only directories that this sweep made, and only while they are empty.
            with suppress(OSError):
                path.rmdir()
