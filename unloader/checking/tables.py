"""What the source says of the tables of outputs, with nothing read of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from partition_planner.model import TableInfo
from unloader.checking.model import About, CheckedOutput, Problem
from unloader.errors import translate
from unloader.model import Extract, ReadColumn, Request
from unloader.resolve.masked_ranges import without_masked_ranges
from unloader.resolve.planning import check_sampling, keys_of, plan_of
from unloader.resolve.preparation import columns_of, slim
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog

Report = Callable[[Problem], None]


@contextmanager
def reported(report: Report, about: About, entry: int | None = None) -> Iterator[None]:
    """Report the user's error that the block raises, and go on behind it."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        report(Problem(error=known, about=about, entry=entry))


class TableCheck(Struct, kw_only=True):
    """The steps of one output; each is left out where one before it has failed."""

    catalog: Catalog
    request: Request
    parallelism: int
    entry: int
    """Number of the entry that asks for it."""
    report: Report
    table: TableInfo
    """With the chosen columns."""
    extract: Extract | None = None
    columns: tuple[ReadColumn, ...] = ()
    units: int | None = None
    rows: int | None = None
    bytes: int | None = None
    notices: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Look at the table, its columns, its condition and its parts."""
        with reported(self.report, "table", self.entry):
            self.notices += self.catalog.missing_privileges(self.table)
        with reported(self.report, "table", self.entry):
            self._columns(self.table)
        if self.extract is not None:
            with reported(self.report, "where", self.entry):
                check_where(self.catalog, self.extract)
        with reported(self.report, "table", self.entry):
            self._plan(self.table)

    def checked(self, places: tuple[str, ...], notices: tuple[str, ...]) -> CheckedOutput:
        """Return what is known of the output."""
        return CheckedOutput(
            entry=self.entry,
            table=self.table.label,
            columns=self.columns,
            rows=self.rows,
            bytes=self.bytes,
            units=self.units,
            places=places,
            notices=(*self.notices, *notices),
        )

    def _columns(self, table: TableInfo) -> None:
        request, selection = self.request, self.request.selection
        columns = columns_of(request, self.catalog, table)
        self.columns = columns.written.columns
        self.table = without_masked_ranges(table, self.catalog, columns.transforms)
        self.extract = Extract(
            source=request.source,
            snapshot=None,
            table=slim(table),
            query=selection.query,
            where=selection.where,
            partitions=selection.partitions,
            keys=keys_of(self.catalog, table, selection),
            limit_rows=selection.limit_rows,
            projection=columns.read,
        )

    def _plan(self, table: TableInfo) -> None:
        limits = self.request.limits.limits(self.parallelism)
        check_sampling(self.catalog, self.request.selection)
        units = plan_of(table, self.request.selection, limits).units
        self.units = len(units)
        self.rows = _sum([unit.rows for unit in units], table.rows)
        self.bytes = _sum([unit.bytes for unit in units], table.bytes)


def _sum(units: list[int | None], table: int | None) -> int | None:
    """Return what the units sum to, which may be chosen partitions; else the table's own number."""
    known = [each for each in units if each is not None]
    return sum(known) if known and len(known) == len(units) else table
