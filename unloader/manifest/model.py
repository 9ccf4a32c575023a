"""The manifests as types: every key that they have, in the order in which it is written.

`Manifest` describes one table in one output. A run over several tables, or with several outputs,
also has a `TablesManifest` in the directory that contains the directories of all tables.
docs/manifest.md explains the fields; docs/manifest.schema.json and docs/run-manifest.schema.json
are made from these types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, json

from partition_planner.model import PlanPart, Selector
from unloader.events import ParallelismChanged
from unloader.model import FinishedUnit, LakeTable, Lossless, Setting, Snapshot, VerifyLevel
from unloader.placement.evidence import NodeRecord, WorkerRecord
from unloader.transforms.model import Masked, Step
from writers.model import Choice, Compression, ParquetFormat, TextFormat, WrittenFile


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a manifest.

    A field without a default is always written. A field with a default is left out where it has it.
    """


class SourceRecord(Record, frozen=True, kw_only=True):
    """The database."""

    kind: str
    location: str
    server_version: str


class TableRecord(Record, frozen=True, kw_only=True):
    """The table, as the database writes its name."""

    schema: str | None
    name: str


class ColumnRecord(Record, frozen=True, kw_only=True):
    """One column, in the order of the output."""

    name: str
    source_type: str
    output_type: str
    nullable: bool | None
    lossless: Lossless
    note: str
    position: tuple[int, int] | None = None
    """First and last byte in records of fixed width, from 1."""
    text_class: str | None = None
    """The meaning of its text, where there are checksums: number, timestamp, moment or date."""
    masked: Masked | None = None
    changes: tuple[str, ...] | None = None
    """Intended changes of its values except masks, in words."""
    read_from: tuple[str, ...] | None = None
    """The source's columns that it depends on, where it is not the one of its name."""
    clear_values_of: tuple[str, ...] | None = None
    """Columns that are masked, and that this one has values of that are not."""


class EncryptionRecord(Record, frozen=True, kw_only=True):
    """How the files are encrypted, and for whom; public keys alone."""

    method: Literal["age", "parquet"]
    recipients: tuple[str, ...]
    """Public keys of age."""
    key_name: str
    """The name that the user gave to the Parquet key."""
    key_proof: str
    """A salted hash of the Parquet key, which shows whether a key is the right one."""


