"""The start of a run: its workers, and a new run or the rest of an interrupted one.

Loading a driver takes about as long as planning. So the fork servers of all seats load what workers
need while the parent plans, and a worker is forked when its number is known. With `--skip-finished`
a finished run of the same job makes the run unnecessary.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from numa.model import ProcessLimits
from unloader.engine.executor import Executor, LocalExecutor
from unloader.errors import OutputFailed, SnapshotGone, UsageError
from unloader.events import Notice, Observer, SettingUsed
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest, TablesManifest
from unloader.manifest.read import home_manifest, read_manifest
from unloader.model import (
    ClusterOptions,
    EncryptionOptions,
    Preload,
    Request,
    SecretReference,
    Setting,
)
from unloader.placement.seating import SeatPlan, seat_request
from unloader.redaction import holds_sql_password
from unloader.request.name_templates import existing, has_fields, home_template
from unloader.resolve.places import home_above, is_finished
from unloader.resolve.planning import digest_of_job, digest_of_tables_job, is_of_plan
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import (
    ResolvedTable,
    UnusableRecord,
    first_of,
    has_same_keys,
    is_of_tables,
    of_route,
    options_of,
)
from unloader.resolve.resuming import BrokenRun, find_broken_run, reopened, why_not_resumable
from unloader.retention import Following, follow
from unloader.run.places import complete, is_complete, left_of_tables, places_of
from unloader.run.run import Manifests, check_committed, commit, run
from unloader.secrets.keys import check_key
from unloader.selection.asked import TablesRequest
from unloader.storage.place_names import destination_kind, is_kept, path_of, real
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import RUN_RECORD, Completed
from writers.objects.location import is_location
from writers.registry import name_of

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey

ENTRY = "unloader.worker.process:work"
"""The function that does the tasks of a worker."""

_START_SECONDS = 60.0
"""Least time for the start of a worker, independent of --stall-timeout. A busy machine takes
seconds to start a worker, and no attempt may be lost that way."""


@contextmanager
def workers_for(
    request: Request, parallelism: int | None = None, *, stop: Callable[[], bool]
) -> Iterator[tuple[SeatPlan, Executor]]:
    """Open an executor with a seat for each worker, and its seats; all processes end with it."""
    stall, outputs = request.retry.stall_seconds, [each.output for each in request.of_outputs()]
    limits = ProcessLimits(
        start_seconds=max(stall, _START_SECONDS) if stall else 0.0,
        memory_bytes=request.worker_memory_bytes,
    )
    places = (place for each in outputs for place in each.destinations if is_location(place))
    warm_up = Preload(
        source_kind=request.source.kind,
        source=request.source,
        formats=tuple(dict.fromkeys(name_of(each.format) for each in outputs)),
        stores=tuple(dict.fromkeys(place.partition(":")[0] for place in places)),
    )
    if not request.uses_cluster:
        seats = seat_request(request, parallelism)
        with closing(
            LocalExecutor(
                seats.first(seats.parallelism),
                ENTRY,
                limits,
                warm_up=warm_up,
                looks=request.seats.numa != "off",
            )
        ) as executor:
            executor.prepare()
            yield seats, executor
        return
    # Imported here: few runs use a cluster.
    from unloader.engine.cluster.opening import open_cluster

    for output in request.of_outputs():
        if any(lake_kind(each) for each in output.output.destinations):
            raise UsageError(
                "--cluster cannot write tables of a lakehouse yet",
                "leave --cluster out, or write files and add them to the table",
            )
        kind = destination_kind(output.output.destinations)
        if not is_kept(output.output.destinations) and kind != "null":
            raise UsageError(
                f"--cluster writes to a place that all its machines share, but {kind} belongs to "
                "one process",
                "give a directory of a network file system or an object store with --to, or leave "
                "--cluster out",
            )
    if request.concurrency is not None and request.concurrency.max_cpu is not None:
        raise UsageError(
            "--max-cpu measures the CPUs of this host, but --cluster works on other hosts",
            "leave out --max-cpu or --cluster",
        )
    statements = request.source.session.session_sql
    if any(map(holds_sql_password, statements)):
        raise UsageError(
            "a --session-sql contains a password, which would be sent to all machines of the "
            "cluster",
            "leave --cluster out, or let the database run that statement for each session",
        )
    with open_cluster(
        request, parallelism, entry=ENTRY, warm_up=warm_up, limits=limits, stop=stop
    ) as opened:
        yield opened


Stop = Callable[[], bool]


def start(
    asked: TablesRequest, planned: ResolvedTable | None = None, *, observe: Observer, stop: Stop
) -> Manifests:
    common = asked.common
    if common.ceilings is not None:
        from unloader.tuning.ceilings import read_ceilings

        # That the file can be used is known before the run.
        read_ceilings(Path(common.ceilings))
    if asked.is_single:
        for name in filter(lake_kind, {each.output.destination for each in common.of_outputs()}):
            check_committed(name, observe)
    else:
        Following.check_asked(asked)
        job = asked.options.job or digest_of_tables_job(asked)
        asked = replace(asked, options=replace(asked.options, job=job))
    workers = planned.plan.limits.parallelism if planned else None
    with workers_for(common, workers, stop=stop) as (seats, executor):
        _tell_settings((each.request for each in asked.entries), observe)
        with resolved(
            asked, planned=planned, seats=lambda: seats, stop=stop, observe=observe
        ) as ready:
            return run(ready, executor, observe=observe, stop=stop)


def _continued(broken: BrokenRun, observe: Observer, stop: Stop) -> Manifests:
    workers = broken.parallelism or broken.first.plan.limits.parallelism
    with workers_for(broken.first.request, workers, stop=stop) as (seats, executor):
        broken = broken.changed(lambda run: run.seated(seats))
        _tell_settings((each.request for each in broken.tables), observe)
        left = left_of_tables(broken.tables, broken.place, observe)
        with reopened(
            broken, done=lambda run: is_complete(left[places_of(run)]), stop=stop, observe=observe
        ) as ready:
            return run(ready, executor, left, observe=observe, stop=stop)


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


def resume(
    destination: str,
    *,
    secret: SecretReference | None,
    session_sql: tuple[str, ...],
    parallelism: int | None,
    cluster: ClusterOptions | None,
    new_snapshot: bool,
    keys: EncryptionOptions | None,
    masking_keys: tuple[MaskingKey, ...],
    observe: Observer,
    stop: Stop,
) -> Manifests:
    """Continue the run that has died at a destination; see `unloader.api.resume`."""
    _check_no_table_of_a_run(destination)
    done = complete(destination, (destination,), observe)
    broken = find_broken_run(destination) or _other_route(destination)
    if broken is None:
        return _finished(destination, done, observe)
    broken = broken.with_source(secret, session_sql).with_keys(keys)
    broken = broken.with_masking_keys(masking_keys, same=not new_snapshot).with_cluster(cluster)
    if parallelism is not None:
        setting = Setting(name="parallelism", value=str(parallelism or "auto"), origin="resume")
        broken = broken.with_parallelism(setting, parallelism or None)
    if not new_snapshot:
        return _continued(broken, observe, stop)
    requests = broken.requests_here()
    if broken.is_single:
        return start(TablesRequest.one(requests[0]), observe=observe, stop=stop)
    replaces = (*broken.options.replaces, broken.run_id)
    options = replace(broken.options, home=broken.place, replaces=replaces)
    left_out = tuple((each.table, each.error.message) for each in broken.left_out)
    asked = replace(TablesRequest.of(requests, options), left_out=left_out)
    return start(asked, observe=observe, stop=stop)


def resume_or_start(
    asked: TablesRequest, planned: ResolvedTable | None = None, *, observe: Observer, stop: Stop
) -> Manifests:
    """Continue an interrupted run of the same job, or start; see `unloader.api.unload`."""
    if asked.is_single:
        destinations = [each.output.destination for each in asked.common.of_outputs()]
    else:
        to = asked.options.destination
        destinations = [home_template(to) or "."] if to else []
    places = dict.fromkeys(
        place for each in destinations for place in _places(each, finished=False)
    )
    for place in places:
        found = _resumed(place, asked, planned, observe, stop)
        if not isinstance(found, TablesRequest):
            return found
        asked = found
    return start(asked, planned, observe=observe, stop=stop)


def _resumed(
    place: str, asked: TablesRequest, planned: ResolvedTable | None, observe: Observer, stop: Stop
) -> Manifests | TablesRequest:
    to = asked.common.output.destination
    is_fixed = not has_fields(to if asked.is_single else home_template(asked.options.destination))
    try:
        done = complete(place, (place,), observe)
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
    if not asked.is_single:
        is_of_job = broken.options.job == digest_of_tables_job(asked)
    else:
        is_of_job = _is_the_job(broken.first, asked.common) and broken.is_at(
            asked.common, f"{datetime.now(UTC):%Y%m%d}"
        )
        if asked.common.selection.part is not None:
            is_of_job &= planned is not None and is_of_plan(broken.first, planned)
    if not is_of_job:
        if is_fixed:
            text = f"run {broken.run_id}, which was interrupted in {place}, was a different job"
            observe(Notice(text=f"{text}: this run starts from the beginning"))
        return asked
    new = asked
    if not asked.is_single:
        replaces = (*broken.options.replaces, broken.run_id)
        new = replace(asked, options=replace(asked.options, replaces=replaces))
    if broken.left_out:
        left = left_of_tables(broken.tables, broken.place, observe)
        if all(map(is_complete, left.values())):
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


def _as_asked(broken: BrokenRun, asked: TablesRequest) -> BrokenRun:
    """Return a run with the secrets of a request, and as fast as the request asks."""
    request, source = asked.common, asked.common.source
    outputs = [each.output for entry in asked.entries for each in entry.request.of_outputs()]
    masking_keys = tuple(key for each in outputs if each.transform for key in each.transform.keys)
    keys = [each.output.encryption for each in request.of_outputs()]
    keys = keys if asked.is_single else keys[:1]
    broken = broken.with_source(source.secret, source.session.session_sql).with_keys(*keys)
    broken = broken.with_masking_keys(masking_keys)
    known = request.concurrency
    is_adaptive = known is not None and known.adaptive
    for setting in request.settings:
        if setting.name == "parallelism" and not is_adaptive:
            broken = broken.with_parallelism(setting, request.parallelism)
    broken = broken.changed(
        lambda run: replace(run, request=replace(run.request, concurrency=known))
    )
    return broken.with_cluster(request.cluster or ClusterOptions(address="none"))


def _is_the_job(run: ResolvedTable, request: Request) -> bool:
    """Return whether a table is the one of a request, with the same statements and keys."""
    statements = request.source.session.session_sql
    same = run.is_session_sql(statements) if run.session_sql_proof else not statements
    if not same or digest_of_job(run.request) != digest_of_job(request):
        return False
    for output, asked in zip(run.outputs, request.of_outputs(), strict=True):
        had, key = output.options.encryption, asked.output.encryption
        if had and key and not check_key(replace(key, key_proof=had.key_proof)):
            return False
        masks, given = output.options.transform, asked.output.transform
        if masks and given and not has_same_keys(masks, given):
            return False
    return True


def _is_finished_job(
    place: str, done: Completed | None, asked: TablesRequest, planned: ResolvedTable | None
) -> bool:
    """Return whether the finished run at a place is of a job, and perhaps lacks what follows it."""
    written = done.record if done is not None else b""
    is_several = is_of_tables(written)
    if not asked.is_single:
        return is_several and options_of(written).job == digest_of_tables_job(asked)
    request, ended = asked.common, None if is_several else _first_of(done)
    if ended is not None and _is_the_job(ended, request):
        return True
    part, to = request.selection.part, request.output.destination
    if (part is None and lake_kind(to) is None) or not is_finished(place):
        return False
    manifest = read_manifest(path_of(place))
    # The same part of the same plan: a task may be started again.
    record = None if manifest.subset is None else manifest.subset.part
    if part is not None and planned is not None and record is not None:
        wanted, digest = planned.extract.snapshot, planned.plan.digest
        same = (record.number, record.of, record.plan_digest) == (part.number, part.of, digest)
        if same and wanted is not None and wanted.is_same(manifest.snapshot):
            return True
    # A run for a table of a lakehouse that is perhaps not part of the table yet.
    is_lake = lake_kind(to) is not None and manifest.lake_table is not None
    return is_lake and manifest.job == digest_of_job(request)


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


def _first_of(done: Completed | None) -> ResolvedTable | None:
    with suppress(OutputFailed):
        return first_of(done.record, done.place) if done is not None and done.record else None
    return None


def _finished(place: str, done: Completed | None, observe: Observer) -> Manifests:
    """Return the manifest of a finished run, after what follows a publication that was cut off."""
    if done is not None and real(done.place) != real(place):
        place = done.place
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
    ended = _first_of(done)
    if done is not None and ended is not None and ended.run_id == manifest.run_id:
        # The process died before it had done what follows.
        if isinstance(manifest, Manifest):
            route = manifest.route.name if manifest.route else ""
            follow(of_route(ended, route), manifest, place, observe)
        else:
            to = options_of(done.record).destination
            following = Following.of_run((ended,), place, to)
            following.after(ended, manifest, observe)
            if following.failed is not None:
                raise following.failed
    is_new = False
    if isinstance(manifest, Manifest) and manifest.lake_table is not None:
        is_new = commit(manifest, place, observe, is_own=False)
    if not is_new:
        observe(Notice(text=f"the run in {place} is finished: there is nothing left to do"))
    return manifest if isinstance(manifest, TablesManifest) else (manifest,)


def _check_no_table_of_a_run(place: str) -> None:
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


def finished(asked: TablesRequest) -> Manifests | None:
    """Return the manifests of a finished run of the job (with `{date}`: of today), or None."""
    if not asked.is_single:
        template = home_template(asked.options.destination)
        if not asked.options.destination:
            return None
        job = asked.options.job or digest_of_tables_job(asked)
        for home in filter(_is_over, _places(template or ".", finished=True)):
            tables = home_manifest(path_of(home))
            if tables is not None and tables.job == job:
                return tables
            if tables is not None and not has_fields(template.replace("{date}", "")):
                raise _of_another_job(home, tables.settings, asked.options.settings)
        return None
    found: list[Manifest] = []
    for each in asked.common.of_outputs():
        job, to, same = digest_of_job(each), each.output.destination, []
        # One run at most can be there on one day.
        is_alone = lake_kind(to) is None and not has_fields(to.replace("{date}", ""))
        for place in filter(_is_over, _places(to, finished=True)):
            manifest = None
            if is_finished(place) and not home_manifest(path_of(place)):
                # One that is damaged is reported by the run that follows.
                with suppress(OutputFailed):
                    manifest = read_manifest(path_of(place))
            if manifest is not None and manifest.job == job:
                same.append(manifest)
            elif manifest is not None and is_alone:
                raise _of_another_job(place, manifest.settings, each.settings)
        if not same:
            return None
        found.append(same[0])
    return tuple(found) if len({each.run_id for each in found}) == 1 else None


_NOT_OF_JOB = frozenset(("keep", "latest-link", "overwrite", "to", "verify"))


def _of_another_job(place: str, had: Sequence[Setting], asked: Sequence[Setting]) -> OutputFailed:
    one, other = (
        {(each.name, each.value) for each in settings if each.effect != "none"}
        for settings in (had, asked)
    )
    names = sorted({name for name, _ in one ^ other} - _NOT_OF_JOB)
    differing = f": it has other values of {', '.join(f'--{each}' for each in names)}"
    return OutputFailed(
        f"{place} is not empty: it holds a finished run of another job{differing if names else ''}",
        "choose another directory with --to; or replace that run: leave --skip-finished out, and "
        "add --overwrite",
    )


def _places(destination: str, *, finished: bool) -> Sequence[str]:
    """Return the directory of a run, or those that it may be in today with its fields."""
    if not is_kept((destination,)):
        return ()
    today = f"{datetime.now(UTC):%Y%m%d}"
    if lake_kind(destination) is not None:
        from unloader.lakehouse.lake_runs import homes, uncommitted

        left = dict(uncommitted(destination))
        if not finished:
            return tuple(left)
        return [
            home
            for home in homes(destination)
            if path_of(home).name.startswith(today) and home not in left
        ]
    if has_fields(destination):
        return existing(destination, today, storage_at(destination).levels)
    return (destination,)


def _is_over(place: str) -> bool:
    try:
        return storage_at(place).who_was_here(place, counted=False) is None
    except OSError:
        return False  # The next run reports this.
