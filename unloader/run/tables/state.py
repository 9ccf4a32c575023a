"""What is known of each table of a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from partition_planner.model import WorkUnit
from unloader.manifest.model import Manifest
from unloader.model import AttemptFailure
from unloader.run.journal import Progress
from unloader.run.table_run import TableRun


@dataclass(slots=True, kw_only=True)
class TableState:
    """One table of several."""

    number: int
    """Among the tables of the run, from 0."""
    run: TableRun
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
    def is_over(self) -> bool:
        """Whether nothing is left to be done with it."""
        return self.manifest is not None or self.failure is not None
