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
    kind: str
    location: str
    server_version: str


class TableRecord(Record, frozen=True, kw_only=True):
    """The table, as the database writes its name."""

    schema: str | None
    name: str


class ColumnRecord(Record, frozen=True, kw_only=True):
    name: str
    source_type: str
    output_type: str
    nullable: bool | None
    lossless: Lossless
    note: str
    position: tuple[int, int] | None = None
    """First and last byte in records of fixed width, from 1."""
    text_class: str | None = None
    masked: Masked | None = None
    changes: tuple[str, ...] | None = None
    read_from: tuple[str, ...] | None = None
    clear_values_of: tuple[str, ...] | None = None


class EncryptionRecord(Record, frozen=True, kw_only=True):
    """How the files are encrypted, and for whom; public keys alone."""

    method: Literal["age", "parquet"]
    recipients: tuple[str, ...]
    key_name: str
    key_proof: str
    """A salted hash of the Parquet key, which shows whether a key is the right one."""


class OptionsRecord(Record, frozen=True, kw_only=True):
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
    lob_files: tuple[str, ...] = ()
    lob_layout: str = "packed"
    lob_name: str = ""
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
    max_sessions: int | None = None
    max_cpu: float | None = None
    """A share, 0 to 1."""
    max_db_load: int | None = None
    slow_between: str | None = None
    slow_parallelism: int | None = None
    cluster: str | None = None
    dialect: TextFormat | ParquetFormat
    encryption: EncryptionRecord | None = None
    transform: tuple[Step, ...] | None = None


class PlanRecord(Record, frozen=True, kw_only=True):
    digest: str
    units: int


class SubsetRecord(Record, frozen=True, kw_only=True):
    """A part of the rows, chosen without regard to their values."""

    part: PlanPart | None = None
    share: float | None = None
    key: str | None = None
    units: int | None = None
    of_units: int | None = None
    cost_share: float | None = None
    selectors: tuple[Selector, ...] | None = None
    """The selectors of the units, as in a plan; without selectors that hold values of a column."""
    limit_rows: int | None = None


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
    path: str
    files: int
    bytes: int


class FailedAttemptRecord(Record, frozen=True, kw_only=True):
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


class Totals(Record, frozen=True, kw_only=True):
    rows: int
    """Of a table with several outputs: the rows that were read once for all of them."""
    bytes: int
    files: int
    seconds: float
    cpu_seconds: float


class TotalsRecord(Totals, frozen=True, kw_only=True):
    compress_cpu_seconds: float
    uncompressed_bytes: int | None
    rows_per_second: int | None
    bytes_per_second: int | None
    lowest_parallelism: int | None
    peak_worker_rss_bytes: int


class VerifiedRecord(Record, frozen=True, kw_only=True):
    level: VerifyLevel
    source_rows: int | None
    filtered_rows: int | None = None
    result: str
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with why, where others were."""


class OtherRoute(Record, frozen=True, kw_only=True):
    name: str
    to: str


class RouteRecord(Record, frozen=True, kw_only=True):
    """One of several outputs of a run, which has read the rows once for all of them."""

    name: str
    others: tuple[OtherRoute, ...]
    dropped: tuple[str, ...]
    """Names of the outputs that had failed when this output was published."""


class EfficiencyPart(Record, frozen=True, kw_only=True):
    """How near a run came to one ceiling."""

    what: Literal["disk", "source", "encoder", "network"]
    unit: Literal["bytes/s", "rows/s"]
    rate: float
    ceiling: float
    share: float
    basis: str


class Efficiency(Record, frozen=True, kw_only=True):
    """A run compared with ceilings of the same machine, places and source."""

    ceilings: str
    taken_at: str
    parts: tuple[EfficiencyPart, ...]
    not_compared: tuple[str, ...]


class RunRecord(Record, frozen=True, kw_only=True, tag_field="format_version", tag=FORMAT_VERSION):
    """The common fields of the manifests of one table and of several tables."""

    run_id: str
    unloader_version: str
    status: Literal["complete", "partial"]
    source: SourceRecord
    snapshot: Snapshot | None
    settings: tuple[Setting, ...]
    job: str | None = None
    digest: str | None = None
    """Of all bytes before its line; `manifest_bytes` adds it."""


class Manifest(RunRecord, frozen=True, kw_only=True):
    """The rows that a run read, their state, the files, and the checks."""

    table: TableRecord | None
    query: str | None
    subset: SubsetRecord | None = None
    parts: tuple[MergedPart, ...] | None = None
    route: RouteRecord | None = None
    lake_table: LakeTable | None = None
    """The table of a lakehouse that the files become part of, as it was when the run began."""
    columns: tuple[ColumnRecord, ...]
    options: OptionsRecord
    plan: PlanRecord
    directories: tuple[DirectoryRecord, ...] | None = None
    """Where there are several; the first is where the manifest lies."""
    units: tuple[FinishedUnit, ...]
    failed_attempts: tuple[FailedAttemptRecord, ...]
    failed_attempts_left_out: int
    samples: tuple[SampleRecord, ...]
    """At equal intervals while units were read, at most 121."""
    workers: tuple[WorkerRecord, ...]
    nodes: tuple[NodeRecord, ...]
    parallelism_steps: tuple[ParallelismChanged, ...] | None = None
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]
    totals: TotalsRecord
    verified: VerifiedRecord
    efficiency: Efficiency | None = None

    @property
    def places(self) -> tuple[str, ...]:
        to = self.options.to
        return (to,) if isinstance(to, str) else to

    @property
    def files(self) -> dict[str, WrittenFile]:
        """The files by name, in table order; one that several units share comes once."""
        return {file.path: file for unit in self.units for file in unit.files}


class TableEntry(Record, frozen=True, kw_only=True):
    table: TableRecord | None
    route: str | None = None
    directory: str
    """Of its files and its own manifest, as seen from the directory of this one.

    Empty if it is left out."""
    status: Literal["complete", "failed", "left out"]
    error: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    source_rows: int | None = None
    verified: str | None = None
    units: int | None = None
    worker_seconds: float | None = None
    digest: str | None = None


class TablesRecord(Record, frozen=True, kw_only=True):
    to: str
    directory: str
    publish: Literal["table", "run"]
    on_table_failure: Literal["stop", "continue"]


class TablesTotals(Totals, frozen=True, kw_only=True):
    """Sums over the tables that are complete."""

    tables: int
    filtered_rows: int | None = None


class TablesManifest(RunRecord, frozen=True, kw_only=True):
    options: TablesRecord
    tables: tuple[TableEntry, ...]
    totals: TablesTotals


ROUTES = "routes"
"""Key of the manifests of several routes."""


def totals_of(manifests: Sequence[Manifest]) -> Totals:
    """Return the figures of a run over all of its outputs."""
    first = manifests[0]
    rows = first.totals.rows
    if len(manifests) > 1:
        rows += first.verified.filtered_rows or 0
    return Totals(
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
