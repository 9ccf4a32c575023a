"""The directory that those of all tables of a run are in: its record, its status, its manifest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from unloader.errors import OutputFailed, UsageError
from unloader.manifest.read import read_index, read_manifest
from unloader.request.directory_names import directories_above, directory_name
from unloader.resolve.directories import directory_values
from unloader.resolve.resolved import ResolvedRun
from unloader.storage.base import RunStorage
from unloader.storage.model import MANIFEST, Claim
from unloader.storage.opening import storage_at

_SHOWN = 5
"""Tables that a message names."""


def home_of(template: str, runs: Sequence[ResolvedRun]) -> str:
    """Return the directory of the run as a whole: that in which those of all tables are.

    Args:
        template: The directory of `--to`, with its fields; empty where each table has another one.
        runs: Of the tables.

    Raises:
        UsageError: Two tables would have one directory, or all lie where nothing is above them.
    """
    directories = [os.path.abspath(run.output.options.destination) for run in runs]
    for directory, count in Counter(directories).items():
        if count > 1:
            labels = [
                run.extract.table.label
                for run, each in zip(runs, directories, strict=True)
                if each == directory
            ]
            raise UsageError(
                f"{' and '.join(labels[:_SHOWN])} would be written to the same directory "
                f"{directory}",
                "give each table a directory of its own: --to '/extract/{schema}.{table}'",
            )
    if not template:
        return _above(directories)
    first = runs[0]
    parts = template.rstrip("/").split("/")[: directories_above(template)]
    values = directory_values(first.extract, first.run_id)
    above = directory_name("/".join(parts), values)
    return above or ("/" if template.startswith("/") else ".")


def _above(directories: Sequence[str]) -> str:
    """Return the deepest directory that some others are in."""
    found = os.path.commonpath([os.path.dirname(each) for each in directories])
    if found == "/":
        raise UsageError(
            "the directories of the tables have nothing in common, and nothing says where the "
            "manifest of the run goes",
            "write to = '/DIRECTORY/{schema}.{table}' at the top of the job file: it goes there",
        )
    return found


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
