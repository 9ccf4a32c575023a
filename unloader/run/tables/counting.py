"""How far a run is with its tables, and what the source says of their size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partition_planner.model import WorkUnit
from unloader.model import TableCounts
from unloader.run.tables.state import TableState

_BYTES_PER_ROW = 128
"""Guess, for tables of which the source knows rows alone."""


def size_of(unit: WorkUnit) -> int:
    """Return the bytes of a unit in the source, about."""
    return unit.bytes or (unit.rows or 0) * _BYTES_PER_ROW


def rows_of(units: Sequence[WorkUnit]) -> int | None:
    """Return the source's estimate of the rows of all units; None if it knows too few of them.

    A view has none. It counts as nothing, as long as that is so of the smaller part of the units.
    """
    known = [unit.rows for unit in units if unit.rows is not None]
    return sum(known) if known and len(known) * 2 >= len(units) else None


class Counting:
    """Counts tables that are over; each is counted once."""

    def __init__(self, tables: Iterable[TableState], left_out: int) -> None:
        """Begin with those that an earlier process of the run has published.

        Args:
            tables: Those that are not left out.
            left_out: How many are.
        """
        self._by_size = sorted(tables, key=lambda table: sum(map(size_of, table.units)))
        self._total = len(self._by_size) + left_out
        self._done = sum(table.manifest is not None for table in self._by_size)
        self._failed = left_out
        self._staged = 0

    @property
    def now(self) -> TableCounts:
        """How far the run is."""
        while self._by_size and (self._by_size[-1].is_over or self._by_size[-1].is_checked):
            self._by_size.pop()
        return TableCounts(
            total=self._total,
            done=self._done,
            staged=self._staged,
            failed=self._failed,
            largest_open=self._by_size[-1].name if self._by_size else "",
        )

    def staged(self) -> TableCounts:
        """Count a table that is whole, and published later."""
        self._staged += 1
        return self.now

    def ended(self, table: TableState) -> TableCounts:
        """Count a table that is published or has failed."""
        if table.manifest is not None:
            self._done += 1
        else:
            self._failed += 1
        if self._staged and table.is_checked:
            self._staged -= 1
        return self.now
