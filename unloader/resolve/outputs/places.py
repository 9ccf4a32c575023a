"""Where each work unit of a run goes, before anything is taken or written."""

from __future__ import annotations

from unloader.resolve.outputs.naming import Naming
from unloader.resolve.outputs.one import of_output
from unloader.resolve.outputs.stripes import stripes
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.place_names import KEPT, destination_kind, path_of, pipe_template


def places(run: ResolvedRun) -> dict[str, str]:
    """Return for each unit the file, the first of several files, or the pipe that it goes to.

    Empty where the run has no destination, or several outputs.

    Raises:
        OutputFailed: A name is longer than file systems allow.
    """
    if len(run.outputs) > 1:
        return {}
    run = of_output(run, 0)
    output, units = run.output.options, run.plan.units
    kind = destination_kind(output.destinations)
    if not output.destination or kind == "stdout":
        return {unit.id: "standard output" for unit in units if output.destination}
    if kind == "null":
        return {unit.id: output.destination for unit in units}
    if kind in KEPT:
        template = output.file_name
        folders = [path_of(each) for each in output.destinations]
    else:
        folder, template = pipe_template(output.destination)
        folders = [folder]
    one = kind == "pipe" or (kind in KEPT and output.file_per == "table")
    naming = Naming.of(run, template, one=one)
    striped = stripes(run.plan, len(folders))
    return {
        unit.id: str(folders[0 if one else striped[unit.id]] / naming.name(unit)) for unit in units
    }
