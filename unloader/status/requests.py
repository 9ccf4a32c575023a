"""Asks a run in another process to stop or to change, and waits for its answer.

The request and the answer are files in the destination of the run.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.status.model import ParallelismStatus, Wish
from unloader.status.reading import RunStatus, status_of
from unloader.storage.storage_lookup import storage_at

_LOOK_SECONDS = 0.2
_ASK_SECONDS = 5.0
"""A request to stop is repeated after this time: one that came while the run took its place is
lost."""


class StoppedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked to end."""

    run_id: str
    state: str
    """Now: `interrupted` with finished units, `none` without any, `finished` if it was too late,
    or `running` if the caller did not wait."""
    units_done: int
    units: int | None
    seconds: float
    status: RunStatus


class ChangedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked to change."""

    run_id: str
    taken: bool
    """It has applied the change; False if the caller did not wait for that."""
    seconds: float
    parallelism: ParallelismStatus | None


def stop_run(
    place: str, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> StoppedRun:
    """Ask the run at a destination to end, as Ctrl-C would, and wait until it has ended.

    Args:
        timeout_seconds: How long to wait at most; 0 does not wait.
        stop: Asked several times a second; True ends the waiting, not the run.

    Raises:
        OutputFailed: No run is there, it is still active after that time, or this user may not
            ask it.
        Interrupted: `stop` returned True.
    """
    before = now = _running(place, "stop", "stopped")
    began = next_ask = time.monotonic()
    while _is_same(before, now):
        waited = time.monotonic() - began
        if time.monotonic() >= next_ask:
            next_ask += _ASK_SECONDS
            with suppress(FileNotFoundError):  # It has just ended.
                _ask(place, "to end", ", or send the process a signal", stop=True)
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
    # Another run, or an earlier finished run: nothing of the stopped run is left.
    is_other = now.run_id != before.run_id
    # A run that is still active has the units that it last showed.
    live = now.live or before.live
    done = live.units.done if live is not None else 0
    if now.left is not None:
        done = now.left.units
    return StoppedRun(
        run_id=before.run_id,
        state="none" if is_other else now.state,
        units_done=0 if is_other else done,
        units=before.units if is_other else now.units or before.units,
        seconds=time.monotonic() - began,
        status=now,
    )


def change_run(
    place: str, wish: Wish, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> ChangedRun:
    """Ask the run at a destination for other settings, and wait until it has applied them.

    Args:
        wish: The change; its id and the name of the caller are filled in here.

    Raises:
        UsageError: Nothing is to be changed.
        OutputFailed: No run is there, it ends before, does not answer in that time, refuses, or
            this user may not ask it.
        Interrupted: `stop` returned True.
    """
    if wish.is_empty:
        raise UsageError("no setting to change is given", "give for instance --parallelism 4")
    before = _running(place, "set", "changed")
    run, look = f"run {before.run_id}", f"look at the run with: unloader status {place}"
    if before.live and before.live.phase not in ("planning", "confirming", "unloading"):
        raise OutputFailed(f"the workers of {run} have ended: it is {before.live.phase}", look)
    wish = replace(wish, id=os.urandom(8).hex(), by="`unloader set`")
    result = f"look at the result with: unloader status {place}"
    try:
        _ask(place, "to change", change=encode(wish).decode())
    except FileNotFoundError:
        raise OutputFailed(f"the run in {place} has just ended", result) from None
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        now = _now(place)
        known = now.live.parallelism if now.live is not None else None
        taken = known is not None and known.taken == wish.id
        if known is not None and taken and known.refused:
            raise OutputFailed(
                f"{run} refused the request: {known.refused}",
                "ask for something else; a run gets its seats when it starts, from --parallelism "
                "and --max-sessions",
            )
        if not taken and not _is_same(before, now):
            raise OutputFailed(f"{run} ended before it took the request", result)
        if taken or not timeout_seconds:
            return ChangedRun(run_id=before.run_id, taken=taken, seconds=waited, parallelism=known)
        if waited >= timeout_seconds:
            phase = now.live.phase if now.live is not None else "planning"
            raise OutputFailed(
                f"{run} did not take the request within {waited:.0f} s; it is {phase}",
                f"{look}; a run takes requests only while it unloads, and only if it has this "
                "version of unloader",
            )
        if stop():
            raise Interrupted(
                f"unloader no longer waits for {run}; the run may still take the request", look
            )
        time.sleep(_LOOK_SECONDS)


def _ask(place: str, what: str, more: str = "", *, stop: bool = False, change: str = "") -> None:
    try:
        storage_at(place).ask(place, stop=stop, change=change)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OutputFailed(
            f"the run in {place} cannot be asked {what}: {error.strerror or error}",
            f"run the same command as a user who may write there{more}",
        ) from error


def _running(place: str, command: str, done: str) -> RunStatus:
    found = status_of(place)
    if found.state != "running":
        raise OutputFailed(
            f"no run is writing to {place}, so no run can be {done}",
            f"look at that place with: unloader status {place}",
        )
    if found.home:
        raise OutputFailed(
            f"{found.destination} has one table of run {found.run_id}, which has several tables",
            f"give the directory of all tables: unloader {command} {shlex.quote(found.home)}",
        )
    return found


def _is_same(before: RunStatus, now: RunStatus) -> bool:
    return (now.state, now.run_id, now.since) == ("running", before.run_id, before.since)


def _now(place: str) -> RunStatus:
    try:
        return status_of(place)
    except OutputFailed:
        # A run without finished units removes the directories that it has made.
        return RunStatus(destination=place, state="none")
