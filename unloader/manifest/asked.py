"""What a manifest says was asked for: source, columns, options, plan and part, as types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from unloader.json_fields import OPTIONAL
from unloader.model import Lossless
from writers.model import Compression, ParquetFormat, TextFormat


class SourceRecord(Struct, frozen=True, kw_only=True):
    """The database."""

    kind: str = ""
    location: str = ""
    server_version: str = ""


class TableRecord(Struct, frozen=True, kw_only=True):
    """The table, as the database writes its name."""

    schema: str | None
    name: str


class MaskedRecord(Struct, frozen=True, kw_only=True):
    """How a column is masked; never the key."""

    method: str
    """As `--mask` says it; derived: computed from masked columns."""
    detail: str
    """Options of the method."""
    key_name: Annotated[str | None, OPTIONAL] = None
    key_proof: Annotated[str | None, OPTIONAL] = None
    """A salted hash of the key, which tells whether a key is the right one."""


class ColumnRecord(Struct, frozen=True, kw_only=True):
    """One column, in the order of the output."""

    name: str
    source_type: str
    output_type: str
    nullable: bool | None
    lossless: Lossless
    note: str
    position: Annotated[tuple[int, int] | None, OPTIONAL] = None
    """First and last byte in records of fixed width, from 1."""
    text_class: Annotated[str | None, OPTIONAL] = None
    """What its text stands for, where there are checksums: number, timestamp, moment or date."""
    masked: Annotated[MaskedRecord | None, OPTIONAL] = None
    changes: Annotated[tuple[str, ...] | None, OPTIONAL] = None
    """What was done to it on purpose, in words, masks aside."""
    read_from: Annotated[tuple[str, ...] | None, OPTIONAL] = None
    """The source's columns that it depends on, where it is not the one of its name."""
    clear_values_of: Annotated[tuple[str, ...] | None, OPTIONAL] = None
    """Columns that are masked, and that this one has values of that are not."""


class FiguresRecord(Struct, frozen=True, kw_only=True):
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


class ChoiceRecord(Struct, frozen=True, kw_only=True):
    """How a preset chose its codec."""

    preset: str
    codec: str
    level: int | None
    reason: str
    disk_bytes_per_second: int | None
    candidates: tuple[FiguresRecord, ...]


class EncryptionRecord(Struct, frozen=True, kw_only=True):
    """How the files are encrypted, and for whom; public keys alone."""

    method: Literal["age", "parquet"]
    recipients: tuple[str, ...] = ()
    """Public keys of age."""
    key_name: str = ""
    """What the user calls the Parquet key."""
    key_proof: str = ""
    """A salted hash of the Parquet key, which tells whether a key is the right one."""


class OptionsRecord(Struct, frozen=True, kw_only=True):
    """The options that decided what was written, by the names of the command line."""

    to: str | tuple[str, ...] = ""
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str | None = None
    filter: Annotated[str | None, OPTIONAL] = None
    partition: tuple[str, ...] = ()
    sample: Annotated[float | None, OPTIONAL] = None
    """A share, 0 to 1."""
    sample_by: Annotated[str | None, OPTIONAL] = None
    limit_rows: Annotated[int | None, OPTIONAL] = None
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
    adaptive: Annotated[bool | None, OPTIONAL] = None
    """`--parallelism adaptive`; parallelism is 0 then."""
    max_sessions: Annotated[int | None, OPTIONAL] = None
    max_cpu: Annotated[float | None, OPTIONAL] = None
    """A share, 0 to 1."""
    max_db_load: Annotated[int | None, OPTIONAL] = None
    slow_between: Annotated[str | None, OPTIONAL] = None
    slow_parallelism: Annotated[int | None, OPTIONAL] = None
    cluster: Annotated[str | None, OPTIONAL] = None
    """Where the workers were; without it on one machine."""
    dialect: TextFormat | ParquetFormat
    encryption: Annotated[EncryptionRecord | None, OPTIONAL] = None
    transform: Annotated[tuple[dict[str, Any], ...] | None, OPTIONAL] = None
    """What was done to the rows, step by step."""


class SettingRecord(Struct, frozen=True, kw_only=True):
    """One option that was set somewhere."""

    name: str
    value: str
    origin: str = field(name="from")


class PlanRecord(Struct, frozen=True, kw_only=True):
    """The plan."""

    digest: str = ""
    units: int = 0


class PartRecord(Struct, frozen=True, kw_only=True):
    """Which part of a plan was read."""

    number: int
    """From 1."""
    of: int
    of_units: int
    """How many work units all parts have."""
    plan_digest: str
    """Of the plan that all parts are of."""


class SubsetRecord(Struct, frozen=True, kw_only=True):
    """A part of the rows, chosen with no regard to what is in them."""

    part: Annotated[PartRecord | None, OPTIONAL] = None
    """Where the other parts of a plan are other runs."""
    share: Annotated[float | None, OPTIONAL] = None
    """The sample that was asked for, above 0 and below 1."""
    key: Annotated[str | None, OPTIONAL] = None
    """The column by whose values it was taken; without one, whole units were."""
    units: Annotated[int | None, OPTIONAL] = None
    """How many units were taken."""
    of_units: Annotated[int | None, OPTIONAL] = None
    """How many units the whole was cut into."""
    cost_share: Annotated[float | None, OPTIONAL] = None
    """What the units were estimated to be of the whole, 0 to 1."""
    selectors: Annotated[tuple[dict[str, Any], ...] | None, OPTIONAL] = None
    """What the units read, as a plan has it; none are kept that hold values of a column."""
    limit_rows: Annotated[int | None, OPTIONAL] = None
    """No more rows than these were asked for."""
