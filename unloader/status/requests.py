"""Asks a run in another process to stop or to change, and waits for its answer.

The request and the answer are files in the destination of the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.status.model import ParallelismStatus, Wish
from unloader.status.reading import RunStatus, check_whole, status_of
from unloader.storage.storage_lookup import storage_at

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


_LOOK_AGAIN_SECONDS = 0.2


class ChangedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked to change."""

    run_id: str
    taken: bool
    """It has; False if nobody waited for that."""
    seconds: float
    """How long it took."""
    parallelism: ParallelismStatus | None
    """How many workers work by now; None where that is not known yet."""


def change_run(
    place: str, wish: Wish, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> ChangedRun:
    """Ask the run at a destination for other settings, and wait until it has taken them.

    Args:
        place: One of the run's places.
        wish: What is to change; its id and who asks are filled in here.
        timeout_seconds: How long to wait at most; 0 does not wait.
        stop: Asked several times a second; True ends the waiting.

    Raises:
        UsageError: Nothing is to be changed.
        OutputFailed: No run is there, it ends before, does not answer in that time, refuses, or
            this user may not ask it.
        Interrupted: `stop` returned True.
    """
    if wish.is_empty:
        raise UsageError("no setting to change is given", "give for instance --parallelism 4")
    before = status_of(place)
    _check_running(before, place)
    check_whole(before, "set")
    wish = replace(wish, id=os.urandom(8).hex(), by="`unloader set`")
    _send(place, wish)
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        now = _status_now(place)
        known = now.live.parallelism if now.live is not None else None
        if known is not None and known.taken == wish.id:
            return _answered(before.run_id, known, waited)
        if (now.state, now.run_id, now.since) != ("running", before.run_id, before.since):
            raise OutputFailed(
                f"run {before.run_id} ended before it took the request",
                f"look at the result with: unloader status {place}",
            )
        if not timeout_seconds:
            return ChangedRun(run_id=before.run_id, taken=False, seconds=waited, parallelism=known)
        if waited >= timeout_seconds:
            phase = now.live.phase if now.live is not None else "planning"
            raise OutputFailed(
                f"run {before.run_id} did not take the request within {waited:.0f} s; it is "
                f"{phase}",
                f"look at the run with: unloader status {place}; a run takes requests only while "
                "it unloads, and only if it has this version of unloader",
            )
        if stop():
            raise Interrupted(
                f"unloader no longer waits for run {before.run_id}; the run may still take the "
                "request",
                f"look at the run with: unloader status {place}",
            )
        time.sleep(_LOOK_AGAIN_SECONDS)


def _check_running(before: RunStatus, place: str) -> None:
    if before.state != "running":
        raise OutputFailed(
            f"no run is writing to {place}, so no run can be changed",
            f"look at that place with: unloader status {place}",
        )
    live = before.live
    if live is not None and live.phase not in ("planning", "confirming", "unloading"):
        raise OutputFailed(
            f"the workers of run {before.run_id} have ended: it is {live.phase}",
            f"look at the run with: unloader status {place}",
        )


def _answered(run_id: str, known: ParallelismStatus, seconds: float) -> ChangedRun:
    if known.refused:
        raise OutputFailed(
            f"run {run_id} refused the request: {known.refused}",
            "ask for something else; a run gets its seats when it starts, from --parallelism and "
            "--max-sessions",
        )
    return ChangedRun(run_id=run_id, taken=True, seconds=seconds, parallelism=known)


def _status_now(place: str) -> RunStatus:
    try:
        return status_of(place)
    except OutputFailed:
        return RunStatus(destination=place, state="none")


def _send(place: str, wish: Wish) -> None:
    try:
        storage_at(place).ask(place, encode(wish))
    except FileNotFoundError:
        raise OutputFailed(
            f"the run in {place} has just ended",
            f"look at the result with: unloader status {place}",
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"the run in {place} cannot be asked: {error.strerror or error}",
            "run the same command as a user who may write there",
        ) from error
