"""Several small units that a worker does one after the other, with one order and one answer."""

from __future__ import annotations

from msgspec import Struct

from unloader.model.work import UnitProgress, UnitResult, UnitTask


class BundleTask(Struct, frozen=True, kw_only=True):
    """One attempt at several work units."""

    tasks: tuple[tuple[int, UnitTask], ...]
    """Each with its number in the bundle."""


class BundleProgress(Struct, frozen=True, kw_only=True):
    """What a worker tells of one of them."""

    number: int
    progress: UnitProgress


class BundleResult(Struct, frozen=True, kw_only=True):
    """What became of them: those that are missing were not done, since one has failed."""

    results: tuple[tuple[int, UnitResult], ...]
