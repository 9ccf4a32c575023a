"""The ways into a run: anew, where a broken one left off, or whichever of the two fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from unloader.errors import OutputFailed, SnapshotGone
from unloader.events import Notice, Observer, SettingUsed
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.model import Request, SecretReference
from unloader.placement.seating import seat_request
from unloader.request.directory_names import existing, has_fields
from unloader.resolve.broken_run import (
    BrokenRun,
    find_broken_run,
    is_finished,
    recorded_run,
    same_job,
)
from unloader.resolve.reopening import reopened
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedRun
from unloader.run.ceilings import check_ceilings
from unloader.run.unloading import run
from unloader.run.workers import early_workers
from unloader.storage.kinds import destination_kind
from unloader.storage.opening import storage_at

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run cleanly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What the user says of a run that is gone on with."""

    secret: SecretReference | None = None
    """Where the password is found now; None is where it was."""
    session_sql: tuple[str, ...] = ()
    """What the sessions run first; no record holds it."""
    new_snapshot: bool = False
    """Read everything again."""


def start(
    request: Request, planned: ResolvedRun | None, *, observe: Observer, stop: Stop
) -> Manifest:
    """Begin a run anew; see `unloader.api.unload`."""
    check_ceilings(request)
    seats = seat_request(request, planned.plan.limits.parallelism if planned else None)
    with early_workers(request, seats) as executor:
        _tell_settings(request, observe)
        with resolved(request, planned=planned, seats=seats, stop=stop, observe=observe) as ready:
            return run(ready, executor, observe=observe, stop=stop)


def resume(destination: str, again: Resumption, *, observe: Observer, stop: Stop) -> Manifest:
    """Go on with a broken run; see `unloader.api.resume`."""
    _complete(destination, observe)
    broken = find_broken_run(destination)
    if broken is None and is_finished(destination):
        observe(Notice(text=f"the run in {destination} is finished: nothing is left to do"))
        return read_manifest(Path(destination))
    if broken is None:
        raise OutputFailed(
            f"{destination} holds no run that was broken off",
            "start one with: unloader run",
        )
    known = broken.with_source(again.secret, again.session_sql)
    if again.new_snapshot:
        return start(known.request_here(), None, observe=observe, stop=stop)
    return _go_on(known, observe, stop)


def resume_or_start(
    request: Request, planned: ResolvedRun | None, *, observe: Observer, stop: Stop
) -> Manifest:
    """Go on with a broken run of the same job, or begin anew; see `unloader.api.unload`."""
    for place in _places_of(request):
        try:
            manifest = _gone_on_with(place, request, observe, stop)
        except _NotOurs:
            continue
        if manifest is not None:
            return manifest
    return start(request, planned, observe=observe, stop=stop)


class _NotOurs(Exception):
    """What a directory holds that may be this job's is another's."""


def _places_of(request: Request) -> tuple[str, ...]:
    """Return where a broken run of a request may lie."""
    output = request.output
    if destination_kind(output.destinations) != "directories":
        return ()
    if not has_fields(output.destination):
        return (output.destination,)
    # Its directory is known only once the table is. One of another day is for `resume` alone: a
    # nightly job wants the rows of this night.
    return tuple(existing(output.destination, f"{datetime.now(timezone.utc):%Y%m%d}"))


def _gone_on_with(place: str, request: Request, observe: Observer, stop: Stop) -> Manifest | None:
    """Bring the broken run of a job at a place to its end; return None if there is none."""
    alone = not has_fields(request.output.destination)
    try:
        was = recorded_run(place)
        finished = _complete(place, observe) and is_finished(place)
        if finished and was is not None and _is_the_job(was, request):
            return read_manifest(Path(place))
        broken = find_broken_run(place)
    except OutputFailed:
        if alone:
            raise
        raise _NotOurs from None
    if broken is None:
        return None
    if _is_the_job(broken.run, request) and broken.is_at(request.output):
        return _resumed(broken, request, place, observe, stop)
    if alone:
        text = f"run {broken.run.run_id}, which was broken off in {place}, was another job"
        observe(Notice(text=f"{text}: this one begins anew"))
    return None


def _is_the_job(run: ResolvedRun, request: Request) -> bool:
    statements = request.source.session.session_sql
    same = run.is_session_sql(statements) if run.withheld else not statements
    return same and same_job(run.request, request)


def _resumed(
    broken: BrokenRun, request: Request, place: str, observe: Observer, stop: Stop
) -> Manifest | None:
    """Go on with a broken run; return None if its snapshot cannot be read any more."""
    observe(Notice(text=f"resuming run {broken.run.run_id}, which was broken off in {place}"))
    source = request.source
    try:
        known = broken.with_source(source.secret, source.session.session_sql)
        return _go_on(known, observe, stop)
    except SnapshotGone as error:
        observe(Notice(text=f"{error.message}; everything is read again at a new snapshot"))
    return None


def _go_on(broken: BrokenRun, observe: Observer, stop: Stop) -> Manifest:
    request = broken.run.request
    seats = seat_request(request, broken.run.plan.limits.parallelism)
    with early_workers(request, seats) as executor:
        _tell_settings(request, observe)
        with reopened(broken, stop=stop, observe=observe) as ready:
            return run(ready, executor, observe=observe, stop=stop)


def _complete(place: str, observe: Observer) -> bool:
    """Finish a publication that was cut short, as that run is complete; return if there was one."""
    messages = storage_at(place).complete(place)
    for text in messages:
        observe(Notice(text=text))
    return bool(messages)


def _tell_settings(request: Request, observe: Observer) -> None:
    for setting in request.settings:
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
