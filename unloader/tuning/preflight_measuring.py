"""Measures the ceilings of a run, one part after the other; what fails is blank, with the reason.

The disks come first: while a source is open its snapshot is held, which costs the database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from numa.model import ProcessLimits
from partition_planner.model import WorkUnit
from unloader import __version__
from unloader.engine.local import LocalExecutor
from unloader.errors import Interrupted, UnloaderError
from unloader.events import Observer, PhaseStarted
from unloader.model import OutputOptions, OutputTask, Preload, Request, UnitTask
from unloader.nouns import are, counted
from unloader.placement.seating import seat_request
from unloader.redaction import redact
from unloader.resolve.resolution import PreparedTable, prepared
from unloader.selection.choice import TablesRequest
from unloader.storage.place_names import destination_kind
from unloader.tuning.ceilings import (
    Ceilings,
    CodecCeiling,
    ConnectionCeiling,
    DiskCeiling,
    EncoderCeiling,
    NotMeasured,
    Part,
    SourceCeiling,
    SourceLevel,
    existing_directory,
    mount_of,
    this_machine,
)
from unloader.tuning.codec_choice import SampleBudget, measured_sample
from unloader.tuning.measuring_tasks import (
    ConnectTask,
    Fetched,
    FetchTask,
    WriteSettings,
    WriteTask,
    Written,
    measure_together,
)
from writers.files.disk_space import free_bytes
from writers.model import Compression, OutputSpec, TextFormat


class Budget(Struct, frozen=True, kw_only=True):
    """How much measuring may take."""

    parts: tuple[Part, ...]
    """The parts to measure."""
    levels: tuple[int, ...] = ()
    """Parallelisms at which the source is read; empty is 1, 2, 4 and so on up to the workers."""
    disk_bytes: int
    """Written for one figure of a disk, in all its rounds."""
    disk_seconds: float
    """Seconds for one figure of a disk; the sync at the end is extra."""
    disk_rounds: int
    source_seconds: float
    """Of fetching, for each level."""
    sample_bytes: int
    """Of rows for the encoder and the codecs."""


ENTRY = "unloader.tuning.preflight_worker:work"

_START_SECONDS = 60.0
_STATEMENTS = 15
"""Small statements whose median is the round trip."""

_NO_SOURCE = "no SOURCE is given"


class _Found(Struct):
    """The figures so far."""

    ceilings: Ceilings
    blank: list[NotMeasured] = field(default_factory=list)

    def add(self, **parts: object) -> None:
        self.ceilings = replace(self.ceilings, **parts)

    def miss(self, what: str, reason: str) -> None:
        self.blank.append(NotMeasured(what=what, reason=reason))

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Leave a part blank that fails, but not one that the user has stopped."""
        try:
            yield
        except Interrupted:
            raise
        except UnloaderError as error:
            self.miss(what, error.message)

    def result(self) -> Ceilings:
        return replace(self.ceilings, not_measured=tuple(self.blank))


def measure(
    request: Request, budget: Budget, *, observe: Observer, stop: Callable[[], bool]
) -> Ceilings:
    """Return the ceilings of a run.

    Args:
        request: The run; its source's kind is empty where none is given, and its destination where
            no disk is to be measured.
        budget: The parts to measure, and the largest amounts for them.
        observe: Called with each step.
        stop: Asked several times a second.

    Raises:
        ConfigError: The seats are impossible, or the driver is missing.
        SourceError: The source cannot be opened, or refuses the table.
        PlanFailed: The table cannot be cut.
        Interrupted: `stop` returned True.
    """
    seats = seat_request(request)
    # A query is one work unit.
    workers = 1 if request.selection.query is not None else seats.parallelism
    levels = budget.levels or levels_up_to(workers)
    found = _Found(
        Ceilings(
            unloader_version=__version__,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=this_machine(seats.topology),
            parallelism=workers,
            writing=write_settings(request.output),
        )
    )
    most = seat_request(request, max(workers, *levels))
    limits = ProcessLimits(start_seconds=_START_SECONDS)
    warm_up = Preload(source_kind=request.source.kind)
    everyone = most.first(most.parallelism)
    with LocalExecutor(everyone, ENTRY, limits, warm_up=warm_up, looks=False) as executor:
        if "disk" in budget.parts and request.output.destination:
            observe(PhaseStarted(phase="measuring-disks"))
        _disks(found, request.output, budget, executor, workers, stop)
        wanted = [part for part in budget.parts if part != "disk"]
        if wanted and not request.source.kind:
            for part in wanted:
                found.miss(part, _NO_SOURCE)
        elif wanted:
            _sources(found, request, budget, executor, levels, observe, stop)
    return found.result()


