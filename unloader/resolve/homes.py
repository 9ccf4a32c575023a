"""The home of a run over several tables: the directory that those of all its tables are in.

It has the records of the run as a whole. What this module reads of them is so little that every
version has it: the directories of the tables, so that any command can find them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.request.directory_names import above as above_of
from unloader.request.directory_names import directories_above, directory_name, has_fields
from unloader.resolve.places import directories_of, directory_values
from unloader.storage.place_names import (
    absolute,
    destination_kind,
    path_of,
    real,
    relative,
)
from unloader.storage.storage_protocol import RUN_RECORD, Storage
from writers.objects.location import Location, is_location

if TYPE_CHECKING:
    from unloader.resolve.resolved import ResolvedRun

_FIRST_KEY = b'{"tables":'
"""How the record of such a run begins; that of a run over one table does not."""

_MOST_LEVELS = 8
"""So far up a home is looked for. `{schema}` and `{table}` may be parts of several levels."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A table that was requested, and that could not be unloaded when the run began."""

    table: str
    error: str
    """Name of the class in `unloader.errors`."""
    why: str


class TablesRecord(Struct, frozen=True, kw_only=True):
    """The `RUN_RECORD` of a run over several tables. Each of `tables` has the format version."""

    tables: tuple[Raw, ...]
    """The records of the runs of the tables, as `ResolvedRun.record` writes them."""
    home: str
    options: Raw
    """`TablesOptions`: read after the version of the tables is known."""
    left_out: tuple[LeftOut, ...] = ()


class _Table(Struct, frozen=True, kw_only=True):
    schema: str | None
    name: str


class _Extract(Struct, frozen=True, kw_only=True):
    query: str | None
    table: _Table


class _Options(Struct, frozen=True, kw_only=True):
    destination: str
    others: tuple[str, ...]


class _Output(Struct, frozen=True, kw_only=True):
    options: _Options


class _Plan(Struct, frozen=True, kw_only=True):
    units: tuple[Raw, ...]


class PlannedTable(Struct, frozen=True, kw_only=True):
    """What every version of the program reads of the record of a run over one table."""

    run_id: str
    extract: _Extract
    plan: _Plan
    outputs: tuple[_Output, ...]

    @property
    def name(self) -> str:
        """The table with its schema; empty for a query."""
        table = self.extract.table
        if self.extract.query is not None:
            return ""
        return f"{table.schema}.{table.name}" if table.schema else table.name


# Made in the thread that imports: msgspec 0.22 crashes the process if two threads decode a type for
# the first time at the same time.
_RECORD, _TABLE = Decoder(TablesRecord), Decoder(PlannedTable)


class RecordedTable(Struct, frozen=True, kw_only=True):
    """One table of a run, as far as everybody can read its record."""

    name: str
    """With its schema; empty for a query."""
    directories: tuple[str, ...]
    """Of each of its outputs, the one of the manifest first."""
    homes: tuple[str, ...]
    """Those of manifests: one for each output."""
    units: int
    run_id: str
    """Of the run whose record it is. The home may have been taken by another one since, which died
    before it had a record of its own."""


def home_of(template: str, runs: Sequence[ResolvedRun]) -> str:
    """Return the directory of the run as a whole: that in which those of all tables are.

    Args:
        template: The directory of `--to`, with its fields; empty where each table has another one.
        runs: Of the tables.

    Raises:
        UsageError: Nothing is above all directories.
    """
    if is_dropped(template):
        return template
    if not template:
        return _above([absolute(run.output.options.destination) for run in runs])
    above = above_of(template, directories_above(template))
    if has_fields(above):
        above = directory_name(above, directory_values(runs[0].extract, runs[0].run_id))
    above = above or ("/" if template.startswith("/") else ".")
    _check_free(above, runs)
    return above


def _check_free(home: str, runs: Sequence[ResolvedRun]) -> None:
    """Check that no output of a table goes to the home itself."""
    here = real(home)
    for run in runs:
        for number, output in enumerate(run.outputs):
            if here in map(real, directories_of(output.options)):
                route = run.request.routes[number].name if run.request.routes else ""
                label = f"{run.extract.table.label}{f', route {route},' if route else ''}"
                raise at_home(label, home)


def at_home(what: str, home: str) -> UsageError:
    """Return the error of an output that would be written to the home itself."""
    return UsageError(
        f"{what} would be written to {home}, which is for the manifest of the run",
        f"give it a separate directory: {home}/NAME",
    )


