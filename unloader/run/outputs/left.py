"""What an earlier process of a run has left where its output goes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.resolve.outputs.one import of_output
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.kinds import is_kept
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at, unreadable
from unloader.storage.paths import path_of


class Left(Struct, frozen=True, kw_only=True):
    """What is left of one table."""

    what: Literal["all", "units", "nothing"]
    """All is complete, some units may be staged, or it was not begun."""
    manifests: tuple[Manifest, ...] = ()
    """Where all is complete: of each of its outputs that are directories."""


def left_of(run: ResolvedRun) -> Left:
    """Return what is left of a run over one table, with all its outputs.

    The caller has brought publications that were cut short to their end.

    Raises:
        OutputFailed: A directory cannot be read.
    """
    found = [
        left_of_output(of_output(run, number), completed=True)
        for number, output in enumerate(run.outputs)
        if is_kept(output.options.destinations)
    ]
    kinds = {each.what for each in found}
    if kinds == {"all"}:
        return Left(what="all", manifests=tuple(one for each in found for one in each.manifests))
    return Left(what="nothing" if kinds <= {"nothing"} else "units")


def left_of_output(run: ResolvedRun, *, completed: bool = False) -> Left:
    """Return the same of the only output of a run.

    Args:
        run: The run.
        completed: Publications that were cut short are at their end; otherwise they are brought
            to it.

    Raises:
        OutputFailed: The directory cannot be read, or the publication not be finished.
    """
    place = run.output.options.destination
    storage = storage_at(place)
    try:
        if not completed:
            storage.complete(place)
        if MANIFEST in storage.names(place):
            manifest = read_manifest(path_of(place))
            if manifest.run_id == run.run_id:
                return Left(what="all", manifests=(manifest,))
        who = storage.who_was_here(place, counted=False)
    except FileNotFoundError:
        return Left(what="nothing")
    except OSError as error:
        raise unreadable(place, error) from error
    return Left(what="units" if who is not None and who.run_id == run.run_id else "nothing")
