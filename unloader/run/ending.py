"""What follows when the last unit of a table is done: count, compare, publish.

Several tables are finished in threads, so that no worker waits for it. One thread counts. Only it
uses the catalog meanwhile (`RunState.catalog_lock`). Tables that are done while it counts are
counted together after that: small tables in one statement for many. If that statement fails, each
table is counted by its own statement, so that the error names one table.

Each publication syncs its files and names in an order that must be kept. Tables that are published
together wait for the disk together. A table whose file is joined from parts takes longer, and is
published alone. The events of the threads are kept until the run's own thread asks for them.

At the end of the run come the manifest of several tables, or the error and the files that stay.
"""

from __future__ import annotations

import os
import queue
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from unloader import __version__
from unloader.errors import (
    Interrupted,
    PartialUnload,
    SnapshotGone,
    SourceError,
    UnloaderError,
    ValueRefused,
    VerifyMismatch,
    is_a,
)
from unloader.events import Event, Observer
from unloader.manifest.build import source_record
from unloader.manifest.model import (
    TableEntry,
    TableRecord,
    TablesManifest,
    TablesRecord,
    TablesTotals,
    totals_of,
)
from unloader.manifest.read import digest_at_end, manifest_bytes
from unloader.model import AttemptFailure
from unloader.nouns import are, counted
from unloader.redaction import redact
from unloader.resolve.places import is_dropped
from unloader.run.outputs import FROM_THE_START, continued
from unloader.run.table import RunState, Table
from unloader.selection.listing import TableProblem, joined
from unloader.sources.registry import cancelled_by
from unloader.storage.directories.directory_publishing import is_removed
from unloader.storage.place_names import absolute, destination_kind, is_kept, relative
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN
from writers.errors import WriteError
from writers.files.syncing import SyncThreads

_LONG_ONES = 4

_COUNTED_TOGETHER = 100
_COUNTED_SECONDS = 0.4
"""Guess: a count of many tables costs about as much as the count of one small table. Tables that
are counted together are published together, too. So a count waits this long for further tables."""

_PUBLISHED_TOGETHER = 48
"""Guess: they share the waits for the disk, and none of them waits long for the others. Each has
four files open meanwhile. A second publisher made a run over 500 tables no faster: the two and
their syncs took the interpreter from each other."""
_GATHER_SECONDS = 0.1
"""Guess: small tables are done by the hundred a second."""

Ended = tuple[Table, BaseException | None]


class _Group(Struct, kw_only=True):
    """Threads that do the same with tables."""

    act: Callable[[Sequence[Table], SyncThreads, Observer], Iterable[Ended]]
    """Counts or publishes some tables; yields each as soon as that has ended."""
    seconds: float = 0.0
    """How long a table waits for others, until few units are left."""
    together: int = 1
    """How many tables each thread takes at a time."""
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    waiting: deque[Table] = field(default_factory=deque)


class Finisher:
    """Takes tables that are done, counts them, and publishes each."""

    def __init__(
        self,
        check: Callable[[Sequence[Table], Observer], Iterable[Ended]],
        publish: Callable[[Sequence[Table], SyncThreads, Observer], Iterable[Ended]],
        observe: Observer,
        *,
        at_once: bool = True,
    ) -> None:
        """Begin to wait for tables; both functions are called in threads.

        `observe` gets their events, by `collect`. With `at_once` a table is published when it is
        checked; otherwise `publish` is called.
        """
        self._observe, self._at_once = observe, at_once
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.pending = 0
        """Tables that are counted or published now."""
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self.soon = threading.Event()
        """Set if few units are left to be handed out: tables wait no longer for further ones."""
        self._counting = _Group(
            act=lambda tables, threads, observe: check(tables, observe),
            seconds=_COUNTED_SECONDS,
            together=_COUNTED_TOGETHER,
        )
        self._small = _Group(act=publish, seconds=_GATHER_SECONDS, together=_PUBLISHED_TOGETHER)
        self._long = _Group(act=publish, threads=ThreadPoolExecutor(_LONG_ONES))

    def take(self, table: Table) -> None:
        """Check a table, and publish it if it is due; returns immediately."""
        self.pending += 1
        self._give(self._counting, table)

    def publish(self, table: Table) -> None:
        self.pending += 1
        self._give(self._long if table.takes_long else self._small, table)

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
        """Hand on the events; return the tables that are finished, and what went wrong."""
        found: list[Ended] = []
        with suppress(queue.Empty):
            while self.pending:
                found.append(self._ended.get(timeout=0 if found else timeout_seconds))
                self.pending -= 1
        with suppress(queue.Empty):
            while True:
                self._observe(self._events.get_nowait())
        return found

    def close(self) -> None:
        """Finish the tables in hand, and begin no further table."""
        for group in (self._counting, self._small, self._long):
            group.waiting.clear()
            group.threads.shutdown()
            self.soon.set()

    def _give(self, group: _Group, table: Table) -> None:
        group.waiting.append(table)
        try:
            group.threads.submit(self._work, group)
        except RuntimeError:  # The system refuses any thread: then it is done here.
            self._work(group)

    def _work(self, group: _Group) -> None:
        """Act on tables that wait; an error of all is handed on with each unreported table."""
        if group.waiting and group.together > 1:
            self.soon.wait(group.seconds)
        left: dict[int, Table] = {}
        with suppress(IndexError):
            while len(left) < group.together:
                table = group.waiting.popleft()
                left[table.number] = table
        if not left:
            return  # They went with an earlier one.
        try:
            with SyncThreads() as threads:
                for table, error in group.act([*left.values()], threads, self._events.put):
                    del left[table.number]
                    if group is self._counting and error is None and self._at_once:
                        self._give(self._long if table.takes_long else self._small, table)
                    else:
                        self._ended.put((table, error))
        except BaseException as error:
            for table in left.values():
                self._ended.put((table, error))


