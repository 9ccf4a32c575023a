"""What a run tells while it goes on; progress displays and logs are made from these alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["planning", "measuring", "unloading", "counting", "publishing", "verifying"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFailed:
    """An attempt failed; what it had written counts no more."""

    worker: int
    unit: str
    attempt: int
    message: str
    retry_in_seconds: float | None
    """None if the unit is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line the user should know: a degraded placement, a missing right, a slow path."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passes; sent a few times a second so that displays can redraw without a thread."""


Event = (
    RunStarted
    | PhaseStarted
    | UnitStarted
    | UnitAdvanced
    | UnitFinished
    | DirectoryFilled
    | UnitFailed
    | Notice
    | Tick
)
Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """Observe nothing."""
