"""Measures the ceilings of a run, one part after the other; what fails is blank, with the reason.

The disks come first: while a source is open its snapshot is held, which costs the database. The
rows are read after the snapshot is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from numa.model import ProcessLimits
from unloader import __version__
from unloader.engine.executor import LocalExecutor
from unloader.errors import ConfigError, Interrupted, UnloaderError
from unloader.events import Observer, PhaseStarted
from unloader.model import ClusterOptions, Request
from unloader.nouns import counted
from unloader.placement.seating import seat_request
from unloader.redaction import redact
from unloader.resolve.resolution import prepared
from unloader.resolve.resolved import ResolvedTable
from unloader.selection.asked import TablesRequest
from unloader.sources.base import Catalog
from unloader.storage.place_names import NULL_ROWS, destination_kind
from unloader.tuning.analysis import Rules
from unloader.tuning.ceilings import (
    Ceilings,
    CodecCeiling,
    DiskCeiling,
    EncoderCeiling,
    NetworkCeiling,
    NotMeasured,
    Part,
    SourceCeiling,
    SourceLevel,
    existing_directory,
    mount_of,
    this_machine,
)
from unloader.tuning.codec_choice import SampleBudget, every_codec, measured_sample
from unloader.tuning.live_sweep import sweep
from unloader.tuning.machine_load import bytes_received, interface_of
from unloader.tuning.measuring_tasks import (
    ENTRY,
    WriteSettings,
    WriteTask,
    Written,
    measure_together,
)
from unloader.tuning.network.measuring import (
    MOST_SECONDS,
    own_address,
    received_elsewhere,
    received_from,
)
from unloader.tuning.sweep_document import SweepOptions, Variant
from writers.files.disk_space import free_bytes
from writers.model import Compression
from writers.registry import name_of

_START_SECONDS = 60.0
_STATEMENTS = 15
"""Small statements whose median is the round trip."""
_SYNC_SECONDS = 60.0
"""Longest time of the last sync after the time for writing (guess)."""
_LEAST_SECONDS = 1e-6
_MOST_CONNECTIONS, _MOST_OF_A_DASK_WORKER = 64, 4


class Budget(Struct, frozen=True, kw_only=True):
    """How much measuring may take."""

    parts: tuple[Part, ...]
    """The parts to measure."""
    listeners: tuple[str, ...] = ()
    """`HOST:PORT` of hosts that run `unloader network listen`; empty measures no network."""
    cluster: ClusterOptions | None = None
    """The Dask workers that receive from the listeners; None is this machine."""
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
        if self.budget.listeners:
            # First, because a listener waits for a minute.
            self.observe(PhaseStarted(phase="measuring-network"))
            with self.part("network"):
                self.network()
        seats = seat_request(self.request, max(self.workers, *self.levels))
        if "disk" in self.budget.parts:
            limits, places = ProcessLimits(start_seconds=_START_SECONDS), seats.parallelism
            with closing(
                LocalExecutor(seats.first(places), ENTRY, limits, looks=False)
            ) as executor:
                self.disks(executor)
        wanted = [part for part in self.budget.parts if part != "disk"]
        if not self.request.source.kind:
            for part in wanted:
                self.miss(part, "no SOURCE is given")
        elif wanted:
            request = replace(self.request, parallelism=seats.parallelism)
            asked = TablesRequest.one(request)
            with prepared(asked, stop=self.stop, observe=self.observe) as opened:
                ready = opened.tables[0]
                if not ready.plan.units:
                    for part in wanted:
                        self.miss(part, "the table has no rows")
                    return self.found
                if "encoder" in wanted:
                    self.observe(PhaseStarted(phase="measuring"))
                    with self.part("encoder"):
                        self.encoder(ready)
                if "connection" in wanted:
                    with self.part("connection"):
                        self.connection(opened.catalog, ready.extract.source.kind)
            if "source" in wanted:
                # Without the catalog: each run takes its own snapshot.
                self.observe(PhaseStarted(phase="measuring-source"))
                with self.part("source"):
                    self.source(ready)
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
        patience = seconds + _SYNC_SECONDS
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
                    executor, tasks, Written, patience_seconds=patience, stop=self.stop
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

    def source(self, ready: ResolvedTable) -> None:
        """Read the rows at each level by a run to `null:rows`, as a sweep does."""
        extract, units = ready.extract, len(ready.plan.units)
        output, codec = self.request.output, Compression()
        output = replace(output, destination=NULL_ROWS, others=(), compression=codec)
        request = replace(self.request, output=output, ceilings=None)
        variants = []
        for level in self.levels:
            if level > units:
                reason = f"the table has only {counted(units, 'work unit')}"
                self.miss(f"source with {counted(level, 'worker')}", reason)
                continue
            asked, settings = replace(request, parallelism=level), {"parallelism": str(level)}
            variants.append(Variant(settings=settings, request=asked, parallelism=level))
        if not variants:
            return
        seconds = self.budget.source_seconds
        once = SweepOptions(repeats=1, most_repeats=1, warm_up=0, seconds=seconds)
        network = self.found.network
        before = bytes_received(network.interface) if network else None
        swept = sweep(variants, once, rules=Rules(), observe=self.observe, stop=self.stop)
        after = bytes_received(network.interface) if network else None
        if swept.interrupted:
            raise Interrupted("stopped by a signal during the measurement")
        levels = []
        for point in swept.points:
            if point.problem:
                self.miss(f"source with {counted(point.parallelism, 'worker')}", point.problem)
            for each in point.measurements:
                cost = each.costs.total
                levels.append(
                    SourceLevel(
                        parallelism=point.parallelism,
                        rows=each.rows,
                        bytes=each.bytes,
                        seconds=round(each.seconds, 3),
                        rows_per_second=round(each.rows_per_second, 1),
                        bytes_per_second=round(each.bytes_per_second),
                        cpu_seconds=None if cost is None else round(cost * each.rows / 1e6, 3),
                    )
                )
        source = SourceCeiling(
            kind=extract.source.kind,
            location=redact(extract.source.location),
            subject=extract.query if extract.query is not None else extract.table.label,
            where=extract.where,
            partitions=extract.partitions,
            columns=len(extract.projection.columns),
            route=extract.projection.route,
            levels=tuple(levels),
        )
        rows = sum(level.rows for level in levels)
        if network is not None and before is not None and after is not None and rows:
            network = replace(network, row_bytes=round((after - before) / rows, 3))
        self.found = replace(self.found, source=source, network=network)

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

    def network(self) -> None:
        """Measure what listeners send here, or to all Dask workers at the same time."""
        peers, cluster = self.budget.listeners, self.budget.cluster
        connections, machines = max(1, min(self.workers, _MOST_CONNECTIONS)), 1
        if cluster is None:
            found = [received_from(peers, connections, self.stop)]
        else:
            # Imported here: few runs use a cluster.
            from unloader.engine.cluster.opening import ask_workers

            connections = min(connections, _MOST_OF_A_DASK_WORKER)
            answers = ask_workers(
                cluster, self.stop, MOST_SECONDS, received_elsewhere, peers, connections
            )
            found, machines = [], len(answers)
            for worker, answer in answers.items():
                if isinstance(answer, str):
                    raise ConfigError(f"{worker}: {answer}", "check the network of that machine")
                found.append(answer)
        own = own_address(peers[0])
        network = NetworkCeiling(
            peers=peers,
            machines=machines,
            connections=max(1, connections // len(peers)) * len(peers) * machines,
            bytes_per_second=sum(each.bytes_per_second for each in found),
            round_trip_seconds=max(each.round_trip_seconds for each in found),
            interface=None if own is None else interface_of(own),
        )
        self.found = replace(self.found, network=network)

    def connection(self, catalog: Catalog, kind: str) -> None:
        trips = []
        for _ in range(_STATEMENTS):
            began = time.perf_counter()
            if not catalog.ping():
                self.miss("connection", f"the worker reads {kind} without a connection")
                return
            trips.append(time.perf_counter() - began)
        self.found = replace(self.found, round_trip_seconds=round(median(trips), 6))
