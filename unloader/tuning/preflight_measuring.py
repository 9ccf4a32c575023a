"""Measures the ceilings of a run, one part after the other; what fails is blank, with the reason.

The disks come first: while a source is open its snapshot is held, which costs the database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from numa.model import ProcessLimits
from unloader import __version__
from unloader.engine.executor import LocalExecutor
from unloader.errors import Interrupted, UnloaderError
from unloader.events import Observer, PhaseStarted
from unloader.model import OutputTask, Preload, Request, UnitTask
from unloader.nouns import are, counted
from unloader.placement.seating import seat_request
from unloader.redaction import redact
from unloader.resolve.resolution import prepared
from unloader.resolve.resolved import ResolvedTable
from unloader.selection.asked import TablesRequest
from unloader.sources.base import Catalog
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
from unloader.tuning.codec_choice import SampleBudget, every_codec, measured_sample
from unloader.tuning.measuring_tasks import (
    ENTRY,
    ConnectTask,
    Fetched,
    FetchTask,
    WriteSettings,
    WriteTask,
    Written,
    measure_together,
)
from writers.files.disk_space import free_bytes
from writers.model import Compression
from writers.registry import name_of

_START_SECONDS = 60.0
_STATEMENTS = 15
"""Small statements whose median is the round trip."""
_SYNC_SECONDS = 60.0
"""Longest time of the last sync after the time for writing (guess)."""
_BEGIN_SECONDS = 120.0
"""Longest wait for the first rows of a statement, beyond the time for fetching (guess)."""
_LEAST_SECONDS = 1e-6


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


class Preflight:
    """Measures the ceilings of a run: the figures so far, and the blank ones."""

    def __init__(
        self, request: Request, budget: Budget, observe: Observer, stop: Callable[[], bool]
    ) -> None:
        """Measure nothing yet; `stop` will be called several times a second."""
        self.request = request
        self.budget = budget
        self.observe = observe
        self.stop = stop
        seats = seat_request(request)
        # A query is one work unit.
        self.workers = 1 if request.selection.query is not None else seats.parallelism
        # 1, 2, 4 and so on, and the number itself.
        usual = {1 << at for at in range(self.workers.bit_length())} | {self.workers}
        self.levels = budget.levels or tuple(sorted(usual))
        output = request.output
        self.found = Ceilings(
            unloader_version=__version__,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=this_machine(seats.topology),
            parallelism=self.workers,
            writing=WriteSettings(
                overlap_buffer=output.buffer_bytes,
                overlap_buffers=output.buffers,
                checksum=output.checksum,
                direct_io=output.direct_io,
            ),
        )

    def miss(self, what: str, reason: str) -> None:
        blank = NotMeasured(what=what, reason=reason)
        self.found = replace(self.found, not_measured=(*self.found.not_measured, blank))

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Leave a part blank that fails, but not one that the user has stopped."""
        try:
            yield
        except Interrupted:
            raise
        except UnloaderError as error:
            self.miss(what, error.message)

    def run(self) -> Ceilings:
        """Return the ceilings, unless `Interrupted`.

        Impossible seats and a missing driver are a `ConfigError`. A refusal of the source is a
        `SourceError`, and a table that cannot be cut `PlanFailed`.
        """
        most = seat_request(self.request, max(self.workers, *self.levels))
        with closing(
            LocalExecutor(
                most.first(most.parallelism),
                ENTRY,
                ProcessLimits(start_seconds=_START_SECONDS),
                warm_up=Preload(source_kind=self.request.source.kind),
                looks=False,
            )
        ) as executor:
            if "disk" in self.budget.parts:
                self.disks(executor)
            wanted = [part for part in self.budget.parts if part != "disk"]
            if not self.request.source.kind:
                for part in wanted:
                    self.miss(part, "no SOURCE is given")
            elif wanted:
                asked = TablesRequest.one(self.request)
                with prepared(asked, stop=self.stop, observe=self.observe) as opened:
                    self.source(opened.tables[0], opened.catalog, executor, wanted)
        return self.found

    def disks(self, executor: LocalExecutor) -> None:
        """Measure each directory with one file and with the files of a run, then all together."""
        output = self.request.output
        if not output.destination:
            self.miss("disk", "no --to is given")
            return
        self.observe(PhaseStarted(phase="measuring-disks"))
        places = output.destinations
        if destination_kind(places) != "directories":
            self.miss("disk", f"{output.destination} is not on a disk")
            return
        share = -(-self.workers // len(places))
        for place in places:
            for writers in dict.fromkeys((1, share)):
                found = self.disk(executor, (place,), writers)
                if found is not None:
                    self.found = replace(self.found, disks=(*self.found.disks, found))
        if len(places) > 1:
            together = self.disk(executor, places, max(self.workers, len(places)))
            self.found = replace(self.found, together=together)

    def disk(
        self, executor: LocalExecutor, directories: tuple[str, ...], writers: int
    ) -> DiskCeiling | None:
        """Return the figure of some directories together; None if they could not be measured."""
        budget, writing = self.budget, self.found.writing
        what = f"disk of {', '.join(directories)}, {counted(writers, 'file', 'files together')}"
        places = [each for each in map(existing_directory, directories) if each is not None]
        if len(places) < len(directories):
            self.miss(what, "it is not a directory, and a directory cannot be created there")
            return None
        wanted = 2 * budget.disk_bytes // len(places)
        for place in places:
            free = free_bytes(place)
            if free is not None and free < wanted:
                self.miss(what, f"{place} has {free:,} bytes free, but {wanted:,} are needed")
                return None
        files = budget.disk_rounds * writers
        if budget.disk_bytes < files * writing.overlap_buffer:
            self.miss(
                what,
                f"--disk-bytes {budget.disk_bytes:,} is too small for {counted(files, 'file')} "
                f"of one buffer each ({writers:,} at the same time); give --disk-bytes "
                f"{files * writing.overlap_buffer} or more",
            )
            return None
        seconds = budget.disk_seconds / budget.disk_rounds
        tasks = [
            WriteTask(
                directory=places[at % len(places)],
                writing=writing,
                bytes=budget.disk_bytes // files,
                seconds=seconds,
            )
            for at in range(writers)
        ]
        sizes, rates = list[int](), list[float]()
        with self.part(what):
            for _ in range(budget.disk_rounds):
                answers = measure_together(
                    executor,
                    tasks,
                    Written,
                    patience_seconds=seconds + _SYNC_SECONDS,
                    stop=self.stop,
                )
                took = max(each.ended for each in answers) - min(each.began for each in answers)
                sizes.append(sum(each.bytes for each in answers))
                rates.append(sizes[-1] / max(took, _LEAST_SECONDS))
            return DiskCeiling(
                directories=directories,
                measured_in=tuple(places),
                mounts=tuple(map(mount_of, places)),
                writers=writers,
                rounds=budget.disk_rounds,
                bytes=sum(sizes),
                bytes_per_second=round(median(rates)),
                lowest=round(min(rates)),
                highest=round(max(rates)),
            )
        return None

    def source(
        self,
        ready: ResolvedTable,
        catalog: Catalog,
        executor: LocalExecutor,
        wanted: Sequence[Part],
    ) -> None:
        """Measure the parts that need rows."""
        self.observe(PhaseStarted(phase="measuring-source"))
        if not ready.plan.units:
            for part in wanted:
                self.miss(part, "the table has no rows")
            return
        workers, levels = list[Fetched](), list[SourceLevel]()
        if {"source", "connection"} & set(wanted):
            with self.part("source"):
                levels = self.fetch(ready, executor, workers)
        if "source" in wanted and levels and not any(each.rows for each in levels):
            self.miss("source", "no row arrived")
        elif "source" in wanted and levels:
            extract, units = ready.extract, len(ready.plan.units)
            if any(each.wraps for each in workers) or len(workers) > units:
                self.miss(
                    "source without its cache",
                    f"not measured, because {counted(units, 'work unit')} {are(units)} too few: "
                    "some were read twice",
                )
            source = SourceCeiling(
                kind=extract.source.kind,
                location=redact(extract.source.location),
                subject=extract.query if extract.query is not None else extract.table.label,
                where=extract.where,
                partitions=extract.partitions,
                columns=len(extract.projection.columns),
                route=extract.projection.route,
                levels=tuple(each for each in levels if each.rows),
            )
            self.found = replace(self.found, source=source)
        if "encoder" in wanted:
            self.observe(PhaseStarted(phase="measuring"))
            with self.part("encoder"):
                self.encoder(ready)
        if "connection" in wanted:
            with self.part("connection"):
                self.connection(catalog, ready.extract.source.kind, levels, workers)

    def fetch(
        self, ready: ResolvedTable, executor: LocalExecutor, workers: list[Fetched]
    ) -> list[SourceLevel]:
        """Return levels, each from units not yet read, as far as there are any: caches are fast."""
        seconds, extract = self.budget.source_seconds, ready.extract
        spec = ready.request.output.spec("", ready.output.format, Compression())
        spec = replace(spec, stream=os.devnull)
        # The tasks that a worker gets of a run with `--to null:rows`.
        tasks = [
            UnitTask(
                unit=unit,
                attempt=1,
                extract=extract,
                outputs=(OutputTask(spec=spec, stem=unit.id, drops="rows"),),
                fetch_bytes=ready.request.fetch_bytes,
            )
            for unit in sorted(ready.plan.units, key=lambda unit: unit.id)
        ]
        levels = []
        for level in self.levels:
            # Every n-th unit, from a different first unit.
            starts = [at % len(tasks) for at in range(len(workers), len(workers) + level)]
            turned = [(*tasks[at:], *tasks[:at])[:: min(level, len(tasks))] for at in starts]
            measure_together(
                executor,
                [ConnectTask(extract=extract)] * level,
                type(None),
                patience_seconds=_BEGIN_SECONDS,
                stop=self.stop,
            )
            found = measure_together(
                executor,
                [FetchTask(units=mine, seconds=seconds) for mine in turned],
                Fetched,
                patience_seconds=seconds + _BEGIN_SECONDS,
                stop=self.stop,
            )
            workers += found
            took = max(each.ended for each in found) - min(each.began for each in found)
            took = max(took, _LEAST_SECONDS)
            rows, size = sum(each.rows for each in found), sum(each.bytes for each in found)
            known = [t for each in found if (t := each.network_bytes) is not None]
            network = round(sum(known) / took) if len(known) == len(found) else None
            levels.append(
                SourceLevel(
                    parallelism=level,
                    rows=rows,
                    bytes=size,
                    seconds=round(took, 3),
                    rows_per_second=round(rows / took, 1),
                    bytes_per_second=round(size / took),
                    cpu_seconds=round(sum(each.cpu_seconds for each in found), 3),
                    network_bytes_per_second=network,
                )
            )
        return levels

    def encoder(self, ready: ResolvedTable) -> None:
        budget = SampleBudget(bytes=self.budget.sample_bytes, disk_seconds=0.0)
        measured = measured_sample(ready, every_codec(ready), budget=budget, stop=self.stop)
        sample = measured.sample
        if not measured.figures or not sample.rows:
            self.miss("encoder", "the table has no rows")
            return
        encode = sample.encode_cpu_seconds
        if not encode:
            self.miss("encoder", "the source renders the text itself")
        encoder = EncoderCeiling(
            format=name_of(ready.output.format),
            sample_rows=sample.rows,
            sample_bytes=sample.bytes,
            row_bytes=round(sample.bytes / sample.rows, 3),
            fetch_cpu_seconds=sample.fetch_cpu_seconds,
            encode_cpu_seconds=encode,
            bytes_per_cpu_second=round(sample.bytes / encode) if encode else None,
            codecs=tuple(
                CodecCeiling(
                    codec=each.compression.codec,
                    level=each.compression.level,
                    ratio=round(each.ratio, 4),
                    bytes_per_cpu_second=(
                        round(1 / each.cpu_seconds_per_byte) if each.cpu_seconds_per_byte else None
                    ),
                )
                for each in measured.figures
            ),
        )
        self.found = replace(self.found, encoder=encoder)

    def connection(
        self, catalog: Catalog, kind: str, levels: list[SourceLevel], workers: list[Fetched]
    ) -> None:
        trips = []
        for _ in range(_STATEMENTS):
            began = time.perf_counter()
            if not catalog.ping():
                self.miss("connection", f"the worker reads {kind} without a connection")
                return
            trips.append(time.perf_counter() - began)
        networks = [t for each in workers if (t := each.network_round_trip_seconds) is not None]
        if not networks:
            self.miss(
                "network of the connection",
                "the kernel shows no figures for a TCP connection of the workers",
            )
        rates = [
            round(each.network_bytes / (each.ended - each.began))
            for each in workers
            if each.network_bytes is not None and each.ended > each.began
        ]
        totals = [t for each in levels if (t := each.network_bytes_per_second) is not None]
        connection = ConnectionCeiling(
            round_trip_seconds=round(median(trips), 6),
            statements=len(trips),
            network_round_trip_seconds=min(networks, default=None),
            bytes_per_second=max(rates, default=None),
            # Two that were read one after the other are slower together than the faster of them.
            all_bytes_per_second=max((*totals, *rates)) if totals else None,
        )
        self.found = replace(self.found, connection=connection)
