"""Ceilings: their records, their file, and the comparison of a run with them.

Each figure is of one machine, and of the directories and the table in the same record. What could
not be measured is missing, with the reason in `not_measured`. A run is compared with the ceilings
of the same machine, places and source only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from numa.kernel_files import mounts
from numa.model import Topology
from numa.topology import detect
from unloader.errors import ConfigError, OutputFailed
from unloader.manifest.model import Efficiency, EfficiencyPart, TotalsRecord
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.place_names import destination_kind
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST
from unloader.tuning.analysis import Positive
from unloader.tuning.machine_load import usable_cores
from unloader.tuning.measuring_tasks import WriteSettings
from writers.errors import WriteError
from writers.files.publish import write_atomically
from writers.files.regular import read_regular
from writers.registry import name_of

FORMAT_VERSION: Literal[1] = 1

Part = Literal["disk", "source", "encoder", "connection"]
PARTS: tuple[Part, ...] = ("disk", "source", "encoder", "connection")
"""The parts of a measurement, in this order."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine that measured."""

    name: str
    cpus: int
    """CPUs that the measuring process could use in parallel."""
    cores: int
    """The same, with threads of one core counted once."""
    model: str | None
    """Of its processors; None where the system does not say."""


class Mount(Struct, frozen=True, kw_only=True):
    """The file system of a directory."""

    point: str
    source: str
    """The device, or what else the system mounts there."""
    type: str


class DiskCeiling(Struct, frozen=True, kw_only=True):
    """What one directory took, or several at the same time, each file synced at its end."""

    directories: tuple[str, ...]
    """As they were given."""
    measured_in: tuple[str, ...]
    """Where the files were: the directory, or the nearest one above it that exists."""
    mounts: tuple[Mount | None, ...]
    """None where the system does not say."""
    writers: int
    """Files that were written at the same time."""
    rounds: int
    bytes: int
    """In all rounds."""
    bytes_per_second: Positive
    """The median of the rounds."""
    lowest: float
    highest: float


class SourceLevel(Struct, frozen=True, kw_only=True):
    """The rows that some workers fetched and dropped."""

    parallelism: Annotated[int, Meta(gt=0)]
    rows: int
    bytes: int
    """Of the rows as they reach the encoder."""
    seconds: float
    rows_per_second: Positive
    bytes_per_second: float
    cpu_seconds: float | None
    """Of the workers, by the finished work units; None if no unit was finished in the time."""


class SourceCeiling(Struct, frozen=True, kw_only=True):
    """The rates of a source without writing."""

    kind: str
    location: str
    subject: str
    """The table, or the query."""
    where: str | None
    """The condition on its rows."""
    partitions: tuple[str, ...]
    """Patterns; empty is all."""
    columns: int
    route: str
    """arrow: record batches; encoded: text that the source renders."""
    levels: tuple[SourceLevel, ...]
    """By parallelism."""

    def is_of(self, run: ResolvedTable) -> bool:
        """Return whether a run reads the same rows and columns of the same source."""
        extract = run.extract
        return (
            (self.kind, self.location) == (extract.source.kind, redact(extract.source.location))
            and self.subject == (extract.query or extract.table.label)
            and (self.where, self.partitions) == (extract.where, extract.partitions)
            and self.columns == len(run.written.columns)
        )


class NetworkCeiling(Struct, frozen=True, kw_only=True):
    """What this machine, or the Dask workers, received from `unloader network listen`."""

    peers: tuple[str, ...]
    machines: int
    """Dask workers that received at the same time; 1 without a cluster."""
    connections: int
    """At the same time, of all peers and machines together."""
    bytes_per_second: Positive
    round_trip_seconds: float
    """The median of small messages and their responses."""
    interface: str | None
    """The interface of this machine that has the connections; None if unknown."""
    row_bytes: float | None = None
    """Bytes that the interface received for each row while the source was read, if known."""


class CodecCeiling(Struct, frozen=True, kw_only=True):
    """What one core compresses of the user's rows."""

    codec: str
    level: int | None
    ratio: Positive
    """Size without the codec over size with it."""
    bytes_per_cpu_second: float | None
    """Uncompressed bytes; None where nothing is compressed."""


