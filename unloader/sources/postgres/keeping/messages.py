"""What a run and its keeper say to each other; over a pipe that nobody else has."""

from __future__ import annotations

from partition_planner.model import Selector
from unloader.model import AttemptFailure, Extract, SourceSpec
from writers.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Take the snapshot; answered by `Begun`."""

    source: SourceSpec
    seconds: float
    """How long it is kept where no run uses it."""
    folder: str
    """Of the records."""
    tick_seconds: float
    """The time between two looks at connection, run and clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The snapshot is taken."""

    value: str
    record: str
    """Path of the keeper's record."""
    kept_until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Lock what a run reads, as `Catalog.hold` does."""

    extract: Extract
    selectors: tuple[Selector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepUntilGone:
    """Keep the snapshot beyond the run, for as long as one of these files names it."""

    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Say whether the snapshot is still held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was asked is done."""


Message = Begin | Hold | KeepUntilGone | Check
Answer = Begun | Done | AttemptFailure