def write_settings(output: OutputOptions) -> WriteSettings:
    """Return how a run writes its files, as far as a disk can tell."""
    return WriteSettings(
        overlap_buffer=output.buffer_bytes,
        overlap_buffers=output.buffers,
        checksum=output.checksum,
        direct_io=output.direct_io,
    )


def _disks(
    found: _Found,
    output: OutputOptions,
    budget: Budget,
    executor: LocalExecutor,
    workers: int,
    stop: Callable[[], bool],
) -> None:
    if "disk" not in budget.parts:
        return
    if not output.destination:
        found.miss("disk", "no --to is given")
        return
    if destination_kind(output.destinations) != "directories":
        found.miss("disk", f"{output.destination} is not on a disk")
        return
    measuring = DiskMeasuring(executor, write_settings(output), budget, workers, stop)
    found.add(disks=measuring.each(output.destinations))
    found.add(together=measuring.together(output.destinations))
    found.blank += measuring.not_measured


def _sources(
    found: _Found,
    request: Request,
    budget: Budget,
    executor: LocalExecutor,
    levels: tuple[int, ...],
    observe: Observer,
    stop: Callable[[], bool],
) -> None:
    with prepared(TablesRequest.one(request), stop=stop, observe=observe) as opened:
        ready = opened.tables[0]
        observe(PhaseStarted(phase="measuring-source"))
        figures: SourceFigures | None = None
        if not ready.plan.units:
            for part in budget.parts:
                if part != "disk":
                    found.miss(part, "the table has no rows")
            return
        if {"source", "connection"} & set(budget.parts):
            with found.part("source"):
                figures = measure_source(
                    ready, executor, levels, seconds=budget.source_seconds, stop=stop
                )
        if figures is not None and "source" in budget.parts:
            _add_source(found, ready, figures)
        if "encoder" in budget.parts:
            observe(PhaseStarted(phase="measuring"))
            with found.part("encoder"):
                _encoder(found, ready, budget, stop)
        if "connection" in budget.parts:
            with found.part("connection"):
                _connection(found, ready, figures)


def _add_source(found: _Found, ready: PreparedTable, figures: SourceFigures) -> None:
    extract = ready.extract
    levels = tuple(each for each in figures.levels if each.rows)
    if not levels:
        found.miss("source", "no row arrived")
        return
    units = len(ready.plan.units)
    if figures.read_again:
        found.miss(
            "source without its cache",
            f"not measured, because {counted(units, 'work unit')} {are(units)} too few: "
            "some were read twice",
        )
    found.add(
        source=SourceCeiling(
            kind=extract.source.kind,
            location=redact(extract.source.location),
            subject=extract.query if extract.query is not None else extract.table.label,
            where=extract.where,
            partitions=extract.partitions,
            columns=len(extract.projection.columns),
            route=extract.projection.route,
            levels=levels,
        )
    )


def _encoder(found: _Found, ready: PreparedTable, budget: Budget, stop: Callable[[], bool]) -> None:
    sample_budget = SampleBudget(
        bytes=budget.sample_bytes,
        fetch_seconds=3.0,
        codec_seconds=6.0,
        disk_seconds=0.0,
        patience_seconds=60.0,
    )
    sample, _ = measured_sample(ready, budget=sample_budget, stop=stop)
    if not sample.figures or not sample.rows:
        found.miss("encoder", "the table has no rows")
        return
    encode = sample.encode_cpu_seconds
    if not encode:
        found.miss("encoder", "the source renders the text itself")
    codecs = tuple(
        CodecCeiling(
            codec=each.compression.codec,
            level=each.compression.level,
            ratio=round(each.ratio, 4),
            bytes_per_cpu_second=(
                round(1 / each.cpu_seconds_per_byte) if each.cpu_seconds_per_byte else None
            ),
        )
        for each in sample.figures
    )
    found.add(
        encoder=EncoderCeiling(
            format="csv" if isinstance(ready.format, TextFormat) else "parquet",
            sample_rows=sample.rows,
            sample_bytes=sample.bytes,
            row_bytes=round(sample.bytes / sample.rows, 3),
            fetch_cpu_seconds=round(sample.fetch_cpu_seconds, 6),
            encode_cpu_seconds=round(encode, 6),
            bytes_per_cpu_second=round(sample.bytes / encode) if encode else None,
            codecs=codecs,
        )
    )


