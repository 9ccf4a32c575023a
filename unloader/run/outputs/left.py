"""What an earlier process of a run has left where its output goes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unloader.errors import OutputFailed
from unloader.manifest.read import read_manifest
from unloader.resolve.outputs.one import of_output
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.kinds import destination_kind
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at

Left = Literal["all", "units", "nothing"]
"""All is complete, some units may be staged, or it was not begun."""


def left_of(run: ResolvedRun) -> Left:
    """Return what is left of a run over one table, with all its outputs.

    A publication that was cut short is brought to its end.

    Raises:
        OutputFailed: A directory cannot be read, or the publication not be finished.
    """
    if len(run.outputs) == 1:
        return left_of_output(run)
    found = {
        left_of_output(of_output(run, number))
        for number, output in enumerate(run.outputs)
        if destination_kind(output.options.destinations) == "directories"
    }
    return found.pop() if len(found) == 1 else "units"


def left_of_output(run: ResolvedRun) -> Left:
    """Return the same of the only output of a run.

    A publication that was cut short is brought to its end.

    Raises:
        OutputFailed: The directory cannot be read, or the publication not be finished.
    """
    place = run.output.options.destination
    storage = storage_at(place)
    try:
        storage.complete(place)
        if MANIFEST in storage.names(place) and read_manifest(Path(place)).run_id == run.run_id:
            return "all"
        who = storage.who_was_here(place, counted=False)
    except FileNotFoundError:
        return "nothing"
    except OSError as error:
        raise OutputFailed(
            f"what a run has left in {place} cannot be read: {error}",
            "check the permissions there",
        ) from error
    return "units" if who is not None and who.run_id == run.run_id else "nothing"