class OptionsRecord(Record, frozen=True, kw_only=True):
    """The options that decided the output, by the names of the command line."""

    to: str | tuple[str, ...]
    columns: tuple[str, ...]
    exclude: tuple[str, ...]
    where: str | None
    filter: str | None = None
    partition: tuple[str, ...]
    sample: float | None = None
    """A share, 0 to 1."""
    sample_by: str | None = None
    limit_rows: int | None = None
    as_text: tuple[str, ...]
    format: Literal["csv", "parquet"]
    compression: Compression
    compression_library: str | None
    compression_choice: Choice | None
    file_size: int
    file_per: str
    file_name: str
    overwrite: bool
    overlap_buffer: int
    overlap_buffers: int
    checksum: str
    direct_io: bool
    min_free: int
    pause_timeout: float
    fetch_memory: int
    worker_memory: int
    parallelism: int
    """0 is auto."""
    split: str
    unit_bytes: int | None
    consistency: str
    verify: str
    retries: int
    retry_delay: float
    retry_delay_max: float
    stall_timeout: float
    fetch: str
    enable_row_security: bool
    number_without_precision: str
    nanoseconds: str
    zone_columns: bool
    numa: str
    nodes: tuple[int, ...]
    placement: str
    bind: str
    memory_policy: str
    near: str | None
    adaptive: bool | None = None
    """`--parallelism adaptive`; parallelism is 0 then."""
    max_sessions: int | None = None
    max_cpu: float | None = None
    """A share, 0 to 1."""
    max_db_load: int | None = None
    slow_between: str | None = None
    slow_parallelism: int | None = None
    cluster: str | None = None
    """Where the workers were; without it on one machine."""
    dialect: TextFormat | ParquetFormat
    encryption: EncryptionRecord | None = None
    transform: tuple[Step, ...] | None = None
    """The steps that changed the rows, in order."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """The plan."""

    digest: str
    units: int


class SubsetRecord(Record, frozen=True, kw_only=True):
    """A part of the rows, chosen without regard to their values."""

    part: PlanPart | None = None
    """Where the other parts of a plan are other runs."""
    share: float | None = None
    """The sample that was asked for, above 0 and below 1."""
    key: str | None = None
    """The column by whose values it was taken; without one, whole units were."""
    units: int | None = None
    """How many units were taken."""
    of_units: int | None = None
    """How many units the whole was cut into."""
    cost_share: float | None = None
    """The estimated share of the units in the whole, 0 to 1."""
    selectors: tuple[Selector, ...] | None = None
    """The selectors of the units, as in a plan; without selectors that hold values of a column."""
    limit_rows: int | None = None
    """No more rows than these were asked for."""


FORMAT_VERSION = 2
"""Of both kinds of manifest. It rises with every change of the fields."""


class MergedPart(Record, frozen=True, kw_only=True):
    """One of the runs whose files a merged manifest lists."""

    number: int
    directory: str
    """Of its manifest, relative to the directory of this manifest."""
    run_id: str
    units: int
    rows: int
    bytes: int
    files: int
    seconds: float
    digest: str | None
    """Of its manifest: the last line of that file."""


class DirectoryRecord(Record, frozen=True, kw_only=True):
    """One of several directories."""

    path: str
    files: int
    bytes: int


class FailedAttemptRecord(Record, frozen=True, kw_only=True):
    """One attempt that failed."""

    unit: str
    attempt: int
    worker: int
    started_s: float
    seconds: float
    message: str


class SampleRecord(Record, frozen=True, kw_only=True):
    """How far the run was at one time, and how busy the machine has been since the one before."""

    at_s: float
    rows: int
    bytes: int
    busy_workers: int
    cpu_by_node: dict[str, float] | None
    """Of all processes, on the CPUs that the run may use."""


class TotalsRecord(Record, frozen=True, kw_only=True):
    """The whole run."""

    rows: int
    bytes: int
    files: int
    seconds: float
    cpu_seconds: float
    compress_cpu_seconds: float
    uncompressed_bytes: int | None
    rows_per_second: int | None
    bytes_per_second: int | None
    lowest_parallelism: int | None
    peak_worker_rss_bytes: int


class VerifiedRecord(Record, frozen=True, kw_only=True):
    """The checks at the end of the run."""

    level: VerifyLevel
    source_rows: int | None
    filtered_rows: int | None = None
    """Rows that `--filter` left out; the source has these rows and the rows in the files."""
    result: str
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with why, where others were."""


class OtherRoute(Record, frozen=True, kw_only=True):
    """Another output of the run."""

    name: str
    to: str
    """Where its manifest goes."""


class RouteRecord(Record, frozen=True, kw_only=True):
    """One of several outputs of a run, which has read the rows once for all of them."""

    name: str
    others: tuple[OtherRoute, ...]
    dropped: tuple[str, ...]
    """Names of the outputs that had failed when this output was published."""


class EfficiencyPart(Record, frozen=True, kw_only=True):
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


class Efficiency(Record, frozen=True, kw_only=True):
    """A run compared with ceilings of the same machine, places and source."""

    ceilings: str
    """The file."""
    taken_at: str
    parts: tuple[EfficiencyPart, ...]
    not_compared: tuple[str, ...]
    """The parts without a comparison, and why."""


class Manifest(Record, frozen=True, kw_only=True, tag_field="format_version", tag=FORMAT_VERSION):
    """The rows that a run read, their state, the files, and the checks."""

    run_id: str
    unloader_version: str
    status: Literal["complete", "partial"]
    source: SourceRecord
    table: TableRecord | None
    query: str | None
    subset: SubsetRecord | None = None
    """Where the run read a part of the table or query."""
    parts: tuple[MergedPart, ...] | None = None
    """The runs that read a part of the plan each, where their manifests were merged into this."""
    route: RouteRecord | None = None
    """Which output this is of a run that has several."""
    lake_table: LakeTable | None = None
    """The table of a lakehouse that the files become part of, as it was when the run began."""
    snapshot: Snapshot | None
    columns: tuple[ColumnRecord, ...]
    options: OptionsRecord
    settings: tuple[Setting, ...]
    job: str | None = None
    """SHA-256 of the requested job. Two runs with the same value were of the same job."""
    plan: PlanRecord
    directories: tuple[DirectoryRecord, ...] | None = None
    """Where there are several; the first is where the manifest lies."""
    units: tuple[FinishedUnit, ...]
    failed_attempts: tuple[FailedAttemptRecord, ...]
    """Of this process of the run, in the order of their ends; the first 1,000."""
    failed_attempts_left_out: int
    samples: tuple[SampleRecord, ...]
    """At equal intervals while units were read, at most 121."""
    workers: tuple[WorkerRecord, ...]
    nodes: tuple[NodeRecord, ...]
    parallelism_steps: tuple[ParallelismChanged, ...] | None = None
    """Where the number of workers was steered."""
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]
    totals: TotalsRecord
    verified: VerifiedRecord
    efficiency: Efficiency | None = None
    """Where ceilings of this machine and of the same work were given."""
    digest: str | None = None
    """Of all bytes before its line; `manifest_bytes` adds it."""

    @property
    def places(self) -> tuple[str, ...]:
        """The destinations as they were given."""
        to = self.options.to
        return (to,) if isinstance(to, str) else to

    @property
    def files(self) -> dict[str, WrittenFile]:
        """The files by name, in table order; one that several units share comes once."""
        return {file.path: file for unit in self.units for file in unit.files}


