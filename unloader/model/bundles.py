"""Several small units that a worker does one after the other, with one order and one answer."""

from __future__ import annotations

from unloader.model.work import UnitProgress, UnitResult, UnitTask
from writers.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTask:
    """One attempt at several work units."""

    tasks: tuple[tuple[int, UnitTask], ...]
    """Each with its number in the bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleProgress:
    """What a worker tells of one of them."""

    number: int
    progress: UnitProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleResult:
    """What became of them: those that are missing were not done, since one has failed."""

    results: tuple[tuple[int, UnitResult], ...]
