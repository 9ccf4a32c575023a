"""What holds for one table and one route of a job file: the nearest value counts."""

from __future__ import annotations

from collections.abc import Iterable

from unloader.errors import UsageError
from unloader.request.job.model import Entry, Given, JobFile

SUBJECT = ("table", "query", "tables_from")
"""An entry that says one of them says what it reads: the others are not taken from above."""


def values_of(
    job: JobFile, table: Entry | None = None, route: Entry | None = None
) -> dict[str, Given]:
    """Return what holds for a table and a route, by its keys.

    A route overrides its table, a table the top of the file, and the top [defaults].
    """
    found: dict[str, Given] = {}
    for layer in (job.defaults, job.values, _values(table), _values(route)):
        if any(given.key in SUBJECT for given in layer):
            found = {key: given for key, given in found.items() if key not in SUBJECT}
        found.update((given.key, given) for given in layer)
    return found


def routes_of(job: JobFile, table: Entry | None) -> tuple[Entry | None, ...]:
    """Return the routes of a table; one None where it has but the output that the top says."""
    own = () if table is None else table.routes
    return own or job.routes or (None,)


def pairs(job: JobFile) -> tuple[tuple[Entry | None, Entry | None], ...]:
    """Return each table of a job with each of its routes; None where the top says it all."""
    return tuple(
        (table, route) for table in job.tables or (None,) for route in routes_of(job, table)
    )


def the_only(job: JobFile) -> tuple[Entry | None, Entry | None]:
    """Return the one table of a job, and its route if it has one; None if it has several.

    Raises:
        UsageError: There are more tables, or the route would narrow what its table selects.
    """
    if len(job.tables) > 1:
        raise UsageError(
            f"this command takes one table, and {job.path} has {len(job.tables)}",
            "write a job file for each, and put their common keys into a file that they include",
        )
    return first_of(job)


def first_of(job: JobFile) -> tuple[Entry | None, Entry | None]:
    """Return the first table of a job, and its route if it has one; None if it has several.

    Raises:
        UsageError: The route would narrow what its table selects.
    """
    table = job.tables[0] if job.tables else None
    return table, only_route(job, table)


def only_route(job: JobFile, table: Entry | None) -> Entry | None:
    """Return the one route of a table; None if it has several, or only what stands above.

    Raises:
        UsageError: The route would narrow what the table selects.
    """
    routes = routes_of(job, table)
    if len(routes) > 1:
        return None
    _check_narrowing(job, table, routes[0])
    return routes[0]


def _check_narrowing(job: JobFile, table: Entry | None, route: Entry | None) -> None:
    above = {given.key for given in (*job.values, *_values(table))}
    for given in () if route is None else route.values:
        if given.key in above & {"columns", "exclude", "where"}:
            raise UsageError(
                f"{given.where()}: the key {given.key!r} is also set above the route, and rows "
                "are selected once",
                "write it in one of the two places",
            )


def defaults_among(values: Iterable[Given]) -> frozenset[str]:
    """Return the keys that stand in [defaults] alone, which are passed over if out of place."""
    return frozenset(given.key for given in values if given.is_default)


def _values(entry: Entry | None) -> tuple[Given, ...]:
    return () if entry is None else entry.values
