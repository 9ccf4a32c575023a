"""The directory that those of all tables of a run are in: its record, its status, its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unloader.errors import OutputFailed
from unloader.manifest.read import read_index, read_manifest
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.base import RunStorage
from unloader.storage.model import MANIFEST, Claim
from unloader.storage.opening import storage_at


def take_home(place: str, run_id: str, *, overwrite: bool, resumed: bool) -> RunStorage:
    """Take the directory; the caller closes it.

    Raises:
        OutputFailed: Another run has it, or it holds a finished run and `overwrite` is off.
    """
    return storage_at(place).take(
        Claim(
            places=(place,),
            run_id=run_id,
            overwrite=overwrite,
            read_index=read_index,
            resumed=resumed,
            shared=True,
        )
    )


def left_of(run: ResolvedRun) -> Literal["all", "units", "nothing"]:
    """Return what an earlier process of a run has left of a table: all of it is complete, some of
    its units may be staged, or it was not begun.

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
