"""Reads the status of the runs at a destination, and asks a run to stop or to change.

The status, the request and the answer are files in the destination. Reading changes nothing, and
the right to read is enough. It is the same for a run on another machine. docs/watching.md explains
the keys of the answers.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.manifest.model import TablesManifest
from unloader.manifest.read import is_published, parse_run
from unloader.model import TableCounts
from unloader.nouns import counted
from unloader.resolve.places import home_above
from unloader.resolve.resolved import (
    RecordedTable,
    is_of_tables,
    recorded_left_out,
    recorded_tables,
    table_in,
)
from unloader.resolve.resuming import why_not_resumable
from unloader.status.model import LiveStatus, ParallelismStatus, Wish, parse_status
from unloader.storage.place_names import path_of, real
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import (
    MANIFEST,
    RUN_RECORD,
    STATUS,
    Leftover,
    Storage,
    WhoWasHere,
)

State = Literal["running", "interrupted", "finished", "none", "unreadable"]

FORMAT_VERSION = 1

_AT_ONCE = 16
"""Places that are looked at at the same time: a network file system answers slowly."""


class FinishedRun(Struct, frozen=True, kw_only=True):
    run_id: str
    table: str
    rows: int
    bytes: int
    files: int
    seconds: float
    verified: str
    ended: str | None
    tables: int | None = None


class RunStatus(Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    destination: str
    state: State
    """The state of the latest run: `_run` shows `running` and `interrupted`, and a manifest shows
    `finished`. `unreadable` is only in a list of runs; one that is asked for by name is an
    error."""
    problem: str = ""
    reason: str = ""
    run_id: str = ""
    table: str = ""
    started: str | None = None
    host: str = ""
    pid: int = 0
    since: str = ""
    live: LiveStatus | None = None
    """The last status that the run showed, or None. For an interrupted run, the rows and bytes
    count its finished units."""
    tables: TableCounts | None = None
    home: str = ""
    """The directory of all tables, where this one is of a table of a run that is not finished."""
    units: int | None = None
    left: Leftover | None = None
    finished: FinishedRun | None = None
    """The run whose manifest is there; beside a broken one that was to replace it, an earlier one.
    Empty beside an active run."""


def status_of(place: str, tables: Mapping[str, RecordedTable] | None = None) -> RunStatus:
    """Return the status of a destination; `tables` are known ones by their real directories."""
    storage = storage_at(place)
    with _readable(place):
        # Looked at again and again while it runs: nothing that takes a look at each file.
        who = storage.who_was_here(place, counted=False)
        if who is not None and who.is_running:
            return _of_run(storage, place, who, tables or {})
        finished = _finished(storage, place)
        who = storage.who_was_here(place) if who is not None else None
        if who is not None and (who.run_id or who.left.files):
            return _of_broken_run(storage, place, who, finished, tables or {})
        if finished is None:
            storage.places_below(place, 0)  # It may not even be there.
        return _of_finished(place, finished)


@contextmanager
def _readable(place: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise OutputFailed(
            f"{place} does not exist",
            "give the directory that was given with --to; if the run is still planning, wait until "
            "it unloads, or end it with a signal",
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"cannot read {place}: {error.strerror or error}", "check the path and its permissions"
        ) from error


def statuses_below(place: str, depth: int) -> tuple[RunStatus, ...]:
    with _readable(place):
        places = storage_at(place).places_below(place, depth)

    known: dict[str, RecordedTable] = {}

    def read_record(place: str) -> None:
        with suppress(OSError):
            for table in recorded_tables(storage_at(place).record(place, RUN_RECORD), place):
                known.update((real(each), table) for each in table.directories)

    def seen(place: str) -> RunStatus:
        try:
            return status_of(place, known)
        except OutputFailed as error:
            return RunStatus(destination=place, state="unreadable", problem=error.message)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        # The record of thousands of tables is read once, and not for each of them.
        list(threads.map(read_record, places))
        found = list(threads.map(seen, places))
    # A run over several places is listed once, by the first place of its that was found. Of a run
    # over several tables that is the directory of all of them.
    once: dict[tuple[str, str], RunStatus] = {}
    homes = {each.run_id: each.destination for each in found if each.tables is not None}
    for each in found:
        if homes.get(each.run_id, each.destination) != each.destination:
            continue  # One of the tables of a run that is listed as a whole.
        key = (each.run_id, each.since or each.destination)
        if each.state != "none" and (key not in once or once[key].live is None):
            once[key] = each
    return tuple(sorted(once.values(), key=lambda each: each.destination))


def _of_broken_run(
    storage: Storage,
    place: str,
    who: WhoWasHere,
    finished: FinishedRun | None,
    known: Mapping[str, RecordedTable],
) -> RunStatus:
    if finished is not None and finished.run_id == who.run_id:
        # It is published; the next command that changes anything removes the rest.
        return _of_finished(place, finished)
    found = replace(_of_run(storage, place, who, known), finished=finished)
    record = storage.record(place, RUN_RECORD)
    if real(place) not in known:
        found = replace(found, problem=why_not_resumable(found.home or place, record))
    tables = recorded_tables(record, place)
    if not tables:
        alone = None if who.places[1:] else who
        return replace(found, left=_staged(storage, who.places or (place,), {who.run_id}, alone))

    def staged_of(table: RecordedTable) -> Leftover | None:
        if all(is_published(storage, home, table.run_id) for home in table.homes):
            return None
        return _staged(storage, table.directories, {who.run_id, table.run_id})

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        staged = [each for each in threads.map(staged_of, tables) if each is not None]
    left_out = len(recorded_left_out(record))
    return replace(
        found,
        tables=TableCounts(
            total=len(tables) + left_out,
            done=len(tables) - len(staged),
            failed=max(left_out, 0 if found.tables is None else found.tables.failed),
            left_out=left_out,
        ),
        left=Leftover(
            directory=place,
            run_id=who.run_id,
            units=sum(each.units for each in staged),
            files=sum(each.files for each in staged),
            bytes=sum(each.bytes for each in staged),
        ),
    )


def _staged(
    storage: Storage, places: Sequence[str], runs: Container[str], known: WhoWasHere | None = None
) -> Leftover:
    """Return the staged part of all places of a run; each journal has all units of its place."""
    parts = [known] if known is not None else map(storage.who_was_here, places)
    left = [each.left for each in parts if each is not None and each.run_id in runs]
    return Leftover(
        directory=left[0].directory if left else places[0],
        run_id=left[0].run_id if left else "",
        units=max((each.units for each in left), default=0),
        files=sum(each.files for each in left),
        bytes=sum(each.bytes for each in left),
    )


def _of_run(
    storage: Storage, place: str, who: WhoWasHere, tables_there: Mapping[str, RecordedTable]
) -> RunStatus:
    home = place
    live = parse_status(storage.record(place, STATUS))
    if live is None and len(who.places) > 1:
        home = who.places[0]
        live = parse_status(storage.record(home, STATUS))
    # A process that resumes has not shown itself yet where the record is of the process before.
    if live and (live.run_id != who.run_id or (who.is_running and live.pid != who.pid)):
        live = None
    if live is not None and not who.is_running:
        live = live.of_finished_units()
    found = RunStatus(
        destination=place,
        state="running" if who.is_running else "interrupted",
        reason=_reason(live),
        run_id=who.run_id,
        started=_time_of(who.run_id),
        host=who.host,
        pid=who.pid,
        since=who.since,
        live=live,
    )
    if live is not None and live.units.total:
        return replace(found, table=live.table, tables=live.tables, units=live.units.total)
    record = storage.record(home, RUN_RECORD)
    if not record and (above := home_above(storage, place, who.run_id)):
        one = tables_there.get(real(place)) or table_in(storage, above, place)
        whole = parse_status(storage.record(above, STATUS))
        reason = _reason(whole) if whole and whole.run_id == who.run_id else ""
        found = replace(found, live=None, home=above, reason=reason)
        return found if one is None else replace(found, table=one.name, units=one.units)
    known = recorded_tables(record, home, single=True)
    if not known:
        return found
    found = replace(found, table=known[0].name, units=sum(each.units for each in known))
    if not is_of_tables(record):
        return found
    return replace(found, table=counted(len(known), "table"), tables=TableCounts(total=len(known)))


def _reason(live: LiveStatus | None) -> str:
    if live is None or not live.ended:
        return ""
    # The advice of that message may be outdated: the page has the next step from what exists now.
    return live.last_error.partition(". Next: ")[0]


def _of_finished(place: str, finished: FinishedRun | None) -> RunStatus:
    if finished is None:
        return RunStatus(destination=place, state="none")
    many = finished.tables
    return RunStatus(
        destination=place,
        state="finished",
        run_id=finished.run_id,
        table=finished.table,
        started=_time_of(finished.run_id),
        tables=None if many is None else TableCounts(total=many, done=many),
        finished=finished,
    )


def _finished(storage: Storage, place: str) -> FinishedRun | None:
    try:
        data = storage.read(place, MANIFEST)
    except FileNotFoundError:
        return None
    run = parse_run(data, path_of(place) / MANIFEST)
    if isinstance(run, TablesManifest):
        many: int | None = run.totals.tables
        table = counted(run.totals.tables, "table")
        verified = ", ".join(sorted({each.verified or "not verified" for each in run.tables}))
    else:
        many, verified = None, run.verified.result
        table = ".".join(filter(None, (run.table.schema, run.table.name))) if run.table else ""
    totals = run.totals
    return FinishedRun(
        run_id=run.run_id,
        table=table,
        rows=totals.rows,
        bytes=totals.bytes,
        files=totals.files,
        seconds=totals.seconds,
        verified=verified,
        ended=_time_of(run.run_id, totals.seconds),
        tables=many,
    )


def _time_of(run_id: str, seconds: float = 0.0) -> str | None:
    """Return a time of a run, whose id begins with the time of its start; None for another id."""
    try:
        moment = datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="seconds")


_LOOK_SECONDS = 0.2
_ASK_SECONDS = 5.0
"""A request to stop is repeated after this time: one that came while the run took its place is
lost."""


class StoppedRun(Struct, frozen=True, kw_only=True):
    run_id: str
    state: str
    """Now: `interrupted` with finished units, `none` without any, `finished` if it was too late,
    or `running` if the caller did not wait."""
    units_done: int
    units: int | None
    seconds: float
    status: RunStatus


class ChangedRun(Struct, frozen=True, kw_only=True):
    run_id: str
    taken: bool
    """It has applied the change; False if the caller did not wait for that."""
    seconds: float
    parallelism: ParallelismStatus | None


def stop_run(
    place: str, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> StoppedRun:
    """Ask a run to end as Ctrl-C would; wait, at most `timeout_seconds`, 0 for not at all."""
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
    """Ask a run for other settings, and wait until it has applied them; `stop` ends the wait."""
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
