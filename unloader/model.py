"""The types that travel between command line, engine and workers.

All are frozen, picklable and built of plain data: a worker process receives nothing else. No
secret is stored in any of them; `SecretReference` says where one is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from unloader import json_fields
from writers.model import (
    PLAIN,
    Checksum,
    Compression,
    ContentSums,
    EncoderChoice,
    Encryption,
    OutputSpec,
    ParquetFormat,
    TextFormat,
    WrittenFile,
)

if TYPE_CHECKING:
    # Not for the program: a help page imports this module, and needs none of them.
    from partition_planner.model import PlanLimits, TableInfo, WorkUnit
    from unloader.transforms.model import TransformOptions
    from writers.codecs.choice import Preset

Consistency = Literal["snapshot", "none"]
VerifyLevel = Literal["none", "count", "full", "source"]
COMPARING: tuple[VerifyLevel, ...] = ("full", "source")
"""The levels that compare checksums of values, so that workers compute them."""
FilePer = Literal["unit", "table"]
Fetch = Literal["auto", "arrow", "tuples"]
Nanoseconds = Literal["string", "timestamp"]
Lossless = bool | Literal["masked", "changed"]
"""Whether a column has the source's values. masked, changed: it has others on purpose."""


def late_types() -> dict[str, Any]:
    """Return the types of fields that are imported for type checks alone; see `json_fields`."""
    from partition_planner.model import TableInfo, WorkUnit
    from unloader.transforms.model import TransformOptions
    from writers.codecs.choice import Preset

    return {
        "Preset": Preset,
        "TableInfo": TableInfo,
        "TransformOptions": TransformOptions,
        "WorkUnit": WorkUnit,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """Where the password is found, so that parent and children each look there themselves."""

    kind: Literal["none", "environment", "file", "keyring"] = "none"
    name: str = ""
    """The environment variable, the absolute path of the file, or `SERVICE/USER` in a keyring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How the sessions of a run are opened and kept; a source uses what it knows of.

    `Source.options` names the fields a source knows; others must keep their defaults.
    """

    fetch: Fetch = "auto"
    """arrow: the driver builds the batches; tuples: rows of Python values, which we convert."""
    scn: int | None = None
    """The system change number to read at, instead of the present one."""
    session_sql: tuple[str, ...] = ()
    """Statements that each new session runs before anything else."""
    parallel_query: bool = False
    """The database may use parallel servers of its own for our statements."""
    direct_read: bool = True
    """Ask for reads that go past the database's buffer cache."""
    call_timeout_seconds: float = 0.0
    """Longest wait for one answer of the database; 0 is none of its own."""
    client_library: str | None = None
    """Directory of the vendor's client library, "" for where it is usually found, None for none."""
    enable_row_security: bool = False
    """Policies of row level security may choose the rows; without it they are an error."""
    lock_timeout_seconds: float = 30.0
    """Longest wait for a lock that another session holds; 0 is as the server is set."""
    keep_snapshot_seconds: float = 0.0
    """How long the snapshot of a run that died is kept, from when it was taken; 0 is not at all."""
    snapshot: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """The value of the snapshot that the parent enters; None takes a new one. Set for one process,
    by `Source.at_snapshot`, and never part of a run."""
    run_id: str = ""
    """Names the run in the database's list of sessions; empty outside a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """One database: its kind (a key of the source registry) and where it is."""

    kind: str
    location: str
    """The URL as the user gave it; it never holds a password."""
    secret: SecretReference = field(
        default_factory=SecretReference,
        # What follows the word "secret" is taken for one, and hidden.
        metadata={json_fields.KEY: "credential"},
    )
    session: SessionOptions = field(default_factory=SessionOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePart:
    """One part of a table or column name as the user wrote it."""

    text: str
    quoted: bool = False
    """Quoted names match exactly; plain ones as the database folds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """`NAME` or `SCHEMA.NAME` as the user wrote it; a source resolves it."""

    schema: NamePart | None
    name: NamePart

    def __str__(self) -> str:
        """Return the name as typed, without its quotes."""
        return f"{self.schema.text}.{self.name.text}" if self.schema else self.name.text


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One line of the list of tables."""

    schema: str | None
    name: str
    kind: str
    """table, partitioned table, view, ... as the source calls it."""
    rows: int | None
    bytes: int | None
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The one consistent point that every worker reads at."""

    kind: str
    """The source's own word for what it is, such as scn; `none` where there is none."""
    value: str
    """What a worker needs to enter it."""
    taken_at: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumn:
    """One column of the output: how it is read and what becomes of it."""

    name: str
    source_type: str
    expression: str
    """SQL of the select list, without the alias."""
    output_type: str
    """The Arrow type in Parquet, `text` where the database itself renders the value."""
    nullable: bool | None
    lossless: Lossless
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of a run, fixed once by the parent for all workers."""

    columns: tuple[ReadColumn, ...]
    route: Literal["arrow", "encoded"]
    """arrow: record batches; encoded: the source renders the very text asked for."""
    schema: bytes
    """The Arrow schema of the batches as an IPC message; empty on the encoded route."""
    outputs: tuple[tuple[int, ...], ...] = ()
    """Which of the columns each output takes, by index; empty where there is one output, of all."""
    filters: tuple[tuple[int, ...], ...] | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """Which of the columns the filter of each output looks at; None where no output has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """What becomes of values that the usual Arrow types cannot hold.

    `Source.options` names the fields a source knows; others must keep their defaults.
    """

    number_without_precision: str = "string"
    """In Parquet: string, double, or decimal(p,s)."""
    nanoseconds: Nanoseconds = "string"
    """In Parquet, of timestamps with 7 to 9 digits of a second: string, or timestamp[ns]."""
    zone_columns: bool = False
    """In Parquet, a second column with the zone of each timestamp with time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledKeys:
    """Only rows whose key is in a sample are read; the same keys of every table and source.

    `unloader.sources.sampling` defines which keys those are.
    """

    column: str
    """The column that holds the key."""
    share: float
    """Of all keys that there may be, above 0 and below 1."""
    text: str
    """SQL for the key's text; NULL or empty where a row has no key."""
    condition: str
    """SQL that is true for the rows of the sample; empty where readers choose the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """What is read, apart from the cut into units; the same for every worker."""

    source: SourceSpec
    snapshot: Snapshot | None
    table: TableInfo
    query: str | None
    where: str | None
    partitions: tuple[str, ...] = ()
    """Patterns of the partitions asked for; empty is all. They say what rows there must be: which
    are read is in the units' selectors."""
    keys: SampledKeys | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """None is the rows of all keys."""
    limit_rows: int | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """No more rows than these are read, whichever come first; there is one unit then."""
    projection: Projection

    @property
    def is_plain(self) -> bool:
        """Whether a table is read, or its rows for which `where` holds, and nothing else."""
        return not (self.query or self.partitions or self.keys or self.limit_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTask:
    """One output of a unit: the files that its rows go to."""

    spec: OutputSpec
    stem: str
    """Start of the staging names, unique to the attempt."""
    header: bytes = b""
    """What an encoded file begins with; on the batch route the writer makes its own."""
    writes_header: bool = True
    """False for text files that will be joined behind one header."""
    encryption: EncryptionOptions | None = None
    """Says where the worker finds the key of Parquet files."""
    reader_seconds: float | None = None
    """Longest wait for somebody to open `spec.stream` for reading, 0 being for ever; None does not
    wait."""
    drops: Literal["nothing", "bytes", "rows"] = "nothing"
    """bytes: `spec.stream` keeps nothing; rows: they are dropped before they are encoded."""
    transform: TransformOptions | None = None
    """What is done to the rows before they are encoded; its keys have their proofs."""
    number: int = 0
    """Of the output among those of the run."""
    filter: str | None = None
    """Only rows for which this condition holds; None is all that are read."""
    route: str = ""
    """What the output is called in errors, where there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTask:
    """One attempt at one work unit: everything a worker needs."""

    unit: WorkUnit
    attempt: int
    """1 for the first."""
    extract: Extract
    outputs: tuple[OutputTask, ...]
    fetch_bytes: int
    """Memory of one array fetch."""
    checksums: bool = False
    """Compute checksums of the values as they are fetched."""
    drops_outputs: bool = False
    """An output that fails is given up, and the others go on."""
    name: str = ""
    """Tells the unit from all of the run, where its id alone does not: in a run over several tables
    many have the same. Empty where it does."""

    @property
    def run_unit(self) -> str:
        """The unit as the parent's orders name it."""
        return self.name or self.unit.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Preload:
    """Asks a worker to load what it will need; its answer is None."""

    source_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Asks an idle worker to close its session; its answer is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """Tells a worker at an attempt to hold up its fetch, or to go on with it."""

    unit: str
    attempt: int
    paused: bool


Waits = Literal["nothing", "source", "destination", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitProgress:
    """What a worker tells while it works."""

    unit: str
    rows: int
    bytes: int
    waiting_for: str = ""
    """What must come before the first row: the pipe whose reader is missing."""
    waits_for: Waits = "nothing"
    """Whom it has mostly waited for since it last told, or waits for now and for a second; `limit`
    while its fetch is held up by an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoad:
    """CPU seconds of one unit's stages, and how long one waited for the other.

    Each stage has a thread of its own, whose clock is read.
    """

    fetch_cpu_s: float
    encode_cpu_s: float
    """Parquet compresses while it encodes."""
    write_cpu_s: float
    """Checksums of files included."""
    process_cpu_s: float
    """Of the whole process in the time of the unit; what is in no stage is the driver's threads."""
    starved_s: float
    """Wall seconds that encoding waited for the source."""
    fetch_blocked_s: float
    """Wall seconds that fetching stood still because encoding took nothing."""
    encode_blocked_s: float
    """The same of encoding, for compressing or writing."""
    compress_blocked_s: float
    """The same of compressing, for writing."""
    longest_blocked_s: float
    """The longest single one of the last three."""
    closing_s: float
    """Wall seconds that the unit waited until its files were written and synced, after its last
    row."""
    fetch_delay_s: float
    """Seconds that the thread of this stage was ready to run and no CPU was free; 0 where the
    system does not tell (`writers.cpu_delay`)."""
    encode_delay_s: float
    compress_delay_s: float
    write_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Wall seconds of one unit's stages; they overlap, so their sum may exceed the whole."""

    fetch_s: float
    encode_s: float
    """Parquet compresses while it encodes."""
    write_s: float
    compress_s: float = 0.0
    compress_cpu_s: float = 0.0
    """CPU seconds of the same."""
    uncompressed_bytes: int | None = None
    """Of the output before it was compressed; None where that is not counted."""
    load: StageLoad | None = field(default=None, metadata={json_fields.OPTIONAL: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputResult:
    """What one of several outputs has of a finished unit."""

    number: int
    """Of the output among those of the run."""
    rows: int
    """As its writer has counted them."""
    filtered: int | None
    """Rows that its filter left out; None where it has none."""
    files: tuple[WrittenFile, ...]
    stages: Stages
    """What is not its own, such as fetching, is that of all outputs together."""
    content: ContentSums | None = None
    """Checksums of the values of its rows, where they were asked for."""
    failure: AttemptFailure | None = None
    """Why it was given up; it has no files then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """A finished unit: its staged files and what it took."""

    unit: str
    attempt: int
    rows: int
    files: tuple[WrittenFile, ...]
    stages: Stages
    seconds: float
    cpu_seconds: float
    """Of the worker's process since its last result, its start-up being part of the first."""
    peak_rss_bytes: int
    """Of the worker's process so far."""
    content: ContentSums | None = None
    """Checksums of the values, where they were asked for: as they were fetched, or as a transform
    left them."""
    filtered: int | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Rows that a filter left out behind the source; None where there is no filter."""
    outputs: tuple[OutputResult, ...] | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """Of each output where there are several: the rows above are then those that were read."""

    @property
    def scanned(self) -> int:
        """The rows that were read."""
        return self.rows + (self.filtered or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """Why an attempt at a task failed, as data: made and read by `unloader.failures` alone."""

    error: str
    """Name of the class in `unloader.errors`."""
    message: str
    hint: str
    retryable: bool
    """Another attempt may do better."""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user wants out of the source."""

    table: TableName | None = None
    query: str | None = None
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str | None = None
    partitions: tuple[str, ...] = ()
    """Glob patterns; empty is all."""
    as_text: tuple[str, ...] = ()
    sample: float | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """A share, above 0 and up to 1, which is all; None is all, too."""
    sample_by: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """The column by whose values rows are sampled; None takes whole work units."""
    limit_rows: int | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """No more rows than these; None is all."""

    @property
    def sampled_share(self) -> float | None:
        """The share that is asked for; None is everything."""
        return None if self.sample is None or self.sample >= 1 else self.sample


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionOptions:
    """How files are encrypted. It says where keys are found, and holds no private one."""

    recipients: tuple[str, ...] = ()
    """Public keys of age, for text."""
    key: SecretReference = field(default_factory=SecretReference)
    """Where the key of Parquet files is found; nowhere for text."""
    key_name: str = ""
    """What the user calls it."""
    key_proof: str = ""
    """Tells whether a key is the same, without telling what it is; empty until the run begins."""
    identity: SecretReference = field(default_factory=SecretReference)
    """Where the private keys of age are found that read the files again."""

    @property
    def keyed(self) -> bool:
        """Whether Parquet is encrypted with a key."""
        return self.key.kind != "none"

    def public(self) -> Encryption:
        """Return the part that writers are told of."""
        return Encryption(recipients=self.recipients, keyed=self.keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where and how the output is written."""

    destination: str
    """A directory, `-` for standard output, `pipe:` and the path of a named pipe, or `null:`;
    empty where nothing is written."""
    format: TextFormat | ParquetFormat
    """As the options say: names of columns as they were typed, and no fields of fixed width."""
    compression: Compression | Preset = field(default_factory=Compression)
    """A codec, or how one is to be chosen by measuring."""
    file_per: FilePer = "unit"
    file_name: str = "{table}.{unit}{part}.{ext}"
    file_size_bytes: int = 0
    """Start a new file once this many bytes are written; 0 is never."""
    overwrite: bool = False
    others: tuple[str, ...] = ()
    """Further directories that the files are spread over."""
    keep: int | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Finished runs that stay in the directories beside this one, itself included; None is all."""
    latest_link: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Name of a symbolic link, beside the directory, that is to lead to the newest run."""
    pipe_seconds: float = 300.0
    """Longest wait for the reader of a pipe; 0 is for ever."""
    buffer_bytes: int = 4 * 1024 * 1024
    buffers: int = 4
    """Output buffers in flight between encoder and I/O thread."""
    checksum: Checksum = "xxh3"
    mode: int | None = None
    """Rights of files; None is as the umask has it."""
    owner_group: str = ""
    """`[USER][:GROUP]` of files and directories."""
    direct_io: bool = False
    min_free_bytes: int = 0
    """What must stay free on the disk of each directory: the run waits for it. 0 does not look."""
    pause_seconds: float = 3600.0
    """Longest such wait."""
    encoder: EncoderChoice = "auto"
    encryption: EncryptionOptions | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """None is files that everybody can read who may open them."""
    transform: TransformOptions | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """What is done to the rows before they are written; None writes them as they are read."""
    filter: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """A condition in DuckDB's SQL on the rows that are read; None takes all of them."""

    @property
    def destinations(self) -> tuple[str, ...]:
        """All directories, the one of the manifest first."""
        return (self.destination, *self.others)

    def spec(
        self, directory: str, shape: TextFormat | ParquetFormat, compression: Compression
    ) -> OutputSpec:
        """Return what a writer is given that writes into a directory in this way."""
        return OutputSpec(
            directory=directory,
            format=shape,
            compression=compression,
            file_size_bytes=self.file_size_bytes,
            buffer_bytes=self.buffer_bytes,
            buffers=self.buffers,
            checksum=self.checksum,
            direct_io=self.direct_io,
            encoder=self.encoder,
            encryption=self.encryption.public() if self.encryption else PLAIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How the table is to be cut, and for how many workers."""

    parallelism: int | None = None
    """None is as many as the machine has usable CPUs."""
    split: str = "auto"
    """As `PlanLimits.split`."""
    unit_bytes: int | None = None

    def limits(self, parallelism: int) -> PlanLimits:
        """Return the limits of a plan for so many workers."""
        from partition_planner.model import PlanLimits

        return PlanLimits(parallelism=parallelism, split=self.split, unit_bytes=self.unit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatOptions:
    """How workers are placed on the machine."""

    numa: Literal["auto", "off", "require"] = "auto"
    nodes: tuple[int, ...] = ()
    """Empty is all."""
    placement: Literal["spread", "close"] = "spread"
    bind: Literal["none", "node", "core"] = "node"
    memory_policy: Literal["local", "preferred", "bind", "interleave"] = "preferred"
    near: str | None = None
    """Network interface, block device or path whose node is preferred among equals; None = none."""


Cause = Literal["start", "trial", "faster", "not faster", "limit", "asked"]
"""Why another number of workers works: a number is tried, was found faster, or was not and the one
before it is taken again; a limit begins or ends to hold; somebody asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyOptions:
    """How many workers may work at a time, where that may change while a run goes on."""

    adaptive: bool = False
    """As many as make the run fastest, found by measuring."""
    max_sessions: int | None = None
    """Sessions of the run in the database, the parent's own included; None is no limit."""
    max_cpu: float | None = None
    """Busy share of the CPUs of this host, 0 to 1, above which fewer work; None does not look."""
    max_db_load: int | None = None
    """Active sessions in the database, those of others and ours together; None does not look."""
    slow_between: str | None = None
    """`HH:MM-HH:MM` in local time, when fewer work; None is never."""
    slow_parallelism: int = 1
    """How many work then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """When an attempt is repeated, and when it counts as stalled."""

    retries: int = 3
    delay_seconds: float = 1.0
    """Before the first repetition; doubled before each further one."""
    delay_max_seconds: float = 60.0
    """No delay is longer, unless the first one is."""
    stall_seconds: float = 300.0
    """Without any progress; 0 is never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWidths:
    """Records of fixed width are asked for; their fields are decided when the columns are known."""

    given: tuple[tuple[str, int], ...] = ()
    """Columns as the user wrote their names, and the bytes of their fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option that somebody has set, and where; for the log, the manifest and the result."""

    name: str
    """As in a job file."""
    value: str
    """As it was written; never a secret."""
    origin: str
    """command line, environment variable X, job file X or plan file X."""
    effect: Literal["selects", "changes", "none"] = "none"
    """selects: fewer rows or columns, or others; changes: how the output is written or checked;
    none: neither."""
    from_variable: bool = False
    """Set for every job that is started there, and maybe not meant for this one."""

    @property
    def text(self) -> str:
        """Return the setting and its origin in one line."""
        return f'{self.name} "{self.value}" ({self.origin})'


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One of several outputs of one scan."""

    name: str
    """As the user calls it; empty where the only output has no name."""
    output: OutputOptions
    columns: tuple[str, ...] = ()
    """As `Selection.columns`, of what is read."""
    exclude: tuple[str, ...] = ()
    fixed: FixedWidths | None = None
    """As `Request.fixed`."""
    settings: tuple[Setting, ...] = ()
    """What was set for it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One whole job as the user asked for it; what comes of it is a `ResolvedRun`."""

    source: SourceSpec
    selection: Selection
    output: OutputOptions
    limits: PlanOptions = field(default_factory=PlanOptions)
    seats: SeatOptions = field(default_factory=SeatOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    consistency: Consistency = "snapshot"
    values: ValueOptions = field(default_factory=ValueOptions)
    fetch_bytes: int = 32 * 1024 * 1024
    worker_memory_bytes: int = 0
    """What a worker may hold after a unit without being replaced; 0 is any amount."""
    verify: VerifyLevel = "count"
    settings: tuple[Setting, ...] = ()
    """What was set, and where; everything of it is in the fields above, too."""
    fixed: FixedWidths | None = None
    """For records of fixed width; None for delimited text and Parquet."""
    ceilings: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Absolute path of a file of ceilings that the run is compared with; None compares nothing."""
    concurrency: ConcurrencyOptions | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """None is a fixed number of workers without limits."""
    routes: tuple[Route, ...] | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Every output, the first one being `output`; None where one output takes all that is read.
    The selection then has no columns: each route has its own."""
    on_route_failure: Literal["stop", "drop"] | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """What becomes of the other routes when one fails; None is stop."""

    def of_outputs(self) -> tuple[Request, ...]:
        """Return what each output would be asked for as the only one."""
        if self.routes is None:
            return (self,)
        return tuple(
            replace(
                self,
                output=route.output,
                selection=replace(self.selection, columns=route.columns, exclude=route.exclude),
                fixed=route.fixed,
                settings=(*self.settings, *route.settings),
                routes=None,
                on_route_failure=None,
            )
            for route in self.routes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesOptions:
    """What is said of a run over several tables as a whole."""

    destination: str
    """`--to`, with its fields."""
    overwrite: bool = False
    publish: Literal["table", "run"] = "table"
    """table: each as soon as it is whole and counted; run: all at the end."""
    on_failure: Literal["stop", "continue"] = "stop"
    """What becomes of the other tables when one fails."""
    settings: tuple[Setting, ...] = field(default=(), metadata={json_fields.OPTIONAL: True})
    """What was set for the run, and where; what one table adds stands in its request."""
    job: str = ""
    """Tells whether another run was asked for the same; see `unloader.resolve.tables.same`."""
    home: str = ""
    """The directory of all tables, of a run in the place of a broken one; empty follows `--to`."""
    replaces: tuple[str, ...] = ()
    """Broken runs in whose place it is: what they have published is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """How far a run over several tables is with them."""

    total: int
    done: int = 0
    """Published."""
    staged: int = 0
    """Whole and counted by the source, but published only together with all others."""
    failed: int = 0
    """Or left out."""
    largest_open: str = ""
    """The largest one of which rows are still to be read, by the source's estimate."""
