"""What a manifest says was asked for: source, columns, options, plan and part, as types."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from unloader.json_fields import KEY, OPTIONAL
from unloader.model import Lossless
from writers.model import Compression, ParquetFormat, TextFormat
from writers.records import dataclass


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
