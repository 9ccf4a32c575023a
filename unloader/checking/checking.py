"""Checks the entries of a job against their source, their destinations and this machine.

What is known of the destinations of outputs: who may write there, what is there, how much fits.

Nothing is made or changed. A disk is looked at once, with all that would go to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePath

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import PlanLimits, TableInfo
from partition_planner.several import estimated_bytes, unit_bytes
from unloader.checking.model import About, Checked, CheckedOutput, Problem
from unloader.errors import OutputFailed, translate
from unloader.events import Observer, PhaseStarted, silent
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.model import Extract, ReadColumn, Request
from unloader.placement.seating import seat_request
from unloader.request.directory_names import has_fields
from unloader.resolve.choosing import ChosenTables, chosen_tables
from unloader.resolve.columns import columns_of, without_masked_ranges
from unloader.resolve.homes import at_home
from unloader.resolve.places import checked_encryption, placed
from unloader.resolve.planning import check_sampling, keys_of, limits_of, plan_of
from unloader.resolve.resolution import new_run_id
from unloader.selection.choice import AskedTables
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog
from unloader.sources.cancelling import open_unless
from unloader.storage.place_names import (
    KEPT,
    comparable,
    destination_kind,
    is_kept,
    pipe_template,
    two_are_one,
)
from unloader.storage.storage_lookup import storage_at
from writers.files.room import free_bytes
from writers.model import Compression, TextFormat


def check(
    entries: Sequence[AskedTables],
    *,
    home: str = "",
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Checked:
    """Return what is known of the tables of some entries, every problem at once.

    No row is read, no snapshot taken, and nothing is written.

    Args:
        entries: All have the same source.
        home: Where the manifest of the run goes, if that is known and it has one of its own.
        observe: Reports each step as it begins.
        stop: Asked several times a second while the source is opened.
    """
    problems: list[Problem] = []
    report = problems.append
    workers = _workers(entries, problems)
    observe(PhaseStarted(phase="connecting"))
    catalog: Catalog | None = None
    with reported(report, "source"):
        catalog = open_unless(stop, entries[0].request.source)
    checks: list[TableCheck] = []
    notices: tuple[str, ...] = ()
    if catalog is not None:
        with closing(catalog), reported(report, "source"):
            observe(PhaseStarted(phase="table"))
            chosen = chosen_tables(catalog, entries, observe)
            notices = chosen.notices
            checks = _checks(catalog, entries, chosen, workers, report)
    places = _places(entries, checks, home, report)
    return Checked(
        outputs=tuple(
            each.checked(places.places.get(number, ()), tuple(places.notices.get(number, ())))
            for number, each in enumerate(checks)
        ),
        problems=tuple(problems),
        server_version="" if catalog is None else catalog.server_version,
        notices=notices,
    )


def _checks(
    catalog: Catalog,
    entries: Sequence[AskedTables],
    chosen: ChosenTables,
    workers: int,
    report: Report,
) -> list[TableCheck]:
    """Return what is known of each table that was found; report what was not."""
    checks: list[TableCheck] = []
    is_of_one = entries[0].is_of_one and len({each.group for each in entries}) == 1
    tables = {(entries[each.entry].group, each.table.label): each.table for each in chosen.tables}
    size = unit_bytes(map(estimated_bytes, tables.values()), workers)
    for number, entry in enumerate(entries):
        for problem in (each for each in chosen.problems if each.entry == number):
            tell = _naming("" if entry.is_of_one else problem.table, report)
            tell(Problem(error=problem.error, about="table", entry=number))
        for table in (each for each in chosen.tables if each.entry == number):
            made = TableCheck(
                catalog=catalog,
                request=table.request,
                limits=limits_of(table.request, workers, None if is_of_one else size),
                entry=number,
                report=_naming("" if entry.is_of_one else table.table.label, report),
                table=table.table,
            )
            made.check()
            checks.append(made)
    return checks


def _naming(label: str, report: Report) -> Report:
    """Return a report that names the table, where an entry has several; it has no label else."""

    def tell(problem: Problem) -> None:
        error = problem.error
        report(replace(problem, error=type(error)(f"{label}: {error.message}", error.hint)))

    return tell if label else report


def _places(
    entries: Sequence[AskedTables], checks: Sequence[TableCheck], home: str, report: Report
) -> Destinations:
    """Return what is known of the destinations: of each table, and of entries without one."""
    for number, entry in enumerate(entries):
        with reported(report, "to", number):
            checked_encryption(entry.request)
    places = Destinations(report=report, home=home)
    requests = [check.request for check in checks]
    for number, check in enumerate(checks):
        places.look(number, check.entry, check, check.request)
    for number in sorted(set(range(len(entries))) - {check.entry for check in checks}):
        places.look(len(requests), number, None, entries[number].request)
        requests.append(entries[number].request)
    places.compare(dict(enumerate(checks)), requests)
    return places


def _workers(entries: Sequence[AskedTables], problems: list[Problem]) -> int:
    """Return how many workers the run would have; 1 where the machine refuses the seats."""
    with reported(problems.append, "run"):
        return seat_request(entries[0].request).parallelism
    return 1


class Destinations(Struct, kw_only=True):
    """The places of all outputs of a job, looked at one after the other and then together."""

    report: Report
    home: str = ""
    """Where the manifest of a run over several tables goes; empty if there is none, or not yet."""
    places: dict[int, tuple[str, ...]] = field(default_factory=dict)
    notices: dict[int, list[str]] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    """Which entry of the job each output is of."""
    run_id: str = field(default_factory=new_run_id)

    def look(self, number: int, entry: int, check: TableCheck | None, request: Request) -> None:
        """Look at the places of one output; those with fields need the table to be known."""
        self.entries[number] = entry
        kind = destination_kind(request.output.destinations)
        if not request.output.destination or kind in ("null", "stdout"):
            return
        if kind not in KEPT:
            self.places[number] = (request.output.destination,)
            self._pipe(entry, request.output.destination)
            return
        options = request.output
        if kind == "table":
            # Whether its columns fit is seen by `plan`, which knows those of the run.
            with reported(self.report, "to", entry):
                self.places[number] = (_place_of_table(options.destination),)
            return
        if any(map(has_fields, options.destinations)):
            if check is None or check.extract is None:
                return
            with reported(self.report, "to", entry):
                options = placed(options, check.extract, self.run_id)
            if any(map(has_fields, options.destinations)):
                return
        self.places[number] = options.destinations
        for place in options.destinations:
            error = storage_at(place).refusal(place, overwrite=options.overwrite)
            if error is not None:
                self.report(Problem(error=error, about="to", entry=entry))

    def compare(self, checks: Mapping[int, TableCheck], requests: Sequence[Request]) -> None:
        """Look for outputs that would be written over each other, and at the room for all."""
        first: dict[PurePath, int] = {}
        for number, places in self.places.items():
            for place in places:
                if first.setdefault(_real(place), number) != number:
                    self._collide(number, f"two outputs go to {place}")
        for number, places in self.places.items():
            if self.home and _real(self.home) in map(_real, places):
                error = at_home("it", self.home)
                self.report(Problem(error=error, about="to", entry=self.entries[number]))
        for number, places in self.places.items():
            for place in places:
                around = next((each for each in _real(place).parents if each in first), None)
                if around is not None and first[around] != number:
                    self._collide(number, two_are_one(str(around), str(_real(place)), same=False))
        self._room(checks, requests)

    def _collide(self, number: int, text: str) -> None:
        hint = (
            "give each output a separate directory, such as --to '/extract/{schema}.{table}', "
            "where the query-name "
        )
        error = OutputFailed(text, f"{hint}of a query is its {{table}}")
        self.report(Problem(error=error, about="to", entry=self.entries[number]))

    def _pipe(self, entry: int, place: str) -> None:
        folder, _ = pipe_template(place)
        if not Path(folder).is_dir():
            error = OutputFailed(f"{folder} is not a directory", "create it, and the pipes in it")
            self.report(Problem(error=error, about="to", entry=entry))

    def _room(self, checks: Mapping[int, TableCheck], requests: Sequence[Request]) -> None:
        """Hold the estimated output of all against what is free on each disk."""
        wanted: dict[int, list[int]] = {}
        disks: dict[int, str] = {}
        for number, check in checks.items():
            places = self.places.get(number, ())
            if not is_kept(places) or check.bytes is None:
                continue
            for place in places:
                disk = storage_at(place).disk(place)
                if disk is not None:
                    disks[disk.number] = disk.directory
                    wanted.setdefault(disk.number, []).append(number)
        sizes = {number: check.bytes or 0 for number, check in checks.items()}
        for disk_number, outputs in wanted.items():
            free = free_bytes(disks[disk_number])
            shares = [sizes[each] // len(self.places[each]) for each in outputs]
            if (
                free is None
                or sum(shares) + max(requests[each].output.min_free_bytes for each in outputs)
                <= free
            ):
                continue
            self._too_small(disks[disk_number], outputs, sum(shares), free, requests)

    def _too_small(
        self,
        directory: str,
        outputs: list[int],
        size: int,
        free: int,
        requests: Sequence[Request],
    ) -> None:
        """Report a disk that is too small; only text as it is has about the size of its table."""
        text = (
            f"{directory} has {free / 2**30:.1f} GiB free, but the tables that go there have "
            f"{size / 2**30:.1f} GiB in the source"
        )
        first = outputs[0]
        if all(_is_plain(requests[each]) for each in outputs):
            error = OutputFailed(
                text, "free disk space there, or use --compression or another --to"
            )
            self.report(Problem(error=error, about="to", entry=self.entries[first]))
        else:
            self.notices.setdefault(first, []).append(f"{text}; it may not fit")


def _place_of_table(name: str) -> str:
    kind = lake_kind(name)
    assert kind is not None
    return lake_format(kind).data_place(name)


def _is_plain(request: Request) -> bool:
    output = request.output
    return isinstance(output.format, TextFormat) and output.compression == Compression()


def _real(place: str) -> PurePath:
    return comparable(place)


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
    limits: PlanLimits
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
            table=replace(table, partitions=(), extents=(), keys=None),
            query=selection.query,
            where=selection.where,
            partitions=selection.partitions,
            keys=keys_of(self.catalog, table, selection),
            limit_rows=selection.limit_rows,
            projection=columns.read,
        )

    def _plan(self, table: TableInfo) -> None:
        check_sampling(self.catalog, self.request.selection)
        units = plan_of(table, self.request.selection, self.limits).units
        self.units = len(units)
        self.rows = _sum([unit.rows for unit in units], table.rows)
        self.bytes = _sum([unit.bytes for unit in units], table.bytes)


def _sum(units: list[int | None], table: int | None) -> int | None:
    """Return what the units sum to, which may be chosen partitions; else the table's own number."""
    known = [each for each in units if each is not None]
    return sum(known) if known and len(known) == len(units) else table
