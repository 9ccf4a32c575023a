"""From a run to its destination, and to where each of its work units would go."""

from __future__ import annotations

from pathlib import Path

from unloader.resolve.resolved import ResolvedRun
from unloader.storage.base import Destination
from unloader.storage.directories.files import Files
from unloader.storage.directories.stripes import stripes
from unloader.storage.kinds import kind_of, pipe_template
from unloader.storage.naming import Naming
from unloader.storage.streams.pipes import UnitPipes
from unloader.storage.streams.stream import OneStream


def open_destination(run: ResolvedRun) -> Destination:
    """Take the destination of a run; the caller closes it.

    Raises:
        OutputFailed: It cannot be had.
        UsageError: It does not go with the plan.
        ConfigError: A file name is too long.
    """
    kind = kind_of(run.output.options.destinations)
    if kind == "directories":
        return Files(run)
    if kind == "pipes":
        return UnitPipes(run)
    return OneStream(run, pipe=kind == "pipe")


def places(run: ResolvedRun) -> dict[str, str]:
    """Return for each unit the file, the first of several files, or the pipe that it goes to.

    Empty where the run has no destination.

    Raises:
        ConfigError: A name is longer than file systems allow.
    """
    output, units = run.output.options, run.plan.units
    kind = kind_of(output.destinations)
    if not output.destination or kind == "stdout":
        return {unit.id: "standard output" for unit in units if output.destination}
    if kind == "directories":
        template = output.file_name
        folders = [Path(each) for each in output.destinations]
    else:
        folder, template = pipe_template(output.destination)
        folders = [folder]
    one = kind == "pipe" or (kind == "directories" and output.file_per == "table")
    naming = Naming.of(run, template, one=one)
    striped = stripes(run.plan, len(folders))
    return {
        unit.id: str(folders[0 if one else striped[unit.id]] / naming.name(unit)) for unit in units
    }
