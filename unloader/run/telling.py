"""What a run tells of itself and of each of several tables, and how many of these are done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partition_planner.model import WorkUnit
from unloader.events import Notice, RunStarted, TableFinished, TableStaged
from unloader.manifest.model import totals_of
from unloader.model import TableCounts
from unloader.nouns import counted
from unloader.resolve.outputs.one import output_notices
from unloader.resolve.resolution import OpenRun
from unloader.resolve.slow_installation import missing_libraries
from unloader.run.concurrency.opening import is_adaptive
from unloader.run.state import RunState, TableState
from unloader.sources.abilities import end_sessions_sql


def tell_start(state: RunState, counting: Counting, kept: str) -> None:
    """Tell what is to be done, and which tables are left out.

    Args:
        state: Of the run.
        counting: Of its tables.
        kept: How long its snapshot is kept if it dies; empty if it is not.
    """
    runs = [table.run.run for table in state.tables]
    units = [unit for run in runs for unit in run.plan.units]
    seats = max((table.run.run.seating.seats for table in state.tables), key=len)
    snapshot = runs[0].extract.snapshot
    alone = state.alone
    state.live(
        RunStarted(
            run_id=state.resolved.run_id,
            table=runs[0].extract.table.label if alone else counted(counting.now.total, "table"),
            units=len(units),
            workers=len(seats),
            rows=_total([unit.rows for unit in units]) if alone else rows_of(units),
            bytes=_total([unit.bytes for unit in units]),
            snapshot="" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip(),
            end_sessions_sql=end_sessions_sql(state.resolved.catalog),
            destinations=_places(alone) if alone else (state.home,),
            nodes=tuple(seat.node for seat in seats),
            adaptive=is_adaptive(runs[0].request),
            tables=counting.now.total,
            largest_table="" if alone else counting.now.largest_open,
        )
    )
    for each in state.problems:
        state.live(
            TableFinished(
                table=each.table,
                rows=0,
                bytes=0,
                directory="",
                error=each.error.message,
                tables=counting.now,
            )
        )
    libraries = {text: None for run in runs for text in missing_libraries(run)}
    for text in (*libraries, *runs[0].seating.notices):
        state.live(Notice(text=text))
    for run in runs:
        for text in output_notices(run):
            state.live(Notice(text=text if alone else f"{run.extract.table.label}: {text}"))
    if kept:
        text = f"if the run dies, its snapshot is kept until {kept}; see unloader keepers"
        state.live(Notice(text=text))


def _places(alone: OpenRun) -> tuple[str, ...]:
    """Return where the output of the only table goes, as displays show it."""
    outputs = alone.run.outputs
    if len(outputs) > 1:
        return tuple(place for each in outputs for place in each.options.destinations)
    return alone.resumed_in or outputs[0].options.destinations


def tell_of(state: RunState, counting: Counting, table: TableState) -> None:
    """Tell that a table is published, has failed, or waits until all are published."""
    failure = table.failure
    totals = None if table.manifest is None else totals_of(table.run.manifests)
    if not table.is_over:
        results = table.run.finished.values()
        state.live(
            TableStaged(
                table=table.name,
                rows=sum(each.rows for each in results),
                bytes=sum(file.bytes for each in results for file in each.files),
                tables=counting.staged(),
            )
        )
        return
    state.live(
        TableFinished(
            table=table.name,
            rows=0 if totals is None else totals.rows,
            bytes=0 if totals is None else totals.bytes,
            error="" if failure is None else failure.message,
            directory=table.run.run.output.options.destination,
            tables=counting.ended(table),
        )
    )


def _total(values: Iterable[int | None]) -> int | None:
    known = tuple(values)
    return None if None in known else sum(filter(None, known))


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
        self._failed = self._left_out = left_out
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
            left_out=self._left_out,
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
