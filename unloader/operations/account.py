"""The figures of a run from its events, and its end."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import UnloaderError
from unloader.events import (
    Event,
    RouteFinished,
    RunFinished,
    RunStarted,
    TableFinished,
    UnitFailed,
    UnitFinished,
    UnitsKept,
)
from unloader.model import TableCounts


class Job(Struct, frozen=True, kw_only=True):
    """The labels of a job: equal for each of its runs, also for a run that fails early."""

    table: str
    """As it was asked for; `query` for a query."""
    source: str
    """Kind of the source."""
    destination: str
    """As it was asked for, so that its fields do not make another job of each run."""


class Account(Struct, kw_only=True):
    """The figures of one run; the clock is the caller's."""

    job: Job
    started_at: float
    """Seconds since 1970."""
    run_id: str = ""
    table: str = ""
    """As the database has it."""
    destinations: tuple[str, ...] = ()
    """The real ones; empty until the run is planned."""
    units: int = 0
    units_done: int = 0
    tables: TableCounts | None = None
    """None in a run over one table."""
    units_failed: int = 0
    """Units that failed after all attempts."""
    retries: int = 0
    routes: list[RouteFinished] = field(default_factory=list)
    """Published outputs of a table with several outputs."""
    rows: int = 0
    bytes: int = 0
    finished_at: float | None = None
    status: int | None = None
    """Exit status; None during the run."""
    error: UnloaderError | None = field(default=None)

    def add(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case RunStarted():
                self.run_id, self.table, self.units = event.run_id, event.table, event.units
                self.destinations = event.destinations
                self.tables = TableCounts(total=event.tables) if event.tables > 1 else None
            case UnitsKept():
                self.units_done += event.units
                self.rows += event.rows
                self.bytes += event.bytes
                if self.tables is not None:
                    self.tables = replace(self.tables, done=event.tables)
            case TableFinished():
                self.tables = event.tables
            case UnitFinished():
                self.units_done += 1
                self.rows += event.rows
                self.bytes += event.bytes
            case UnitFailed(retry_in_seconds=None):
                self.units_failed += 1
            case UnitFailed():
                self.retries += 1
            case RouteFinished():
                self.routes.append(event)
            case RunFinished():
                # Joined files have one header instead of many.
                self.rows, self.bytes = event.rows, event.bytes

    def end(self, at: float, error: UnloaderError | None) -> None:
        """Note how the run ended."""
        self.finished_at, self.error = at, error
        self.status = 0 if error is None else error.exit_code
