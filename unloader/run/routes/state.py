"""One route of a run while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.manifest.model import Manifest
from unloader.model import AttemptFailure, FinishedUnit, OutputResult
from unloader.resolve.resolved import ResolvedRun
from unloader.run.outputs.base import RunOutput


class RouteState(Struct, kw_only=True):
    """One output of several."""

    number: int
    """Among the outputs of the run, from 0."""
    name: str
    run: ResolvedRun
    """As if it were the only output."""
    output: RunOutput
    is_new: bool = True
    """No earlier process of the run has begun it."""
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """Its units that are done, by their ids."""
    failure: AttemptFailure | None = None
    """Why it was dropped."""
    manifest: Manifest | None = None
    """Once it is published."""
    not_compared: tuple[str, ...] | None = None
    is_abandoned: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is to be written and published."""
        return self.failure is None and self.manifest is None

    @property
    def directory(self) -> str:
        """Where its manifest goes."""
        return self.run.output.options.destination

    def own(self, unit: FinishedUnit, result: OutputResult) -> FinishedUnit:
        """Return what it has of a unit, as if it were the only output."""
        return replace(
            unit,
            rows=result.rows,
            filtered=result.filtered,
            files=result.files,
            stages=result.stages,
            content=result.content,
            outputs=None,
        )


def as_read(units: Sequence[FinishedUnit]) -> FinishedUnit:
    """Return what routes have of a unit as what was read of it, for all of them."""
    first = units[0]
    files = tuple(file for unit in units for file in unit.files)
    return replace(first, rows=first.scanned, filtered=None, files=files, content=None)
