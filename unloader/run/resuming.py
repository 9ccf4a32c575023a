"""Continuing a run that was stopped, failed or killed, of one table or of several tables."""

from __future__ import annotations

import shlex
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, SnapshotGone
from unloader.events import Notice, Observer
from unloader.lakehouse.lake_formats import absolute_name, lake_kind
from unloader.manifest.model import Manifest, TablesManifest
from unloader.manifest.read import home_manifest, read_manifest
from unloader.model import (
    ClusterOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    SecretReference,
    Setting,
)
from unloader.redaction import redact
from unloader.request.name_templates import existing, has_fields, home_template
from unloader.resolve.broken_run import (
    BrokenRun,
    find_broken_run,
    is_finished,
    why_not_resumable,
)
from unloader.resolve.opening import reopened
from unloader.resolve.places import home_above
from unloader.resolve.planned import digest_of_tables_job, is_of_plan, same_job
from unloader.resolve.resolved import ResolvedTable, has_same_keys, of_route
from unloader.resolve.run_record import UnusableRecord, first_of, is_of_tables, options_of
from unloader.retention.following import Following, follow
from unloader.run.concurrency import is_adaptive
from unloader.run.places import left_of_tables, places_of
from unloader.run.run import Manifests, commit, run
from unloader.run.starting import Stop, start, tell_settings
from unloader.run.workers import workers_for
from unloader.secrets.encryption_keys import check_key
from unloader.selection.choice import TablesRequest
from unloader.storage.place_names import is_kept, path_of, real
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import RUN_RECORD

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


class Resumption(Struct, frozen=True, kw_only=True):
    """The user's options for a resumed run."""

    secret: SecretReference | None = None
    """Where the password is found now; None is where it was."""
    session_sql: tuple[str, ...] = ()
    """The first statements of the sessions; no record holds them."""
    cluster: ClusterOptions | None = None
    """The new cluster of the workers; empty fields keep the run's values."""
    parallelism: int | None = None
    """Workers from now on; 0 is the number of usable cores, None is as the run had it."""
    new_snapshot: bool = False
    """Read everything again."""
    keys: EncryptionOptions | None = None
    """Where the keys of encrypted files are found now; None is where they were."""
    masking_keys: tuple[MaskingKey, ...] = ()
    """The new places of keys of masks; keys without a name here keep their places."""


def resume(destination: str, again: Resumption, *, observe: Observer, stop: Stop) -> Manifests:
    """Continue the run that has died at a destination; see `unloader.api.resume`."""
    _check_no_table_of_a_run(destination)
    done = _completed(destination, observe)
    broken = find_broken_run(destination) or _other_route(destination)
    if broken is None:
        return _finished(destination, done, observe)
    workers = again.parallelism
    setting = Setting(name="parallelism", value=str(workers or "auto"), origin="resume")

    broken = broken.with_source(again.secret, again.session_sql).with_keys(again.keys)
    broken = broken.with_masking_keys(again.masking_keys, same=not again.new_snapshot)
    broken = broken.with_cluster(again.cluster)
    if workers is not None:
        broken = broken.with_parallelism(setting, workers or None)
    if not again.new_snapshot:
        return _continued(broken, observe, stop)
    requests = broken.requests_here()
    if broken.is_single:
        return start(TablesRequest.one(requests[0]), observe=observe, stop=stop)
    replaces = (*broken.options.replaces, broken.run_id)
    options = replace(broken.options, home=broken.place, replaces=replaces)
    left_out = tuple((each.table, each.error.message) for each in broken.left_out)
    asked = replace(TablesRequest.of(requests, options), left_out=left_out)
    return start(asked, observe=observe, stop=stop)


def _continued(broken: BrokenRun, observe: Observer, stop: Stop) -> Manifests:
    """Execute the rest of a run, with the values that no record may hold."""
    request = broken.first.request
    workers = broken.parallelism or broken.first.plan.limits.parallelism
    with workers_for(request, workers, stop=stop) as team:
        seats = team.seats
        broken = broken.changed(lambda run: run.seated(seats))
        tell_settings((each.request for each in broken.tables), observe)
        left = left_of_tables(broken.tables, broken.place, observe)
        with reopened(
            broken,
            done=lambda run: left[places_of(run)].what == "all",
            stop=stop,
            observe=observe,
        ) as ready:
            return run(ready, team.executor, left, observe=observe, stop=stop)


