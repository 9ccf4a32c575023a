"""The records of a file of ceilings, and how the file is written and read.

Each figure is of one machine, and of the directories and the table beside it. What could not be
measured is missing, with the reason in `not_measured`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed
from unloader.storage.storage_protocol import MANIFEST
from writers.files.regular import read_regular

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


class WriteSettings(Struct, frozen=True, kw_only=True):
    """How files were written: as the options of the run say."""

    overlap_buffer: int
    overlap_buffers: int
    checksum: str
    direct_io: bool


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


class EfficiencyPart(Struct, frozen=True, kw_only=True):
    """How near a run came to one ceiling."""

    what: Literal["disk", "source", "encoder"]
    unit: Literal["bytes/s", "rows/s"]
    rate: float
    """Of the whole run, from its first step to its last."""
    ceiling: float
    share: float
    """The rate divided by the ceiling."""
    basis: str
    """The conditions of the measured ceiling."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """A run compared with ceilings of the same machine, places and source."""

    ceilings: str
    """The file."""
    taken_at: str
    parts: tuple[EfficiencyPart, ...]
    not_compared: tuple[str, ...]
    """The parts without a comparison, and why."""


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