_FEW_ROWS = 100_000
"""Guess: fewer rows are counted faster than a statement comes and goes a few times. Other tables do
not wait for the count of a larger table."""


def check_tables(tables: Sequence[Table], state: RunState, observe: Observer) -> Iterator[Ended]:
    """Count staged tables, and compare values if that is asked for; yield each when known."""
    for table in tables:
        table.observe = state.observer_of(table.run, observe)
    small = [table for table in tables if table.rows_written <= _FEW_ROWS]
    large = [table for table in tables if table.rows_written > _FEW_ROWS]
    catalog = state.resolved.catalog
    with state.catalog_lock:
        for some in (small, *([table] for table in large)):
            counted = [
                table
                for table in some
                if table.run.request.verify != "none" and table.run.plan.sampled is None
            ]
            counts: dict[int, int] = {}
            if len(counted) > 1:
                # If it fails, each table is counted alone.
                with suppress(UnloaderError), cancelled_by(state.live.stop, catalog):
                    extracts = [table.run.extract for table in counted]
                    rows = catalog.count_tables(extracts)
                    counts = {
                        table.number: number
                        for table, number in zip(counted, rows, strict=True)
                        if not isinstance(number, SourceError)
                    }
            for table in some:
                try:
                    table.verify(state.live.stop, catalog, counts.get(table.number))
                except BaseException as error:
                    yield table, error
                else:
                    table.is_checked = True
                    yield table, None


def partial_error(state: RunState, failed: list[Table]) -> UnloaderError:
    problems = []
    why = [(table.name, _why(table.failure), table.failure) for table in failed]
    for name, text, known in [*why, *((e.table, e.error.message, e.error) for e in state.problems)]:
        error = PartialUnload(text)
        error.hint = "" if known is None else known.hint
        problems.append(TableProblem(table=name, error=error))
    of = len(state.tables) + len(state.problems)
    head = f"{len(problems)} of {counted(of, 'table')} {are(len(problems))} not complete"
    found = joined(problems, head, goes_on=False)
    if len(problems) < of:
        found.hint += "; the other tables are complete"
    return found


def abandon(state: RunState, error: UnloaderError | None) -> None:
    """Keep the resumable part of each table and the record of the run, or remove all traces."""
    kept = False
    for table in state.tables:
        if table.is_published:
            kept = True
            continue
        worth = state.is_recorded and (bool(table.finished) or state.is_resumable)
        if state.is_single:
            worth = _may_resume(state, error)
        kept = kept or worth
        with suppress(UnloaderError, WriteError, OSError):
            table.abandon(kept=worth)
    if state.storage is not None and (state.is_recorded or not state.options.replaces):
        # Otherwise the record of the run that this one replaces stays, and its tables.
        state.storage.abandon(manifest_bytes(manifest_of(state, complete=False)) if kept else None)


def _may_resume(state: RunState, error: UnloaderError | None) -> bool:
    again = isinstance(error, Interrupted) or (error is not None and error.retryable)
    begun = any(each.is_published or each.finished or each.resumed for each in state.tables)
    again = again and (state.is_resumable or not state.is_single)
    return state.is_recorded and (begun or again)