def _as_asked(broken: BrokenRun, asked: TablesRequest) -> BrokenRun:
    """Return a run with what no record may hold, and as fast as a request for it asks now.

    Raises:
        OutputFailed: A secret is not the one that it had.
    """
    request, requests = asked.common, [entry.request for entry in asked.entries]
    source = request.source
    masking_keys = tuple(key for each in requests for key in _masking_keys(each))
    keys = [each.output.encryption for each in request.of_outputs()]

    if not asked.is_single:
        keys = keys[:1]
    broken = broken.with_source(source.secret, source.session.session_sql).with_keys(*keys)
    broken = broken.with_masking_keys(masking_keys)
    for setting in request.settings:
        if setting.name == "parallelism" and not is_adaptive(request):
            broken = broken.with_parallelism(setting, request.limits.parallelism)
    broken = broken.with_concurrency(request.concurrency)
    return broken.with_cluster(request.cluster or ClusterOptions(address="none"))


def resume_or_start(
    asked: TablesRequest, planned: ResolvedTable | None = None, *, observe: Observer, stop: Stop
) -> Manifests:
    """Continue an interrupted run of the same job, or start; see `unloader.api.unload`."""
    for place in _places_of(asked):
        found = _resumed(place, asked, planned, observe, stop)
        if not isinstance(found, TablesRequest):
            return found
        asked = found
    return start(asked, planned, observe=observe, stop=stop)


def _places_of(asked: TablesRequest) -> tuple[str, ...]:
    """Return where an interrupted run of a request may be."""
    if not asked.is_single:
        template = home_template(asked.options.destination)
        return _in_place(template or ".") if asked.options.destination else ()
    outputs = [each.output for each in asked.common.of_outputs()]
    return tuple(dict.fromkeys(place for each in outputs for place in _places_of_output(each)))


def _places_of_output(output: OutputOptions) -> tuple[str, ...]:
    if not is_kept(output.destinations):
        return ()
    if lake_kind(output.destination) is not None:
        from unloader.lakehouse.lake_runs import uncommitted

        return tuple(place for place, _ in uncommitted(output.destination))
    return _in_place(output.destination)


def _in_place(template: str) -> tuple[str, ...]:
    """Return the directory, or the existing ones that it may be with its fields.

    A run of another day is for `resume` alone: a nightly job needs the rows of this night.
    """
    if not has_fields(template):
        return (template,)
    return tuple(existing(template, _today(), storage_at(template).levels))


def _today() -> str:
    return f"{datetime.now(UTC):%Y%m%d}"


def _resumed(
    place: str,
    asked: TablesRequest,
    planned: ResolvedTable | None,
    observe: Observer,
    stop: Stop,
) -> Manifests | TablesRequest:
    """Finish the interrupted run of a job at a place; return the new run that is to be started."""
    to = asked.common.output.destination
    is_fixed = not has_fields(to if asked.is_single else home_template(asked.options.destination))
    try:
        done = _completed(place, observe)
        broken = find_broken_run(place) or (_other_route(place) if asked.is_single else None)
    except OutputFailed as error:
        if not is_fixed:
            return asked  # It may be of another job.
        if not isinstance(error, UnusableRecord):
            raise
        observe(Notice(text=f"{error.message}; this run starts from the beginning"))
        return asked
    if broken is None or broken.is_single != asked.is_single:
        is_same = _is_finished_job(place, done, asked, planned)
        return _finished(place, done, observe) if is_same else asked
    if not _is_job_of(broken, asked, planned):
        if is_fixed:
            text = f"run {broken.run_id}, which was interrupted in {place}, was a different job"
            observe(Notice(text=f"{text}: this run starts from the beginning"))
        return asked
    new = asked
    if not asked.is_single:
        replaces = (*broken.options.replaces, broken.run_id)
        new = replace(asked, options=replace(asked.options, replaces=replaces))
    if broken.left_out and _is_published(broken, observe):
        # Only a new snapshot can have the tables that it left out.
        names = ", ".join(each.table for each in broken.left_out)
        text = f"run {broken.run_id} in {place} is complete without tables that it left out"
        observe(Notice(text=f"{text}: {names}; all tables are read at a new snapshot"))
        return new
    try:
        known = _as_asked(broken, asked)
    except OutputFailed as error:
        # Other statements of the sessions, or another key: files of both are not to be mixed.
        observe(Notice(text=f"{error.message}: this run starts from the beginning"))
        return asked
    observe(Notice(text=f"resuming run {broken.run_id}, which was interrupted in {place}"))
    try:
        return _continued(known, observe, stop)
    except SnapshotGone as error:
        observe(Notice(text=f"{error.message}; all rows are read again at a new snapshot"))
        return new


