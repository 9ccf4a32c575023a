"""The home of a run over several tables: the directory around the directories of its tables.

It has the record, the status and the manifest of the run as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.request.directory_names import above as above_of
from unloader.request.directory_names import directories_above, directory_name, has_fields
from unloader.resolve.places import directories_of, directory_values
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.place_names import absolute, destination_kind, path_of, real
from unloader.storage.storage_protocol import Storage
from writers.objects.location import Location, is_location

_MOST_LEVELS = 8
"""The levels up to which a home is looked for. `{schema}` and `{table}` may be several levels."""


def home_of(template: str, runs: Sequence[ResolvedTable]) -> str:
    """Return the directory around the directories of all tables.

    Args:
        template: The directory of `--to`, with its fields; empty where each table has another one.
        runs: Of the tables.

    Raises:
        UsageError: The directories have no common parent, or a table goes to the home itself.
    """
    if is_dropped(template):
        return template
    if not template:
        return _above([absolute(run.output.options.destination) for run in runs])
    home = above_of(template, directories_above(template))
    if has_fields(home):
        home = directory_name(home, directory_values(runs[0].extract, runs[0].run_id))
    home = home or ("/" if template.startswith("/") else ".")
    here = real(home)
    for run in runs:
        for number, output in enumerate(run.outputs):
            if here in map(real, directories_of(output.options)):
                route = run.request.routes[number].name if run.request.routes else ""
                label = f"{run.extract.table.label}{f', route {route},' if route else ''}"
                raise at_home(label, home)
    return home


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
    """Return the deepest directory, or prefix of one bucket, that contains all directories."""
    parents = [path_of(each).parent for each in directories]
    first, found = parents[0], ""
    if isinstance(first, Location):
        stores = [each for each in parents if isinstance(each, Location)]
        if len(stores) == len(parents) and {each.store for each in stores} == {first.store}:
            key = os.path.commonpath([f"/{each.key}" for each in stores]).strip("/")
            found = str(replace(first, key=key)) if key else ""
    else:
        found = os.path.commonpath(list(map(str, parents))).removesuffix("/")
    if not found:
        raise UsageError(
            "the directories of the tables have no common parent, and the options give no place "
            "for the manifest of the run",
            "write to = '/DIRECTORY/{schema}.{table}' at the top of the job file: the manifest "
            "goes to /DIRECTORY",
        )
    return found


def home_above(storage: Storage, place: str, run_id: str) -> str:
    """Return the home of the run over several tables to which a directory belongs; "" if none.

    Args:
        storage: Of the place.
        place: The directory of a table.
        run_id: The run that has it, or had it when it died.

    Raises:
        OSError: A directory cannot be read.
    """

    def is_of_run(home: str) -> bool:
        who = storage.who_was_here(home, counted=False)
        return who is not None and who.run_id == run_id

    below = absolute(place)
    for _ in range(_MOST_LEVELS):
        above = str(Location.parse(below).parent) if is_location(below) else os.path.dirname(below)
        if above == below:
            break
        if is_of_run(above):
            return above
        below = above
    # The home of a route need not be above it, so its lock names it.
    here = storage.who_was_here(place, counted=False)
    named = here.home if here is not None and here.run_id == run_id else ""
    return named if named and is_of_run(named) else ""
