"""The manifest as types: every key that it has, in the order in which it is written.

docs/manifest.md explains the fields; docs/manifest.schema.json is made from these types.
"""

from __future__ import annotations

from typing import Literal

from unloader.events import ParallelismChanged
from unloader.manifest.asked import (
    ColumnRecord,
    OptionsRecord,
    PlanRecord,
    Record,
    SourceRecord,
    SubsetRecord,
    TableRecord,
)
from unloader.model import FinishedUnit, LakeTable, Setting, Snapshot, VerifyLevel
from unloader.placement.evidence import NodeRecord, WorkerRecord
from unloader.tuning.ceiling_records import Efficiency
from writers.model import WrittenFile

FORMAT_VERSION = 2
"""Of both kinds of manifest. It rises with every change of the fields."""


class MergedPart(Record, frozen=True, kw_only=True):
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
    """What was checked when the run ended."""

    level: VerifyLevel
    source_rows: int | None
    filtered_rows: int | None = None
    """Rows that `--filter` left out: with those in the files they are what the source has."""
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
    """Names of those that had failed when this one was published."""


class Manifest(Record, frozen=True, kw_only=True, tag_field="format_version", tag=FORMAT_VERSION):
    """What a run read, from which state, into which files, and what was checked."""

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
    """SHA-256 of what was asked for. Two runs that have the same were of the same job."""
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
    """Where ceilings were given that are of this machine and of what the run did."""
    digest: str | None = None
    """Of all bytes before its line; `manifest_bytes` adds it."""

    @property
    def files(self) -> dict[str, WrittenFile]:
        """The files by name, in table order; one that several units share comes once."""
        return {file.path: file for unit in self.units for file in unit.files}
