"""Checks a job before it runs: every problem is reported, and not only the first.

The entries of a job are checked against their source, their destinations and this machine. Nothing
is made or changed, and no row is read. A disk is compared with all that would go to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import PlanLimits
from partition_planner.planner import estimated_bytes, unit_bytes
from unloader.errors import OutputFailed, UnloaderError, translate
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.model import Extract, ReadColumn, Request
from unloader.placement.seating import seat_request
from unloader.request.name_templates import directory_name, has_fields
from unloader.resolve.choosing import ChosenTable, ChosenTables, chosen_tables
from unloader.resolve.columns import columns_of, without_masked_ranges
from unloader.resolve.places import (
    at_home,
    checked_encryption,
    directory_values,
    is_finished,
    placed,
)
from unloader.resolve.planning import check_sampling, limits_of, plan_of
from unloader.resolve.resolution import extract_of, new_run_id
from unloader.resolve.resolved import projection_of_output
from unloader.selection.choice import AskedTables
from unloader.sources.base import Catalog
from unloader.sources.registry import open_unless
from unloader.storage.place_names import (
    KEPT,
    comparable,
    destination_kind,
    is_kept,
    pipe_template,
    two_are_one,
)
from unloader.storage.storage_lookup import storage_at
from writers.files.disk_space import free_bytes
from writers.model import Compression, TextFormat

About = Literal["run", "source", "table", "where", "to"]
"""What an error is about: the whole run, its source, one table, its condition, its destination."""


class Problem(Struct, frozen=True, kw_only=True):
    """One reason why a run would end with an error."""

    error: UnloaderError
    about: About
    entry: int | None = None
    """Number of the entry that it is about, from 0; None is all of them."""


class CheckedOutput(Struct, frozen=True, kw_only=True):
    """One table as one output would have it."""

    entry: int
    table: str
    """Its name in the database, as it was typed where it was not found."""
    columns: tuple[ReadColumn, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    """Estimated, in the source."""
    units: int | None = None
    places: tuple[str, ...] = ()
    """Where it goes; the fields in names are filled in as they would be now."""
    notices: tuple[str, ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    """The result of the check of some entries."""

    outputs: tuple[CheckedOutput, ...]
    problems: tuple[Problem, ...]
    server_version: str = ""
    notices: tuple[str, ...] = ()


Report = Callable[[Problem], None]


@contextmanager
def reported(report: Report, about: About, entry: int | None = None) -> Iterator[None]:
    """Report the user's error that the block raises, and continue after the block."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        report(Problem(error=known, about=about, entry=entry))


def check(entries: Sequence[AskedTables], *, home: str = "") -> Checked:
    """Check the tables of some entries, which all have the same source; report every problem.

    `home` is where the manifest of several tables goes, with its fields; empty if unknown.
    """
    problems: list[Problem] = []
    report = problems.append

    def tell(label: str, problem: Problem) -> None:
        """Report a problem; it names the table, if the entry has several."""
        error = problem.error
        if problem.entry is not None and not entries[problem.entry].is_of_one:
            error = type(error)(f"{label}: {error.message}", error.hint)
        report(replace(problem, error=error))

    workers = 1
    with reported(report, "run"):
        workers = seat_request(entries[0].request).parallelism
    catalog: Catalog | None = None
    with reported(report, "source"):
        catalog = open_unless(lambda: False, entries[0].request.source)
    chosen = ChosenTables(tables=())
    checks: list[_TableCheck] = []
    if catalog is not None:
        with closing(catalog), reported(report, "source"):
            chosen = chosen_tables(catalog, entries)
            tables = {
                (entries[each.entry].group, each.table.label): each.table for each in chosen.tables
            }
            is_of_one = entries[0].is_of_one and len({each.group for each in entries}) == 1
            size = None if is_of_one else unit_bytes(map(estimated_bytes, tables.values()), workers)
            for number in range(len(entries)):
                for missing in (each for each in chosen.problems if each.entry == number):
                    tell(missing.table, Problem(error=missing.error, about="table", entry=number))
                for found in (each for each in chosen.tables if each.entry == number):
                    limits = limits_of(found.request, workers, size)
                    tell_of = partial(tell, found.table.label)
                    checks.append(_checked(catalog, found, limits, tell_of))
    for number, entry in enumerate(entries):
        with reported(report, "to", number):
            checked_encryption(entry.request)
    # Also the places of entries without a known table.
    requests = [each.request for each in checks]
    places = _Destinations(report=report, home=home)
    for number, each in enumerate(checks):
        places.look(number, each.output.entry, each.extract, each.request)
    for number in sorted(set(range(len(entries))) - {each.output.entry for each in checks}):
        places.look(len(requests), number, None, entries[number].request)
        requests.append(entries[number].request)
    places.look_at_home(checks, overwrite=entries[0].request.output.overwrite)
    sizes = {number: each.output.bytes for number, each in enumerate(checks)}
    known = {number: size for number, size in sizes.items() if size is not None}
    places.compare(known, requests)
    return Checked(
        outputs=tuple(
            replace(
                each.output,
                places=places.places.get(number, ()),
                notices=(*each.output.notices, *places.notices.get(number, ())),
            )
            for number, each in enumerate(checks)
        ),
        problems=tuple(problems),
        server_version="" if catalog is None else catalog.server_version,
        notices=chosen.notices,
    )


class _TableCheck(Struct, frozen=True):
    request: Request
    output: CheckedOutput
    extract: Extract | None


