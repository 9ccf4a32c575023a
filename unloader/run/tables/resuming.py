"""Going on with a broken run, whether it is over one table or over several."""

from __future__ import annotations

import shlex
from pathlib import Path

from unloader.errors import OutputFailed
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.manifest.read_tables import is_finished_home, read_tables_manifest
from unloader.manifest.tables import TablesManifest
from unloader.resolve.broken_tables import first_of_tables
from unloader.resolve.homes import home_above, is_of_tables
from unloader.run.starting import Resumption, Stop, resume, resume_tables
from unloader.run.tables.following import Following
from unloader.storage.model import RUN_RECORD
from unloader.storage.opening import storage_at


def resume_either(
    destination: str, again: Resumption, *, observe: Observer, stop: Stop
) -> tuple[Manifest, ...] | TablesManifest:
    """Go on with the run that has died at a destination; see `unloader.api.resume`."""
    _check_no_table_of_a_run(destination)
    if not _is_home(destination):
        return resume(destination, again, observe=observe, stop=stop)
    completed(destination, observe)
    found = resume_tables(destination, again, observe=observe, stop=stop)
    if found is not None:
        return found
    manifest = read_tables_manifest(Path(destination))
    observe(Notice(text=f"the run in {destination} is finished: nothing is left to do"))
    return manifest


def completed(home: str, observe: Observer) -> bytes:
    """Finish the publication of a run that was cut short; return its record, empty if none was.

    Raises:
        OutputFailed: It cannot be finished.
        FollowUpFailed: The run is complete, and a link could not be switched.
    """
    record = b""
    for each in storage_at(home).complete(home):
        for text in each.messages:
            observe(Notice(text=text))
        record = each.record
    if is_of_tables(record) and is_finished_home(Path(home)):
        run, template = first_of_tables(record, home)
        following = Following.of_run(run, home, template)
        manifest = read_tables_manifest(Path(home))
        if run.run_id == manifest.run_id:
            following.after_all(manifest, observe)
            following.raised_after(manifest)
    return record


def _is_home(place: str) -> bool:
    """Return whether the latest run at a place is one over several tables."""
    try:
        who = storage_at(place).who_was_here(place, counted=False)
        record = b"" if who is None else storage_at(place).record(place, RUN_RECORD)
    except OSError as error:
        raise OutputFailed(
            f"what a run has left in {place} cannot be read: {error}",
            "check the permissions there",
        ) from error
    return is_of_tables(record) if record else is_finished_home(Path(place))


def _check_no_table_of_a_run(place: str) -> None:
    """Check that a place is not that of one table of several.

    Raises:
        OutputFailed: It is: the run goes on as a whole.
    """
    storage = storage_at(place)
    try:
        who = storage.who_was_here(place, counted=False)
        if who is None or not who.run_id or storage.record(place, RUN_RECORD):
            return
        home = home_above(storage, place, who.run_id)
    except OSError:
        return  # Whoever looks for the run there says so.
    if home:
        raise OutputFailed(
            f"{place} is of one table of run {who.run_id}, which is over several",
            f"continue that with: unloader resume {shlex.quote(home)}",
        )
