"""Checks a job before it runs: every problem is reported, and not only the first.

The entries of a job are checked against their source, their destinations and this machine. Nothing
is made or changed, and no row is read. A disk is compared with all that would go to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.planner import estimated_bytes, unit_bytes
from unloader.errors import OutputFailed, UnloaderError, translate
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.model import Extract, ReadColumn, Request
from unloader.placement.seating import seat_request
from unloader.request.name_templates import directory_name, has_fields
from unloader.resolve.choosing import ChosenTable, chosen_tables
from unloader.resolve.columns import columns_of, without_masked_ranges
from unloader.resolve.places import (
    at_home,
    checked_encryption,
    directory_values,
    is_finished,
    placed,
)
from unloader.resolve.planning import limits_of, plan_of
from unloader.resolve.resolution import extract_of, new_run_id
from unloader.resolve.resolved import projection_of_output
from unloader.selection.asked import AskedTables
from unloader.selection.listing import TableProblem
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


class CheckedOutput(Struct, kw_only=True):
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


class _Output(CheckedOutput, kw_only=True):
    request: Request
    extract: Extract | None = None


class Checked(Struct, frozen=True, kw_only=True):
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
    tables, missing, notices = list[ChosenTable](), list[TableProblem](), list[str]()
    outputs: list[_Output] = []
    if catalog is not None:
        with closing(catalog), reported(report, "source"):
            tables, missing, notices = chosen_tables(catalog, entries)
            each_once = {(entries[each.entry].group, each.table.label): each for each in tables}
            is_of_one = entries[0].is_of_one and len({each.group for each in entries}) == 1
            size = (
                None
                if is_of_one
                else unit_bytes(
                    (estimated_bytes(each.table) for each in each_once.values()), workers
                )
            )
            for number in range(len(entries)):
                for lost in (each for each in missing if each.entry == number):
                    tell(lost.table, Problem(error=lost.error, about="table", entry=number))
                for found in (each for each in tables if each.entry == number):
                    tell_of = partial(tell, found.table.label)
                    outputs.append(_checked(catalog, found, workers, size, tell_of))
    for number, entry in enumerate(entries):
        with reported(report, "to", number):
            checked_encryption(entry.request)
    found_outputs = tuple(outputs)
    known = {each.entry for each in outputs}
    # Also the places of entries without a known table.
    outputs += (
        _Output(entry=number, table="", request=entry.request)
        for number, entry in enumerate(entries)
        if number not in known
    )
    run_id = new_run_id()
    for output in outputs:
        _look(output, run_id, report)
    extract = next((each.extract for each in outputs if each.extract is not None), None)
    if has_fields(home):
        values = None if extract is None else directory_values(extract, run_id)
        home = "" if values is None else directory_name(home, values)
    if home and is_kept((home,)):
        replaces = entries[0].request.output.overwrite or not is_finished(home)
        refusal = storage_at(home).refusal(home, overwrite=replaces)
        if refusal is not None:
            report(Problem(error=refusal, about="to", entry=0))
    _compare(outputs, home, report)
    return Checked(
        outputs=found_outputs,
        problems=tuple(problems),
        server_version="" if catalog is None else catalog.server_version,
        notices=tuple(notices),
    )


def _checked(
    catalog: Catalog, found: ChosenTable, workers: int, unit_size: int | None, report: Report
) -> _Output:
    entry, request, table = found.entry, found.request, found.table
    output = _Output(entry=entry, table=table.label, request=request)
    with reported(report, "table", entry):
        output.notices = catalog.missing_privileges(table)
    with reported(report, "table", entry):
        read, outputs = columns_of(request, catalog, table)
        # A column that only a filter uses is read, and not written.
        written = read if read.filters is None else projection_of_output(read, 0)
        output.columns = (outputs[0].transformed or written).columns
        table = without_masked_ranges(table, catalog, outputs)
        output.extract = extract_of(request, table, read, catalog, request.source, None)
    if output.extract is not None:
        with reported(report, "where", entry):
            catalog.check_where(output.extract)
    with reported(report, "table", entry):
        limits = limits_of(request, catalog, workers, unit_size)
        units = plan_of(table, request.selection, limits).units
        # The units may be of chosen partitions; without their sizes it is the whole table's.
        rows = [unit.rows for unit in units if unit.rows is not None]
        sizes = [unit.bytes for unit in units if unit.bytes is not None]
        output.units = len(units)
        output.rows = sum(rows) if rows and len(rows) == len(units) else table.rows
        output.bytes = sum(sizes) if sizes and len(sizes) == len(units) else table.bytes
    return output


def _look(output: _Output, run_id: str, report: Report) -> None:
    """Check the places of one output; fields in them need the table to be known."""
    options = output.request.output
    kind = destination_kind(options.destinations)
    if not options.destination or kind in ("null", "stdout"):
        return
    if kind not in KEPT:
        output.places = (options.destination,)
        folder, _ = pipe_template(options.destination)
        if not Path(folder).is_dir():
            hint = "create it, and the pipes in it"
            _refuse(report, output, OutputFailed(f"{folder} is not a directory", hint))
        return
    with reported(report, "to", output.entry):
        if kind == "table":
            # Whether the columns fit is checked by `plan`, which knows the table's columns.
            lake = lake_kind(options.destination)
            assert lake is not None
            output.places = (lake_format(lake).data_place(options.destination),)
            return
        if output.extract is not None and any(map(has_fields, options.destinations)):
            options = placed(options, output.extract, run_id)
    if any(map(has_fields, options.destinations)):
        return
    output.places = options.destinations
    for place in options.destinations:
        refusal = storage_at(place).refusal(place, overwrite=options.overwrite)
        if refusal is not None:
            _refuse(report, output, refusal)


def _refuse(report: Report, output: _Output, error: UnloaderError) -> None:
    report(Problem(error=error, about="to", entry=output.entry))


def _compare(outputs: Sequence[_Output], home: str, report: Report) -> None:
    """Look for outputs that would be written over each other, and at the room for all."""
    first: dict[PurePath, _Output] = {}
    every = [(output, place) for output in outputs for place in output.places]
    hint = (
        "give each output a separate directory, such as --to '/extract/{schema}.{table}', "
        "where the query-name of a query is its {table}"
    )
    for output, place in every:
        if first.setdefault(comparable(place), output) is not output:
            _refuse(report, output, OutputFailed(f"two outputs go to {place}", hint))
    for output in outputs:
        if home and comparable(home) in map(comparable, output.places):
            _refuse(report, output, at_home("it", home))
    for output, path in ((output, comparable(place)) for output, place in every):
        around = next((each for each in path.parents if each in first), None)
        if around is not None and first[around] is not output:
            text = two_are_one(str(around), str(path), same=False)
            _refuse(report, output, OutputFailed(text, hint))
    # Compare the estimated output of all with the free space of each disk.
    wanted: dict[int, list[_Output]] = {}
    disks: dict[int, str] = {}
    for output, place in every:
        is_known = is_kept((place,)) and output.bytes is not None
        disk = storage_at(place).disk(place) if is_known else None
        if disk is not None:
            number, disks[disk[0]] = disk
            wanted.setdefault(number, []).append(output)
    for number, there in wanted.items():
        directory, options = disks[number], [each.request.output for each in there]
        free = free_bytes(directory)
        size = sum((each.bytes or 0) // len(each.places) for each in there)
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
            _refuse(report, there[0], OutputFailed(text, advice))
        else:
            there[0].notices += (f"{text}; it may not fit",)
