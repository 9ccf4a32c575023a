"""Reads what is known of the runs at a destination from the files that they keep there.

Nothing is changed, and the right to read is enough. It is the same for a run on another machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.manifest.model import TableRecord, TablesManifest
from unloader.manifest.read import is_published, parse_run
from unloader.model import TableCounts
from unloader.nouns import counted
from unloader.resolve.homes import home_above
from unloader.resolve.run_record import (
    RecordedTable,
    is_of_tables,
    recorded_left_out,
    recorded_tables,
    table_in,
)
from unloader.status.model import LiveStatus, parse_status
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
    """A run whose manifest is there."""

    run_id: str
    table: str
    """Empty for a query; the number of tables, in words, for several."""
    rows: int
    bytes: int
    files: int
    seconds: float
    verified: str
    ended: str | None
    """ISO 8601 in UTC; None where the run's id does not tell."""
    tables: int | None = None
    """Of a run over several; else None."""


class RunStatus(Struct, frozen=True, kw_only=True):
    """The runs at one destination."""

    format_version: int = FORMAT_VERSION
    destination: str
    state: State
    """Of the latest: `running` and `interrupted` are told by `_run`, `finished` by a manifest.
    `unreadable` is only in a list of runs; one that is asked for by name is an error."""
    problem: str = ""
    """Why it is unreadable, or why it is interrupted and cannot be resumed."""
    run_id: str = ""
    table: str = ""
    started: str | None = None
    """ISO 8601 in UTC; None where the run's id does not tell."""
    host: str = ""
    pid: int = 0
    since: str = ""
    """When this process took the destination; a run that is resumed has had others."""
    live: LiveStatus | None = None
    """What the run last showed of itself; None if it has shown nothing. The rows and bytes of an
    interrupted run are those of its finished units."""
    tables: TableCounts | None = None
    """Of a run over several: how many there are, and how many are published."""
    home: str = ""
    """The directory of all tables, where this one is of a table of a run that is not finished."""
    units: int | None = None
    """Work units of the run; None where it is not known."""
    left: Leftover | None = None
    """What a broken run has staged."""
    finished: FinishedRun | None = None
    """The run whose manifest is there; beside a broken one that was to replace it, an earlier one.
    Not told beside one that goes on."""


def status_of(place: str, tables: Mapping[str, RecordedTable] | None = None) -> RunStatus:
    """Return what is known of the runs at a destination.

    Args:
        place: One of a run's places, as it was given with `--to`.
        tables: Of runs over several, by their real directories, as far as they are known already.

    Raises:
        OutputFailed: It is not there, or may not be read.
    """
    storage = storage_at(place)
    try:
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
    except FileNotFoundError:
        raise OutputFailed(
            f"{place} does not exist",
            "give the directory that was given with --to; if the run is still planning, wait until "
            "it unloads, or end it with a signal",
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"cannot read {place}: {error.strerror or error}",
            "check the path and its permissions",
        ) from error


def check_whole(status: RunStatus, command: str) -> None:
    """Check that a place is not that of one table of several: these are one run.

    Raises:
        OutputFailed: It is.
    """
    if status.home:
        raise OutputFailed(
            f"{status.destination} has one table of run {status.run_id}, which has several tables",
            f"give the directory of all tables: unloader {command} {shlex.quote(status.home)}",
        )


def statuses_below(place: str, depth: int) -> tuple[RunStatus, ...]:
    """Return what is known of all runs at a place and below it, by their places.

    Args:
        place: Where to begin.
        depth: How far to go down; 0 looks at the place alone.

    Raises:
        OutputFailed: The place is not there, or may not be read.
    """
    storage = storage_at(place)
    try:
        places = storage.places_below(place, depth)
    except FileNotFoundError:
        raise OutputFailed(f"{place} does not exist", "give a directory") from None
    except OSError as error:
        raise OutputFailed(
            f"cannot read {place}: {error.strerror or error}",
            "check the path and its permissions",
        ) from error
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        # The record of thousands of tables is read once, and not for each of them.
        known: dict[str, RecordedTable] = {}
        for found in threads.map(partial(_tables_of, storage), places):
            known.update(found)
        return tuple(_once_each(threads.map(partial(_seen, tables=known), places)))