def _connection(found: _Found, ready: PreparedTable, figures: SourceFigures | None) -> None:
    trips = []
    for _ in range(_STATEMENTS):
        began = time.perf_counter()
        if not ready.catalog.ping():
            kind = ready.extract.source.kind
            found.miss("connection", f"the worker reads {kind} without a connection")
            return
        trips.append(time.perf_counter() - began)
    network = figures.network_round_trip_seconds if figures else None
    if network is None:
        found.miss(
            "network of the connection",
            "the kernel shows no figures for a TCP connection of the workers",
        )
    found.add(
        connection=ConnectionCeiling(
            round_trip_seconds=round(median(trips), 6),
            statements=len(trips),
            network_round_trip_seconds=network,
            bytes_per_second=figures.one_connection if figures else None,
            all_bytes_per_second=figures.all_connections if figures else None,
        )
    )


_SYNC_SECONDS = 60.0
"""Longest time of the last sync after the time for writing (guess)."""


class DiskMeasuring:
    """Measures the directories of a run.

    Args:
        executor: Has a seat for each worker of the run.
        writing: How files are written.
        budget: How much may be written, and for how long.
        workers: Of the run.
        stop: Asked several times a second.
    """

    def __init__(
        self,
        executor: LocalExecutor,
        writing: WriteSettings,
        budget: Budget,
        workers: int,
        stop: Callable[[], bool],
    ) -> None:
        self._executor = executor
        self._writing = writing
        self._budget = budget
        self._workers = workers
        self._stop = stop
        self.not_measured: list[NotMeasured] = []

    def each(self, directories: Sequence[str]) -> tuple[DiskCeiling, ...]:
        """Return the figures of each directory: one file, then as many as the run writes there."""
        share = -(-self._workers // max(1, len(directories)))
        found = (
            self._measured((place,), writers)
            for place in directories
            for writers in dict.fromkeys((1, share))
        )
        return tuple(each for each in found if each is not None)

    def together(self, directories: Sequence[str]) -> DiskCeiling | None:
        """Return the figure of all directories together; None for one, or if they failed."""
        if len(directories) < 2:
            return None
        return self._measured(tuple(directories), max(self._workers, len(directories)))

    def _measured(self, directories: tuple[str, ...], writers: int) -> DiskCeiling | None:
        files = counted(writers, "file", "files together")
        what = f"disk of {', '.join(directories)}, {files}"
        places = [existing_directory(each) for each in directories]
        known = tuple(each for each in places if each is not None)
        if len(known) < len(places):
            self._blank(what, "it is not a directory, and a directory cannot be created there")
            return None
        lacking = self._lacking_room(known) or self._lacking_bytes(writers)
        if lacking:
            self._blank(what, lacking)
            return None
        try:
            rounds = list(self._rounds(known, writers))
        except Interrupted:
            raise
        except UnloaderError as error:
            self._blank(what, error.message)
            return None
        rates = [rate for rate, _ in rounds]
        return DiskCeiling(
            directories=directories,
            measured_in=known,
            mounts=tuple(mount_of(each) for each in known),
            writers=writers,
            rounds=len(rounds),
            bytes=sum(size for _, size in rounds),
            bytes_per_second=round(median(rates)),
            lowest=round(min(rates)),
            highest=round(max(rates)),
        )

    def _lacking_room(self, places: Sequence[str]) -> str:
        """Return why nothing is written there; empty if there is room for it, twice over."""
        wanted = 2 * self._budget.disk_bytes // len(places)
        for place in places:
            free = free_bytes(place)
            if free is not None and free < wanted:
                return f"{place} has {free:,} bytes free, but {wanted:,} are needed"
        return ""

    def _lacking_bytes(self, writers: int) -> str:
        """Return why the bytes are too few for the files; empty if they are enough."""
        files = self._budget.disk_rounds * writers
        if self._budget.disk_bytes >= files * self._writing.overlap_buffer:
            return ""
        return (
            f"--disk-bytes {self._budget.disk_bytes:,} is too small for {counted(files, 'file')} "
            f"of one buffer each ({writers:,} at the same time); give --disk-bytes "
            f"{files * self._writing.overlap_buffer} or more"
        )

    def _rounds(self, places: Sequence[str], writers: int) -> Iterator[tuple[float, int]]:
        """Yield bytes a second and bytes of each round."""
        rounds = self._budget.disk_rounds
        size = self._budget.disk_bytes // (rounds * writers)
        seconds = self._budget.disk_seconds / rounds
        for _ in range(rounds):
            tasks = [
                WriteTask(
                    directory=places[at % len(places)],
                    writing=self._writing,
                    bytes=size,
                    seconds=seconds,
                )
                for at in range(writers)
            ]
            answers = measure_together(
                self._executor,
                tasks,
                patience_seconds=seconds + _SYNC_SECONDS,
                stop=self._stop,
            )
            files = [cast(Written, each) for each in answers]
            total = sum(each.bytes for each in files)
            took = max(each.ended for each in files) - min(each.began for each in files)
            yield total / max(took, 1e-6), total

    def _blank(self, what: str, reason: str) -> None:
        self.not_measured.append(NotMeasured(what=what, reason=reason))


_BEGIN_SECONDS = 120.0
"""Longest wait for the first rows of a statement, beyond the time for fetching (guess)."""


class SourceFigures(Struct, frozen=True, kw_only=True):
    """The levels, and what their connections showed."""

    levels: tuple[SourceLevel, ...]
    network_round_trip_seconds: float | None
    one_connection: float | None
    """The most bytes a second that one connection received."""
    all_connections: float | None
    read_again: bool
    """Units were read more than once, as there were not enough of them."""


def levels_up_to(workers: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and so on, and the number itself."""
    found = [1]
    while found[-1] * 2 <= workers:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, workers)))


def measure_source(
    ready: PreparedTable,
    executor: LocalExecutor,
    levels: Sequence[int],
    *,
    seconds: float,
    stop: Callable[[], bool],
) -> SourceFigures:
    """Return the rates of some workers that fetch units of the run.

    Each level begins with units that those before it have not reached, as far as there are any:
    rows that are read twice may come from a cache. All workers connect before one of them fetches.

    Args:
        ready: The prepared run, whose snapshot is read.
        executor: Has a seat for each worker of the highest level.
        levels: Parallelisms, ascending.
        seconds: Of fetching, for each level.
        stop: Asked several times a second.

    Raises:
        UnloaderError: The source failed.
        Interrupted: `stop` returned True.
    """
    units = tuple(sorted(ready.plan.units, key=lambda unit: unit.id))
    answers: list[tuple[int, list[Fetched]]] = []
    first = 0
    for level in levels:
        tasks = list(_fetch_tasks(ready, units, level, first, seconds))
        patience = seconds + _BEGIN_SECONDS
        opening = [ConnectTask(extract=ready.extract)] * level
        measure_together(executor, opening, patience_seconds=_BEGIN_SECONDS, stop=stop)
        given = measure_together(executor, tasks, patience_seconds=patience, stop=stop)
        answers.append((level, [cast(Fetched, each) for each in given]))
        first += level
    every = [each for _, found in answers for each in found]
    trips = [t for each in every if (t := each.network_round_trip_seconds) is not None]
    rates = [rate for each in every if (rate := _received_rate(each)) is not None]
    found = tuple(_level_of(level, workers) for level, workers in answers)
    totals = [t for each in found if (t := each.network_bytes_per_second) is not None]
    return SourceFigures(
        levels=found,
        network_round_trip_seconds=min(trips, default=None),
        one_connection=max(rates, default=None),
        # Two that were read one after the other are slower together than the faster of them.
        all_connections=max((*totals, *rates)) if totals else None,
        read_again=any(each.wraps for each in every) or sum(levels) > len(units),
    )


def _fetch_tasks(
    ready: PreparedTable, units: Sequence[WorkUnit], level: int, first: int, seconds: float
) -> Iterator[FetchTask]:
    """Yield the task of each worker: every n-th unit, from a different first unit."""
    spec = ready.request.output.spec("", ready.format, Compression())
    spec = replace(spec, stream=os.devnull)
    for worker in range(level):
        at = (first + worker) % len(units)
        turned = (*units[at:], *units[:at])
        mine = turned[:: min(level, len(turned))]
        yield FetchTask(units=tuple(_dropped(ready, unit, spec) for unit in mine), seconds=seconds)


def _dropped(ready: PreparedTable, unit: WorkUnit, spec: OutputSpec) -> UnitTask:
    """Return the task that a worker gets of a run with `--to null:rows`."""
    return UnitTask(
        unit=unit,
        attempt=1,
        extract=ready.extract,
        outputs=(OutputTask(spec=spec, stem=unit.id, drops="rows"),),
        fetch_bytes=ready.request.fetch_bytes,
    )


def _received_rate(worker: Fetched) -> float | None:
    took = worker.ended - worker.began
    if worker.network_bytes is None or took <= 0:
        return None
    return round(worker.network_bytes / took)


def _level_of(level: int, workers: Sequence[Fetched]) -> SourceLevel:
    took = max(each.ended for each in workers) - min(each.began for each in workers)
    took = max(took, 1e-6)
    rows, size = sum(each.rows for each in workers), sum(each.bytes for each in workers)
    received = [each.network_bytes for each in workers]
    known = [each for each in received if each is not None]
    return SourceLevel(
        parallelism=level,
        rows=rows,
        bytes=size,
        seconds=round(took, 3),
        rows_per_second=round(rows / took, 1),
        bytes_per_second=round(size / took),
        cpu_seconds=round(sum(each.cpu_seconds for each in workers), 3),
        network_bytes_per_second=round(sum(known) / took) if len(known) == len(received) else None,
    )
