"""The events of a run in progress; displays and logs are made from these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from unloader.model import Cause, TableCounts, UnitResult, Waits

# fmt: off
Phase = Literal[
    "connecting", "snapshot", "table", "columns", "partitions", "extents", "planning", "locking",
    "measuring", "confirming", "unloading", "counting", "publishing", "committing", "verifying",
    "comparing", "measuring-network", "measuring-disks", "measuring-source",
]
# fmt: on
"""In the order of a run; a source omits phases that it does not have. `unloader preflight` has the
last three."""


class RunStarted(Struct, frozen=True, kw_only=True):
    """The plan stands and workers are about to start."""

    run_id: str
    table: str
    units: int
    workers: int
    rows: int | None
    """The source's estimate; None without one."""
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
    """Their number, with the tables that are left out."""
    largest_table: str = ""
    """Of the tables to be read, by the source's estimate; empty where there is only one."""


class UnitsKept(Struct, frozen=True, kw_only=True):
    """A resumed run keeps the units that were done before it was interrupted."""

    units: int
    rows: int
    bytes: int
    tables: int = 0
    """Tables that are published already; their units are among the others."""


class SettingUsed(Struct, frozen=True, kw_only=True):
    """A setting selects rows or columns, or changes the output."""

    name: str
    value: str
    origin: str
    """command line, environment variable X, job file X or plan file X."""
    selects: bool
    from_variable: bool
    text: str
    """All of it in one line."""


class PhaseStarted(Struct, frozen=True, kw_only=True):
    """The run as a whole enters a phase."""

    phase: Phase


class UnitStarted(Struct, frozen=True, kw_only=True):
    """A worker took a unit."""

    worker: int
    unit: str
    partition: str | None
    attempt: int
    rows: int | None
    """The planner's estimate."""


class UnitAdvanced(Struct, frozen=True, kw_only=True):
    """A worker got further, as it reports itself; the figures are totals of the running attempt."""

    worker: int
    unit: str
    rows: int
    bytes: int
    waiting_for: str = ""
    """The disk that has no room, as text; empty if there is room."""
    waits_for: Waits = "nothing"
    """The main reason of its waits since its last report, or the reason of a wait that has lasted
    for a second. It is `limit` while its fetch is held up, as fewer workers are to work."""


class DirectoryFilled(Struct, frozen=True, kw_only=True):
    """One of several directories has got a unit's files; the figures are its totals."""

    directory: str
    units: int
    bytes: int


class UnitFinished(Struct, frozen=True, kw_only=True):
    """A unit is done: staged, not yet published."""

    worker: int
    unit: str
    rows: int
    bytes: int
    seconds: float
    result: UnitResult | None = None
    """The whole report of its worker."""


class UnitFailed(Struct, frozen=True, kw_only=True):
    """An attempt failed; its output does not count."""

    worker: int
    unit: str
    attempt: int
    message: str
    retry_in_seconds: float | None
    """None if the unit is given up."""
    counted: bool = True
    """It counts against --retries; False where the unit has no part in the failure."""


class Verified(Struct, frozen=True, kw_only=True):
    """A part of the files or units is checked; the figures are totals of the phase."""

    done: int
    of: int
    what: Literal["files", "units"]
    bytes: int = 0
    """Of the files that were read so far."""
    of_bytes: int = 0
    """0 where no files are read."""


class TableStaged(Struct, frozen=True, kw_only=True):
    """One of several tables is whole and counted; all are published together at the end."""

    table: str
    rows: int
    bytes: int
    tables: TableCounts
    """All of them, this one included."""


class TableFinished(Struct, frozen=True, kw_only=True):
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


class RouteFinished(Struct, frozen=True, kw_only=True):
    """One of several outputs is published; the figures are the totals of its manifest."""

    route: str
    rows: int
    bytes: int
    files: int
    directory: str


class RunFinished(Struct, frozen=True, kw_only=True):
    """Everything is published; the figures are the totals of the manifest."""

    rows: int
    """For several outputs, the rows that were read for them."""
    bytes: int
    seconds: float
    """Since the run began to plan, connecting included."""


class PointMeasured(Struct, frozen=True, kw_only=True):
    """A sweep has measured a point once more."""

    number: int
    """Of the measurement, from 1."""
    of: int
    """How many were planned. `number` exceeds it where speeds differ and points are repeated."""
    settings: str
    """Of the point, as options of a command line."""
    parallelism: int
    rows_per_second: float


class ParallelismChanged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another number of workers is to work from now on."""

    seconds: float
    """Since the first unit was handed out."""
    workers: int
    of: int
    """The workers that have a seat."""
    rows_per_second: float
    """With the number before, as it was last measured; 0 where it was not."""
    cause: Cause
    reason: str


class Notice(Struct, frozen=True, kw_only=True):
    """One line the user should know: a degraded placement, a missing right, a slow path."""

    text: str


class Tick(Struct, frozen=True, kw_only=True):
    """Time passes; sent a few times a second so that displays can redraw without a thread."""


# fmt: off
Event = (
    RunStarted | UnitsKept | SettingUsed | PhaseStarted | UnitStarted | UnitAdvanced | UnitFinished
    | DirectoryFilled | UnitFailed | ParallelismChanged | Verified | TableStaged | TableFinished
    | RouteFinished | RunFinished | PointMeasured | Notice | Tick
)
# fmt: on
Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """Observe nothing."""