def advised(state: RunState, error: UnloaderError) -> UnloaderError:
    if isinstance(error, Interrupted) and state.live.stopped_by_others:
        # The code that raised it knows signals alone.
        by_others = error.message.replace("stopped by a signal", "stopped by `unloader stop`", 1)
        error = Interrupted(by_others, error.hint)
    published = bool(state.tables) and all(table.is_published for table in state.tables)
    is_unfinished = state.is_recorded and not (state.is_single and published)
    for place in state.places if is_unfinished else ():
        if destination_kind((place,)) != "directories" or os.path.lexists(Path(place, MANIFEST)):
            continue
        if is_removed(Path(place, RUN)):
            return type(error)(
                f"the destination {Path(place)} was removed during the run, and the files in it "
                f"are lost: {error.message.rstrip('. ')}",
                "find out which program removed it, then run again",
            )
    # Tables that were left out are not in the snapshot's plan: they cannot be resumed.
    left_out = isinstance(error, PartialUnload) and published
    is_there = True
    if not state.is_single and not is_dropped(state.home):
        # The home must still have the record of the run.
        try:
            who = storage_at(state.home).who_was_here(state.home, counted=False)
        except OSError:
            who = None
        is_there = who is not None and who.run_id == state.resolved.run_id
    if is_there and not left_out and _may_resume(state, error):
        error = _with_next_step(state, error)
    delivered = state.tables[0].outputs[0].already_delivered() if state.tables else ""
    if not delivered:
        return error
    hint = FROM_THE_START if isinstance(error, Interrupted) else error.hint
    return type(error)(f"{error.message.rstrip('. ')}; {delivered}", hint)


def _with_next_step(state: RunState, error: UnloaderError) -> UnloaderError:
    is_gone, is_different = isinstance(error, SnapshotGone), isinstance(error, VerifyMismatch)
    failures = [table.failure for table in state.tables if table.failure is not None]
    # The same snapshot would have the same value.
    at_snapshot = state.is_resumable and not any(is_a(each, ValueRefused) for each in failures)
    if is_different and not state.is_single:
        return error
    until = "" if is_gone else state.resolved.catalog.kept_until()
    if until:
        text = f"{error.message.rstrip('. ')}; its snapshot is kept until {until}"
        error = type(error)(text, error.hint)
    if state.is_single:
        step = state.tables[0].next_step(resumable=at_snapshot)
        if is_gone or is_different or step in error.hint:
            return error
    else:
        step = f"continue with: unloader resume {shlex.quote(state.home)}"
        if is_gone or not at_snapshot:
            step = (
                "read all tables again at a new snapshot with: unloader resume "
                f"{shlex.quote(state.home)} --new-snapshot"
            )
    is_stopped = isinstance(error, Interrupted)
    return type(error)(error.message, step if is_stopped else continued(error.hint, step))


def manifest_of(state: RunState, *, complete: bool) -> TablesManifest:
    first = state.resolved.tables[0]
    entries = [entry for table in state.tables for entry in _entries_of(table, state.home)]
    entries += [
        TableEntry(
            table=TableRecord(schema=None, name=each.table),
            directory="",
            status="left out",
            error=redact(each.error.message),
        )
        for each in state.problems
    ]
    published = [table.manifests for table in state.tables if table.is_published]
    done = [totals_of(each) for each in published]
    filtered = [each[0].verified.filtered_rows for each in published if len(each) == 1]
    return TablesManifest(
        run_id=state.resolved.run_id,
        unloader_version=__version__,
        status="complete" if complete else "partial",
        source=source_record(first),
        snapshot=first.extract.snapshot,
        options=TablesRecord(
            to=state.options.destination,
            directory=state.home if is_dropped(state.home) else absolute(state.home),
            publish=state.options.publish,
            on_table_failure=state.options.on_failure,
        ),
        settings=state.options.settings,
        job=state.options.job or None,
        tables=tuple(entries),
        totals=TablesTotals(
            tables=len(published),
            rows=sum(each.rows for each in done),
            filtered_rows=None if set(filtered) <= {None} else sum(filter(None, filtered)),
            bytes=sum(each.bytes for each in done),
            files=sum(each.files for each in done),
            seconds=round(time.perf_counter() - state.resolved.started, 4),
            cpu_seconds=round(
                time.process_time()
                + sum(
                    unit.cpu_seconds for table in state.tables for unit in table.finished.values()
                ),
                4,
            ),
        ),
    )


def _why(failure: AttemptFailure | None) -> str:
    return "the run ended before" if failure is None else failure.message


def _entries_of(table: Table, home: str) -> Iterator[TableEntry]:
    run, routes = table.run, table.run.request.routes
    record = TableRecord(schema=run.extract.table.schema, name=run.extract.table.name)
    # Of several outputs some may be published although the table has failed.
    for output in table.outputs:
        kept = is_kept(run.outputs[output.number].options.destinations)
        entry = TableEntry(
            table=None if run.extract.query is not None else record,
            route=routes[output.number].name if routes else None,
            directory=relative(output.destination, home) if kept else "",
            status="failed",
        )
        manifest = output.manifest
        if manifest is None:
            yield replace(entry, error=redact(_why(table.failure)))
            continue
        yield replace(
            entry,
            status="complete",
            rows=manifest.totals.rows,
            bytes=manifest.totals.bytes,
            files=manifest.totals.files,
            source_rows=manifest.verified.source_rows,
            verified=manifest.verified.result,
            units=len(manifest.units),
            worker_seconds=round(sum(unit.seconds for unit in manifest.units), 4),
            digest=manifest.digest or digest_at_end(manifest_bytes(manifest)),
        )