def _is_job_of(broken: BrokenRun, asked: TablesRequest, planned: ResolvedTable | None) -> bool:
    """Return whether an interrupted run is of a job, and in its place."""
    if not broken.is_single:
        return broken.options.job == digest_of_tables_job(asked)
    request, run = asked.common, broken.first
    is_part = request.selection.part is not None
    return (
        _is_the_job(run, request)
        and broken.is_at(request, _today())
        and (not is_part or (planned is not None and is_of_plan(run, planned)))
    )


def _is_finished_job(
    place: str, done: _CutShort | None, asked: TablesRequest, planned: ResolvedTable | None
) -> bool:
    """Return whether the finished run at a place is of a job, and perhaps lacks what follows it."""
    if not asked.is_single:
        is_several = done is not None and is_of_tables(done.record)
        return (
            done is not None
            and is_several
            and options_of(done.record).job == digest_of_tables_job(asked)
        )
    ended = done.run if done is not None and not is_of_tables(done.record) else None
    return (
        (ended is not None and _is_the_job(ended, asked.common))
        or _is_finished_part(place, asked.common, planned)
        or _is_finished_for_table(place, asked.common)
    )


def _is_finished_part(place: str, request: Request, planned: ResolvedTable | None) -> bool:
    """Return whether the same part of the same plan is finished: a task may be started again."""
    part = request.selection.part
    if part is None or planned is None or not is_finished(place):
        return False
    manifest = read_manifest(path_of(place))
    record = None if manifest.subset is None else manifest.subset.part
    wanted = planned.extract.snapshot
    return (
        record is not None
        and (record.number, record.of, record.plan_digest)
        == (part.number, part.of, planned.plan.digest)
        and wanted is not None
        and wanted.is_same(manifest.snapshot)
    )


def _is_finished_for_table(place: str, request: Request) -> bool:
    """Return whether the run of a job is finished at a place, and maybe not part of its table."""
    if lake_kind(request.output.destination) is None or not is_finished(place):
        return False
    manifest = read_manifest(path_of(place))
    table, name = manifest.lake_table, absolute_name(request.output.destination)
    return (
        table is not None
        and table.name == name
        and manifest.source.location == redact(request.source.location)
        and [(each.name, each.value) for each in manifest.settings]
        == [(each.name, each.value) for each in request.settings]
    )


def _other_route(place: str) -> BrokenRun | None:
    """Return the broken run whose route is published at a place, while others of it are not."""
    if not is_finished(place) or home_manifest(path_of(place)):
        return None
    manifest = read_manifest(path_of(place))
    for other in () if manifest.route is None else manifest.route.others:
        if not is_kept((other.to,)):
            continue
        with suppress(FileNotFoundError):
            broken = find_broken_run(other.to)
            if broken is not None and broken.run_id == manifest.run_id:
                return broken
    return None


def _is_the_job(run: ResolvedTable, request: Request) -> bool:
    statements = request.source.session.session_sql
    same = run.is_session_sql(statements) if run.withheld else not statements
    return (
        same
        and same_job(run.request, request)
        and _has_its_key(run, request)
        and _has_its_masking_keys(run, request)
    )


def _has_its_key(run: ResolvedTable, request: Request) -> bool:
    """Return whether the Parquet key of a request, if it has one, is the run's key."""
    for output, one in zip(run.outputs, request.of_outputs(), strict=True):
        had, asked = output.options.encryption, one.output.encryption
        if had is None or asked is None:
            continue  # The caller has compared their presence.

        if not check_key(replace(asked, key_proof=had.key_proof)):
            return False
    return True


