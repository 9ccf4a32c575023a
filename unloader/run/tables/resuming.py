"""Going on with a broken run, whether it is over one table or over several."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from unloader.errors import OutputFailed, SnapshotGone
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.manifest.read_tables import is_finished_home, read_tables_manifest
from unloader.manifest.tables import TablesManifest
from unloader.resolve.broken_run import UnusableRecord
from unloader.resolve.broken_tables import find_broken_tables, first_of_tables
from unloader.resolve.homes import above_tables, home_above, is_dropped, is_of_tables
from unloader.resolve.tables_job import digest_of
from unloader.run.starting import (
    Resumption,
    Stop,
    places_now,
    resume,
    resume_tables,
    start_tables,
)
from unloader.run.tables.following import Following
from unloader.selection.asked import TablesRequest
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


def resume_or_start_tables(
    asked: TablesRequest, *, observe: Observer, stop: Stop
) -> TablesManifest:
    """Go on with a broken run of the same job, or begin anew; see `unloader.api.unload_tables`."""
    job = digest_of(asked)
    for home in _homes_of(asked):
        found = _gone_on_with(home, asked, job, observe, stop)
        if found is not None:
            return found
    return begin_tables(asked, observe=observe, stop=stop)


def begin_tables(asked: TablesRequest, *, observe: Observer, stop: Stop) -> TablesManifest:
    """Begin a run anew; see `unloader.api.unload_tables`."""
    options = replace(asked.options, job=digest_of(asked))
    return start_tables(replace(asked, options=options), observe=observe, stop=stop)


def _homes_of(asked: TablesRequest) -> tuple[str, ...]:
    """Return where a broken run of a request may have its records."""
    destination = asked.options.destination
    if not destination or is_dropped(destination):
        return ()
    return places_now(above_tables(destination))


def _gone_on_with(
    home: str, asked: TablesRequest, job: str, observe: Observer, stop: Stop
) -> TablesManifest | None:
    """Bring the broken run of a job in a directory to its end; return None if there is none."""
    try:
        completed(home, observe)
        broken = find_broken_tables(home)
    except UnusableRecord as error:
        observe(Notice(text=f"{error.message}; this one begins anew"))
        return None
    if broken is None:
        return None
    run = broken.first.run
    source = asked.common.source
    statements = source.session.session_sql
    same = run.is_session_sql(statements) if run.withheld else not statements
    if not same or broken.options.job != job:
        text = f"run {run.run_id}, which was broken off in {home}, was another job"
        observe(Notice(text=f"{text}: this one begins anew"))
        return None
    observe(Notice(text=f"resuming run {run.run_id}, which was broken off in {home}"))
    again = Resumption(
        secret=source.secret,
        session_sql=statements,
        keys=asked.common.output.encryption,
    )
    try:
        return resume_tables(home, again, observe=observe, stop=stop)
    except SnapshotGone as error:
        observe(Notice(text=f"{error.message}; everything is read again at a new snapshot"))
    return None


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
