"""What a run reports of itself and of each of its tables, and how many of these are done."""

from __future__ import annotations

from collections.abc import Iterable

from unloader.events import (
    Notice,
    PhaseStarted,
    RunStarted,
    TableFinished,
    TableStaged,
    UnitsKept,
)
from unloader.manifest.model import totals_of
from unloader.model import TableCounts
from unloader.nouns import counted
from unloader.resolve.resolved import missing_libraries, output_notices
from unloader.run.order import size_of
from unloader.run.table import RunState, Table


class Reporter:
    """Reports a run, and counts its tables that are over; each is counted once."""

    def __init__(self, state: RunState) -> None:
        """Begin with the tables that an earlier process of the run has published."""
        self._state, left_out = state, len(state.problems)
        self._by_size = sorted(
            state.tables, key=lambda table: sum(map(size_of, table.run.plan.units))
        )
        self._total = len(self._by_size) + left_out
        self._done = sum(table.is_published for table in self._by_size)
        self._failed = self._left_out = left_out
        self._staged = 0

    def start(self, kept: str) -> None:
        """Report the work to do, the omitted tables, and what an earlier process has done."""
        state, single = self._state, self._state.is_single
        runs = [table.run for table in state.tables]
        units = [unit for run in runs for unit in run.plan.units]
        seats = max((run.seating.seats for run in runs), key=len)
        snapshot, limits = runs[0].extract.snapshot, runs[0].request.concurrency
        state.live(
            RunStarted(
                run_id=state.resolved.run_id,
                table=state.tables[0].name if single else counted(self._total, "table"),
                units=len(units),
                workers=len(seats),
                rows=_total([unit.rows for unit in units]),
                bytes=_total([unit.bytes for unit in units]),
                snapshot="" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip(),
                end_sessions_sql=state.resolved.catalog.end_sessions_sql(),
                destinations=state.places,
                nodes=tuple(seat.node for seat in seats),
                adaptive=limits is not None and limits.adaptive,
                tables=self._total,
                largest_table="" if single else self._now.largest_open,
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
                    tables=self._now,
                )
            )
        libraries = {text: None for run in runs for text in missing_libraries(run)}
        for text in (*libraries, *runs[0].seating.notices):
            state.live(Notice(text=text))
        for table in state.tables:
            for text in output_notices(table.run):
                state.live(Notice(text=text if single else f"{table.name}: {text}"))
        if kept:
            text = f"if the run dies, its snapshot is kept until {kept}; see unloader keepers"
            state.live(Notice(text=text))
        if not state.resolved.resumed_in:
            return
        state.live(PhaseStarted(phase="confirming"))
        rows = size = done = 0
        for table in state.tables:
            if table.is_published:
                done += len(table.run.plan.units)
                totals = totals_of(table.manifests)
                rows += totals.rows
                size += totals.bytes
            else:
                table.take_up()
                done += len(table.finished)
                rows += sum(each.rows for each in table.finished.values())
                size += table.bytes_written
        state.live(UnitsKept(units=done, rows=rows, bytes=size, tables=self._done))

    def table(self, table: Table) -> None:
        """Report that a table is published, has failed, or waits until all are published.

        A single table ends with its run, and the end of the run is reported.
        """
        if self._state.is_single:
            return
        if not table.is_over:
            self._staged += 1
            self._state.live(
                TableStaged(
                    table=table.name,
                    rows=sum(each.rows for each in table.finished.values()),
                    bytes=table.bytes_written,
                    tables=self._now,
                )
            )
            return
        if table.is_published:
            self._done += 1
        else:
            self._failed += 1
        if self._staged and table.is_checked:
            self._staged -= 1
        failure = table.failure
        totals = totals_of(table.manifests) if table.is_published else None
        self._state.live(
            TableFinished(
                table=table.name,
                rows=0 if totals is None else totals.rows,
                bytes=0 if totals is None else totals.bytes,
                error="" if failure is None else failure.message,
                directory=table.run.output.options.destination,
                tables=self._now,
            )
        )

    @property
    def _now(self) -> TableCounts:
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


def _total(values: Iterable[int | None]) -> int | None:
    known = tuple(values)
    return None if None in known else sum(filter(None, known))