def _has_its_masking_keys(run: ResolvedTable, request: Request) -> bool:
    """Return whether the keys of a request's masks are the run's keys; both have the same masks."""
    pairs = [
        (output.transform.options, asked.output.transform)
        for output, asked in zip(run.outputs, request.of_outputs(), strict=False)
        if output.transform is not None and asked.output.transform is not None
    ]
    if not pairs:
        return True

    return all(has_same_keys(had, asked) for had, asked in pairs)


def _masking_keys(request: Request) -> tuple[MaskingKey, ...]:
    """Return where a request finds the keys of its masks."""
    transforms = (each.output.transform for each in request.of_outputs())
    return tuple(key for each in transforms if each is not None for key in each.keys)


def _is_published(broken: BrokenRun, observe: Observer) -> bool:
    left = left_of_tables(broken.tables, broken.place, observe)
    return all(each.what == "all" for each in left.values())


class _CutShort(Struct, frozen=True, kw_only=True):
    """A run that died while it was published, and is complete now."""

    place: str
    """Where its manifest is."""
    record: bytes
    """The record of the run; empty if it left nothing."""
    found_in: str
    """Where the record was found."""

    @property
    def run(self) -> ResolvedTable | None:
        """Its first table; None if that cannot be read any more."""
        with suppress(OutputFailed):
            return first_of(self.record, self.found_in) if self.record else None
        return None


def _completed(place: str, observe: Observer) -> _CutShort | None:
    """Finish an interrupted publication, as that run is complete; return the run."""
    found = None
    for each in storage_at(place).complete(place):
        for text in each.messages:
            observe(Notice(text=text))
        here = real(place) == real(each.place)
        found = _CutShort(
            place=place if here else each.place, record=each.record, found_in=each.place
        )
    return found


def _finished(place: str, done: _CutShort | None, observe: Observer) -> Manifests:
    """Return the manifest of a finished run; first do what follows a publication.

    Args:
        place: Where it is looked for.
        done: The run whose publication was interrupted there.
        observe: Gets notices.

    Raises:
        OutputFailed: No run is finished.
        FollowUpFailed: The run is complete, and a link could not be switched.
    """
    place = done.place if done else place
    tables = home_manifest(path_of(place))
    if tables is None and not is_finished(place):
        left = storage_at(place).who_was_here(place, counted=False)
        if left is not None and left.run_id:
            raise OutputFailed(
                f"run {left.run_id}, which was interrupted in {place}, left no record of its job",
                "start again with the command of the run; remove its staged files with: "
                f"unloader clean {shlex.quote(place)}",
            )
        raise OutputFailed(
            f"{place} has no interrupted run",
            "start one with: unloader run; a run that is still planning has no files there yet",
        )
    manifest = tables or read_manifest(path_of(place))
    ended = done.run if done else None
    if done is not None and ended is not None and ended.run_id == manifest.run_id:
        # The process died before it had done what follows.
        if isinstance(manifest, Manifest):
            route = manifest.route.name if manifest.route else ""
            follow(of_route(ended, route), manifest, place, observe)
        else:
            to = options_of(done.record).destination
            following = Following.of_run(ended, place, to)
            following.after_all(manifest, observe)
            following.raise_failed()
    if isinstance(manifest, TablesManifest) or not commit(manifest, place, observe, is_own=False):
        observe(Notice(text=f"the run in {place} is finished: there is nothing left to do"))
    return manifest if isinstance(manifest, TablesManifest) else (manifest,)


def _check_no_table_of_a_run(place: str) -> None:
    """Check that a place does not belong to one table of several.

    Raises:
        OutputFailed: It does: such a run is resumed as a whole.
    """
    storage = storage_at(place)
    try:
        who = storage.who_was_here(place, counted=False)
        if who is None or not who.run_id or storage.record(place, RUN_RECORD):
            return
        home = home_above(storage, place, who.run_id)
    except OSError:
        return  # The code that looks for the run there reports this.
    if home:
        problem = why_not_resumable(home)
        hint = f"resume the whole run with: unloader resume {shlex.quote(home)}"
        if problem:
            hint = f"start again with the command of the run, because {problem}"
        raise OutputFailed(
            f"{place} has one table of run {who.run_id}, which has several tables", hint
        )