def _checked(
    catalog: Catalog, found: ChosenTable, limits: PlanLimits, report: Report
) -> _TableCheck:
    entry, request, table = found.entry, found.request, found.table
    output = CheckedOutput(entry=entry, table=table.label)
    extract: Extract | None = None
    with reported(report, "table", entry):
        output = replace(output, notices=catalog.missing_privileges(table))
    with reported(report, "table", entry):
        read, outputs = columns_of(request, catalog, table)
        # A column that only a filter uses is read, and not written.
        written = outputs[0].written(
            read if read.filters is None else projection_of_output(read, 0)
        )
        output = replace(output, columns=written.columns)
        table = without_masked_ranges(table, catalog, outputs)
        extract = extract_of(request, table, read, catalog, request.source, None)
    if extract is not None:
        with reported(report, "where", entry):
            catalog.check_where(extract)
    with reported(report, "table", entry):
        check_sampling(catalog, request.selection)
        units = plan_of(table, request.selection, limits).units
        # The units may be of chosen partitions; without their sizes it is the whole table's.
        rows = [unit.rows for unit in units if unit.rows is not None]
        sizes = [unit.bytes for unit in units if unit.bytes is not None]
        output = replace(
            output,
            units=len(units),
            rows=sum(rows) if rows and len(rows) == len(units) else table.rows,
            bytes=sum(sizes) if sizes and len(sizes) == len(units) else table.bytes,
        )
    return _TableCheck(request, output, extract)


class _Destinations(Struct, kw_only=True):
    """The places of all outputs of a job, checked one after the other and then together."""

    report: Report
    home: str = ""
    """Where the manifest of a run over several tables goes, with its fields; empty if unknown."""
    places: dict[int, tuple[str, ...]] = field(default_factory=dict)
    notices: dict[int, list[str]] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    """The entry of the job that each output belongs to."""
    run_id: str = field(default_factory=new_run_id)

    def refuse(self, number: int, error: UnloaderError) -> None:
        self.report(Problem(error=error, about="to", entry=self.entries[number]))

    def look(self, number: int, entry: int, extract: Extract | None, request: Request) -> None:
        """Check the places of one output; fields in them need the table to be known."""
        self.entries[number] = entry
        options = request.output
        kind = destination_kind(options.destinations)
        if not options.destination or kind in ("null", "stdout"):
            return
        if kind not in KEPT:
            self.places[number] = (options.destination,)
            folder, _ = pipe_template(options.destination)
            if not Path(folder).is_dir():
                hint = "create it, and the pipes in it"
                self.refuse(number, OutputFailed(f"{folder} is not a directory", hint))
            return
        with reported(self.report, "to", entry):
            if kind == "table":
                # Whether the columns fit is checked by `plan`, which knows the table's columns.
                lake = lake_kind(options.destination)
                assert lake is not None
                self.places[number] = (lake_format(lake).data_place(options.destination),)
                return
            if extract is not None and any(map(has_fields, options.destinations)):
                options = placed(options, extract, self.run_id)
        if any(map(has_fields, options.destinations)):
            return
        self.places[number] = options.destinations
        for place in options.destinations:
            refusal = storage_at(place).refusal(place, overwrite=options.overwrite)
            if refusal is not None:
                self.refuse(number, refusal)

    def look_at_home(self, checks: Sequence[_TableCheck], *, overwrite: bool) -> None:
        extract = next((each.extract for each in checks if each.extract is not None), None)
        if has_fields(self.home):
            values = None if extract is None else directory_values(extract, self.run_id)
            self.home = "" if values is None else directory_name(self.home, values)
        if self.home and is_kept((self.home,)):
            replaces = overwrite or not is_finished(self.home)
            refusal = storage_at(self.home).refusal(self.home, overwrite=replaces)
            if refusal is not None:
                self.report(Problem(error=refusal, about="to", entry=0))

    def compare(self, sizes: Mapping[int, int], requests: Sequence[Request]) -> None:
        """Look for outputs that would be written over each other, and at the room for all."""
        first: dict[PurePath, int] = {}
        every = [(number, place) for number, places in self.places.items() for place in places]
        hint = (
            "give each output a separate directory, such as --to '/extract/{schema}.{table}', "
            "where the query-name of a query is its {table}"
        )
        for number, place in every:
            if first.setdefault(comparable(place), number) != number:
                self.refuse(number, OutputFailed(f"two outputs go to {place}", hint))
        for number, places in self.places.items():
            if self.home and comparable(self.home) in map(comparable, places):
                self.refuse(number, at_home("it", self.home))
        for number, path in ((number, comparable(place)) for number, place in every):
            around = next((each for each in path.parents if each in first), None)
            if around is not None and first[around] != number:
                text = two_are_one(str(around), str(path), same=False)
                self.refuse(number, OutputFailed(text, hint))
        # Compare the estimated output of all with the free space of each disk.
        wanted: dict[int, list[int]] = {}
        disks: dict[int, str] = {}
        for number, place in every:
            disk = storage_at(place).disk(place) if is_kept((place,)) and number in sizes else None
            if disk is not None:
                disks[disk.number] = disk.directory
                wanted.setdefault(disk.number, []).append(number)
        for disk_number, outputs in wanted.items():
            directory, options = disks[disk_number], [requests[each].output for each in outputs]
            free = free_bytes(directory)
            size = sum(sizes[each] // len(self.places[each]) for each in outputs)
            if free is None or size + max(each.min_free_bytes for each in options) <= free:
                continue
            text = (
                f"{directory} has {free / 2**30:.1f} GiB free, but the tables that go there have "
                f"{size / 2**30:.1f} GiB in the source"
            )
            # Only text as it is has about the size of its table.
            if all(
                isinstance(each.format, TextFormat) and each.compression == Compression()
                for each in options
            ):
                advice = "free disk space there, or use --compression or another --to"
                self.refuse(outputs[0], OutputFailed(text, advice))
            else:
                self.notices.setdefault(outputs[0], []).append(f"{text}; it may not fit")
