"""Measures codecs on the rows of the user before a run, and lets a preset choose among them.

The rows are read and measured by a separate process, on the seat of the first worker, so that a
source that hangs can be abandoned, and the parent stays as small as it was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.model import ProcessLimits
from numa.topology import detect
from partition_planner.model import WorkUnit
from unloader.engine.executor import LocalExecutor
from unloader.errors import Interrupted, SourceError, UnloaderError, WorkerLost
from unloader.events import Notice, Observer
from unloader.model import Extract, OutputOptions
from unloader.placement.seating import automatic_parallelism, seat_workers
from unloader.storage.place_names import destination_kind
from unloader.storage.storage_lookup import storage_at
from unloader.transforms.model import TransformOptions
from unloader.tuning.measuring_tasks import ENTRY, measure_together
from writers.codecs.choice import CANDIDATES, PRESETS, CodecFigures, Workload, choose, pick, predict
from writers.model import Candidate, Choice, Compression, LobColumn, OutputSpec, Preset
from writers.registry import name_of

if TYPE_CHECKING:
    from unloader.resolve.resolved import ResolvedTable

SAMPLED_UNITS = 5
"""Units that rows are taken from, evenly over the table."""

MIB = 1024 * 1024

_SHARED_MEMORY = "/dev/shm"

_EXTRA: dict[str, tuple[Compression, ...]] = {
    "csv": (
        Compression(codec="gzip", level=1),
        Compression(codec="gzip", level=3),
        Compression(codec="gzip", level=6),
        Compression(codec="zstd", level=12),
    ),
    "parquet": (Compression(codec="gzip", level=1), Compression(codec="gzip", level=6)),
}
"""Measured beside the candidates of a preset where all codecs are asked for."""


class SampleBudget(Struct, frozen=True, kw_only=True):
    """How much a sample may take."""

    bytes: int
    """Of rows in memory, as they are fetched; one batch of each unit more at most."""
    fetch_seconds: float = 3.0
    """No batch is asked for after them."""
    codec_seconds: float = 6.0
    """For all codecs together; one that is being measured is let finish its frame or file."""
    disk_seconds: float = 1.0
    """For each disk; 0 measures none."""
    patience_seconds: float = 60.0
    """After which the whole is given up: the source does not answer."""


class SampleTask(Struct, frozen=True, kw_only=True):
    """Everything that the measuring process needs."""

    extract: Extract
    units: tuple[WorkUnit, ...]
    """Those the rows come from, the same share from each."""
    spec: OutputSpec
    """Its directory is for passing files, and its codec is not used."""
    candidates: tuple[Compression, ...]
    """Quick ones first; the first is "none"."""
    budget: SampleBudget
    fetch_bytes: int
    disks: tuple[str, ...]
    """A directory on each disk that the run would write to."""
    transform: TransformOptions | None = None
    """Steps on the rows before they are encoded."""
    lobs: tuple[LobColumn, ...] = ()
    """Columns whose values no codec compresses: the rows have their places."""


class Sample(Struct, frozen=True, kw_only=True):
    """The size and the cost of a sample."""

    rows: int = 0
    """On the encoded route about as many: ends of line are counted."""
    bytes: int = 0
    """Of these rows as they are written without a codec."""
    units: int = 0
    of_units: int = 0
    whole: bool = True
    """The units were read to their end."""
    route: str
    fetch_seconds: float = 0.0
    """Wall seconds of waiting for the rows, without the beginning of each unit's statement."""
    fetch_cpu_seconds: float = 0.0
    encode_cpu_seconds: float = 0.0
    """0 on the encoded route."""


class MeasuredSample(Struct, frozen=True, kw_only=True):
    """A sample and its measurements."""

    sample: Sample
    figures: tuple[CodecFigures, ...] = ()
    """Empty without rows."""
    disk_bytes_per_second: float | None = None
    """Of all disks together; None if one of them could not be measured."""


BEFORE_A_RUN = SampleBudget(
    bytes=8 * MIB, fetch_seconds=1.5, codec_seconds=1.5, disk_seconds=0.5, patience_seconds=15.0
)
"""A few seconds in all; measuring longer would gain little, even for a table of a terabyte."""


class CodecReport(Struct, frozen=True, kw_only=True):
    """What codecs do to rows of a table, as `unloader codecs --json` prints it."""

    sample: Sample
    parallelism: int | None
    """This and the next one: None without rows."""
    cores: int | None
    disks: tuple[str, ...]
    """The directories whose disks were measured."""
    disk_bytes_per_second: float | None
    codecs: tuple[Candidate, ...]
    """The fastest first; empty for a table without rows."""
    presets: dict[Preset, Compression]
    """What each preset would take."""


def report(ready: ResolvedTable, *, budget: SampleBudget, stop: Callable[[], bool]) -> CodecReport:
    """Measure every codec of the format asked for on a sample of its rows, until `stop` is true.

    The disks of the destination are measured, or of the current directory without one. A source
    that refuses, fails or is late is a `SourceError`, a value that does not fit an `OutputFailed`.
    """
    found = measured_sample(ready, every_codec(ready), budget=budget, stop=stop)
    load, candidates = _predicted(ready, found)
    usual = CANDIDATES[name_of(ready.output.format)]
    eligible = tuple(each for each in candidates if each.compression in usual)
    return CodecReport(
        sample=found.sample,
        parallelism=load.parallelism if load else None,
        cores=load.cores if load else None,
        disks=disks_of(ready.request.output),
        disk_bytes_per_second=load.disk_bytes_per_second if load else None,
        codecs=tuple(sorted(candidates, key=lambda each: each.predicted_seconds)),
        presets={preset: pick(preset, eligible).compression for preset in PRESETS if eligible},
    )


