"""Measures codecs on the user's own rows before a run, and lets a preset choose among them.

The rows are read and measured by a process of its own, on the seat of the first worker, so that a
source that hangs can be given up, and the parent stays as small as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from numa.model import ProcessLimits
from numa.topology import detect
from partition_planner.model import WorkUnit
from unloader.codecs.model import Sample, SampleBudget, Sampled, SampleTask
from unloader.codecs.places import disks_of, scratch
from unloader.engine.engine import Engine, Work
from unloader.engine.local import LocalExecutor
from unloader.engine.schedule import Attempt, Schedule
from unloader.errors import Interrupted, SourceError, WorkerLost
from unloader.events import Notice, Observer
from unloader.failures import error_of, is_a
from unloader.model import AttemptFailure, RetryOptions
from unloader.placement.seating import automatic_parallelism, seat_workers
from writers.codecs.choice import (
    CANDIDATES,
    PRESETS,
    Choice,
    Prediction,
    Preset,
    Workload,
    choose,
    label,
    pick,
    predict,
)
from writers.model import Compression, TextFormat

ENTRY = "unloader.codecs.sampling:work"

SAMPLED_UNITS = 5
"""Units that rows are taken from, evenly over the table."""

MIB = 1024 * 1024
GB = 10**9

BEFORE_A_RUN = SampleBudget(
    bytes=8 * MIB,
    fetch_seconds=1.5,
    codec_seconds=1.5,
    disk_seconds=0.5,
    patience_seconds=15.0,
)
"""A few seconds in all; what is left of a table of a terabyte is not worth more."""

_EXTRA: dict[str, tuple[Compression, ...]] = {
    "csv": (
        Compression(codec="gzip", level=1),
        Compression(codec="gzip", level=3),
        Compression(codec="gzip", level=6),
        Compression(codec="zstd", level=12),
    ),
    "parquet": (
        Compression(codec="gzip", level=1),
        Compression(codec="gzip", level=6),
    ),
}
"""Shown by `measure_codecs` beside those that a preset chooses among."""


class CodecReport(Struct, frozen=True, kw_only=True):
    """What codecs do to a table's own rows, and what 10^9 bytes of them take with each."""

    predictions: tuple[Prediction, ...]
    """In the order in which they were measured; empty for a table without rows."""
    picks: dict[Preset, Compression]
    """What each preset would take."""
    load: Workload | None
    """What the predictions rest on, None without rows."""
    sample: Sample
    sampled_units: int
    units: int
    disks: tuple[str, ...]
    """The directories whose disks were measured."""
    route: str


def report(
    ready: Sampled,
    *,
    budget: SampleBudget,
    stop: Callable[[], bool],
) -> CodecReport:
    """Measure every codec of the format asked for on a sample of its rows.

    Args:
        ready: What is sampled. The codec that it names is measured, too; the disks
            are those of its destination, or that of the current directory where it has none.
        budget: How much the sample may take.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        SourceError: The source refused, failed, or did not answer in time.
        OutputFailed: A value does not fit the format.
        Interrupted: `stop` returned True.
    """
    name = _format_name(ready)
    listed = (*CANDIDATES[name], *_EXTRA[name])
    own = ready.request.output.compression
    if isinstance(own, Compression) and own.level is not None and own not in listed:
        listed = (*listed, own)
    disks = disks_of(ready.request.output)
    sample, units = _sample(ready, listed, budget, disks, stop)
    if isinstance(sample, AttemptFailure):
        raise error_of(sample)
    return _report(ready, sample, units, disks)


def chosen(
    ready: Sampled, preset: Preset, *, observe: Observer, stop: Callable[[], bool]
) -> Choice:
    """Return the codec that a preset chooses for the rows of a request.

    Without rows, or where they cannot be sampled, a preset has a codec that it takes unmeasured:
    what is wrong with the source is for the run to find, which tries again.

    Raises:
        Interrupted: `stop` returned True.
    """
    candidates = CANDIDATES[_format_name(ready)]
    disks = disks_of(ready.request.output)
    sample, units = _sample(ready, candidates, BEFORE_A_RUN, disks, stop)
    if isinstance(sample, AttemptFailure):
        choice = replace(choose(preset, ()), reason=f"no codec could be measured: {sample.message}")
    else:
        found = _report(ready, sample, units, disks)
        disk = sample.disk_bytes_per_second
        choice = replace(choose(preset, found.predictions), disk_bytes_per_second=disk)
    observe(Notice(text=f"compression {label(choice.compression)} for {preset}: {choice.reason}"))
    return choice


