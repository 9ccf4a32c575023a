"""A whole job as the user requested it: rows, columns, outputs and limits."""

from __future__ import annotations

from functools import partial
from os.path import abspath
from typing import Annotated, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.model.output import OutputOptions
from unloader.model.source import Consistency, SourceSpec, TableName, ValueOptions
from unloader.request.option import ONE_VALUE, PLANNING, READING, Option
from unloader.request.settings import Part
from unloader.request.value_types import (
    CLUSTER,
    COUNT,
    FILE,
    GLOBS,
    HOURS,
    NAMES,
    NUMBERS,
    PART,
    RUN_PARALLELISM,
    SECONDS,
    SHARE,
    SIZE,
    SIZE_FROM_1,
    TABLES,
    Kind,
    choice,
    path,
    whole,
)

_QUERY = "unloader run duckdb:///data/sales.db --query 'SELECT ID FROM ORDERS' \\\n   "
_QUERY_NAME = f"{_QUERY} --query-name ids --to '/extract/{{table}}'"
_PARTITION = (
    "unloader run oracle://etl@db01/SALES --table ORDERS --to /extract \\\n    --partition 'P2026*'"
)

_selection = partial(
    Option, group="Selection", commands=PLANNING, effect="selects", scope="table", planned=True
)
_rows = partial(_selection, commands=READING)
_columns = partial(_rows, kind=NAMES, scope="route", empty=True)
_limit = partial(
    Option, group="Speed", commands=READING, effect="none", scope="table", planned=True
)
_seat = partial(Option, group="Placement", commands=(*READING, "topology"), effect="none")
_concurrency = partial(Option, group="Speed", commands=READING, effect="none")
_cluster = partial(Option, group="Cluster", commands=("run", "preflight"), effect="none")
_retry = partial(Option, group="Safety", commands=READING, effect="none")
_option = partial(Option, group="Speed", commands=ONE_VALUE, effect="changes")
_safety = partial(Option, group="Safety", commands=READING, effect="changes")


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the source that the user requests."""

    table: Annotated[
        TableName | None,
        _selection(
            Kind("T"),
            commands=("describe", "codecs", "preflight", "sweep"),
            effect="changes",
            common=True,
            example="ORDERS",
            text="Table or view: NAME or SCHEMA.NAME. Put double quotes around a name that is not "
            "plain.",
        ),
        _selection(
            TABLES,
            effect="changes",
            common=True,
            example="ORDERS",
            text="Table, view or pattern such as 'SALES.*'. Write NAME or SCHEMA.NAME, with double "
            "quotes around a name that is not plain. Repeat the option for several tables. All "
            "tables are read at one snapshot.",
        ),
    ] = None
    query: Annotated[str | None, _rows(Kind("SQL"), common=True, example=f"{_QUERY} --to ids")] = (
        None
    )
    """Unload the result of this query. It is used instead of --table."""
    # The name of the query, in place of the name of a table; None means `query`.
    query_name: Annotated[
        str | None, _selection(Kind("NAME"), effect="none", example=_QUERY_NAME)
    ] = None
    """Name for the result of --query. It replaces {table} in names of directories and files. The
    default is query."""
    columns: Annotated[tuple[str, ...], _columns(example="ID,AMOUNT")] = ()
    """Only these columns, in this order. A pattern such as addr_* selects all columns that match. A
    text in double quotes is a name, and not a pattern. Separate several with commas, or repeat the
    option."""
    exclude: Annotated[tuple[str, ...], _columns(example="'ADDR_*'")] = ()
    """All columns except these names or patterns. Separate several with commas, or repeat the
    option."""
    where: Annotated[
        str | None, _rows(Kind("SQL"), scope="route", common=True, example="'AMOUNT > 100'")
    ] = None
    """Only the rows that meet this condition. The database evaluates it."""
    # Glob patterns; empty means all partitions.
    partitions: Annotated[
        tuple[str, ...], _rows(GLOBS, empty=True, name="partition", example=_PARTITION)
    ] = ()
    """Only the partitions that match one of these patterns. Each pattern must match a partition. A
    partition includes its subpartitions: YEAR, YEAR/MONTH. Separate several with commas, or repeat
    the option."""
    as_text: Annotated[
        tuple[str, ...],
        _selection(
            GLOBS, commands=("describe", *READING), effect="changes", empty=True, example="'*_CODE'"
        ),
    ] = ()
    """Write the columns that match one of these patterns as exact text. Separate several with
    commas, or repeat the option."""
    # A share above 0 and up to 1; 1 and None mean all rows.
    sample: Annotated[float | None, _selection(SHARE)] = None
    """Only a sample of about this size, such as 1%. The sample is the same each time. Without
    --sample-by it consists of whole work units. With --sample-by it has, for some values of the
    column, all rows with these values. 100% is everything."""
    sample_by: Annotated[
        str | None, _selection(Kind("COLUMN"), example="CUSTOMER_ID --sample 1%")
    ] = None
    """Sample by the values of this column. Every table and source that has the column gives the
    same values, so that samples of several tables can be joined."""
    limit_rows: Annotated[int | None, _selection(COUNT)] = None
    """At most this many rows: the first that the database returns. One worker reads them."""
    # The part of a plan that is read here; None means the whole plan.
    part: Annotated[
        Part | None, _selection(PART, commands=("run",), scope="run", planned=False, in_files=False)
    ] = None
    """Read only part K of N of the work units in a plan file, at the snapshot of the plan. The
    other parts run elsewhere, and `unloader merge` combines the parts. auto/N takes K from a job
    array of Slurm (numbered from 1), Kubernetes or AWS Batch."""

    @property
    def sampled_share(self) -> float | None:
        """The requested share; None means everything."""
        return None if self.sample is None or self.sample >= 1 else self.sample


VerifyLevel = Literal["none", "count", "full", "source"]

COMPARING: tuple[VerifyLevel, ...] = ("full", "source")
"""The levels that compare checksums of values, so that workers compute them."""


TWO_ROUTES = (
    "unloader run duckdb:///data/sales.db --table ORDERS \\\n"
    "    --route csv:to=/extract/csv --route lake:to=/lake/orders,format=parquet"
)
"""An example of a run with several outputs."""


class SeatOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How workers are placed on the machine."""

    numa: Annotated[
        Literal["auto", "off", "require"], _seat(commands=(*ONE_VALUE, "topology"), example="off")
    ] = "auto"
    """auto places workers on NUMA nodes and binds them as far as the system allows. off binds
    nothing. require is like auto, but the run fails if there is only one node or if workers cannot
    be bound."""
    # Empty means all nodes.
    nodes: Annotated[
        tuple[int, ...], _seat(NUMBERS, name="numa-nodes", default_text="all", record="nodes")
    ] = ()
    """Place workers only on these NUMA nodes, such as 0,2-3. all is every node with usable CPUs."""
    placement: Annotated[Literal["spread", "close"], _seat(commands=(*ONE_VALUE, "topology"))] = (
        "spread"
    )
    """Spread workers over the nodes in proportion to their CPUs (spread), or fill the cores of one
    node after another (close)."""
    bind: Annotated[Literal["none", "node", "core"], _seat()] = "node"
    """Bind each worker to nothing (none), to all CPUs of its node (node), or to one core of it
    (core)."""
    memory_policy: Annotated[
        Literal["local", "preferred", "bind", "interleave"], _seat(example="preferred")
    ] = "preferred"
    """Nodes from which a worker gets its memory. local: the node on which it runs. preferred: its
    own node, and other nodes when its own node is full. bind: only its own node; the kernel kills
    the worker when this node is full. interleave: all nodes with CPUs in turn."""
    near: Annotated[
        str | None,
        _seat(path("DEVICE"), empty=True, shape=lambda name: name or None, example="eth0"),
    ] = None
    """Prefer the NUMA node of this network interface, disk or path, such as eth0, nvme0n1 or
    /extract."""


