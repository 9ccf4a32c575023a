"""Ending a run from elsewhere: asks it by way of its destination and waits until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from unloader.errors import Interrupted, OutputFailed
from unloader.status.reading import RunStatus, check_whole, status_of
from unloader.storage.opening import storage_at

_LOOK_SECONDS = 0.25
_ASK_SECONDS = 5.0
"""After so long it is asked again: a request that came while the run took its place is lost."""


class StoppedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked to end."""

    run_id: str
    state: str
    """Now: `interrupted` with finished units, `none` without any, `finished` if it was too late,
    or `running` if nobody waited."""
    units_done: int
    units: int | None
    seconds: float
    """How long it took."""
    status: RunStatus


def stop_run(
    place: str, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> StoppedRun:
    """Ask the run at a destination to end, as Ctrl-C would, and wait until it is over.

    Args:
        place: One of the run's places.
        timeout_seconds: How long to wait at most; 0 does not wait.
        stop: Asked several times a second; True ends the waiting, not the run.

    Raises:
        OutputFailed: No run is there, it is still going on after that time, or this user may not
            ask it.
        Interrupted: `stop` returned True.
    """
    before = status_of(place)
    if before.state != "running":
        raise OutputFailed(
            f"no run is writing to {place}, so no run can be stopped",
            f"look at that place with: unloader status {place}",
        )
    check_whole(before, "stop")
    began = time.monotonic()
    now, next_ask = before, began
    while _goes_on(before, now):
        waited = time.monotonic() - began
        if time.monotonic() >= next_ask:
            next_ask += _ASK_SECONDS
            _ask(place)
        if timeout_seconds and waited >= timeout_seconds:
            raise OutputFailed(
                f"run {before.run_id} was asked to end, but still works after {waited:.0f} s",
                f"wait for it: unloader status {place} --watch; or end process {before.pid} on "
                f"{before.host or 'its machine'} with a signal",
            )
        if not timeout_seconds:
            break
        if stop():
            raise Interrupted(
                f"unloader no longer waits for run {before.run_id}; the run was asked to end",
                f"look at the run with: unloader status {place}",
            )
        time.sleep(_LOOK_SECONDS)
        now = _now(place)
    return _ended(before, now, time.monotonic() - began)


def _now(place: str) -> RunStatus:
    try:
        return status_of(place)
    except OutputFailed:
        # A run without finished units removes the directories that it has made.
        return RunStatus(destination=place, state="none")


def _ask(place: str) -> None:
    try:
        storage_at(place).ask_to_stop(place)
    except FileNotFoundError:
        return  # It has just ended.
    except OSError as error:
        raise OutputFailed(
            f"the run in {place} cannot be asked to end: {error.strerror or error}",
            "run the same command as a user who may write there, or send the process a signal",
        ) from error


def _goes_on(before: RunStatus, now: RunStatus) -> bool:
    same = (now.run_id, now.since) == (before.run_id, before.since)
    return now.state == "running" and same


def _ended(before: RunStatus, now: RunStatus, seconds: float) -> StoppedRun:
    # Of one that goes on it is what it last showed.
    live = now.live or before.live
    shown = live.units.done if live is not None else 0
    if now.run_id != before.run_id:
        # Another one, or an earlier one that is finished: of ours nothing is left.
        return StoppedRun(
            run_id=before.run_id,
            state="none",
            units_done=0,
            units=before.units,
            seconds=seconds,
            status=now,
        )
    return StoppedRun(
        run_id=before.run_id,
        state=now.state,
        units_done=now.left.units if now.left is not None else shown,
        units=now.units or before.units,
        seconds=seconds,
        status=now,
    )
