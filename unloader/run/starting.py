"""The start of a new run, of one table or of several tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from unloader.events import Observer, SettingUsed
from unloader.model import Request
from unloader.resolve.jobs import digest_of_tables_job
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.resolving import OpenTables, resolved_tables
from unloader.run.following import Following
from unloader.run.run import Manifests, check_before, run
from unloader.run.workers import check_ceilings, workers_for
from unloader.selection.asked import TablesRequest

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run cleanly."""


def start(
    request: Request, planned: ResolvedRun | None, *, observe: Observer, stop: Stop
) -> Manifests:
    """Begin a run of a single table; see `unloader.api.unload`."""
    check_ceilings(request)
    check_before(request, observe)
    workers = planned.plan.limits.parallelism if planned else None
    with workers_for(request, workers, stop=stop) as team:
        tell_settings((request,), observe)
        with resolved(
            request, planned=planned, seats=lambda: team.seats, stop=stop, observe=observe
        ) as ready:
            tables = OpenTables(
                run_id=ready.run.run_id,
                runs=(ready.run,),
                catalog=ready.catalog,
                started=ready.started,
            )
            return run(tables, team.executor, observe=observe, stop=stop)


def start_tables(asked: TablesRequest, *, observe: Observer, stop: Stop) -> Manifests:
    """Begin a run over several tables; see `unloader.api.unload_tables`."""
    common = asked.common
    Following.check_asked(asked)
    options = replace(asked.options, job=asked.options.job or digest_of_tables_job(asked))
    check_ceilings(common)
    with workers_for(common, stop=stop) as team:
        tell_settings((each.request for each in asked.entries), observe)
        with resolved_tables(asked, seats=team.seats, stop=stop, observe=observe) as ready:
            return run(ready, team.executor, options, observe=observe, stop=stop)


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
