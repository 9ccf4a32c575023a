"""The ways into a run: anew, where a broken one left off, or whichever of the two fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, SnapshotGone
from unloader.events import Notice, Observer, SettingUsed
from unloader.lakehouse.lake_formats import absolute_name, lake_kind
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.model import (
    ClusterOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    SecretReference,
    Setting,
)
from unloader.redaction import redact
from unloader.request.directory_names import existing, has_fields
from unloader.request.options.running import PARALLEL
from unloader.resolve.broken_run import (
    BrokenRun,
    UnusableRecord,
    find_broken_run,
    is_finished,
    read_run,
    same_job,
)
from unloader.resolve.outputs.one import of_route
from unloader.resolve.parts import is_of_plan
from unloader.resolve.reopening import reopened
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedRun
from unloader.run.concurrency.opening import is_adaptive
from unloader.run.run import check_before, commit, run
from unloader.run.taking_places import check_ceilings
from unloader.run.workers import workers_for
from unloader.storage.kinds import is_kept
from unloader.storage.opening import storage_at
from unloader.storage.paths import path_of, real

if TYPE_CHECKING:
    from unloader.manifest.tables import TablesManifest
    from unloader.resolve.tables.broken import BrokenTables
    from unloader.selection.asked import TablesRequest
    from unloader.transforms.model import MaskingKey

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run cleanly."""


class Resumption(Struct, frozen=True, kw_only=True):
    """What the user says of a run that is gone on with."""

    secret: SecretReference | None = None
    """Where the password is found now; None is where it was."""
    session_sql: tuple[str, ...] = ()
    """What the sessions run first; no record holds it."""
    cluster: ClusterOptions | None = None
    """Where they work from now on; fields that are None are as the run had them."""
    parallelism: int | None = None
    """Workers from now on; 0 is the number of usable cores, None is as the run had it."""
    new_snapshot: bool = False
    """Read everything again."""
    keys: EncryptionOptions | None = None
    """Where the keys of encrypted files are found now; None is where they were."""
    masking_keys: tuple[MaskingKey, ...] = ()
    """Where keys of masks are found now; those that are not named are where they were."""


def start(
    request: Request, planned: ResolvedRun | None, *, observe: Observer, stop: Stop
) -> tuple[Manifest, ...]:
    """Begin a run anew; see `unloader.api.unload`."""
    check_ceilings(request)
    check_before(request, observe)
    workers = planned.plan.limits.parallelism if planned else None
    with workers_for(request, workers, stop=stop) as team:
        _tell_settings((request,), observe)
        with resolved(
            request,
            planned=planned,
            seats=lambda: team.seats,
            stop=stop,
            observe=observe,
        ) as ready:
            return run(ready, team.executor, observe=observe, stop=stop)


def start_tables(asked: TablesRequest, *, observe: Observer, stop: Stop) -> TablesManifest:
    """Begin a run over several tables; see `unloader.api.unload_tables`."""
    # Imported here: most runs are of one table.
    from unloader.resolve.tables.resolving import resolved_tables
    from unloader.resolve.tables.same import job_digest
    from unloader.run.following import Following
    from unloader.run.run import run_tables

    common = asked.common
    Following.check_asked(asked)
    options = replace(asked.options, job=asked.options.job or job_digest(asked))
    check_ceilings(common)
    with workers_for(common, stop=stop) as team:
        _tell_settings((each.request for each in asked.entries), observe)
        with resolved_tables(asked, seats=team.seats, stop=stop, observe=observe) as ready:
            return run_tables(ready, team.executor, options, observe=observe, stop=stop)


def resume(
    destination: str, again: Resumption, *, observe: Observer, stop: Stop
) -> tuple[Manifest, ...]:
    """Go on with a broken run of one table; see `unloader.api.resume`."""
    done = _completed(destination, observe)
    broken = find_broken_run(destination) or _other_route(destination)
    if broken is None:
        return _finished(destination, done, observe)
    known = broken.with_source(again.secret, again.session_sql).with_keys(again.keys)
    known = known.with_masking_keys(again.masking_keys, same=not again.new_snapshot)
    known = known.with_cluster(again.cluster)
    workers = again.parallelism
    if workers is not None:
        setting = Setting(name=PARALLEL.name, value=str(workers or "auto"), origin="resume")
        known = known.with_parallelism(setting, workers or None)
    if again.new_snapshot:
        return start(known.request_here(), None, observe=observe, stop=stop)
    return _go_on(known, observe, stop)