def _tables_of(storage: Storage, place: str) -> dict[str, RecordedTable]:
    """Return the tables of the unfinished run that has its home at a place."""
    with suppress(OSError):
        tables = recorded_tables(storage.record(place, RUN_RECORD), place)
        return {real(each): table for table in tables for each in table.directories}
    return {}


def _seen(place: str, tables: Mapping[str, RecordedTable]) -> RunStatus:
    try:
        return status_of(place, tables)
    except OutputFailed as error:
        return RunStatus(destination=place, state="unreadable", problem=error.message)


def _once_each(found: Iterable[RunStatus]) -> list[RunStatus]:
    """Return each run over several places once, by the first place of its that was found.

    Of a run over several tables that is the directory of all of them.
    """
    known: dict[tuple[str, str], RunStatus] = {}
    found = list(found)
    homes = {each.run_id: each.destination for each in found if each.tables is not None}
    for each in found:
        if homes.get(each.run_id, each.destination) != each.destination:
            continue  # One of the tables of a run that is listed as a whole.
        key = (each.run_id, each.since or each.destination)
        if each.state != "none" and (key not in known or known[key].live is None):
            known[key] = each
    return sorted(known.values(), key=lambda each: each.destination)


def _of_broken_run(
    storage: Storage,
    place: str,
    who: WhoWasHere,
    finished: FinishedRun | None,
    known: Mapping[str, RecordedTable],
) -> RunStatus:
    if finished is not None and finished.run_id == who.run_id:
        # It is published; what is left is cleared up by the next command that changes anything.
        return _of_finished(place, finished)
    found = _of_run(storage, place, who, known)
    record = storage.record(place, RUN_RECORD)
    tables = recorded_tables(record, place)
    if real(place) not in known:
        # The display of any command imports this module, and few list an interrupted run.
        from unloader.resolve.broken_run import why_not_resumable

        found = replace(found, problem=why_not_resumable(found.home or place, record))
    if tables:
        what = tables_left(storage, place, who.run_id, tables)
        left_out = len(recorded_left_out(record))
        counts = replace(
            what.tables, total=what.tables.total + left_out, failed=left_out, left_out=left_out
        )
        return replace(found, left=what.left, tables=counts, finished=finished)
    return replace(found, left=_left(storage, who), finished=finished)


def _of_run(
    storage: Storage, place: str, who: WhoWasHere, tables_there: Mapping[str, RecordedTable]
) -> RunStatus:
    home = place
    live = parse_status(storage.record(place, STATUS))
    if live is None and len(who.places) > 1:
        home = who.places[0]
        live = parse_status(storage.record(home, STATUS))
    if live is not None and live.run_id != who.run_id:
        live = None
    if live is not None and who.is_running and live.pid != who.pid:
        live = None  # It is of the process before; one that resumes has not shown itself yet.
    if live is not None and not who.is_running:
        live = live.of_finished_units()
    units, table = (live.units.total, live.table) if live is not None else (None, "")
    tables = live.tables if live is not None else None
    if not units:
        record = storage.record(home, RUN_RECORD)
        if not record and (above := home_above(storage, place, who.run_id)):
            one = tables_there.get(real(place))
            one = table_in(storage, above, place) if one is None else one
            return _of_one_table(place, above, who, one)
        known = recorded_tables(record, home, single=True)
        units = sum(each.units for each in known) if known else None
        several = bool(known) and is_of_tables(record)
        tables = TableCounts(total=len(known)) if several else None
        table = counted(len(known), "table") if several else known[0].name if known else ""
    return RunStatus(
        destination=place,
        state="running" if who.is_running else "interrupted",
        run_id=who.run_id,
        table=table,
        started=_text(_start_of(who.run_id)),
        host=who.host,
        pid=who.pid,
        since=who.since,
        live=live,
        tables=tables,
        units=units,
    )


