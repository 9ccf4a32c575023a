"""The manifest as types: every key that it has, in the order in which it is written.

docs/manifest.md says what each means; docs/manifest.schema.json is made from this module and
`asked`. A field with a default may be missing in a manifest of an earlier version; one marked
`OPTIONAL` is left out where it is None.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from unloader import json_fields
from unloader.ceilings.model import Efficiency
from unloader.json_fields import OPTIONAL
from unloader.manifest.asked import (
    ColumnRecord,
    OptionsRecord,
    PlanRecord,
    SettingRecord,
    SourceRecord,
    SubsetRecord,
    TableRecord,
)
from unloader.model import Cause, LakeTable, Snapshot, VerifyLevel
from writers.model import WrittenFile

FORMAT_VERSION: Literal[1] = 1

FORMAT_REVISION = 2
"""From 1 on a manifest has its digest, from 2 on it tells which worker did what when."""


class MergedPart(Struct, frozen=True, kw_only=True):
    """One of the runs whose files a merged manifest lists."""

    number: int
    directory: str
    """Of its own manifest, as seen from the directory of this one."""
    run_id: str
    units: int
    rows: int
    bytes: int
    files: int
    seconds: float
    digest: str | None
    """Of its manifest, which stands at that one's end."""


class DirectoryRecord(Struct, frozen=True, kw_only=True):
    """One of several directories."""

    path: str
    files: int
    bytes: int


class FileRecord(Struct, frozen=True, kw_only=True):
    """One file."""

    path: str
    rows: int
    bytes: int
    checksum: str
    directory: Annotated[int | None, OPTIONAL] = None
    """Number of its directory, where there are several."""

    @property
    def written(self) -> WrittenFile:
        """What its writer reported."""
        return WrittenFile(path=self.path, rows=self.rows, bytes=self.bytes, checksum=self.checksum)


class SeatRecord(Struct, frozen=True, kw_only=True):
    """A seat, with the memory policy that the kernel took."""

    node: int = 0
    cpus: tuple[int, ...] = ()
    memory_node: int | None = None
    memory_policy: str | None = None


class StagesRecord(Struct, frozen=True, kw_only=True):
    """Seconds of a unit's stages, which overlap."""

    fetch_s: float = 0.0
    encode_s: float = 0.0
    compress_s: float = 0.0
    write_s: float = 0.0


class ContentRecord(Struct, frozen=True, kw_only=True):
    """Checksums of the values that were fetched, in the order of the columns."""

    nulls: tuple[int, ...]
    sums: tuple[str, ...]


class UnitRecord(Struct, frozen=True, kw_only=True):
    """One finished work unit."""

    id: str
    partition: str | None = None
    partitions: tuple[str, ...] = ()
    rows: int = 0
    attempts: int = 1
    seat: SeatRecord = field(default_factory=SeatRecord)
    stages: StagesRecord = field(default_factory=StagesRecord)
    seconds: float = 0.0
    worker: int | None = None
    """None in a manifest of revision 1."""
    started_s: float | None = None
    """Seconds from the begin of the run; None if an earlier process of the run did it."""
    files: tuple[FileRecord, ...]
    content: Annotated[ContentRecord | None, OPTIONAL] = None
    """Where the run compared values."""


class FailedAttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt that failed."""

    unit: str
    attempt: int
    worker: int
    started_s: float
    seconds: float
    message: str


class SampleRecord(Struct, frozen=True, kw_only=True):
    """How far the run was at one time, and how busy the machine has been since the one before."""

    at_s: float
    rows: int
    bytes: int
    busy_workers: int
    cpu_by_node: dict[str, float] | None
    """Of all processes, on the CPUs that the run may use."""


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """One worker: where it was to be, where it was, and what it did."""

    worker: int
    seat: SeatRecord
    host: Annotated[str | None, OPTIONAL] = None
    """The machine, in a run over several."""
    ran_on: tuple[int, ...]
    local_share: float | None
    memory_bytes_by_node: dict[str, int] | None
    file_bytes_by_node: dict[str, int] | None
    units: int
    rows: int
    bytes: int
    seconds: float
    restarts: int
    note: str | None


class NodeRecord(Struct, frozen=True, kw_only=True):
    """One NUMA node, and what its workers did."""

    node: int
    host: Annotated[str | None, OPTIONAL] = None
    """The machine, in a run over several."""
    workers: int
    rows: int
    bytes: int
    rows_per_second: int | None
    bytes_per_second: int | None
    numastat: dict[str, int] | None


class StepRecord(Struct, frozen=True, kw_only=True):
    """From when on so many workers worked."""

    seconds: float
    """Since the run began, as in units and samples."""
    workers: int
    of: int
    """Those that have a seat."""
    rows_per_second: float
    """With the number before, as it was last measured; 0 where it was not."""
    cause: Cause
    reason: str


class TotalsRecord(Struct, frozen=True, kw_only=True):
    """The whole run."""

    rows: int
    bytes: int
    files: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    compress_cpu_seconds: float = 0.0
    uncompressed_bytes: int | None = None
    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    lowest_parallelism: int | None = None
    peak_worker_rss_bytes: int = 0


class VerifiedRecord(Struct, frozen=True, kw_only=True):
    """What was checked when the run ended."""

    level: VerifyLevel = "none"
    source_rows: int | None = None
    filtered_rows: Annotated[int | None, OPTIONAL] = None
    """Rows that `--filter` left out: with those in the files they are what the source has."""
    result: str = "not verified"
    not_compared: Annotated[tuple[str, ...] | None, OPTIONAL] = None
    """Columns whose values could not be compared, each with why, where others were."""


class OtherRoute(Struct, frozen=True, kw_only=True):
    """Another output of the run."""

    name: str
    to: str
    """Where its manifest goes."""


class RouteRecord(Struct, frozen=True, kw_only=True):
    """One of several outputs of a run, which has read the rows once for all of them."""

    name: str
    others: tuple[OtherRoute, ...] = ()
    dropped: tuple[str, ...] = ()
    """Names of those that had failed when this one was published."""


class Manifest(Struct, frozen=True, kw_only=True):
    """What a run read, from which state, into which files, and what was checked."""

    format_version: Literal[1] = FORMAT_VERSION
    format_revision: int = 0
    """What has been added to the format; a manifest that does not say so is of the first."""
    run_id: str
    unloader_version: str = ""
    status: Literal["complete", "partial"] = "complete"
    source: SourceRecord = field(default_factory=SourceRecord)
    table: TableRecord | None
    query: str | None
    subset: Annotated[SubsetRecord | None, OPTIONAL] = None
    """Where the run read a part of the table or query."""
    parts: Annotated[tuple[MergedPart, ...] | None, OPTIONAL] = None
    """The runs that read a part of the plan each, where their manifests were merged into this."""
    route: Annotated[RouteRecord | None, OPTIONAL] = None
    """Which output this is of a run that has several."""
    lake_table: Annotated[LakeTable | None, OPTIONAL] = None
    """The table of a lakehouse that the files become part of, as it was when the run began."""
    snapshot: Snapshot | None
    columns: tuple[ColumnRecord, ...] = ()
    options: OptionsRecord
    settings: tuple[SettingRecord, ...] = ()
    job: Annotated[str | None, OPTIONAL] = None
    """SHA-256 of what was asked for. Two runs that have the same were of the same job."""
    plan: PlanRecord = field(default_factory=PlanRecord)
    directories: Annotated[tuple[DirectoryRecord, ...] | None, OPTIONAL] = None
    """Where there are several; the first is where the manifest lies."""
    units: tuple[UnitRecord, ...]
    failed_attempts: tuple[FailedAttemptRecord, ...] = ()
    """Of this process of the run, in the order of their ends; the first 1,000."""
    failed_attempts_left_out: int = 0
    samples: tuple[SampleRecord, ...] = ()
    """At equal intervals while units were read, at most 121."""
    workers: tuple[WorkerRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    parallelism_steps: Annotated[tuple[StepRecord, ...] | None, OPTIONAL] = None
    """Where the number of workers was steered."""
    warnings: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()
    totals: TotalsRecord
    verified: VerifiedRecord = field(default_factory=VerifiedRecord)
    efficiency: Annotated[Efficiency | None, OPTIONAL] = None
    """Where ceilings were given that are of this machine and of what the run did."""
    digest: Annotated[str | None, OPTIONAL] = None
    """Of the file in front of this line; added as it is written, see `unloader.manifest.digest`."""

    @property
    def files(self) -> dict[str, FileRecord]:
        """The files by name, in table order; one that several units share comes once."""
        return {file.path: file for unit in self.units for file in unit.files}


def to_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as it is written."""
    return json_fields.fields_to_json(manifest)


def from_json(document: object) -> Manifest:
    """Return the manifest that `to_json` wrote, in this version or another of the same format.

    Raises:
        NotAsExpected: It is not whole, or a value is of another type; the message names the key.
    """
    return json_fields.from_json(Manifest, document, "the manifest", newer=True)