def resume_tables(
    destination: str, again: Resumption, *, observe: Observer, stop: Stop
) -> TablesManifest | None:
    """Go on with a broken run over several tables; return None if none was broken off there."""
    from unloader.resolve.tables.broken import find_broken_tables
    from unloader.selection.asked import TablesRequest

    broken = find_broken_tables(destination)
    if broken is None:
        return None
    broken = broken.with_source(again.secret, again.session_sql).with_keys(again.keys)
    broken = broken.with_masking_keys(again.masking_keys, same=not again.new_snapshot)
    broken = broken.with_cluster(again.cluster)
    if again.parallelism is not None:
        text = str(again.parallelism or "auto")
        setting = Setting(name=PARALLEL.name, value=text, origin="resume")
        broken = broken.with_parallelism(setting, again.parallelism or None)
    if again.new_snapshot:
        requests = [each.request_here() for each in broken.tables]
        options = replace(
            broken.options,
            home=broken.place,
            replaces=(*broken.options.replaces, broken.first.run.run_id),
        )
        asked = TablesRequest.of(requests, options)
        left_out = tuple((each.table, each.error.message) for each in broken.left_out)
        return start_tables(replace(asked, left_out=left_out), observe=observe, stop=stop)
    return go_on_with_tables(broken, observe=observe, stop=stop)


def go_on_with_tables(broken: BrokenTables, *, observe: Observer, stop: Stop) -> TablesManifest:
    """Go on with a run over several tables, with all that no record of it may hold."""
    from unloader.resolve.tables.broken import reopened_tables
    from unloader.run.run import run_tables
    from unloader.run.taking_places import left_of_tables, places_of

    request = broken.first.run.request
    workers = broken.first.parallelism or broken.first.run.plan.limits.parallelism
    with workers_for(request, workers, stop=stop) as team:
        broken = broken.seated(team.seats)
        _tell_settings((each.run.request for each in broken.tables), observe)
        left = left_of_tables((each.run for each in broken.tables), broken.place, observe)
        with reopened_tables(
            broken,
            done=lambda run: left[places_of(run)].what == "all",
            stop=stop,
            observe=observe,
        ) as ready:
            return run_tables(
                ready, team.executor, broken.options, left, observe=observe, stop=stop
            )


def resume_or_start(
    request: Request, planned: ResolvedRun | None, *, observe: Observer, stop: Stop
) -> tuple[Manifest, ...]:
    """Go on with a broken run of the same job, or begin anew; see `unloader.api.unload`."""
    for place in _places_of(request):
        manifests = _gone_on_with(place, request, planned, observe, stop)
        if manifests is not None:
            return manifests
    return start(request, planned, observe=observe, stop=stop)


def _places_of(request: Request) -> tuple[str, ...]:
    """Return where a broken run of a request may lie."""
    places = (place for each in request.of_outputs() for place in _places_of_output(each.output))
    return tuple(dict.fromkeys(places))


def _places_of_output(output: OutputOptions) -> tuple[str, ...]:
    if not is_kept(output.destinations):
        return ()
    if lake_kind(output.destination) is not None:
        from unloader.lakehouse.lake_runs import uncommitted

        return tuple(place for place, _ in uncommitted(output.destination))
    if not has_fields(output.destination):
        return (output.destination,)
    # Its directory is known only once the table is. One of another day is for `resume` alone: a
    # nightly job wants the rows of this night.
    return tuple(existing(output.destination, _today(), storage_at(output.destination).levels))


def _today() -> str:
    return f"{datetime.now(UTC):%Y%m%d}"


def _gone_on_with(
    place: str, request: Request, planned: ResolvedRun | None, observe: Observer, stop: Stop
) -> tuple[Manifest, ...] | None:
    """Bring the broken run of a job at a place to its end; return None if there is none."""
    alone = not has_fields(request.output.destination)
    try:
        done = _completed(place, observe)
        broken = find_broken_run(place) or _other_route(place)
    except OutputFailed as error:
        if not alone:
            return None  # Maybe another job's.
        if not isinstance(error, UnusableRecord):
            raise
        observe(Notice(text=f"{error.message}; this run starts from the beginning"))
        return None
    if broken is None:
        same = done is not None and done.run is not None and _is_the_job(done.run, request)
        same = same or _is_finished_part(place, request, planned)
        same = same or _is_finished_for_table(place, request)
        return _finished(place, done, observe) if same else None
    is_part = request.selection.part is not None
    if (
        _is_the_job(broken.run, request)
        and broken.is_at(request, _today())
        and (not is_part or (planned is not None and is_of_plan(broken.run, planned)))
    ):
        return _resumed(broken, request, place, observe, stop)
    if alone:
        text = f"run {broken.run.run_id}, which was interrupted in {place}, was a different job"
        observe(Notice(text=f"{text}: this run starts from the beginning"))
    return None


def _is_finished_part(place: str, request: Request, planned: ResolvedRun | None) -> bool:
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
    if not is_finished(place):
        return None
    manifest = read_manifest(path_of(place))
    for other in () if manifest.route is None else manifest.route.others:
        if not is_kept((other.to,)):
            continue
        with suppress(FileNotFoundError):
            broken = find_broken_run(other.to)
            if broken is not None and broken.run.run_id == manifest.run_id:
                return broken
    return None


def _is_the_job(run: ResolvedRun, request: Request) -> bool:
    statements = request.source.session.session_sql
    same = run.is_session_sql(statements) if run.withheld else not statements
    return (
        same
        and same_job(run.request, request)
        and _has_its_key(run, request)
        and _has_its_masking_keys(run, request)
    )


