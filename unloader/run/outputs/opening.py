"""From a run to its output."""

from __future__ import annotations

from functools import partial

from unloader.resolve.outputs.one import of_output
from unloader.resolve.resolved import ResolvedRun
from unloader.run.outputs.base import RunOutput
from unloader.run.outputs.files import FileOutput
from unloader.run.outputs.null import NullOutput
from unloader.run.outputs.one_stream import StreamOutput
from unloader.storage.kinds import KEPT, destination_kind


def open_output(run: ResolvedRun, resumed_in: tuple[str, ...] = (), *, home: str = "") -> RunOutput:
    """Take the destination of a run; the caller closes it.

    Args:
        run: What is to be written.
        resumed_in: The places where a broken run of the same id is gone on with; empty for none.
        home: See `Claim.home`.

    Raises:
        OutputFailed: It cannot be opened.
        UsageError: It does not go with the plan.
        OutputFailed: A file name is too long.
    """
    if len(run.outputs) == 1:
        return _open_one(of_output(run, 0), resumed_in, home=home)
    from unloader.run.routes.outputs import RouteOutputs

    open_one = partial(_open_one, home=home)
    return RouteOutputs(run, open_one, resumed=bool(resumed_in), one_of_many=bool(home))


def _open_one(run: ResolvedRun, resumed_in: tuple[str, ...], *, home: str) -> RunOutput:
    kind = destination_kind(run.output.options.destinations)
    if kind in KEPT:
        output = FileOutput(run, resumed_in, home=home)
        output.take()
        return output
    if kind == "null":
        return NullOutput(run)
    return StreamOutput(run, pipe=kind == "pipe")
