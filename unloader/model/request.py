"""A whole job as the user asked for it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from unloader import json_fields
from unloader.model.output import OutputOptions
from unloader.model.reading import ValueOptions
from unloader.model.source import Consistency, SourceSpec, TableName
from writers.records import dataclass

if TYPE_CHECKING:
    from partition_planner.model import PlanLimits

VerifyLevel = Literal["none", "count", "full", "source"]

COMPARING: tuple[VerifyLevel, ...] = ("full", "source")
"""The levels that compare checksums of values, so that workers compute them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several parts that a plan's work units are shared out to."""

    number: int
    """From 1."""
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user wants out of the source."""

    table: TableName | None = None
    query: str | None = None
    query_name: str | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """What the query is called where a table has its name; None is `query`."""
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
    part: Part | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """The part of a plan that is read here; None is all of it."""

    @property
    def sampled_share(self) -> float | None:
        """The share that is asked for; None is everything."""
        return None if self.sample is None or self.sample >= 1 else self.sample


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
class ClusterOptions:
    """The Dask cluster whose workers read the work units."""

    address: str | None = None
    """`tcp://HOST:PORT` or `tls://HOST:PORT` of its scheduler, `local:N` for one of our own, or
    `none` for none, as None is."""
    security: str | None = None
    """Absolute path of the directory or file that says where certificates and key are."""

    @property
    def is_asked(self) -> bool:
        """Whether there is one."""
        return self.address not in (None, "none")


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
    cluster: ClusterOptions | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """None is workers on this machine."""
    routes: tuple[Route, ...] | None = field(default=None, metadata={json_fields.OPTIONAL: True})
    """Every output, the first one being `output`; None where one output takes all that is read.
    The selection then has no columns: each route has its own."""
    on_route_failure: Literal["stop", "drop"] | None = field(
        default=None, metadata={json_fields.OPTIONAL: True}
    )
    """What becomes of the other routes when one fails; None is stop."""

    @property
    def uses_cluster(self) -> bool:
        """Whether the units are read by the workers of a cluster."""
        return self.cluster is not None and self.cluster.is_asked

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
    """The directory of all tables, where `resume` reads them again; empty follows `--to`."""
    replaces: tuple[str, ...] = ()
    """Broken runs of the same job. What they have published in the run's own directories is
    replaced."""


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
