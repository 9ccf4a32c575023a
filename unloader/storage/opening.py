"""From a job to its destination, and to where each of its work units would go."""

from __future__ import annotations

from pathlib import Path

from partition_planner.model import Plan
from unloader.model import Extract, Request
from unloader.storage.base import Destination
from unloader.storage.directories.files import Files
from unloader.storage.directories.stripes import stripes
from unloader.storage.kinds import kind_of, pipe_template
from unloader.storage.naming import Naming
from unloader.storage.streams.pipes import UnitPipes
from unloader.storage.streams.stream import OneStream


def open_destination(job: Request, extract: Extract, plan: Plan) -> Destination:
    """Take the destination of a job; the caller closes it.

    Raises:
        OutputFailed: It cannot be had.
        UsageError: It does not go with the plan.
        ConfigError: A file name is too long.
    """
    kind = kind_of(job.output.destinations)
    if kind == "directories":
        return Files(job, extract, plan)
    if kind == "pipes":
        return UnitPipes(job, extract, plan)
    return OneStream(job, extract, plan, pipe=kind == "pipe")


def places(job: Request, extract: Extract, plan: Plan) -> dict[str, str]:
    """Return for each unit the file, the first of several files, or the pipe that it goes to.

    Empty where the job names no destination.

    Raises:
        ConfigError: A name is longer than file systems allow.
    """
    output = job.output
    kind = kind_of(output.destinations)
    if not output.destination or kind == "stdout":
        return {unit.id: "standard output" for unit in plan.units if output.destination}
    if kind == "directories":
        template = output.file_name
        folders = [Path(each) for each in output.destinations]
    else:
        folder, template = pipe_template(output.destination)
        folders = [folder]
    one = kind == "pipe" or (kind == "directories" and output.file_per == "table")
    naming = Naming.of(job, extract, template, one=one)
    striped = stripes(plan, len(folders))
    return {
        unit.id: str(folders[0 if one else striped[unit.id]] / naming.name(unit))
        for unit in plan.units
    }
