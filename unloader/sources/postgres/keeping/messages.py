"""What a run and its keeper say to each other; over a pipe that nobody else has."""

from __future__ import annotations

from msgspec import Struct

from partition_planner.model import Selector
from unloader.model import AttemptFailure, Extract, SourceSpec


class Begin(Struct, frozen=True, kw_only=True):
    """Take the snapshot; answered by `Begun`."""

    source: SourceSpec
    seconds: float
    """How long it is kept where no run uses it."""
    folder: str
    """Of the records."""
    tick_seconds: float
    """The time between two looks at connection, run and clock."""


class Begun(Struct, frozen=True, kw_only=True):
    """The snapshot is taken."""

    value: str
    record: str
    """Path of the keeper's record."""
    kept_until: str


class Hold(Struct, frozen=True, kw_only=True):
    """Lock what a run reads, as `Catalog.hold` does."""

    extract: Extract
    selectors: tuple[Selector, ...]


class KeepUntilGone(Struct, frozen=True, kw_only=True):
    """Keep the snapshot beyond the run, for as long as one of these files names it."""

    marks: tuple[str, ...]


class Check(Struct, frozen=True, kw_only=True):
    """Say whether the snapshot is still held."""


class Done(Struct, frozen=True, kw_only=True):
    """What was asked is done."""


Message = Begin | Hold | KeepUntilGone | Check
Answer = Begun | Done | AttemptFailure
