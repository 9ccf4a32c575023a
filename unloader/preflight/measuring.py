"""Measures what is asked for, one part after the other; what fails is blank, with the reason.

The disks come first: while a source is open its snapshot is held, which costs the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from numa.model import ProcessLimits
from unloader import __version__
from unloader.ceilings.machine import this_machine
from unloader.ceilings.model import (
    Ceilings,
    CodecCeiling,
    ConnectionCeiling,
    EncoderCeiling,
    NotMeasured,
    SourceCeiling,
    WriteSettings,
)
from unloader.codecs.choice import report
from unloader.codecs.model import SampleBudget
from unloader.engine.local import LocalExecutor
from unloader.errors import Interrupted, UnloaderError
from unloader.events import Observer, PhaseStarted
from unloader.model import OutputOptions, Preload, Request
from unloader.nouns import are, counted
from unloader.placement.seating import seat_request
from unloader.preflight.disk import DiskMeasuring
from unloader.preflight.model import Budget
from unloader.preflight.source import SourceFigures, levels_up_to, measure_source
from unloader.redaction import redact
from unloader.resolve.preparation import Prepared, prepared
from unloader.sources.abilities import round_trip
from unloader.storage.kinds import destination_kind
from writers.model import TextFormat

ENTRY = "unloader.preflight.process:work"

_START_SECONDS = 60.0
_STATEMENTS = 15
"""Small statements whose median is the round trip."""

_NO_SOURCE = "no SOURCE is given"


class _Found(Struct):
    """What is known so far."""

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
        budget: What is measured, and how much that may take.
        observe: Told of each step.
        stop: Asked several times a second.

    Raises:
        ConfigError: The seats are impossible, or the driver is missing.
        SourceError: The source cannot be opened, or refuses the table.
        PlanFailed: The table cannot be cut.
        Interrupted: `stop` returned True.
    """
    seats = seat_request(request)
    levels = budget.levels or levels_up_to(seats.parallelism)
    found = _Found(
        Ceilings(
            unloader_version=__version__,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=this_machine(seats.topology),
            parallelism=seats.parallelism,
            writing=write_settings(request.output),
        )
    )
    most = seat_request(request, max(seats.parallelism, *levels))
    limits = ProcessLimits(start_seconds=_START_SECONDS)
    warm_up = Preload(source_kind=request.source.kind)
    everyone = most.first(most.parallelism)
    with LocalExecutor(everyone, ENTRY, limits, warm_up=warm_up, looks=False) as executor:
        if "disk" in budget.parts and request.output.destination:
            observe(PhaseStarted(phase="measuring-disks"))
        _disks(found, request.output, budget, executor, seats.parallelism, stop)
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
    with prepared(request, stop, observe) as ready:
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


def _add_source(found: _Found, ready: Prepared, figures: SourceFigures) -> None:
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


def _encoder(found: _Found, ready: Prepared, budget: Budget, stop: Callable[[], bool]) -> None:
    sample_budget = SampleBudget(
        bytes=budget.sample_bytes,
        fetch_seconds=3.0,
        codec_seconds=6.0,
        disk_seconds=0.0,
        patience_seconds=60.0,
    )
    made = report(ready, budget=sample_budget, stop=stop)
    sample = made.sample
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


def _connection(found: _Found, ready: Prepared, figures: SourceFigures | None) -> None:
    trips = []
    for _ in range(_STATEMENTS):
        began = time.perf_counter()
        if not round_trip(ready.catalog):
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
