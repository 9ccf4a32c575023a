"""The start of a new run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from unloader.events import Observer, SettingUsed
from unloader.model import Request
from unloader.resolve.jobs import digest_of_tables_job
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedRun
from unloader.retention.following import Following
from unloader.run.run import Manifests, check_before, run
from unloader.run.workers import check_ceilings, workers_for
from unloader.selection.choice import TablesRequest

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run cleanly."""


def start(
    asked: TablesRequest, planned: ResolvedRun | None = None, *, observe: Observer, stop: Stop
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
