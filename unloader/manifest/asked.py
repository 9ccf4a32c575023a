"""What a manifest says was asked for: source, columns, options, plan and part, as types."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from partition_planner.model import PlanPart, Selector
from unloader.model import Lossless
from unloader.transforms.model import Masked, Step
from writers.codecs.choice import Choice
from writers.model import Compression, ParquetFormat, TextFormat


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
    """What its text stands for, where there are checksums: number, timestamp, moment or date."""
    masked: Masked | None = None
    changes: tuple[str, ...] | None = None
    """What was done to it on purpose, in words, masks aside."""
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
    """What the user calls the Parquet key."""
    key_proof: str
    """A salted hash of the Parquet key, which tells whether a key is the right one."""


class OptionsRecord(Record, frozen=True, kw_only=True):
    """The options that decided what was written, by the names of the command line."""

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
    """What was done to the rows, step by step."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """The plan."""

    digest: str
    units: int


class SubsetRecord(Record, frozen=True, kw_only=True):
    """A part of the rows, chosen with no regard to what is in them."""

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
    """What the units were estimated to be of the whole, 0 to 1."""
    selectors: tuple[Selector, ...] | None = None
    """What the units read, as a plan has it; none are kept that hold values of a column."""
    limit_rows: int | None = None
    """No more rows than these were asked for."""
