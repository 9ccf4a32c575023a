"""What a sample of the user's rows is asked for and what it shows: plain data, as all that travels.

A process of its own reads and measures the sample, so a source that hangs can be left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from numa.model import Topology
    from partition_planner.model import Plan, WorkUnit
    from unloader.model import Extract, Request
    from unloader.placement.seating import Seating
    from unloader.transforms.model import TransformOptions
    from writers.codecs.choice import CodecFigures
    from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat


class Sampled(Protocol):
    """What rows are sampled of: a request, and what has been decided of it so far."""

    @property
    def request(self) -> Request:
        """What was asked."""

    @property
    def format(self) -> TextFormat | ParquetFormat:
        """The final format."""

    @property
    def extract(self) -> Extract:
        """What is read."""

    @property
    def plan(self) -> Plan:
        """The work units that rows are taken from."""

    @property
    def topology(self) -> Topology:
        """The machine that the seats are on."""

    @property
    def seating(self) -> Seating:
        """The first seat is where the sample is measured."""

    @property
    def task_transform(self) -> TransformOptions | None:
        """What is done to the rows before they are encoded."""


class SampleBudget(Struct, frozen=True, kw_only=True):
    """How much a sample may take."""

    bytes: int
    """Of rows in memory, as they are fetched; one batch of each unit more at most."""
    fetch_seconds: float
    """No batch is asked for after them."""
    codec_seconds: float
    """For all codecs together; one that is being measured is let finish its frame or file."""
    disk_seconds: float
    """For each disk; 0 measures none."""
    patience_seconds: float
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
    """What is done to the rows before they are encoded."""


class Sample(Struct, frozen=True, kw_only=True):
    """What was read and measured."""

    whole: bool
    """The units were read to their end."""
    rows: int = 0
    """On the encoded route about as many: ends of line are counted."""
    bytes: int = 0
    """Of these rows as they are written without a codec."""
    fetch_seconds: float = 0.0
    """Wall seconds of waiting for the rows, without the beginning of each unit's statement."""
    fetch_cpu_seconds: float = 0.0
    encode_cpu_seconds: float = 0.0
    """0 on the encoded route."""
    figures: tuple[CodecFigures, ...] = ()
    """Empty without rows."""
    disk_bytes_per_second: float | None = None
    """Of all disks together; None if one of them could not be measured."""
