"""Whether the tables that are done are whole: their rows counted by the source, their values read.

Small tables are counted in one statement for many, each by a count of its own. What goes wrong
there is found out once more for each by itself, so that it is the error of that table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unloader.errors import SourceError, UnloaderError
from unloader.events import Observer
from unloader.resolve.patience import Patience
from unloader.run.row_count import source_rows
from unloader.run.tables.finishing import Ended, SharedCatalog
from unloader.run.tables.state import TableState
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by
from unloader.sources.several import count_tables

_FEW_ROWS = 100_000
"""Guess: so many are counted faster than a statement comes and goes a few times. The count of a
table with more is no part of what others wait for."""


def check_tables(
    tables: Sequence[TableState],
    catalog: SharedCatalog,
    stop: Callable[[], bool],
    observer_of: Callable[[TableState], Observer],
) -> Iterator[Ended]:
    """Count tables, and compare their values where that was asked for; yield each when it is known.

    Args:
        tables: All their rows are staged.
        catalog: Holds the snapshot.
        stop: Asked several times a second; True cancels a count.
        observer_of: Returns who gets the events of a table.
    """
    for table in tables:
        table.run.observe = observer_of(table)
    small = [table for table in tables if table.run.rows_written <= _FEW_ROWS]
    large = [table for table in tables if table.run.rows_written > _FEW_ROWS]
    with catalog.in_use() as alone:
        for some in (small, *([table] for table in large)):
            counts = _counts(some, alone, stop)
            for table in some:
                try:
                    _check(table, counts.get(table.number), alone, stop)
                except BaseException as error:
                    yield table, error
                else:
                    table.is_checked = True
                    yield table, None


def _counts(
    tables: Sequence[TableState], catalog: Catalog, stop: Callable[[], bool]
) -> dict[int, int]:
    """Return the rows of the tables that could be counted together, by the table's number."""
    counted = [
        table
        for table in tables
        if table.run.run.request.verify != "none" and table.run.run.plan.sampled is None
    ]
    if len(counted) < 2:
        return {}
    extracts = [table.run.run.extract for table in counted]
    try:
        with cancelled_by(stop, catalog):
            found = count_tables(catalog, extracts)
    except UnloaderError:
        return {}
    return {
        table.number: rows
        for table, rows in zip(counted, found, strict=True)
        if not isinstance(rows, SourceError)
    }


def _check(table: TableState, rows: int | None, catalog: Catalog, stop: Callable[[], bool]) -> None:
    run, request = table.run, table.run.run.request
    if request.verify == "none":
        return
    if rows is None:
        patience = Patience(
            retry=request.retry, run_id=run.run.run_id, stop=stop, observe=run.observe
        )
        with cancelled_by(stop, catalog):
            rows = patience.with_retries(
                "counting",
                lambda: source_rows(catalog, run.run),
                catalog.check_snapshot,
            )
    run.check_count(rows)
    run.compare_values(stop)
