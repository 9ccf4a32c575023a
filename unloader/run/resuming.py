"""Going on with a broken run, whether it is over one table or over several."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from msgspec.structs import replace

from unloader.errors import OutputFailed, SnapshotGone
from unloader.events import Notice, Observer
from unloader.manifest.model import Manifest
from unloader.manifest.read import is_finished_home, read_tables_manifest
from unloader.manifest.tables import TablesManifest
from unloader.model import ClusterOptions
from unloader.request.directory_names import existing, has_fields, home_template
from unloader.request.options.running import PARALLEL
from unloader.resolve.broken_run import UnusableRecord
from unloader.resolve.tables.broken import (
    BrokenTables,
    find_broken_tables,
    first_of_tables,
    options_of_tables,
    why_not_resumable,
)
from unloader.resolve.tables.homes import home_above, is_of_tables
from unloader.resolve.tables.same import job_digest
from unloader.run.concurrency.opening import is_adaptive
from unloader.run.following import Following
from unloader.run.starting import (
    Resumption,
    Stop,
    go_on_with_tables,
    resume,
    resume_tables,
    start_tables,
)
from unloader.selection.asked import TablesRequest
from unloader.storage.model import RUN_RECORD
from unloader.storage.opening import storage_at, unreadable
from unloader.storage.paths import path_of


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
    manifest = read_tables_manifest(path_of(destination))
    observe(Notice(text=f"the run in {destination} is finished: there is nothing left to do"))
    return manifest


def resume_or_start_tables(
    asked: TablesRequest, *, observe: Observer, stop: Stop
) -> TablesManifest:
    """Go on with a broken run of the same job, or begin anew; see `unloader.api.unload_tables`."""
    template = home_template(asked.options.destination)
    # One of another day is for `resume` alone: a nightly job wants the rows of this night.
    homes = (
        existing(template, f"{datetime.now(UTC):%Y%m%d}", storage_at(template).levels)
        if has_fields(template)
        else (template or ".",)
    )
    for home in homes if asked.options.destination else ():
        alone = not has_fields(template)
        found = _gone_on_with(home, asked, alone=alone, observe=observe, stop=stop)
        if isinstance(found, TablesManifest):
            return found
        asked = found
    return start_tables(asked, observe=observe, stop=stop)


def _gone_on_with(
    home: str, asked: TablesRequest, *, alone: bool, observe: Observer, stop: Stop
) -> TablesManifest | TablesRequest:
    """Bring the broken run of a job to its end; return what is to be begun if that cannot be."""
    job = job_digest(asked)
    try:
        record = completed(home, observe)
        broken = find_broken_tables(home)
    except OutputFailed as error:
        if alone and not isinstance(error, UnusableRecord):
            raise
        if alone:
            observe(Notice(text=f"{error.message}; this run starts from the beginning"))
        return asked  # In one of several directories it may be another job's.
    if broken is None:
        return _finished_just_now(home, record, job, observe) or asked
    run_id = broken.first.run.run_id
    if broken.options.job != job:
        if alone:
            text = f"run {run_id}, which was interrupted in {home}, was a different job"
            observe(Notice(text=f"{text}: this run starts from the beginning"))
        return asked
    try:
        known = _as_asked(broken, asked)
    except OutputFailed as error:
        # Other statements of the sessions, or another key: files of both are not to be mixed.
        observe(Notice(text=f"{error.message}: this run starts from the beginning"))
        return asked
    observe(Notice(text=f"resuming run {run_id}, which was interrupted in {home}"))
    try:
        return go_on_with_tables(known, observe=observe, stop=stop)
    except SnapshotGone as error:
        observe(Notice(text=f"{error.message}; all rows are read again at a new snapshot"))
    replaces = (*broken.options.replaces, run_id)
    return replace(asked, options=replace(asked.options, replaces=replaces))


def _finished_just_now(
    home: str, record: bytes, job: str, observe: Observer
) -> TablesManifest | None:
    """Return the manifest of a run of the job that died while it was published; else None."""
    if not is_of_tables(record) or options_of_tables(record).job != job:
        return None
    observe(Notice(text=f"the run in {home} is finished: there is nothing left to do"))
    return read_tables_manifest(path_of(home))


def _as_asked(broken: BrokenTables, asked: TablesRequest) -> BrokenTables:
    """Return the broken run with what no record may hold, and as fast as is asked for now.

    Raises:
        OutputFailed: A secret is not the one that it had.
    """
    request = asked.common
    source = request.source
    masks = (
        output.output.transform for each in asked.entries for output in each.request.of_outputs()
    )
    keys = tuple(key for each in masks if each is not None for key in each.keys)
    known = broken.with_source(source.secret, source.session.session_sql)
    known = known.with_keys(request.output.encryption).with_masking_keys(keys)
    for setting in request.settings:
        if setting.name == PARALLEL.name and not is_adaptive(request):
            known = known.with_parallelism(setting, request.limits.parallelism)
    known = known.with_concurrency(request.concurrency)
    return known.with_cluster(request.cluster or ClusterOptions(address="none"))


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
    if is_of_tables(record) and is_finished_home(path_of(home)):
        run = first_of_tables(record, home)
        following = Following.of_run(run, home, options_of_tables(record).destination)
        manifest = read_tables_manifest(path_of(home))
        if run.run_id == manifest.run_id:
            following.after_all(manifest, observe)
            following.raise_failed()
    return record


def _is_home(place: str) -> bool:
    """Return whether the latest run at a place is one over several tables."""
    try:
        who = storage_at(place).who_was_here(place, counted=False)
        record = b"" if who is None else storage_at(place).record(place, RUN_RECORD)
    except OSError as error:
        raise unreadable(place, error) from error
    return is_of_tables(record) if record else is_finished_home(path_of(place))


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
        problem = why_not_resumable(home)
        hint = f"resume the whole run with: unloader resume {shlex.quote(home)}"
        if problem:
            hint = f"start again with the command of the run, because {problem}"
        raise OutputFailed(
            f"{place} has one table of run {who.run_id}, which has several tables", hint
        )
