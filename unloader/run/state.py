"""What is known of a run, and of each of its tables, while it goes on."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from partition_planner.model import WorkUnit
from unloader.manifest.model import Manifest
from unloader.model import AttemptFailure, TablesOptions
from unloader.resolve.resolution import OpenRun
from unloader.resolve.tables.problems import TableProblem
from unloader.resolve.tables.resolving import OpenTables
from unloader.run.journal import Progress
from unloader.run.table_run import TableRun
from unloader.status.recording import LiveRun


class TableState(Struct, kw_only=True):
    """One table of a run."""

    number: int
    """Among the tables of the run, from 0."""
    run: TableRun
    is_taken: bool = True
    """Its directory is taken, so that its units can be read."""
    before: Progress = field(default_factory=Progress)
    """What an earlier process of the run has done of it."""
    failure: AttemptFailure | None = None
    """Why it cannot become whole in this run."""
    is_checked: bool = False
    """All its rows are staged, and counted by the source."""
    manifest: Manifest | None = None
    """Of the table, once it is published."""
    release: Callable[[], None] = lambda: None
    """Gives back what the run holds of it; may be called again."""

    @property
    def name(self) -> str:
        """The table, with its schema."""
        return self.run.run.extract.table.label

    @property
    def units(self) -> tuple[WorkUnit, ...]:
        """All of its work units."""
        return self.run.run.plan.units

    @property
    def takes_long(self) -> bool:
        """Whether the files of its units are joined, or much else is done, as it is published."""
        return any(each.options.file_per == "table" for each in self.run.run.outputs)

    @property
    def is_plain(self) -> bool:
        """Whether it has one output, of files: units in any order, each as often as need be."""
        return len(self.run.run.outputs) == 1 and self.run.output.is_kept

    @property
    def is_settled(self) -> bool:
        """Whether it can be read, or is not to be any more."""
        return self.is_taken or self.failure is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done with it."""
        return self.manifest is not None or self.failure is not None


class RunState(Struct, kw_only=True):
    """The run as a whole."""

    resolved: OpenTables
    options: TablesOptions
    home: str
    """The directory of the run's record and manifest, see `unloader.resolve.tables.homes`."""
    live: LiveRun
    tables: list[TableState] = field(default_factory=list)
    """Those that are not left out."""
    problems: list[TableProblem] = field(default_factory=list)
    """Of tables that are left out."""
    alone: OpenRun | None = None
    """The run of the only table, whose own directory has its record; None where there are several.
    """
    is_recorded: bool = False
    """What is to be done lies in the home: a later process can resume it."""

    def stop(self) -> bool:
        """Return whether the user asks for the end."""
        return self.live.stop()