def _has_its_key(run: ResolvedRun, request: Request) -> bool:
    """Return whether the Parquet key of a request, if it has one, is that of a run."""
    for output, one in zip(run.outputs, request.of_outputs(), strict=True):
        had, asked = output.options.encryption, one.output.encryption
        if had is None or asked is None:
            continue  # Whether both are None has been compared.
        from unloader.secrets.encryption_keys import check_key

        if not check_key(replace(asked, key_proof=had.key_proof)):
            return False
    return True


def _has_its_masking_keys(run: ResolvedRun, request: Request) -> bool:
    """Return whether the keys of a request's masks are those of a run; both have the same masks."""
    pairs = [
        (output.transform.options, asked.output.transform)
        for output, asked in zip(run.outputs, request.of_outputs(), strict=False)
        if output.transform is not None and asked.output.transform is not None
    ]
    if not pairs:
        return True
    from unloader.resolve.outputs.transforming import has_same_keys

    return all(has_same_keys(had, asked) for had, asked in pairs)


def _resumed(
    broken: BrokenRun, request: Request, place: str, observe: Observer, stop: Stop
) -> tuple[Manifest, ...] | None:
    """Go on with a broken run; return None if its snapshot cannot be read any more."""
    observe(Notice(text=f"resuming run {broken.run.run_id}, which was interrupted in {place}"))
    source = request.source
    try:
        known = broken.with_source(source.secret, source.session.session_sql)
        known = known.with_keys_of([each.output.encryption for each in request.of_outputs()])
        known = known.with_masking_keys(_masking_keys(request))
        for setting in request.settings:
            if setting.name == PARALLEL.name and not is_adaptive(request):
                known = known.with_parallelism(setting, request.limits.parallelism)
        known = known.with_concurrency(request.concurrency)
        known = known.with_cluster(request.cluster or ClusterOptions(address="none"))
        return _go_on(known, observe, stop)
    except SnapshotGone as error:
        observe(Notice(text=f"{error.message}; all rows are read again at a new snapshot"))
    return None


def _masking_keys(request: Request) -> tuple[MaskingKey, ...]:
    """Return where a request finds the keys of its masks."""
    transforms = (each.output.transform for each in request.of_outputs())
    return tuple(key for each in transforms if each is not None for key in each.keys)


def _go_on(broken: BrokenRun, observe: Observer, stop: Stop) -> tuple[Manifest, ...]:
    request = broken.run.request
    workers = broken.parallelism or broken.run.plan.limits.parallelism
    with workers_for(request, workers, stop=stop) as team:
        _tell_settings((request,), observe)
        with reopened(broken, stop=stop, observe=observe) as ready:
            ready = replace(ready, run=ready.run.seated(team.seats))
            return run(ready, team.executor, observe=observe, stop=stop)


class _CutShort(Struct, frozen=True, kw_only=True):
    """A run that died while it was published, and is complete now."""

    place: str
    """Where its manifest is."""
    run: ResolvedRun | None
    """None if its record cannot be read any more."""


def _completed(place: str, observe: Observer) -> _CutShort | None:
    """Finish a publication that was cut short, as that run is complete; return the run."""
    found = None
    for each in storage_at(place).complete(place):
        for text in each.messages:
            observe(Notice(text=text))
        run = None
        if each.record:
            with suppress(OutputFailed):
                run = read_run(each.record, each.place)
        here = real(place) == real(each.place)
        found = _CutShort(place=place if here else each.place, run=run)
    return found


def _finished(place: str, done: _CutShort | None, observe: Observer) -> tuple[Manifest, ...]:
    """Return the manifest of a finished run; first do what was left to do behind a publication."""
    place = done.place if done else place
    if not is_finished(place):
        left = storage_at(place).who_was_here(place, counted=False)
        if left is not None and left.run_id:
            raise OutputFailed(
                f"run {left.run_id}, which was interrupted in {place}, left no record of its job",
                "start again with the command of the run; remove its staged files with: "
                f"unloader clean {shlex.quote(place)}",
            )
        raise OutputFailed(
            f"{place} has no interrupted run",
            "start one with: unloader run",
        )
    manifest = read_manifest(path_of(place))
    if done and done.run and done.run.run_id == manifest.run_id:
        # Imported on use: few runs die there.
        from unloader.retention.following import follow

        route = manifest.route.name if manifest.route else ""
        follow(of_route(done.run, route), manifest, place, observe)
    if commit(manifest, place, observe, is_own=False):
        return (manifest,)
    observe(Notice(text=f"the run in {place} is finished: there is nothing left to do"))
    return (manifest,)


def _tell_settings(requests: Iterable[Request], observe: Observer) -> None:
    """Report each setting once; its origin has the entry of a job file that sets it."""
    for setting in dict.fromkeys(each for request in requests for each in request.settings):
        if setting.effect != "none":
            observe(
                SettingUsed(
                    name=setting.name,
                    value=setting.value,
                    origin=setting.origin,
                    selects=setting.effect == "selects",
                    from_variable=setting.from_variable,
                    text=setting.text,
                )
            )