def every_codec(ready: ResolvedTable) -> tuple[Compression, ...]:
    """Return all codecs of the format, with the level that the request names."""
    name = name_of(ready.output.format)
    own, listed = ready.request.output.compression, (*CANDIDATES[name], *_EXTRA[name])
    if isinstance(own, Compression) and own.level is not None and own not in listed:
        listed = (*listed, own)
    return listed


def chosen(
    ready: ResolvedTable, preset: Preset, *, observe: Observer, stop: Callable[[], bool]
) -> Choice:
    """Return the codec of a preset; a fixed one without rows, as the run retries the source."""
    candidates = CANDIDATES[name_of(ready.output.format)]
    try:
        found = measured_sample(ready, candidates, budget=BEFORE_A_RUN, stop=stop)
    except Interrupted:
        raise
    except UnloaderError as error:
        choice = choose(preset, (), unmeasured=f"no codec could be measured: {error.message}")
    else:
        choice = choose(preset, _predicted(ready, found)[1], disk=found.disk_bytes_per_second)
    observe(Notice(text=f"compression {choice.compression.label} for {preset}: {choice.reason}"))
    return choice


def _predicted(
    ready: ResolvedTable, found: MeasuredSample
) -> tuple[Workload | None, tuple[Candidate, ...]]:
    """Return the work besides compressing, and what each codec costs; nothing without rows."""
    sample = found.sample
    if not found.figures:
        return None, ()
    load = Workload(
        fetch_seconds_per_byte=sample.fetch_seconds / sample.bytes,
        fetch_cpu_per_byte=sample.fetch_cpu_seconds / sample.bytes,
        encode_cpu_per_byte=sample.encode_cpu_seconds / sample.bytes,
        one_thread=name_of(ready.output.format) == "parquet",
        parallelism=max(1, len(ready.seating.seats)),
        cores=automatic_parallelism(ready.topology, ready.request.seats),
        disk_bytes_per_second=found.disk_bytes_per_second,
    )
    return load, tuple(predict(load, each) for each in found.figures)


def measured_sample(
    ready: ResolvedTable,
    candidates: tuple[Compression, ...],
    *,
    budget: SampleBudget,
    stop: Callable[[], bool],
) -> MeasuredSample:
    """Return a sample with the figures of some codecs, taken by a new process."""
    units = spread_units(ready.plan.units)
    if not units or not ready.seating.seats:
        return MeasuredSample(sample=Sample(route=ready.extract.projection.route))
    patience = budget.patience_seconds
    if ready.request.uses_cluster:
        # The seats are on other machines, and the sample is taken here.
        seating = seat_workers(detect(), 1, ready.request.seats)
    else:
        seating = replace(ready.seating, seats=ready.seating.seats[:1])
    limits = ProcessLimits(start_seconds=patience)
    with (
        scratch(4 * budget.bytes) as directory,
        closing(LocalExecutor(seating, ENTRY, limits, looks=False)) as executor,
    ):
        task = SampleTask(
            extract=ready.extract,
            units=units,
            spec=ready.request.output.spec(directory, ready.output.format, Compression()),
            candidates=candidates,
            budget=budget,
            fetch_bytes=ready.request.fetch_bytes,
            disks=disks_of(ready.request.output),
            transform=ready.output.options.transform,
            lobs=tuple(LobColumn(name=name, file=name) for name in ready.output.lobs),
        )
        try:
            (found,) = measure_together(
                executor, [task], MeasuredSample, patience_seconds=patience, stop=stop
            )
        except WorkerLost as error:
            raise SourceError(
                f"cannot take a sample: {error.message}",
                "try again, or name a codec with --compression",
            ) from error
    of_units = len(ready.plan.units)
    return replace(found, sample=replace(found.sample, units=len(units), of_units=of_units))


def spread_units(units: Sequence[WorkUnit], most: int = SAMPLED_UNITS) -> tuple[WorkUnit, ...]:
    """Return at most a number of units, in table order and evenly over the table."""
    ordered = sorted(units, key=lambda unit: unit.id)
    count = min(most, len(ordered))
    return tuple(ordered[(2 * at + 1) * len(ordered) // (2 * count)] for at in range(count))


@contextmanager
def scratch(wanted_bytes: int) -> Iterator[str]:
    """Yield a directory for temporary files, in memory if there is room: they contain rows."""
    base: str | None = None
    try:
        room = os.statvfs(_SHARED_MEMORY)
        if room.f_bavail * room.f_frsize >= wanted_bytes and os.access(_SHARED_MEMORY, os.W_OK):
            base = _SHARED_MEMORY
    except OSError:
        base = None
    with tempfile.TemporaryDirectory(prefix="unloader-sample-", dir=base) as directory:
        yield directory


def disks_of(output: OutputOptions) -> tuple[str, ...]:
    """Return a directory on each disk that is written to; empty if one is not a directory."""
    destinations = output.destinations if output.destination else (".",)
    if destination_kind(destinations) != "directories":
        return ()
    found: dict[int, str] = {}
    for place in destinations:
        disk = storage_at(place).disk(place)
        if disk is None:
            return ()
        found.setdefault(*disk)
    return tuple(found.values())
