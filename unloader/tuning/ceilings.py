"""Ceilings: their records, their file, and the comparison of a run with them.

Each figure is of one machine, and of the directories and the table in the same record. What could
not be measured is missing, with the reason in `not_measured`. A run is compared with the ceilings
of the same machine, places and source only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from numa.model import Topology
from numa.topology import detect
from unloader.errors import ConfigError, OutputFailed
from unloader.manifest.model import Efficiency, EfficiencyPart, TotalsRecord
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.place_names import destination_kind
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, host_name
from unloader.tuning.machine_load import usable_cores
from unloader.tuning.measuring_tasks import WriteSettings
from writers.files.regular import read_regular
from writers.model import TextFormat

FORMAT_VERSION: Literal[1] = 1

Part = Literal["disk", "source", "encoder", "connection"]
PARTS: tuple[Part, ...] = ("disk", "source", "encoder", "connection")
"""The parts of a measurement, in this order."""


class Machine(Struct, frozen=True, kw_only=True):
    """A computer."""

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
    bytes_per_second: float
    """The median of the rounds."""
    lowest: float
    highest: float


class SourceLevel(Struct, frozen=True, kw_only=True):
    """The rows that some workers fetched and dropped."""

    parallelism: int
    rows: int
    bytes: int
    """Of the rows as they reach the encoder."""
    seconds: float
    rows_per_second: float
    bytes_per_second: float
    cpu_seconds: float
    """Of the workers."""
    network_bytes_per_second: float | None
    """Received by the workers' connections; None where that is not known."""


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


class CodecCeiling(Struct, frozen=True, kw_only=True):
    """What one core compresses of the user's rows."""

    codec: str
    level: int | None
    ratio: float
    """Size without the codec over size with it."""
    bytes_per_cpu_second: float | None
    """Uncompressed bytes; None where nothing is compressed."""


class EncoderCeiling(Struct, frozen=True, kw_only=True):
    """What one core makes of a sample of the user's rows."""

    format: str
    sample_rows: int
    sample_bytes: int
    """As they are written without a codec."""
    row_bytes: float
    fetch_cpu_seconds: float
    """Of the sample."""
    encode_cpu_seconds: float
    """Of the sample; 0 where the source renders the text."""
    bytes_per_cpu_second: float | None
    """Written without a codec; None where the source renders the text."""
    codecs: tuple[CodecCeiling, ...]


class ConnectionCeiling(Struct, frozen=True, kw_only=True):
    """The way to the source."""

    round_trip_seconds: float | None
    """The median of small statements."""
    statements: int
    network_round_trip_seconds: float | None
    """As the kernel sees it, without the time that the database takes."""
    bytes_per_second: float | None
    """The most that one connection received."""
    all_bytes_per_second: float | None
    """The most that all connections of a level received together."""


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
    connection: ConnectionCeiling | None = None
    not_measured: tuple[NotMeasured, ...] = ()

    @property
    def disk(self) -> DiskCeiling | None:
        """What a run into all the directories cannot exceed; None where it was not measured."""
        if self.together is not None:
            return self.together
        return max(self.disks, key=lambda each: each.bytes_per_second, default=None)

    def compared(self, run: ResolvedTable, totals: TotalsRecord, *, resumed: bool) -> Efficiency:
        """Return how near a run came to the ceilings.

        Args:
            run: The run, whose request names the file of the ceilings.
            totals: Its figures.
            resumed: Another process did a part of it, which the rates do not cover.
        """
        extract, options = run.extract, run.output.options
        raw = None if resumed else totals.uncompressed_bytes
        rates = RunRates(
            machine=this_machine(detect()),
            workers=len(run.seating.seats),
            mounts=_mounts(options.destinations),
            direct_io=options.direct_io,
            kind=extract.source.kind,
            location=redact(extract.source.location),
            subject=extract.query if extract.query is not None else extract.table.label,
            where=extract.where,
            partitions=extract.partitions,
            columns=len(run.written.columns),
            format="csv" if isinstance(run.output.format, TextFormat) else "parquet",
            rows_per_second=totals.rows_per_second,
            bytes_per_second=totals.bytes_per_second,
            uncompressed_bytes_per_second=(
                round(raw / totals.seconds) if raw and totals.seconds else None
            ),
        )
        return efficiency(self, os.path.basename(run.request.ceilings or ""), rates)


_CEILINGS = msgspec.json.Decoder(Ceilings)
_AGAIN = "make one with: unloader preflight --save FILE"


def check_saveable(path: Path) -> None:
    """Check that a file could be made, before anything is measured for it.

    Raises:
        OutputFailed: It could not.
    """
    if path.name == MANIFEST:
        raise _not_saveable(path, "it would replace the manifest of a run")
    if path.is_dir():
        raise _not_saveable(path, "it is a directory")
    staged = _staged(path)
    try:
        staged.touch()
        staged.unlink()
    except OSError as error:
        raise _not_saveable(path, str(error.strerror)) from error


