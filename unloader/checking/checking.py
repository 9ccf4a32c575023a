"""Checks the entries of a job against their source, their destinations and this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec.structs import replace

from partition_planner.several import estimated_bytes, unit_bytes
from unloader.checking.destinations import Destinations
from unloader.checking.model import Checked, Problem
from unloader.checking.tables import Report, TableCheck, reported
from unloader.events import Observer, PhaseStarted, silent
from unloader.placement.seating import seat_request
from unloader.resolve.outputs.encrypting import checked_encryption
from unloader.resolve.planning import one_of_several
from unloader.resolve.tables.choosing import ChosenTables, chosen_tables
from unloader.selection.asked import AskedTables
from unloader.sources.base import Catalog
from unloader.sources.cancelling import open_unless


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
                request=table.request if is_of_one else one_of_several(table.request, size),
                parallelism=workers,
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