def is_dropped(home: str) -> bool:
    """Return whether the output of all tables is dropped, so that there is no home."""
    return destination_kind((home,)) == "null"


def _above(directories: Sequence[str]) -> str:
    """Return the deepest directory that some others are in."""
    found = _common([str(path_of(each).parent) for each in directories])
    if not found:
        raise UsageError(
            "the directories of the tables have no common parent, and the options give no place "
            "for the manifest of the run",
            "write to = '/DIRECTORY/{schema}.{table}' at the top of the job file: the manifest "
            "goes to /DIRECTORY",
        )
    return found


def _common(directories: Sequence[str]) -> str:
    """Return the deepest directory that some are or lie in; empty where there is none but the root.

    In an object store that is a prefix in one bucket.
    """
    paths = [path_of(each) for each in directories]
    first = paths[0]
    if not isinstance(first, Location):
        found = os.path.commonpath(directories)
        return "" if found == "/" else found
    keys = [each.key for each in paths if isinstance(each, Location) and each.store == first.store]
    common = os.path.commonpath([f"/{key}" for key in keys]).strip("/")
    return str(replace(first, key=common)) if len(keys) == len(paths) and common else ""


def directory_now(directory: str, recorded: str, home: str) -> str:
    """Return where a directory of a table is now.

    Args:
        directory: As it was written when the run began, maybe as seen from another directory.
        recorded: The home, likewise.
        home: Where the home is now; it may have been moved.
    """
    within = relative(directory, recorded)
    if is_location(home):
        return str(path_of(home) / within) if within != "." else home
    return os.path.join(absolute(home), within)


def is_of_tables(record: bytes) -> bool:
    """Return whether a `RUN_RECORD` is that of a run over several tables."""
    return record.startswith(_FIRST_KEY)


def recorded_tables(record: bytes, home: str) -> tuple[RecordedTable, ...]:
    """Return the tables of a `RUN_RECORD`; none if it is no such record, or damaged.

    Args:
        record: All of it.
        home: Where it was found.
    """
    if not is_of_tables(record):
        return ()
    try:
        found = _RECORD.decode(record)
        tables = [_TABLE.decode(each) for each in found.tables]
    except (ValueError, RecursionError):
        return ()
    return tuple(_now(each, found.home, home) for each in tables)


def recorded_left_out(record: bytes) -> tuple[str, ...]:
    """Return the names of the tables that a run left out before the first row, by its record."""
    try:
        return tuple(each.table for each in _RECORD.decode(record).left_out)
    except (ValueError, RecursionError):
        return ()


def home_above(storage: Storage, place: str, run_id: str) -> str:
    """Return the home of a run over several tables that has a directory of one; "" if it has none.

    Args:
        storage: Of the place.
        place: The directory of a table.
        run_id: The run that has it, or had it when it died.

    Raises:
        OSError: What is there cannot be read.
    """
    found = absolute(place)
    for _ in range(_MOST_LEVELS):
        if found == (found := _parent(found)):
            break
        who = storage.who_was_here(found, counted=False)
        if who is not None and who.run_id == run_id:
            return found
    return _recorded_home(storage, place, run_id)


def _parent(place: str) -> str:
    """Return what a place lies in; the topmost one lies in itself."""
    if is_location(place):
        return str(Location.parse(place).parent)
    return os.path.dirname(place)


def _recorded_home(storage: Storage, place: str, run_id: str) -> str:
    """Return the home that a directory names: that of a route need not be within it."""
    here = storage.who_was_here(place, counted=False)
    if here is None or here.run_id != run_id or not here.home:
        return ""
    who = storage.who_was_here(here.home, counted=False)
    return here.home if who is not None and who.run_id == run_id else ""


def table_in(storage: Storage, home: str, place: str) -> RecordedTable | None:
    """Return the table of a run whose directory a place is; None if that is not known."""
    here = real(place)
    for table in recorded_tables(storage.record(home, RUN_RECORD), home):
        if here in map(real, table.directories):
            return table
    return None


def _now(table: PlannedTable, recorded: str, home: str) -> RecordedTable:
    """Return a table of a record with its directories where they are now."""

    def now(place: str) -> str:
        return directory_now(place, recorded, home)

    options = [output.options for output in table.outputs]
    return RecordedTable(
        name=table.name,
        directories=tuple(now(place) for o in options for place in (o.destination, *o.others)),
        homes=tuple(now(each.destination) for each in options),
        units=len(table.plan.units),
        run_id=table.run_id,
    )
