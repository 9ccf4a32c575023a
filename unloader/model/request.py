"""A whole job as the user requested it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import PlanLimits
from unloader.model.output import OutputOptions
from unloader.model.reading import ValueOptions
from unloader.model.source import Consistency, SourceSpec, TableName

VerifyLevel = Literal["none", "count", "full", "source"]

COMPARING: tuple[VerifyLevel, ...] = ("full", "source")
"""The levels that compare checksums of values, so that workers compute them."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several parts that the work units of a plan are divided into."""

    number: int
    """From 1."""
    of: int


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the source that the user requests."""

    table: TableName | None = None
    query: str | None = None
    query_name: str | None = None
    """The name of the query, in place of the name of a table; None means `query`."""
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str | None = None
    partitions: tuple[str, ...] = ()
    """Glob patterns; empty means all partitions."""
    as_text: tuple[str, ...] = ()
    sample: float | None = None
    """A share above 0 and up to 1; 1 and None mean all rows."""
    sample_by: str | None = None
    """The column whose values decide on the sample; None samples whole work units."""
    limit_rows: int | None = None
    """The most rows; None means all rows."""
    part: Part | None = None
    """The part of a plan that is read here; None means the whole plan."""

    @property
    def sampled_share(self) -> float | None:
        """The requested share; None means everything."""
        return None if self.sample is None or self.sample >= 1 else self.sample


class PlanOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to split the table, and for how many workers."""

    parallelism: int | None = None
    """None means the number of usable CPUs of the machine."""
    split: str = "auto"
    """The same values as `PlanLimits.split`."""
    unit_bytes: int | None = None

    def limits(self, parallelism: int) -> PlanLimits:
        """Return the limits of a plan for this number of workers."""
        from partition_planner.model import PlanLimits

        return PlanLimits(parallelism=parallelism, split=self.split, unit_bytes=self.unit_bytes)


class SeatOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How workers are placed on the machine."""

    numa: Literal["auto", "off", "require"] = "auto"
    nodes: tuple[int, ...] = ()
    """Empty means all nodes."""
    placement: Literal["spread", "close"] = "spread"
    bind: Literal["none", "node", "core"] = "node"
    memory_policy: Literal["local", "preferred", "bind", "interleave"] = "preferred"
    near: str | None = None
    """Network interface, block device or path whose node is preferred among equal nodes."""


Cause = Literal["start", "trial", "faster", "not faster", "limit", "asked"]
"""Why the number of workers changes: a number is tried, was faster, or was not faster and the
previous number is restored; a limit starts or stops to apply; a user requests it."""


class ConcurrencyOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers may work at a time, if the number can change during a run."""

    adaptive: bool = False
    """The number of workers that makes the run fastest, found by measuring."""
    max_sessions: int | None = None
    """Sessions of the run in the database, including the parent; None sets no limit."""
    max_cpu: float | None = None
    """Busy share of the CPUs of this host, 0 to 1, above which fewer work; None does not check."""
    max_db_load: int | None = None
    """All active sessions in the database, including the run; None does not check."""
    slow_between: str | None = None
    """`HH:MM-HH:MM` in local time, when fewer workers work; None means never."""
    slow_parallelism: int = 1
    """The number of workers in these hours."""


class ClusterOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Dask cluster whose workers read the work units."""

    address: str | None = None
    """`tcp://HOST:PORT` or `tls://HOST:PORT` of its scheduler, or `local:N` for a cluster on this
    machine. `none` and None mean that no cluster is used."""
    security: str | None = None
    """Absolute path of the directory or file with the places of certificates and key."""

    @property
    def is_asked(self) -> bool:
        """Whether a cluster is used."""
        return self.address not in (None, "none")


class RetryOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an attempt is repeated, and when it is stalled."""

    retries: int = 3
    delay_seconds: float = 1.0
    """The delay before the first retry; it doubles before each further retry."""
    delay_max_seconds: float = 60.0
    """The longest delay, except for a longer first delay."""
    stall_seconds: float = 300.0
    """The longest time without progress; 0 sets no limit."""


