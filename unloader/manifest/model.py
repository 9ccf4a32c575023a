"""The manifest as types: every key that it has, in the order in which it is written.

docs/manifest.md says what each means; docs/manifest.schema.json is made from this module. A field
with a default may be missing in a manifest of an earlier version; one marked `OPTIONAL` is left out
where it is None.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from unloader import json_fields
from unloader.ceilings.model import Efficiency
from unloader.json_fields import KEY, OPTIONAL
from unloader.model import Cause, LakeTable, Lossless, Snapshot, VerifyLevel
from writers.model import Compression, ParquetFormat, TextFormat, WrittenFile
from writers.records import dataclass

FORMAT_VERSION: Literal[1] = 1

FORMAT_REVISION = 2
"""From 1 on a manifest has its digest, from 2 on it tells which worker did what when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """The database."""

    kind: str = ""
    location: str = ""
    server_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """The table, as the database writes its name."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRecord:
    """How a column is masked; never the key."""

    method: str
    """As `--mask` says it; derived: computed from masked columns."""
    detail: str
    """Options of the method."""
    key_name: str | None = field(default=None, metadata={OPTIONAL: True})
    key_proof: str | None = field(default=None, metadata={OPTIONAL: True})
    """A salted hash of the key, which tells whether a key is the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRecord:
    """One column, in the order of the output."""

    name: str
    source_type: str
    output_type: str
    nullable: bool | None
    lossless: Lossless
    note: str
    position: tuple[int, int] | None = field(default=None, metadata={OPTIONAL: True})
    """First and last byte in records of fixed width, from 1."""
    text_class: str | None = field(default=None, metadata={OPTIONAL: True})
    """What its text stands for, where there are checksums: number, timestamp, moment or date."""
    masked: MaskedRecord | None = field(default=None, metadata={OPTIONAL: True})
    changes: tuple[str, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """What was done to it on purpose, in words, masks aside."""
    read_from: tuple[str, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """The source's columns that it depends on, where it is not the one of its name."""
    clear_values_of: tuple[str, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """Columns that are masked, and that this one has values of that are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresRecord:
    """What a codec did to the sample that a preset chose by."""

    codec: str
    level: int | None
    library: str | None
    sample_bytes: int
    ratio: float
    bytes_per_cpu_second: int | None
    compress_cpu_seconds_per_gb: float
    predicted_cpu_seconds: float
    predicted_bytes: int
    predicted_seconds: float
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRecord:
    """How a preset chose its codec."""

    preset: str
    codec: str
    level: int | None
    reason: str
    disk_bytes_per_second: int | None
    candidates: tuple[FiguresRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionRecord:
    """How the files are encrypted, and for whom; public keys alone."""

    method: Literal["age", "parquet"]
    recipients: tuple[str, ...] = ()
    """Public keys of age."""
    key_name: str = ""
    """What the user calls the Parquet key."""
    key_proof: str = ""
    """A salted hash of the Parquet key, which tells whether a key is the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsRecord:
    """The options that decided what was written, by the names of the command line."""

    to: str | tuple[str, ...] = ""
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str | None = None
    filter: str | None = field(default=None, metadata={OPTIONAL: True})
    partition: tuple[str, ...] = ()
    sample: float | None = field(default=None, metadata={OPTIONAL: True})
    """A share, 0 to 1."""
    sample_by: str | None = field(default=None, metadata={OPTIONAL: True})
    limit_rows: int | None = field(default=None, metadata={OPTIONAL: True})
    as_text: tuple[str, ...] = ()
    format: Literal["csv", "parquet"]
    compression: Compression
    compression_library: str | None = None
    compression_choice: ChoiceRecord | None = None
    file_size: int = 0
    file_per: str = "unit"
    file_name: str = ""
    overwrite: bool = False
    overlap_buffer: int = 0
    overlap_buffers: int = 0
    checksum: str = "xxh3"
    direct_io: bool = False
    min_free: int = 0
    pause_timeout: float = 0.0
    fetch_memory: int = 0
    worker_memory: int = 0
    parallelism: int = 0
    """0 is auto."""
    split: str = "auto"
    unit_bytes: int | None = None
    consistency: str = "snapshot"
    verify: str = "count"
    retries: int = 0
    retry_delay: float = 0.0
    retry_delay_max: float = 0.0
    stall_timeout: float = 0.0
    fetch: str = "auto"
    enable_row_security: bool = False
    number_without_precision: str = "string"
    nanoseconds: str = "string"
    zone_columns: bool = False
    numa: str = "auto"
    nodes: tuple[int, ...] = ()
    placement: str = "spread"
    bind: str = "node"
    memory_policy: str = "preferred"
    near: str | None = None
    adaptive: bool | None = field(default=None, metadata={OPTIONAL: True})
    """`--parallelism adaptive`; parallelism is 0 then."""
    max_sessions: int | None = field(default=None, metadata={OPTIONAL: True})
    max_cpu: float | None = field(default=None, metadata={OPTIONAL: True})
    """A share, 0 to 1."""
    max_db_load: int | None = field(default=None, metadata={OPTIONAL: True})
    slow_between: str | None = field(default=None, metadata={OPTIONAL: True})
    slow_parallelism: int | None = field(default=None, metadata={OPTIONAL: True})
    cluster: str | None = field(default=None, metadata={OPTIONAL: True})
    """Where the workers were; without it on one machine."""
    dialect: TextFormat | ParquetFormat
    encryption: EncryptionRecord | None = field(default=None, metadata={OPTIONAL: True})
    transform: tuple[dict[str, Any], ...] | None = field(default=None, metadata={OPTIONAL: True})
    """What was done to the rows, step by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """One option that was set somewhere."""

    name: str
    value: str
    origin: str = field(metadata={KEY: "from"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """The plan."""

    digest: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """Which part of a plan was read."""

    number: int
    """From 1."""
    of: int
    of_units: int
    """How many work units all parts have."""
    plan_digest: str
    """Of the plan that all parts are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetRecord:
    """A part of the rows, chosen with no regard to what is in them."""

    part: PartRecord | None = field(default=None, metadata={OPTIONAL: True})
    """Where the other parts of a plan are other runs."""
    share: float | None = field(default=None, metadata={OPTIONAL: True})
    """The sample that was asked for, above 0 and below 1."""
    key: str | None = field(default=None, metadata={OPTIONAL: True})
    """The column by whose values it was taken; without one, whole units were."""
    units: int | None = field(default=None, metadata={OPTIONAL: True})
    """How many units were taken."""
    of_units: int | None = field(default=None, metadata={OPTIONAL: True})
    """How many units the whole was cut into."""
    cost_share: float | None = field(default=None, metadata={OPTIONAL: True})
    """What the units were estimated to be of the whole, 0 to 1."""
    selectors: tuple[dict[str, Any], ...] | None = field(default=None, metadata={OPTIONAL: True})
    """What the units read, as a plan has it; none are kept that hold values of a column."""
    limit_rows: int | None = field(default=None, metadata={OPTIONAL: True})
    """No more rows than these were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPart:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryRecord:
    """One of several directories."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file."""

    path: str
    rows: int
    bytes: int
    checksum: str
    directory: int | None = field(default=None, metadata={OPTIONAL: True})
    """Number of its directory, where there are several."""

    @property
    def written(self) -> WrittenFile:
        """What its writer reported."""
        return WrittenFile(path=self.path, rows=self.rows, bytes=self.bytes, checksum=self.checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRecord:
    """A seat, with the memory policy that the kernel took."""

    node: int = 0
    cpus: tuple[int, ...] = ()
    memory_node: int | None = None
    memory_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesRecord:
    """Seconds of a unit's stages, which overlap."""

    fetch_s: float = 0.0
    encode_s: float = 0.0
    compress_s: float = 0.0
    write_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRecord:
    """Checksums of the values that were fetched, in the order of the columns."""

    nulls: tuple[int, ...]
    sums: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
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
    content: ContentRecord | None = field(default=None, metadata={OPTIONAL: True})
    """Where the run compared values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttemptRecord:
    """One attempt that failed."""

    unit: str
    attempt: int
    worker: int
    started_s: float
    seconds: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    """How far the run was at one time, and how busy the machine has been since the one before."""

    at_s: float
    rows: int
    bytes: int
    busy_workers: int
    cpu_by_node: dict[str, float] | None
    """Of all processes, on the CPUs that the run may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One worker: where it was to be, where it was, and what it did."""

    worker: int
    seat: SeatRecord
    host: str | None = field(default=None, metadata={OPTIONAL: True})
    """The machine, in a run over several."""
    ran_on: tuple[int, ...]
    local_share: float | None
    memory_bytes_by_node: dict[str, int] | None
    file_bytes_by_node: dict[str, int] | None
    remote_access_share: float | None
    units: int
    rows: int
    bytes: int
    seconds: float
    restarts: int
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One NUMA node, and what its workers did."""

    node: int
    host: str | None = field(default=None, metadata={OPTIONAL: True})
    """The machine, in a run over several."""
    workers: int
    rows: int
    bytes: int
    rows_per_second: int | None
    bytes_per_second: int | None
    numastat: dict[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsRecord:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord:
    """What was checked when the run ended."""

    level: VerifyLevel = "none"
    source_rows: int | None = None
    filtered_rows: int | None = field(default=None, metadata={OPTIONAL: True})
    """Rows that `--filter` left out: with those in the files they are what the source has."""
    result: str = "not verified"
    not_compared: tuple[str, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """Columns whose values could not be compared, each with why, where others were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRoute:
    """Another output of the run."""

    name: str
    to: str
    """Where its manifest goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRecord:
    """One of several outputs of a run, which has read the rows once for all of them."""

    name: str
    others: tuple[OtherRoute, ...] = ()
    dropped: tuple[str, ...] = ()
    """Names of those that had failed when this one was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
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
    subset: SubsetRecord | None = field(default=None, metadata={OPTIONAL: True})
    """Where the run read a part of the table or query."""
    parts: tuple[MergedPart, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """The runs that read a part of the plan each, where their manifests were merged into this."""
    route: RouteRecord | None = field(default=None, metadata={OPTIONAL: True})
    """Which output this is of a run that has several."""
    lake_table: LakeTable | None = field(default=None, metadata={OPTIONAL: True})
    """The table of a lakehouse that the files become part of, as it was when the run began."""
    snapshot: Snapshot | None
    columns: tuple[ColumnRecord, ...] = ()
    options: OptionsRecord
    settings: tuple[SettingRecord, ...] = ()
    plan: PlanRecord = field(default_factory=PlanRecord)
    directories: tuple[DirectoryRecord, ...] | None = field(default=None, metadata={OPTIONAL: True})
    """Where there are several; the first is where the manifest lies."""
    units: tuple[UnitRecord, ...]
    failed_attempts: tuple[FailedAttemptRecord, ...] = ()
    """Of this process of the run, in the order of their ends; the first 1,000."""
    failed_attempts_left_out: int = 0
    samples: tuple[SampleRecord, ...] = ()
    """At equal intervals while units were read, at most 121."""
    workers: tuple[WorkerRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    parallelism_steps: tuple[StepRecord, ...] | None = field(
        default=None, metadata={OPTIONAL: True}
    )
    """Where the number of workers was steered."""
    warnings: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()
    totals: TotalsRecord
    verified: VerifiedRecord = field(default_factory=VerifiedRecord)
    efficiency: Efficiency | None = field(default=None, metadata={OPTIONAL: True})
    """Where ceilings were given that are of this machine and of what the run did."""
    digest: str | None = field(default=None, metadata={OPTIONAL: True})
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
