"""What a run over several tables would do, with nothing read of their rows."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from unloader.events import Observer, silent
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.homes import home_of
from unloader.resolve.tables.problems import TableProblem
from unloader.resolve.tables.resolving import resolved_tables
from unloader.selection.asked import TablesRequest


class PlannedTables(Struct, frozen=True, kw_only=True):
    """The runs of several tables, and what would keep others from being unloaded."""

    runs: tuple[ResolvedRun, ...]
    """One for each table that would be unloaded."""
    problems: tuple[TableProblem, ...]
    """Of tables that would be left out."""
    home: str
    """The directory of the run as a whole; empty where nothing says where the output goes."""

    @property
    def units(self) -> int:
        """Work units of all tables."""
        return sum(len(run.plan.units) for run in self.runs)


def planned_tables(
    asked: TablesRequest,
    *,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> PlannedTables:
    """Return what the run would do; see `unloader.api.plan_tables`."""
    with resolved_tables(asked, stop=stop, observe=observe) as ready:
        written = any(run.output.options.destination for run in ready.runs)
        return PlannedTables(
            runs=ready.runs,
            problems=ready.problems,
            home=home_of(asked.options.destination, ready.runs) if written else "",
        )