class EncoderCeiling(Struct, frozen=True, kw_only=True):
    """What one core makes of a sample of the user's rows."""

    format: str
    sample_rows: int
    sample_bytes: int
    """As they are written without a codec."""
    row_bytes: Positive
    fetch_cpu_seconds: float
    """Of the sample."""
    encode_cpu_seconds: float
    """Of the sample; 0 where the source renders the text."""
    bytes_per_cpu_second: float | None
    """Written without a codec; None where the source renders the text."""
    codecs: tuple[CodecCeiling, ...]


class NotMeasured(Struct, frozen=True, kw_only=True):
    """Something that is blank, and why."""

    what: str
    reason: str


class Ceilings(Struct, frozen=True, kw_only=True):
    """All that `unloader preflight` has found; also the form of its file."""

    format_version: Literal[1] = FORMAT_VERSION
    unloader_version: str
    taken_at: str
    """ISO 8601, UTC."""
    machine: Machine
    parallelism: int
    """Workers that a run of these options would have."""
    writing: WriteSettings
    disks: tuple[DiskCeiling, ...] = ()
    """Of each directory: one file, then as many as a run would write there in parallel."""
    together: DiskCeiling | None = None
    """All directories at the same time; None where there is one."""
    source: SourceCeiling | None = None
    encoder: EncoderCeiling | None = None
    round_trip_seconds: float | None = None
    """To the source and back: the median of small statements."""
    network: NetworkCeiling | None = None
    not_measured: tuple[NotMeasured, ...] = ()

    @property
    def disk(self) -> DiskCeiling | None:
        """What a run into all the directories cannot exceed; None where it was not measured."""
        if self.together is not None:
            return self.together
        return max(self.disks, key=lambda each: each.bytes_per_second, default=None)

    def compared(self, run: ResolvedTable, totals: TotalsRecord, *, resumed: bool) -> Efficiency:
        """Return how near a run, or its last process alone, came to the ceilings."""
        parts: list[EfficiencyPart] = []
        was, ours = self.machine, this_machine(detect())
        if (was.name, was.cpus) != (ours.name, ours.cpus):
            reasons = [
                f"the ceilings are of {was.name} with {was.cpus} CPUs, but this machine is "
                f"{ours.name} with {ours.cpus}"
            ]
        else:
            found = (
                self._disk(run, totals),
                self._source(run, totals),
                self._encoder(run, None if resumed else totals.uncompressed_bytes, totals),
                None if self.network is None else self._network(self.network, run, totals),
            )
            parts = [each for each in found if isinstance(each, EfficiencyPart)]
            reasons = [each for each in found if isinstance(each, str)]
        return Efficiency(
            ceilings=os.path.basename(run.request.ceilings or ""),
            taken_at=self.taken_at,
            parts=tuple(parts),
            not_compared=tuple(reasons),
        )

    def _disk(self, run: ResolvedTable, totals: TotalsRecord) -> EfficiencyPart | str:
        """Return the comparison with the highest ceiling of the same file systems, or why not."""
        options = run.output.options
        if not self.disks:
            return "disk: it was not measured"
        if destination_kind(options.destinations) != "directories":
            return "disk: the output was not written to a disk"
        if totals.bytes_per_second is None:
            return "disk: the rate of the run is unknown"
        if self.writing.direct_io != options.direct_io:
            return "disk: it was measured with another --direct-io"
        places = map(existing_directory, options.destinations)
        mounts = {None if place is None else mount_of(place) for place in places}
        known = (*self.disks, *((self.together,) if self.together else ()))
        same = [each for each in known if None not in mounts and {*each.mounts} == mounts]
        best = max(same, key=lambda each: each.bytes_per_second, default=None)
        if best is None:
            return "disk: the ceilings are of another disk than the output"
        files = counted(best.writers, "file", "files together")
        basis = f"{files} in {' and '.join(best.measured_in)}"
        return _part("disk", "bytes/s", totals.bytes_per_second, best.bytes_per_second, basis)

    def _source(self, run: ResolvedTable, totals: TotalsRecord) -> EfficiencyPart | str:
        """Return the comparison with the level of the same parallelism, or else the fastest."""
        if self.source is None:
            return "source: it was not measured"
        if not self.source.is_of(run):
            return "source: the ceilings are of another source, table, query or selection"
        if totals.rows_per_second is None:
            return "source: the rate of the run is unknown"
        seats = len(run.seating.seats)
        level = max(self.source.levels, key=lambda e: (e.parallelism == seats, e.rows_per_second))
        workers = counted(level.parallelism, "worker that fetches", "workers that fetch")
        basis = f"{workers} and {'writes' if level.parallelism == 1 else 'write'} nothing"
        return _part("source", "rows/s", totals.rows_per_second, level.rows_per_second, basis)

    def _network(
        self, network: NetworkCeiling, run: ResolvedTable, totals: TotalsRecord
    ) -> EfficiencyPart | str:
        """Return the comparison with the rows that the network carries, or why not."""
        if not network.row_bytes or self.source is None:
            return "network: the bytes of a row on the network were not measured"
        if not self.source.is_of(run):
            return "network: the ceilings are of another source, table, query or selection"
        if totals.rows_per_second is None:
            return "network: the rate of the run is unknown"
        ceiling = network.bytes_per_second / network.row_bytes
        connections = counted(network.connections, "connection")
        basis = (
            f"{connections} from {', '.join(network.peers)}, {network.row_bytes:,.1f} bytes a row"
        )
        return _part("network", "rows/s", totals.rows_per_second, round(ceiling, 1), basis)

    def _encoder(
        self, run: ResolvedTable, raw: int | None, totals: TotalsRecord
    ) -> EfficiencyPart | str:
        """Compare `raw` bytes before compression with the workers' cores, or say why not."""
        encoder = self.encoder
        if encoder is None or encoder.bytes_per_cpu_second is None:
            return "encoder: it was not measured"
        if encoder.format != name_of(run.output.format):
            return f"encoder: the ceilings are of {encoder.format}"
        if self.source is not None and not self.source.is_of(run):
            return "encoder: the ceilings are of other rows"
        if not raw or not totals.seconds:
            return "encoder: the size before compression is unknown"
        cores = max(1, min(len(run.seating.seats), self.machine.cores))
        encoding = counted(cores, "core that encodes", "cores that encode")
        return _part(
            "encoder",
            "bytes/s",
            round(raw / totals.seconds),
            encoder.bytes_per_cpu_second * cores,
            f"{encoding} only {encoder.format}",
        )