Cause = Literal["start", "trial", "faster", "not faster", "limit", "asked"]
"""Why the number of workers changes: a number is tried, was faster, or was not faster and the
previous number is restored; a limit starts or stops to apply; a user requests it."""


class ConcurrencyOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers may work at a time, if the number can change during a run."""

    adaptive: bool = False
    """The number of workers that makes the run fastest, found by measuring."""
    max_sessions: Annotated[int | None, _concurrency(whole(2))] = None
    """Most sessions of the run in the database: one of the parent, one of each worker, and the
    sessions of --max-db-load and --keep-snapshot."""
    # Busy share of the CPUs of this host, 0 to 1, above which fewer work; None does not check.
    max_cpu: Annotated[float | None, _concurrency(SHARE)] = None
    """Use fewer workers while the CPUs of this host are busier than this, such as 75%. One worker
    always continues. Linux."""
    max_db_load: Annotated[int | None, _concurrency(whole(1))] = None
    """Use fewer workers while more sessions than this are active in the database, including the
    sessions of the run. One worker always continues. Only PostgreSQL and Oracle."""
    slow_between: Annotated[
        str | None, _concurrency(HOURS, example="08:00-18:00 --slow-parallelism 2")
    ] = None
    """Use --slow-parallelism workers in these hours of each day, in the local time of this host.
    22:00-06:00 includes midnight."""
    slow_parallelism: Annotated[
        int, _concurrency(whole(1), default_text="1", example="2 --slow-between 08:00-18:00")
    ] = 1
    """Number of workers in the hours of --slow-between."""


class ClusterOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Dask cluster whose workers read the work units."""

    # `tcp://HOST:PORT` or `tls://HOST:PORT` of its scheduler, or `local:N` for a cluster on this
    # machine. `none` and None mean that no cluster is used.
    address: Annotated[
        str | None,
        _cluster(CLUSTER, name="cluster", default_text="none", example="tcp://scheduler:8786"),
    ] = None
    """Read the work units on the workers of a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT,
    local:N or none. local:N starts a cluster of N workers on this machine, for tests."""
    # Absolute path of the directory or file with the places of certificates and key.
    security: Annotated[
        str | None,
        _cluster(
            path("PATH"),
            name="cluster-security",
            shape=abspath,
            default_text="none",
            example="certificates --cluster tls://scheduler:8786",
        ),
    ] = None
    """Certificates for a tls:// cluster. PATH is a directory with ca.pem, cert.pem and key.pem, or
    a TOML file with the paths ca, cert and key."""

    @property
    def is_asked(self) -> bool:
        return self.address not in (None, "none")


class RetryOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an attempt is repeated, and when it is stalled."""

    retries: Annotated[int, _retry(whole(0))] = 3
    """Number of retries of a failed work unit."""
    delay_seconds: Annotated[float, _retry(SECONDS, name="retry-delay")] = 1.0
    """Seconds before the first retry. The delay doubles before each further retry. Each work unit
    waits for a different part of the delay, at least half of it, so that not all work units are
    retried at the same time."""
    delay_max_seconds: Annotated[float, _retry(SECONDS, name="retry-delay-max")] = 60.0
    """Longest delay before a retry, in seconds. A longer --retry-delay is not shortened."""
    stall_seconds: Annotated[float, _retry(SECONDS, name="stall-timeout")] = 300.0
    """Seconds without progress after which an attempt fails. 0 sets no limit."""


Widths = tuple[tuple[str, int], ...]
"""For records of fixed width: columns as the user wrote their names, and bytes of their fields."""


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
        return f'{self.name} "{self.value}" ({self.origin})'


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several outputs of one scan."""

    name: str
    """The name that the user gave; empty for a single output without a name."""
    output: OutputOptions
    columns: tuple[str, ...] = ()
    """The columns of the output, among the columns that are read."""
    exclude: tuple[str, ...] = ()
    fixed: Widths | None = None
    settings: tuple[Setting, ...] = ()
    """Settings of this route alone."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One whole job as the user requested it; it is resolved to a `ResolvedTable`."""

    source: SourceSpec
    selection: Selection
    output: OutputOptions
    seats: SeatOptions = field(default_factory=SeatOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    # None means the number of usable CPUs of the machine.
    parallelism: Annotated[
        int | None,
        _limit(
            RUN_PARALLELISM,
            commands=ONE_VALUE,
            scope="run",
            shape=lambda number: number if number > 0 else None,
            default=0,
            common=True,
        ),
    ] = None
    """Number of workers. auto is the number of usable cores. A run has at most one worker for each
    work unit. adaptive starts with few workers, and adds and removes workers by the measured rows
    per second."""
    split: Annotated[str, _limit(choice("auto", "partition", "range", "none"), example="range")] = (
        "auto"
    )
    """How the table is split into work units."""
    unit_bytes: Annotated[int | None, _limit(SIZE_FROM_1, default_text="set by the planner")] = None
    """Size above which a partition or table is split, such as 256MiB."""
    consistency: Annotated[Consistency, _safety()] = "snapshot"
    """Read everything at one point in time (snapshot), or each work unit at a different time
    (none)."""
    values: ValueOptions = field(default_factory=ValueOptions)
    fetch_bytes: Annotated[
        int, _option(SIZE_FROM_1, effect="none", scope="table", name="fetch-memory")
    ] = 32 * 1024 * 1024
    """Memory of one worker for the array fetch, in bytes."""
    worker_memory_bytes: Annotated[
        int, _option(SIZE, commands=READING, effect="none", name="worker-memory")
    ] = 0
    """Replace a worker whose process holds more than this many bytes after a work unit. A memory
    leak in a driver then cannot fill the machine. 0 never replaces a worker. The limit is on
    resident memory with mapped libraries, and a new worker has about 160MiB. Linux."""
    verify: Annotated[
        VerifyLevel, _safety(commands=ONE_VALUE, scope="table", common=True, example="full")
    ] = "count"
    """Check the result after the run. none does not check. count compares the number of rows with
    the source. full also reads the files and compares each value with the fetched value. source
    also compares checksums of all values, which the source computes."""
    settings: tuple[Setting, ...] = ()
    """All settings with their origins; their values are also in the fields above."""
    fixed: Widths | None = None
    """None for delimited text and Parquet."""
    ceilings: Annotated[
        str | None,
        _option(
            FILE,
            group="Display",
            commands=("run",),
            effect="none",
            shape=abspath,
            default_text="none",
            example="ceilings.json",
        ),
    ] = None
    """Compare the rates of the run with the ceilings in FILE, which `unloader preflight --save`
    wrote on this machine. The result and the manifest have the percentages."""
    concurrency: ConcurrencyOptions | None = None
    """None means a fixed number of workers without limits."""
    cluster: ClusterOptions | None = None
    """None means workers on this machine."""
    routes: tuple[Route, ...] | None = None
    """All outputs, with `output` as the first; None for a single output with all columns and rows.
    With routes, the selection has no columns: each route has its columns."""
    # What to do with the other routes when one fails; None means stop.
    on_route_failure: Annotated[
        Literal["stop", "drop"] | None,
        _option(
            group="Routes",
            commands=PLANNING,
            shape={"stop": None, "drop": "drop"}.get,
            default="stop",
            example=f"{TWO_ROUTES} \\\n    --on-route-failure drop",
        ),
    ] = None
    """What to do with the other routes when the output of one route fails. stop ends the run. drop
    writes and publishes the other routes, and the exit status is 7."""

    @property
    def uses_cluster(self) -> bool:
        return self.cluster is not None and self.cluster.is_asked

    def of_outputs(self) -> tuple[Request, ...]:
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
    """Shows whether another run has the same job; see `unloader.resolve.planning`."""
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