class TableEntry(Record, frozen=True, kw_only=True):
    """One table of the run."""

    table: TableRecord | None
    """None for a query."""
    route: str | None = None
    """Which of several outputs of the table it is; each has an entry."""
    directory: str
    """Of its files and its own manifest, as seen from the directory of this one.

    Empty if it is left out."""
    status: Literal["complete", "failed", "left out"]
    """failed: its finished units can be resumed; left out: none of its rows were read."""
    error: str | None = None
    """Why it is not complete."""
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    source_rows: int | None = None
    """As the source counts them at the snapshot."""
    verified: str | None = None
    """As in the manifest of the table; None if it is not complete."""
    units: int | None = None
    """Work units that it was read in."""
    worker_seconds: float | None = None
    """How long workers were busy with it, added up."""
    digest: str | None = None
    """Of the manifest of the table: the last line of that file."""


class TablesRecord(Record, frozen=True, kw_only=True):
    """The options of the run as a whole."""

    to: str
    """Of the directories, with its fields."""
    directory: str
    """The directory of all tables, in which this manifest was written."""
    publish: Literal["table", "run"]
    on_table_failure: Literal["stop", "continue"]


class TablesTotals(Record, frozen=True, kw_only=True):
    """Sums over the tables that are complete."""

    tables: int
    rows: int
    """Of a table with several outputs: the rows that were read once for all of them."""
    filtered_rows: int | None = None
    """Rows that `--filter` left out of tables with one output; None if no such table has one."""
    bytes: int
    files: int
    seconds: float
    cpu_seconds: float


class TablesManifest(
    Record, frozen=True, kw_only=True, tag_field="format_version", tag=FORMAT_VERSION
):
    """A run over several tables."""

    run_id: str
    unloader_version: str
    status: Literal["complete", "partial"]
    """complete: every table is."""
    source: SourceRecord
    snapshot: Snapshot | None
    options: TablesRecord
    settings: tuple[Setting, ...]
    job: str | None = None
    """SHA-256 of the requested job. Two runs with the same value were of the same job."""
    tables: tuple[TableEntry, ...]
    """In the order in which they were asked for."""
    totals: TablesTotals
    digest: str | None = None
    """Of all bytes before its line; `manifest_bytes` adds it."""


ROUTES = "routes"
"""Key of the manifests of several routes."""


class RoutesTotals(Struct, frozen=True, kw_only=True):
    """Figures of a run over all of its outputs."""

    rows: int
    """Read once for all outputs; for a single output, the rows in it."""
    bytes: int
    """Of the files of all."""
    files: int
    seconds: float
    cpu_seconds: float


def totals_of(manifests: Sequence[Manifest]) -> RoutesTotals:
    """Return the figures of a run from the manifests of its outputs."""
    first = manifests[0]
    rows = first.totals.rows
    if len(manifests) > 1:
        rows += first.verified.filtered_rows or 0
    return RoutesTotals(
        rows=rows,
        bytes=sum(each.totals.bytes for each in manifests),
        files=sum(each.totals.files for each in manifests),
        seconds=max(each.totals.seconds for each in manifests),
        cpu_seconds=max(each.totals.cpu_seconds for each in manifests),
    )


def answer(done: Sequence[Manifest] | TablesManifest) -> dict[str, Any]:
    """Return the JSON document of a run: its manifest, or one with the manifest of each route."""
    whole: object = done
    if not isinstance(done, TablesManifest):
        first = whole = done[0]
        if len(done) > 1:
            whole = {
                "run_id": first.run_id,
                "status": first.status,
                "totals": totals_of(done),
                ROUTES: done,
            }
    # As after reading a file: lists, no tuples.
    document: dict[str, Any] = json.decode(json.encode(whole))
    return document