def _part(
    what: Literal["disk", "source", "encoder", "network"],
    unit: Literal["bytes/s", "rows/s"],
    rate: float,
    ceiling: float,
    basis: str,
) -> EfficiencyPart:
    share = round(rate / ceiling, 4)
    return EfficiencyPart(
        what=what, unit=unit, rate=rate, ceiling=ceiling, share=share, basis=basis
    )


_AGAIN = "make one with: unloader preflight --save FILE"
_OTHER_FILE = "give --save a file in an existing directory that you may write to"


def check_saveable(path: Path) -> None:
    """Raise an `OutputFailed` before anything is measured if a file cannot be made."""
    why = ""
    if path.name == MANIFEST:
        why = "it would replace the manifest of a run"
    elif path.is_dir():
        why = "it is a directory"
    elif not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        why = f"{path.absolute().parent} is not a directory that you may write to"
    if why:
        raise OutputFailed(f"cannot save the ceilings in {path}: {why}", _OTHER_FILE)


def save_ceilings(path: Path, found: Ceilings) -> None:
    """Replace a file as a whole by these ceilings, or leave it and raise an `OutputFailed`."""
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    except WriteError as error:
        raise OutputFailed(f"cannot save the ceilings: {error.message}", _OTHER_FILE) from error


def read_ceilings(path: Path) -> Ceilings:
    """Return the ceilings in a file; one that has something else is a `ConfigError`."""
    try:
        return msgspec.json.decode(read_regular(path, follow=True), type=Ceilings)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file of ceilings {path}: {error.strerror}", _AGAIN
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"the file of ceilings {path} cannot be used: {error}", _AGAIN) from error


_CPUS = Path("/proc/cpuinfo")
_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)


def this_machine(topology: Topology) -> Machine:
    try:
        model = _MODEL.search(_CPUS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        model = None
    return Machine(
        name=os.uname().nodename,
        cpus=topology.usable_cpus,
        cores=usable_cores(topology),
        model=model[1].strip() if model else None,
    )


def existing_directory(place: str) -> str | None:
    """Return a directory, or the nearest existing one above it; None if it is not a directory."""
    disk = storage_at(place).disk(place)
    return None if disk is None else disk[1]


def mount_of(directory: str) -> Mount | None:
    """Return the file system of a directory, by the last of the longest mount points, if known."""
    real, best = os.path.realpath(directory), None
    for _, point, kind, source, _ in mounts(Path("/proc")):
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point=point, source=source, type=kind)
    return best
