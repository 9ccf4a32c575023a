"""Checks the outputs of a job against their source, their destinations and this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from unloader.checking.destinations import Destinations
from unloader.checking.model import Checked, CheckedOutput, Problem
from unloader.checking.tables import TableCheck, reported
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Request
from unloader.placement.seating import seat_request
from unloader.resolve.encrypting import checked_encryption
from unloader.sources.base import Catalog
from unloader.sources.cancelling import open_unless


def check(
    requests: Sequence[Request],
    *,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Checked:
    """Return what is known of some outputs of one source, every problem at once.

    No row is read, no snapshot taken, and nothing is written.

    Args:
        requests: One for each output; all have the same source.
        observe: Reports each step as it begins.
        stop: Asked several times a second while the source is opened.
    """
    problems: list[Problem] = []
    report = problems.append
    workers = _workers(requests, problems)
    observe(PhaseStarted(phase="connecting"))
    catalog: Catalog | None = None
    with reported(report, "source"):
        catalog = open_unless(stop, requests[0].source)
    places = Destinations(report=report)
    checks: list[TableCheck] = []
    if catalog is not None:
        with closing(catalog):
            observe(PhaseStarted(phase="table"))
            for number, request in enumerate(requests):
                made = TableCheck(
                    catalog=catalog,
                    request=request,
                    parallelism=workers,
                    number=number,
                    report=report,
                )
                made.check()
                checks.append(made)
    for number, request in enumerate(requests):
        with reported(report, "to", number):
            checked_encryption(request)
        places.look(number, checks[number] if checks else None, request)
    places.compare(checks, requests)
    return Checked(
        outputs=tuple(
            each.checked(
                places.places.get(each.number, ()), tuple(places.notices.get(each.number, ()))
            )
            for each in checks
        )
        or tuple(CheckedOutput(table=_named(each)) for each in requests),
        problems=tuple(problems),
        server_version="" if catalog is None else catalog.server_version,
    )


def _workers(requests: Sequence[Request], problems: list[Problem]) -> int:
    """Return how many workers the run would have; 1 where the machine refuses the seats."""
    with reported(problems.append, "run"):
        return seat_request(requests[0]).parallelism
    return 1


def _named(request: Request) -> str:
    selection = request.selection
    return str(selection.table) if selection.table is not None else "the query"