def _of_one_table(place: str, home: str, who: WhoWasHere, table: RecordedTable | None) -> RunStatus:
    """Return what is known of a table of a run over several, by its directory."""
    return RunStatus(
        destination=place,
        state="running" if who.is_running else "interrupted",
        run_id=who.run_id,
        table="" if table is None else table.name,
        started=_text(_start_of(who.run_id)),
        host=who.host,
        pid=who.pid,
        since=who.since,
        home=home,
        units=None if table is None else table.units,
    )


def _left(storage: Storage, who: WhoWasHere) -> Leftover:
    """Return what all places of a run hold; the journal is in the first one."""
    if len(who.places) < 2:
        return who.left
    parts = [storage.who_was_here(each) for each in who.places]
    left = [each.left for each in parts if each is not None and each.run_id == who.run_id]
    return Leftover(
        directory=who.places[0],
        run_id=who.run_id,
        units=max((each.units for each in left), default=who.left.units),
        files=sum(each.files for each in left),
        bytes=sum(each.bytes for each in left),
    )


def _of_finished(place: str, finished: FinishedRun | None) -> RunStatus:
    if finished is None:
        return RunStatus(destination=place, state="none")
    many = finished.tables
    return RunStatus(
        destination=place,
        state="finished",
        run_id=finished.run_id,
        table=finished.table,
        started=_text(_start_of(finished.run_id)),
        tables=None if many is None else TableCounts(total=many, done=many),
        finished=finished,
    )


def _finished(storage: Storage, place: str) -> FinishedRun | None:
    """Return the finished run at a place; one with a damaged manifest is none."""
    try:
        data = storage.read(place, MANIFEST)
    except FileNotFoundError:
        return None
    facts = parse_run(data, path_of(place) / MANIFEST)
    start, totals = _start_of(facts.run_id), facts.totals
    if isinstance(facts, TablesManifest):
        many: int | None = facts.totals.tables
        table, verified = counted(facts.totals.tables, "table"), _verified(facts)
    else:
        many, table, verified = None, _label(facts.table), facts.verified.result
    return FinishedRun(
        run_id=facts.run_id,
        table=table,
        rows=totals.rows,
        bytes=totals.bytes,
        files=totals.files,
        seconds=totals.seconds,
        verified=verified,
        ended=None if start is None else _text(start + timedelta(seconds=totals.seconds)),
        tables=many,
    )


def _verified(facts: TablesManifest) -> str:
    """Return what came of the verification of all tables."""
    return ", ".join(sorted({each.verified or "not verified" for each in facts.tables}))


def _label(table: TableRecord | None) -> str:
    if table is None:
        return ""
    return f"{table.schema}.{table.name}" if table.schema else table.name


def _start_of(run_id: str) -> datetime | None:
    """Return when a run began, by its id, which begins with that."""
    try:
        moment = datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


class TablesLeft(Struct, frozen=True, kw_only=True):
    """What a broken run over several tables has left."""

    tables: TableCounts
    left: Leftover
    """What is staged of those that are not published."""


def tables_left(
    storage: Storage, home: str, run_id: str, tables: Iterable[RecordedTable]
) -> TablesLeft:
    """Look at the directories of all tables.

    Raises:
        OSError: One cannot be read.
    """
    listed = list(tables)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda table: _left_of(storage, run_id, table), listed))
    staged = [each for each in found if each is not None]
    return TablesLeft(
        tables=TableCounts(total=len(listed), done=len(listed) - len(staged)),
        left=Leftover(
            directory=home,
            run_id=run_id,
            units=sum(each.units for each in staged),
            files=sum(each.files for each in staged),
            bytes=sum(each.bytes for each in staged),
        ),
    )


def _left_of(storage: Storage, run_id: str, table: RecordedTable) -> Leftover | None:
    """Return what is staged of a table; None if it is published."""
    if all(is_published(storage, home, table.run_id) for home in table.homes):
        return None
    parts = []
    for place in table.directories:
        who = storage.who_was_here(place)
        if who is not None and who.run_id in (run_id, table.run_id):
            parts.append(who.left)
    return Leftover(
        directory=table.directories[0],
        run_id=run_id,
        units=max((each.units for each in parts), default=0),
        files=sum(each.files for each in parts),
        bytes=sum(each.bytes for each in parts),
    )
