"""The start of a new run, and the finished run that makes it unnecessary (`--skip-finished`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.events import Observer, SettingUsed
from unloader.lakehouse.lake_formats import lake_kind
from unloader.manifest.model import Manifest
from unloader.manifest.read import home_manifest, read_manifest
from unloader.model import Request, Setting
from unloader.request.name_templates import existing, has_fields, home_template
from unloader.resolve.broken_run import is_finished
from unloader.resolve.planned import digest_of_job, digest_of_tables_job
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedTable
from unloader.retention.following import Following
from unloader.run.run import Manifests, check_before, run
from unloader.run.workers import check_ceilings, workers_for
from unloader.selection.choice import TablesRequest
from unloader.storage.place_names import is_kept, path_of
from unloader.storage.storage_lookup import storage_at

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run cleanly."""


def start(
    asked: TablesRequest, planned: ResolvedTable | None = None, *, observe: Observer, stop: Stop
) -> Manifests:
    """Begin a new run; see `unloader.api.unload`."""
    common = asked.common
    check_ceilings(common)
    if asked.is_single:
        check_before(common, observe)
    else:
        Following.check_asked(asked)
        job = asked.options.job or digest_of_tables_job(asked)
        asked = replace(asked, options=replace(asked.options, job=job))
    workers = planned.plan.limits.parallelism if planned else None
    with workers_for(common, workers, stop=stop) as team:
        tell_settings((each.request for each in asked.entries), observe)
        with resolved(
            asked, planned=planned, seats=lambda: team.seats, stop=stop, observe=observe
        ) as ready:
            return run(ready, team.executor, observe=observe, stop=stop)


def tell_settings(requests: Iterable[Request], observe: Observer) -> None:
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


def finished(asked: TablesRequest) -> Manifests | None:
    """Return the manifests of a finished run of the job, or None.

    With `{date}` it is one of today, and so it is for a table of a lakehouse.

    Raises:
        OutputFailed: A place cannot be looked at, or it has a finished run of another job.
    """
    if not asked.is_single:
        template = home_template(asked.options.destination)
        if not asked.options.destination or not is_kept((template or ".",)):
            return None
        job = asked.options.job or digest_of_tables_job(asked)
        for home in filter(_is_over, _places(template or ".")):
            tables = home_manifest(path_of(home))
            if tables is not None and tables.job == job:
                return tables
            if tables is not None and _is_alone(template):
                raise _of_another_job(home, tables.settings, asked.options.settings)
        return None
    found: list[Manifest] = []
    for each in asked.common.of_outputs():
        job = digest_of_job(each)
        same = []
        for place in filter(_is_over, _places(each.output.destination)):
            manifest = _manifest_at(place)
            if manifest is not None and manifest.job == job:
                same.append(manifest)
            elif manifest is not None and _is_alone(each.output.destination):
                raise _of_another_job(place, manifest.settings, each.settings)
        if not same:
            return None
        found.append(same[0])
    return tuple(found) if len({each.run_id for each in found}) == 1 else None


def _is_alone(destination: str) -> bool:
    """Return whether one run at most can be in a destination on one day."""
    return lake_kind(destination) is None and not has_fields(destination.replace("{date}", ""))


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


def _places(destination: str) -> Sequence[str]:
    """Return the possible places of a finished run: today's place, if the place changes each
    day."""
    if not is_kept((destination,)):
        return ()
    today = f"{datetime.now(UTC):%Y%m%d}"
    if lake_kind(destination) is not None:
        from unloader.lakehouse.lake_runs import homes, uncommitted

        left = dict(uncommitted(destination))
        return [
            home
            for home in homes(destination)
            if path_of(home).name.startswith(today) and home not in left
        ]
    if has_fields(destination):
        return existing(destination, today, storage_at(destination).levels)
    return (destination,)


def _is_over(place: str) -> bool:
    """Return whether nothing is left to do there by `resume`."""
    try:
        return storage_at(place).who_was_here(place, counted=False) is None
    except OSError:
        return False  # The next run reports this.


def _manifest_at(place: str) -> Manifest | None:
    if not is_finished(place) or home_manifest(path_of(place)):
        return None
    try:
        return read_manifest(path_of(place))
    except OutputFailed:
        return None  # It is damaged. The run that follows reports that.