def _report(
    ready: Sampled,
    sample: Sample,
    units: tuple[WorkUnit, ...],
    disks: tuple[str, ...],
) -> CodecReport:
    load = _workload(ready, sample) if sample.figures else None
    predictions = () if load is None else tuple(predict(load, each) for each in sample.figures)
    usual = CANDIDATES[_format_name(ready)]
    eligible = tuple(each for each in predictions if each.figures.compression in usual)
    return CodecReport(
        predictions=predictions,
        picks={
            preset: pick(preset, eligible).figures.compression for preset in PRESETS if eligible
        },
        load=load,
        sample=sample,
        sampled_units=len(units),
        units=len(ready.plan.units),
        disks=disks,
        route=ready.extract.projection.route,
    )


def _workload(ready: Sampled, sample: Sample) -> Workload:
    return Workload(
        bytes=GB,
        fetch_seconds_per_byte=sample.fetch_seconds / sample.bytes,
        fetch_cpu_per_byte=sample.fetch_cpu_seconds / sample.bytes,
        encode_cpu_per_byte=sample.encode_cpu_seconds / sample.bytes,
        one_thread=_format_name(ready) == "parquet",
        parallelism=max(1, len(ready.seating.seats)),
        cores=automatic_parallelism(ready.topology, ready.request.seats),
        disk_bytes_per_second=sample.disk_bytes_per_second,
    )


def _sample(
    ready: Sampled,
    candidates: tuple[Compression, ...],
    budget: SampleBudget,
    disks: tuple[str, ...],
    stop: Callable[[], bool],
) -> tuple[Sample | AttemptFailure, tuple[WorkUnit, ...]]:
    units = spread_units(ready.plan.units)
    if not units or not ready.seating.seats:
        return Sample(whole=True), units
    with scratch(4 * budget.bytes) as directory:
        task = SampleTask(
            extract=ready.extract,
            units=units,
            spec=ready.request.output.spec(directory, ready.format, Compression()),
            candidates=candidates,
            budget=budget,
            fetch_bytes=ready.request.fetch_bytes,
            disks=disks,
            transform=ready.task_transform,
        )
        return _answer(ready, task, stop), units


def spread_units(units: tuple[WorkUnit, ...]) -> tuple[WorkUnit, ...]:
    """Return a few units, in table order and evenly over the table."""
    ordered = sorted(units, key=lambda unit: unit.id)
    count = min(SAMPLED_UNITS, len(ordered))
    return tuple(ordered[(2 * at + 1) * len(ordered) // (2 * count)] for at in range(count))


class _Measuring(Struct, frozen=True, kw_only=True):
    """The one unit of the schedule."""

    id: str
    task: SampleTask


@dataclass(slots=True)
class _SampleWork(Work[_Measuring]):
    """Has one sample taken, and keeps it."""

    stop: Callable[[], bool]
    sample: Sample | None = None

    def task(self, attempt: Attempt[_Measuring]) -> SampleTask:
        return attempt.unit.task

    def check(self) -> None:
        if self.stop():
            raise Interrupted("stopped by a signal while codecs were measured")

    def record(self, place: int, attempt: Attempt[_Measuring], result: object) -> None:
        assert isinstance(result, Sample)
        self.sample = result

    def overdue(self, place: int, attempt: Attempt[_Measuring], seconds: float) -> AttemptFailure:
        return _source_failure(f"the source returned no sample within {seconds:g} s")


def _answer(ready: Sampled, task: SampleTask, stop: Callable[[], bool]) -> Sample | AttemptFailure:
    """Have a new process do the task; an answer that does not come is a failure."""
    patience = task.budget.patience_seconds
    work = _SampleWork(stop)
    unit = _Measuring(id="sample", task=task)
    schedule = Schedule(units=(unit,), retry=RetryOptions(retries=0))
    engine = Engine(schedule=schedule, work=work, attempt_seconds=patience)
    if ready.request.uses_cluster:
        # The seats are on other machines, and the sample is taken here.
        seating = seat_workers(detect(), 1, ready.request.seats)
    else:
        seating = replace(ready.seating, seats=ready.seating.seats[:1])
    limits = ProcessLimits(start_seconds=patience)
    with LocalExecutor(seating, ENTRY, limits, looks=False) as executor:
        executor.resize(1)
        engine.run(executor)
    if work.sample is not None:
        return work.sample
    failure = engine.failure or schedule.given_up[unit.id]
    if is_a(failure, WorkerLost):
        return _source_failure(f"cannot take a sample: {failure.message}")
    return failure


def _source_failure(message: str) -> AttemptFailure:
    return AttemptFailure(
        error=SourceError.__name__,
        message=message,
        hint="try again, or name a codec with --compression",
        retryable=True,
    )


def _format_name(ready: Sampled) -> str:
    return "csv" if isinstance(ready.format, TextFormat) else "parquet"
