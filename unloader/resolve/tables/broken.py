"""Finding the run over several tables that has died, and opening its source again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import replace

from unloader.errors import OutputFailed, error_class
from unloader.events import Observer, silent
from unloader.model import (
    ClusterOptions,
    ConcurrencyOptions,
    EncryptionOptions,
    Request,
    SecretReference,
    Setting,
    TablesOptions,
)
from unloader.placement.seating import SeatPlan
from unloader.resolve.broken_run import BrokenRun, UnusableRecord, find_broken_run, read_run
from unloader.resolve.patience import Patience
from unloader.resolve.reopening import at_snapshot, enter_snapshot, explained
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.entering import enter_tables
from unloader.resolve.tables.homes import LeftOut, TablesRecord, directory_now, is_of_tables
from unloader.resolve.tables.problems import TableProblem, lost_at_once
from unloader.resolve.tables.resolving import OpenTables
from unloader.sources.cancelling import cancelled_by, open_unless
from unloader.storage.model import RUN_RECORD, Leftover
from unloader.storage.opening import storage_at, unreadable

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


class BrokenTables(Struct, frozen=True, kw_only=True):
    """A run over several tables that was stopped, failed or killed."""

    tables: tuple[BrokenRun, ...]
    """As if each were a run of its own."""
    options: TablesOptions
    place: str
    """The directory that those of all tables are in."""
    left_out: tuple[TableProblem, ...] = ()
    """Tables that were asked for, too, and could not be unloaded when the run began."""

    @property
    def first(self) -> BrokenRun:
        """Any of them: source and limits are those of all."""
        return self.tables[0]

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> BrokenTables:
        """See `BrokenRun.with_source`."""
        return replace(
            self, tables=tuple(each.with_source(secret, session_sql) for each in self.tables)
        )

    def with_keys(self, keys: EncryptionOptions | None) -> BrokenTables:
        """See `BrokenRun.with_keys`."""
        return replace(self, tables=tuple(each.with_keys(keys) for each in self.tables))

    def with_masking_keys(self, keys: tuple[MaskingKey, ...], *, same: bool = True) -> BrokenTables:
        """See `BrokenRun.with_masking_keys`."""
        return replace(
            self, tables=tuple(each.with_masking_keys(keys, same=same) for each in self.tables)
        )

    def with_parallelism(self, setting: Setting, workers: int | None) -> BrokenTables:
        """See `BrokenRun.with_parallelism`."""
        return replace(
            self, tables=tuple(each.with_parallelism(setting, workers) for each in self.tables)
        )

    def with_concurrency(self, known: ConcurrencyOptions | None) -> BrokenTables:
        """See `BrokenRun.with_concurrency`."""
        return replace(self, tables=tuple(each.with_concurrency(known) for each in self.tables))

    def with_cluster(self, now: ClusterOptions | None) -> BrokenTables:
        """See `BrokenRun.with_cluster`."""
        return replace(self, tables=tuple(each.with_cluster(now) for each in self.tables))

    def seated(self, seats: SeatPlan) -> BrokenTables:
        """Return the same with the seats of its workers on the machine as it is now."""
        return replace(
            self,
            tables=tuple(replace(each, run=each.run.seated(seats)) for each in self.tables),
        )


def request_of_tables(place: str) -> Request | None:
    """Return what was asked for all tables of a run that has died at a place; None if none has.

    It names no table and no query.

    Raises:
        OutputFailed: As `find_broken_tables`.
    """
    found = _record_of_dead(place)
    if found is None:
        return None
    request = _first_in(found, place).request
    return replace(request, selection=replace(request.selection, table=None, query=None))


def first_of_tables(record: bytes, place: str) -> ResolvedRun:
    """Return the first table of a record, as its run was to do it.

    Args:
        record: `RUN_RECORD` of a run over several tables.
        place: Where it was found; the error names it.

    Raises:
        UnusableRecord: Another version has written it, or it was damaged or edited.
    """
    return _first_in(_recorded(record), place)


def options_of_tables(record: bytes) -> TablesOptions:
    """Return what a record says of its run as a whole; nothing, if it cannot be read."""
    found = _recorded(record)
    with suppress(ValueError, RecursionError):
        if found is not None:
            return decode(found.options, type=TablesOptions)
    return TablesOptions(destination="")


def find_broken_tables(place: str) -> BrokenTables | None:
    """Return the run over several tables that has died at a place; None if there is none.

    Args:
        place: The directory that those of all tables are in.

    Raises:
        OutputFailed: It goes on, or cannot be read.
        UnusableRecord: Another version has begun it, or its record was damaged.
    """
    found = _record_of_dead(place)
    if found is None:
        return None
    runs = [read_run(each, place) for each in found.tables]
    try:
        options = decode(found.options, type=TablesOptions)
    except (ValueError, RecursionError) as error:
        raise UnusableRecord(
            f"the record of the run that was interrupted in {place} cannot be used: its options "
            f"are not as expected: {error}",
            "start again with the command of the run",
        ) from error
    return BrokenTables(
        tables=tuple(_as_broken(each, found.home, place) for each in runs),
        options=options,
        place=place,
        left_out=tuple(map(_left_out, found.left_out)),
    )


def why_not_resumable(place: str, record: bytes = b"") -> str:
    """Return why the run that has died at a place cannot be resumed, as far as its record tells.

    Args:
        place: Its directory; that of all tables for several.
        record: Its `RUN_RECORD`, if it was read already.

    Returns:
        The reason; empty where it can be resumed.
    """
    try:
        if _recorded(record) is not None:
            first_of_tables(record, place)
        elif find_broken_run(place) is None and find_broken_tables(place) is None:
            return "the record of its job is missing"
    except UnusableRecord as error:
        return error.message
    except OutputFailed:
        return ""  # It was resumed just now, or was moved.
    return ""


def _left_out(recorded: LeftOut) -> TableProblem:
    error = error_class(recorded.error)(recorded.why, "start a new run instead of a resume")
    return TableProblem(table=recorded.table, error=error)


def _first_in(found: TablesRecord | None, place: str) -> ResolvedRun:
    return read_run(found.tables[0] if found is not None and found.tables else b"", place)


def _record_of_dead(place: str) -> TablesRecord | None:
    """Return what the run was to do that has died at a place, if it was over several tables.

    Raises:
        OutputFailed: It goes on, or cannot be read.
    """
    storage = storage_at(place)
    try:
        who = storage.who_was_here(place, counted=False)
        record = b"" if who is None else storage.record(place, RUN_RECORD)
    except OSError as error:
        raise unreadable(place, error) from error
    if who is None or not is_of_tables(record):
        return None
    if who.is_running:
        raise OutputFailed(
            f"run {who.run_id} is writing to {place}, in process {who.pid}"
            + (f" on {who.host}" if who.host else ""),
            f"wait until it ends, or end it with: unloader stop {place}",
        )
    found = _recorded(record)
    if found is None:
        raise UnusableRecord(
            f"the record of run {who.run_id}, which was interrupted in {place}, is damaged",
            f"start again with the command of the run; unloader clean {place} removes its staged "
            "files",
        )
    return found


def _recorded(record: bytes) -> TablesRecord | None:
    """Return the record of a run over several tables; None if it is not one, or is damaged."""
    if not is_of_tables(record):
        return None
    try:
        return decode(record, type=TablesRecord)
    except (ValueError, RecursionError):
        return None


def _as_broken(run: ResolvedRun, recorded: str, home: str) -> BrokenRun:
    """Return a table of the run, with its directories where they are now."""
    outputs = []
    for output in run.outputs:
        first, *others = (
            directory_now(each, recorded, home) for each in output.options.destinations
        )
        options = replace(output.options, destination=first, others=tuple(others))
        outputs.append(replace(output, options=options))
    run = replace(run, outputs=tuple(outputs))
    places = run.output.options.destinations
    left = Leftover(directory=places[0], run_id=run.run_id, units=0, files=0, bytes=0)
    return BrokenRun(run=run, places=places, left=left)


@contextmanager
def reopened_tables(
    broken: BrokenTables,
    *,
    done: Callable[[ResolvedRun], bool],
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenTables]:
    """Open the source of a run at the run's snapshot.

    Args:
        broken: The run, with what no record of it may hold.
        done: Tells the tables that are complete: those need not be there any more.
        stop: Asked several times a second until all is open; True cancels what is going on.
        observe: Reports each step as it begins.

    Raises:
        SnapshotGone: The source cannot go back to the snapshot, or is another one by now; or some
            tables are not what they were, and the others are not to go on without them.
        Interrupted: `stop` returned True.
        SourceError: The source refused.
    """
    started, first = time.perf_counter(), broken.first.run
    with ExitStack() as opened:
        with explained(broken.first, broken.place):
            source = at_snapshot(first)
            patience = Patience(
                retry=first.request.retry, run_id=first.run_id, stop=stop, observe=observe
            )
            catalog = patience.with_retries("connecting", lambda: open_unless(stop, source))
            opened.callback(catalog.close)
            with cancelled_by(stop, catalog):
                enter_snapshot(first, catalog, observe)
                left = [each.run for each in broken.tables if not done(each.run)]
                found = enter_tables(left, catalog, observe)
                lost = {id(left[number]): problem for number, problem in found.items()}
                goes_on = broken.options.on_failure == "continue"
                if lost and not (goes_on and len(lost) < len(broken.tables)):
                    raise lost_at_once(tuple(lost.values()), len(broken.tables))
        yield OpenTables(
            run_id=first.run_id,
            runs=tuple(each.run for each in broken.tables if id(each.run) not in lost),
            catalog=catalog,
            started=started,
            problems=(*broken.left_out, *lost.values()),
            resumed_in=broken.place,
        )
