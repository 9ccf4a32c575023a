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
from unloader.resolve.broken_run import BrokenRun, find_broken_run, is_finished, same_job
from unloader.resolve.reopening import reopened
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedRun
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
    broken = _broken_run_of(request, observe)
    if broken is not None:
        observe(
            Notice(
                text=f"resuming run {broken.run.run_id}, which was broken off in {broken.places[0]}"
            )
        )
        statements = request.source.session.session_sql
        try:
            return _go_on(broken.with_source(request.source.secret, statements), observe, stop)
        except SnapshotGone as error:
            observe(Notice(text=f"{error.message}; everything is read again at a new snapshot"))
    return start(request, planned, observe=observe, stop=stop)


def _broken_run_of(request: Request, observe: Observer) -> BrokenRun | None:
    """Return the broken run that a request would go on with."""
    asked = request.output.destination
    if destination_kind(request.output.destinations) != "directories":
        return None
    if not has_fields(asked):
        return _broken_run_in(asked, request, observe, tell=True)
    # Its directory is known only once the table is. One of another day is for `resume` alone: a
    # nightly job wants the rows of this night.
    for place in existing(asked, f"{datetime.now(timezone.utc):%Y%m%d}"):
        try:
            found = _broken_run_in(place, request, observe, tell=False)
        except OutputFailed:
            continue  # Another table's, which goes on or cannot be read.
        if found is not None:
            return found
    return None


def _broken_run_in(
    place: str, request: Request, observe: Observer, *, tell: bool
) -> BrokenRun | None:
    _complete(place, observe)
    broken = find_broken_run(place)
    if broken is None:
        return None
    statements = request.source.session.session_sql
    had_them = bool(broken.run.withheld)
    same = broken.run.is_session_sql(statements) if had_them else not statements
    if same and same_job(broken.run.request, request):
        return broken
    if not tell:
        return None
    text = f"run {broken.run.run_id}, which was broken off in {place}, was another job"
    observe(Notice(text=f"{text}: this one begins anew"))
    return None


def _go_on(broken: BrokenRun, observe: Observer, stop: Stop) -> Manifest:
    request = broken.run.request
    seats = seat_request(request, broken.run.plan.limits.parallelism)
    with early_workers(request, seats) as executor:
        _tell_settings(request, observe)
        with reopened(broken, stop=stop, observe=observe) as ready:
            return run(ready, executor, observe=observe, stop=stop)


def _complete(place: str, observe: Observer) -> None:
    """Finish a publication that was cut short: that run is complete."""
    for text in storage_at(place).complete(place):
        observe(Notice(text=text))


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