def save_ceilings(path: Path, found: Ceilings) -> None:
    """Write ceilings to a file; an earlier file is replaced as a whole, or left as it is.

    Raises:
        OutputFailed: It cannot be written.
    """
    staged = _staged(path)
    try:
        with staged.open("w", encoding="utf-8") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError as error:
        with suppress(OSError):
            staged.unlink()
        raise _not_saveable(path, str(error.strerror)) from error


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _not_saveable(path: Path, why: str) -> OutputFailed:
    return OutputFailed(
        f"cannot save the ceilings in {path}: {why}",
        "give --save a file in an existing directory that you may write to",
    )


def read_ceilings(path: Path) -> Ceilings:
    """Return the ceilings in a file.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        data = read_regular(path, follow=True)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file of ceilings {path}: {error.strerror}", _AGAIN
        ) from error
    try:
        found = _CEILINGS.decode(data)
        wrong = _wrong(found)
    except (msgspec.DecodeError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise ConfigError(f"the file of ceilings {path} cannot be used: {wrong}", _AGAIN)
    return found


def _wrong(found: Ceilings) -> str:
    """Return which figure no measurement gives, as in an edited or damaged file; empty if none."""
    levels = found.source.levels if found.source else ()
    rates: dict[str, list[float]] = {
        "disks.bytes_per_second": [each.bytes_per_second for each in found.disks],
        "together.bytes_per_second": [found.together.bytes_per_second] if found.together else [],
        "source.levels.parallelism": [each.parallelism for each in levels],
        "source.levels.rows_per_second": [each.rows_per_second for each in levels],
        "encoder.row_bytes": [found.encoder.row_bytes] if found.encoder else [],
        "encoder.codecs.ratio": [each.ratio for each in found.encoder.codecs]
        if found.encoder
        else [],
    }
    for name, values in rates.items():
        for value in values:
            if not 0 < value < float("inf"):
                return f"{name} is {value}, not a number above 0"
    return ""


class RunRates(Struct, frozen=True, kw_only=True):
    """What a run did, and where."""

    machine: Machine
    workers: int
    mounts: tuple[Mount | None, ...]
    """Of its directories; empty where its output went elsewhere."""
    direct_io: bool
    kind: str
    location: str
    subject: str
    where: str | None
    partitions: tuple[str, ...]
    columns: int
    format: str
    rows_per_second: float | None
    """None where that is not known."""
    bytes_per_second: float | None
    """Of the files."""
    uncompressed_bytes_per_second: float | None


def efficiency(found: Ceilings, path: str, run: RunRates) -> Efficiency:
    """Return the share of each ceiling that a run has reached.

    Args:
        found: The ceilings.
        path: Their file.
        run: The run that is compared with them.
    """
    ours = run.machine
    if (found.machine.name, found.machine.cpus) != (ours.name, ours.cpus):
        was = found.machine
        reason = (
            f"the ceilings are of {was.name} with {was.cpus} CPUs, but this machine is "
            f"{ours.name} with {ours.cpus}"
        )
        return Efficiency(ceilings=path, taken_at=found.taken_at, parts=(), not_compared=(reason,))
    parts: list[EfficiencyPart] = []
    reasons: list[str] = []
    for what in (_disk_parts(found, run), _source_parts(found, run), _encoder_parts(found, run)):
        for each in what:
            if isinstance(each, str):
                reasons.append(each)
            else:
                parts.append(each)
    return Efficiency(
        ceilings=path, taken_at=found.taken_at, parts=tuple(parts), not_compared=tuple(reasons)
    )


def _disk_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    if not found.disks:
        yield "disk: it was not measured"
    elif not run.mounts:
        yield "disk: the output was not written to a disk"
    elif run.bytes_per_second is None:
        yield "disk: the rate of the run is unknown"
    elif found.writing.direct_io != run.direct_io:
        yield "disk: it was measured with another --direct-io"
    else:
        ceiling = _same_disks(found, run)
        if ceiling is None:
            yield "disk: the ceilings are of another disk than the output"
            return
        files = counted(ceiling.writers, "file", "files together")
        yield EfficiencyPart(
            what="disk",
            unit="bytes/s",
            rate=run.bytes_per_second,
            ceiling=ceiling.bytes_per_second,
            share=round(run.bytes_per_second / ceiling.bytes_per_second, 4),
            basis=f"{files} in {' and '.join(ceiling.measured_in)}",
        )


def _same_disks(found: Ceilings, run: RunRates) -> DiskCeiling | None:
    """Return the highest ceiling of exactly the file systems that the run wrote to."""
    ours = {_key(each) for each in run.mounts}
    if None in ours:
        return None
    known = (*found.disks, *((found.together,) if found.together else ()))
    fitting = [each for each in known if {_key(mount) for mount in each.mounts} == ours]
    return max(fitting, key=lambda each: each.bytes_per_second, default=None)


def _key(mount: Mount | None) -> tuple[str, str, str] | None:
    return None if mount is None else (mount.point, mount.source, mount.type)


def _source_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    source = found.source
    if source is None:
        yield "source: it was not measured"
    elif not _is_the_source(source, run):
        yield "source: the ceilings are of another source, table, query or selection"
    elif run.rows_per_second is None:
        yield "source: the rate of the run is unknown"
    else:
        level = level_for(source, run.workers)
        workers = (
            counted(level.parallelism, "worker that fetches", "workers that fetch")
            + f" and {'writes' if level.parallelism == 1 else 'write'} nothing"
        )
        yield EfficiencyPart(
            what="source",
            unit="rows/s",
            rate=run.rows_per_second,
            ceiling=level.rows_per_second,
            share=round(run.rows_per_second / level.rows_per_second, 4),
            basis=workers,
        )


def _is_the_source(source: SourceCeiling, run: RunRates) -> bool:
    return all(
        getattr(source, name) == getattr(run, name)
        for name in ("kind", "location", "subject", "where", "partitions", "columns")
    )


def level_for(source: SourceCeiling, workers: int) -> SourceLevel:
    """Return the level of that parallelism, or else the level with the highest rate."""
    same = [each for each in source.levels if each.parallelism == workers]
    return same[0] if same else max(source.levels, key=lambda each: each.rows_per_second)


def _encoder_parts(found: Ceilings, run: RunRates) -> Iterator[EfficiencyPart | str]:
    encoder = found.encoder
    if encoder is None or encoder.bytes_per_cpu_second is None:
        yield "encoder: it was not measured"
    elif encoder.format != run.format:
        yield f"encoder: the ceilings are of {encoder.format}"
    elif found.source is not None and not _is_the_source(found.source, run):
        yield "encoder: the ceilings are of other rows"
    elif run.uncompressed_bytes_per_second is None:
        yield "encoder: the size before compression is unknown"
    else:
        yield _encoder_part(encoder, encoder.bytes_per_cpu_second, found, run)


def _encoder_part(
    encoder: EncoderCeiling, rate: float, found: Ceilings, run: RunRates
) -> EfficiencyPart:
    assert run.uncompressed_bytes_per_second is not None
    cores = max(1, min(run.workers, found.machine.cores))
    ceiling = rate * cores
    return EfficiencyPart(
        what="encoder",
        unit="bytes/s",
        rate=run.uncompressed_bytes_per_second,
        ceiling=ceiling,
        share=round(run.uncompressed_bytes_per_second / ceiling, 4),
        basis=f"{counted(cores, 'core that encodes', 'cores that encode')} only {encoder.format}",
    )


_MOUNTS = Path("/proc/self/mountinfo")
_CPUS = Path("/proc/cpuinfo")
_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


def _mounts(destinations: tuple[str, ...]) -> tuple[Mount | None, ...]:
    if destination_kind(destinations) != "directories":
        return ()
    places = (existing_directory(each) for each in destinations)
    return tuple(None if place is None else mount_of(place) for place in places)


def this_machine(topology: Topology) -> Machine:
    """Return the record of this machine."""
    return Machine(
        name=host_name(),
        cpus=topology.usable_cpus,
        cores=usable_cores(topology),
        model=_cpu_model(),
    )


def _cpu_model() -> str | None:
    try:
        found = _MODEL.search(_CPUS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None


def existing_directory(place: str) -> str | None:
    """Return a directory, or the nearest existing one above it; None if it is not a directory."""
    disk = storage_at(place).disk(place)
    return None if disk is None else disk.directory


def mount_of(directory: str) -> Mount | None:
    """Return the file system of a directory (proc(5), mountinfo); None if that is not known.

    The last entry of the longest mount point that holds it counts: mounts may lie on mounts.
    """
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = os.path.realpath(directory)
    except OSError:
        return None
    best: Mount | None = None
    for line in lines:
        front, _, behind = line.partition(" - ")
        fields, last = front.split(" "), behind.split(" ")
        if len(fields) < 5 or len(last) < 2:
            continue
        point = _unescaped(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point=point, source=_unescaped(last[1]), type=last[0])
    return best


def _unescaped(text: str) -> str:
    plain = _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
    # JSON can contain only UTF-8.
    return plain.encode("utf-8", "replace").decode("utf-8")
