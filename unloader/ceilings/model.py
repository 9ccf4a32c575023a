"""The types of a file of ceilings, by the names that its keys have.

Each figure is of one machine, and of the directories and the table that stand beside it. What
could not be measured is missing, with the reason in `not_measured`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FORMAT_VERSION: Literal[1] = 1

Part = Literal["disk", "source", "encoder", "connection"]
PARTS: tuple[Part, ...] = ("disk", "source", "encoder", "connection")
"""What is measured, in this order."""


class Machine(Struct, frozen=True, kw_only=True):
    """A computer."""

    name: str
    cpus: int
    """Usable at once by the process that measured."""
    cores: int
    """The same, with threads of one core counted once."""
    model: str | None
    """Of its processors; None where the system does not say."""


class Mount(Struct, frozen=True, kw_only=True):
    """The file system that a directory lies in."""

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
    """What so many workers fetched, and threw away."""

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
    """What a source gave with nobody writing."""

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
    """Of each directory: one file, then as many as a run would write there at once."""
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
    """What the ceiling was measured with."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """A run held against ceilings of its own machine, places and source."""

    ceilings: str
    """The file."""
    taken_at: str
    parts: tuple[EfficiencyPart, ...]
    not_compared: tuple[str, ...]
    """What was not, and why."""
