"""From a job to its output."""

from __future__ import annotations

from partition_planner.model import Plan
from unloader.model import Extract, Request
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.files import FileOutput
from unloader.run.outputs.one_stream import StreamOutput
from unloader.run.outputs.unit_pipes import PipeOutput
from unloader.storage.kinds import destination_kind


def open_output(job: Request, extract: Extract, plan: Plan) -> RunOutput:
    """Take the destination of a job; the caller closes it.

    Raises:
        OutputFailed: It cannot be had.
        UsageError: It does not go with the plan.
        ConfigError: A file name is too long.
    """
    kind = destination_kind(job.output.destinations)
    if kind == "directories":
        return FileOutput(job, extract, plan)
    if kind == "pipes":
        return PipeOutput(job, extract, plan)
    return StreamOutput(job, extract, plan, pipe=kind == "pipe")
