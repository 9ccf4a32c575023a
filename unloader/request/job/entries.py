"""The content of a job file as plain data, and the values that hold for one table and route."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from unloader.errors import UnloaderError, UsageError

EntryKind = Literal["table", "route"]


class Place(Struct, frozen=True, kw_only=True):
    """A place in a job file."""

    path: str
    line: int | None = None
    """Counted from 1; None where it is not known."""

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}, line {self.line}"


class Given(Struct, frozen=True, kw_only=True):
    """One key with its value."""

    key: str
    """With underscores and in lower case."""
    value: Any
    """As TOML has it, with its variables replaced."""
    place: Place
    written: Any = None
    """As TOML has it, with the names of its variables."""
    entry: str = ""
    """The entry of the key, such as `[[table]] 2`; empty at the top."""
    is_default: bool = False
    """It is in [defaults], and is ignored where it does not apply."""

    def where(self) -> str:
        return f"{self.place}: {self.entry}" if self.entry else str(self.place)


class Entry(Struct, frozen=True, kw_only=True):
    """One [[table]], [[route]] or [[table.route]]."""

    kind: EntryKind
    number: int
    """Its number in the list, from 1, with the entries of included files first."""
    place: Place
    values: tuple[Given, ...] = ()
    name: str = ""
    """The name of a route; empty for a route without a name."""
    routes: tuple[Entry, ...] = ()
    """The routes of a table, which replace the routes of the job."""

    @property
    def label(self) -> str:
        return f"[[{self.kind}]] {self.name or self.number}"


class JobFile(Struct, frozen=True, kw_only=True):
    """A job file with all that it includes."""

    path: str
    source: Given | None = None
    """The URL of the source."""
    values: tuple[Given, ...] = ()
    """Keys at the top or in [run]: of the run, and above all entries."""
    defaults: tuple[Given, ...] = ()
    """Keys in [defaults], which count if a key is not set elsewhere."""
    tables: tuple[Entry, ...] = ()
    """Empty if the keys at the top name the tables."""
    routes: tuple[Entry, ...] = ()
    """Routes of each table without separate routes; empty if the top names the output."""


class Mistake(Struct, frozen=True, kw_only=True):
    """An error at one place of a job file."""

    error: UnloaderError
    """Its message names place, entry and key."""
    place: Place
    key: str = ""
    """With hyphens; empty where it is about no key, or the key may be a secret."""
    entry: str = ""


SUBJECT = ("table", "query", "tables_from")
"""If an entry has one of these keys, the other keys are not taken from above."""


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


def only_route(job: JobFile, table: Entry | None) -> Entry | None:
    """Return the one route of a table; None if it has several, or no route.

    Raises:
        UsageError: The route would narrow the selection of the table.
    """
    routes = routes_of(job, table)
    if len(routes) > 1:
        return None
    (route,) = routes
    above = {given.key for given in (*job.values, *_values(table))}
    for given in _values(route):
        if given.key in above & {"columns", "exclude", "where"}:
            raise UsageError(
                f"{given.where()}: the key {given.key!r} is also set above the route, and rows "
                "are selected once",
                "write it in one of the two places",
            )
    return route


def _values(entry: Entry | None) -> tuple[Given, ...]:
    return () if entry is None else entry.values
