"""What a run tells while it goes on; progress displays and logs are made from these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from writers.records import dataclass

if TYPE_CHECKING:
    from unloader.model import Cause, TableCounts, UnitResult

Phase = Literal[
    "connecting",
    "snapshot",
    "table",
    "columns",
    "partitions",
    "extents",
    "planning",
    "locking",
    "measuring",
    "confirming",
    "unloading",
    "counting",
    "publishing",
    "committing",
    "verifying",
    "comparing",
    "measuring-disks",
    "measuring-source",
]
"""In the order of a run; a source leaves out what it does not have. The last two are of
`unloader preflight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The plan stands and workers are about to start."""

    run_id: str
    table: str
    units: int
    workers: int
    rows: int | None
    """The source's estimate, None if it has none."""
    bytes: int | None
    """Bytes in the source, by its own statistics."""
    snapshot: str = ""
    """The point in time that is read, such as `scn 4711`; empty without one."""
    end_sessions_sql: str = ""
    """Ends the run's sessions in the database, where there is such a statement."""
    destinations: tuple[str, ...] = ()
    """Where the output goes; the first place has the manifest."""
    nodes: tuple[int, ...] = ()
    """NUMA node of each worker's seat."""
    adaptive: bool = False
    """How many of the workers work is found by measuring."""
    tables: int = 1
    """How many there are, those that are left out included."""
    largest_table: str = ""
    """By the source's estimate, of those that are to be read; empty where there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsKept:
    """A resumed run keeps the units that were done before it was broken off."""

    units: int
    rows: int
    bytes: int
    tables: int = 0
    """Those of several that are published already; their units are among the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingUsed:
    """Something was set that selects rows or columns, or changes what is written."""

    name: str
    value: str
    origin: str
    """command line, environment variable X, job file X or plan file X."""
    selects: bool
    from_variable: bool
    text: str
    """All of it in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """The run as a whole enters a phase."""

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStarted:
    """A worker took a unit."""

    worker: int
    unit: str
    partition: str | None
    attempt: int
    rows: int | None
    """The planner's estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAdvanced:
    """A worker got further; the figures are totals of the running attempt."""

    worker: int
    unit: str
    rows: int
    bytes: int
    waiting_for: str = ""
    """What must come before the first row: the pipe whose reader is missing."""
    waits_for: Literal["nothing", "source", "destination", "limit"] = "nothing"
    """Whom the attempt waits for; `limit` while it is held up, as fewer workers are to work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFilled:
    """One of several directories has got a unit's files; the figures are its totals."""

    directory: str
    units: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFinished:
    """A unit is done: staged, not yet published."""

    worker: int
    unit: str
    rows: int
    bytes: int
    seconds: float
    result: UnitResult | None = None
    """All that its worker has told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFailed:
    """An attempt failed; what it had written counts no more."""

    worker: int
    unit: str
    attempt: int
    message: str
    retry_in_seconds: float | None
    """None if the unit is given up."""
    counted: bool = True
    """It counts against --retries; False where the unit has no part in the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """So much of what is to be checked has been; the figures are totals of the phase."""

    done: int
    of: int
    what: Literal["files", "units"]
    bytes: int = 0
    """Of the files that were read so far."""
    of_bytes: int = 0
    """0 where no files are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStaged:
    """One of several tables is whole and counted; all are published together at the end."""

    table: str
    rows: int
    bytes: int
    tables: TableCounts
    """All of them, this one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFinished:
    """One of several tables is published, has failed, or is left out."""

    table: str
    rows: int
    bytes: int
    directory: str
    """Empty if it is left out."""
    error: str = ""
    """Why it is not complete; empty if it is."""
    tables: TableCounts
    """All of them, this one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFinished:
    """One of several outputs is published; the figures are the totals of its manifest."""

    route: str
    rows: int
    bytes: int
    files: int
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """Everything is published; the figures are the totals of the manifest."""

    rows: int
    """Of several outputs those that were read for them."""
    bytes: int
    seconds: float
    """Since the run began to plan, connecting included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointMeasured:
    """A sweep has measured a point once more."""

    number: int
    """Of the measurement, from 1."""
    of: int
    """How many there will be; more if speeds differ too much."""
    settings: str
    """Of the point, as options of a command line."""
    parallelism: int
    rows_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelismChanged:
    """Another number of workers is to work from now on."""

    seconds: float
    """Since the first unit was handed out."""
    workers: int
    of: int
    """Those that have a seat."""
    rows_per_second: float
    """With the number before, as it was last measured; 0 where it was not."""
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line the user should know: a degraded placement, a missing right, a slow path."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passes; sent a few times a second so that displays can redraw without a thread."""


Event = (
    RunStarted
    | UnitsKept
    | SettingUsed
    | PhaseStarted
    | UnitStarted
    | UnitAdvanced
    | UnitFinished
    | DirectoryFilled
    | UnitFailed
    | ParallelismChanged
    | Verified
    | TableStaged
    | TableFinished
    | RouteFinished
    | RunFinished
    | PointMeasured
    | Notice
    | Tick
)
Observer = Callable[[Event], None]


def late_types() -> dict[str, Any]:
    """Return the types of fields that are imported for type checks alone."""
    from unloader.model import Cause, TableCounts, UnitResult

    return {"Cause": Cause, "TableCounts": TableCounts, "UnitResult": UnitResult}


def silent(event: Event) -> None:
    """Observe nothing."""