class FixedWidths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records of fixed width; their fields are decided when the columns are known."""

    given: tuple[tuple[str, int], ...] = ()
    """Columns as the user wrote their names, and the bytes of their fields."""


class Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One option that is set, and its origin; for the log, the manifest and the result."""

    name: str
    """Its name in a job file."""
    value: str
    """The value as it was written; never a secret."""
    origin: str = field(name="from")
    """command line, environment variable X, plan file X, or job file X with the entry in it."""
    effect: Literal["selects", "changes", "none"] = "none"
    """selects: fewer or other rows or columns. changes: how the output is written or checked.
    none: neither."""
    from_variable: bool = False
    """A variable sets it for every job in that environment, perhaps not on purpose for this job."""

    @property
    def text(self) -> str:
        """Return the setting and its origin in one line."""
        return f'{self.name} "{self.value}" ({self.origin})'


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several outputs of one scan."""

    name: str
    """The name that the user gave; empty for a single output without a name."""
    output: OutputOptions
    columns: tuple[str, ...] = ()
    """The columns of the output, among the columns that are read."""
    exclude: tuple[str, ...] = ()
    fixed: FixedWidths | None = None
    """The same type as `Request.fixed`."""
    settings: tuple[Setting, ...] = ()
    """Settings of this route alone."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One whole job as the user requested it; it is resolved to a `ResolvedRun`."""

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
    """Memory that a worker may hold after a unit without being replaced; 0 sets no limit."""
    verify: VerifyLevel = "count"
    settings: tuple[Setting, ...] = ()
    """All settings with their origins; their values are also in the fields above."""
    fixed: FixedWidths | None = None
    """The widths of records of fixed width; None for delimited text and Parquet."""
    ceilings: str | None = None
    """Absolute path of a file of ceilings that the run is compared with; None compares nothing."""
    concurrency: ConcurrencyOptions | None = None
    """None means a fixed number of workers without limits."""
    cluster: ClusterOptions | None = None
    """None means workers on this machine."""
    routes: tuple[Route, ...] | None = None
    """All outputs, with `output` as the first; None for a single output with all columns and rows.
    With routes, the selection has no columns: each route has its columns."""
    on_route_failure: Literal["stop", "drop"] | None = None
    """What to do with the other routes when one fails; None means stop."""

    @property
    def uses_cluster(self) -> bool:
        """Whether the units are read by the workers of a cluster."""
        return self.cluster is not None and self.cluster.is_asked

    def of_outputs(self) -> tuple[Request, ...]:
        """Return a request for each output, as if it were the only output."""
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


class TablesOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a run over several tables as a whole."""

    destination: str
    """`--to`, with its fields."""
    overwrite: bool = False
    publish: Literal["table", "run"] = "table"
    """table: each table as soon as it is complete and counted. run: all tables at the end."""
    on_failure: Literal["stop", "continue"] = "stop"
    """What to do with the other tables when one fails."""
    settings: tuple[Setting, ...] = ()
    """Settings of the run with their origins; the request of a table has its further settings."""
    job: str = ""
    """Shows whether another run has the same job; see `unloader.resolve.jobs`."""
    home: str = ""
    """The directory of all tables, where `resume` reads them again; empty follows `--to`."""
    replaces: tuple[str, ...] = ()
    """Interrupted runs of the same job. Their published files in the directories of this run are
    replaced."""


class TableCounts(Struct, frozen=True, kw_only=True):
    """The progress of a run over several tables."""

    total: int
    done: int = 0
    """Published tables."""
    staged: int = 0
    """Complete tables, counted by the source, that are published together with all tables."""
    failed: int = 0
    """Tables that failed or were left out before the first row."""
    left_out: int = 0
    """The part of `failed` that was left out."""
    largest_open: str = ""
    """The largest table with rows still to read, by the estimate of the source."""
