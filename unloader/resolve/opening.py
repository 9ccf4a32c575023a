"""Opening the source of a run: with retries, and again at the snapshot of an earlier process.

Two states of a table must never come together under one manifest. So the snapshot of a resumed run
has to be the recorded one, by kind and value, and each table has to be the planned one.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from msgspec import Struct

from partition_planner.model import PlanError, TableInfo
from unloader.engine.schedule import delay_seconds, spread
from unloader.errors import Interrupted, PlanFailed, SnapshotGone, UnloaderError, translate
from unloader.events import Notice, Observer, PhaseStarted, Tick, silent
from unloader.model import RetryOptions, TablesOptions
from unloader.resolve.choosing import chosen_table, with_columns
from unloader.resolve.planning import check_fits
from unloader.resolve.resolved import ResolvedTable
from unloader.resolve.run_record import BrokenRun
from unloader.selection.listing import Obstacle, TableProblem, lost_error, problem_of
from unloader.sources.base import Catalog
from unloader.sources.questions import hold_tables
from unloader.sources.registry import cancelled_by, open_unless, source_of

T = TypeVar("T")

_POLL_SECONDS = 0.1


class OpenRun(Struct, frozen=True, kw_only=True):
    """A resolved run; its catalog holds the snapshot while the context is open."""

    run_id: str
    tables: tuple[ResolvedTable, ...]
    catalog: Catalog
    started: float
    """When the preparation began, by `time.perf_counter`."""
    options: TablesOptions
    is_single: bool
    problems: tuple[TableProblem, ...] = ()
    resumed_in: str = ""
    """The directory with the record of the interrupted run that continues; empty for a new run."""


class Patience(Struct, frozen=True, kw_only=True):
    """Asks the source again while it fails for a cause that may pass, as units are retried.

    A nightly job must not fail because the database restarts when it begins, or because the session
    that counts was ended.
    """

    retry: RetryOptions
    run_id: str
    """Spreads the delays: many jobs may begin at one minute."""
    stop: Callable[[], bool]
    """Asked several times a second; True ends a wait."""
    observe: Observer

    def with_retries(
        self,
        what: str | Callable[[], str],
        act: Callable[[], T],
        check: Callable[[], object] = lambda: None,
    ) -> T:
        """Return what an act returns, trying again after each error that may pass.

        Args:
            what: Names the act in the log, such as `connecting`; called after each failure where
                an act has several steps.
            check: Called after an error that may pass; raises what ends the attempts.

        Raises:
            UnloaderError: Of the last attempt, or one that does not pass.
            Interrupted: `stop` returned True during a wait.
        """
        jitter = spread(self.run_id)
        for failures in range(1, self.retry.retries + 1):
            try:
                return act()
            except UnloaderError as error:
                if not error.retryable:
                    raise
                check()
                name = what if isinstance(what, str) else what()
                delay = delay_seconds(self.retry, failures, jitter(name, failures))
                text = f"{name}, attempt {failures} failed: {error.message}"
                self.observe(Notice(text=f"{text} (next attempt in {delay:.3g} s)"))
            until = time.monotonic() + delay
            while (left := until - time.monotonic()) > 0:
                if self.stop():
                    raise Interrupted(
                        f"stopped by a signal while waiting for the next attempt: {name}"
                    )
                self.observe(Tick())
                time.sleep(min(left, _POLL_SECONDS))
        return act()


@contextmanager
def closing_after_failure(catalog: Catalog) -> Iterator[None]:
    """Close a catalog if the block raises; an error of the closing is dropped."""
    try:
        yield
    except BaseException:
        with suppress(UnloaderError):
            catalog.close()
        raise


@contextmanager
def reopened(
    broken: BrokenRun,
    *,
    done: Callable[[ResolvedTable], bool] = lambda run: False,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenRun]:
    """Open the source of a run at the run's snapshot.

    Args:
        done: Returns whether a table is complete: such a table need not exist any more.

    Raises:
        SnapshotGone: The source cannot go back to the snapshot, or is at another one; or some
            tables have changed, and the other tables are not to be read without them.
        Interrupted: `stop` returned True.
        SourceError: The source refused.
    """
    started, first, runs = time.perf_counter(), broken.first, broken.tables
    observe(PhaseStarted(phase="connecting"))
    was, source = first.extract.snapshot, first.extract.source
    with ExitStack() as opened:
        try:
            if was is not None and was.kind != "none":
                found_source = source_of(source.kind).at_snapshot(source, was.kind, was.value)
                if found_source is None:
                    raise SnapshotGone("this kind of source cannot go back to a snapshot")
                source = found_source
            patience = Patience(
                retry=first.request.retry, run_id=first.run_id, stop=stop, observe=observe
            )
            catalog = patience.with_retries("connecting", lambda: open_unless(stop, source))
            opened.callback(catalog.close)
            with cancelled_by(stop, catalog):
                observe(PhaseStarted(phase="snapshot"))
                now = catalog.snapshot(first.request.consistency)
                if was is not None and not was.is_same(now):
                    raise SnapshotGone(f"the source is now at {now.kind} {now.value}".strip())
                left = [run for run in runs if not done(run)]
                found = _enter(left, catalog, observe, is_single=broken.is_single)
                lost = {id(left[number]): problem for number, problem in found.items()}
                goes_on = not broken.is_single and broken.options.on_failure == "continue"
                if lost and not (goes_on and len(lost) < len(runs)):
                    raise lost_error(tuple(lost.values()), len(runs))
        except (SnapshotGone, PlanFailed) as error:
            named = "" if was is None else f" ({was.kind} {was.value})"
            raise SnapshotGone(
                f"the snapshot of run {first.run_id}{named} cannot be read any more: "
                f"{error.message}",
                "read all rows again at a new snapshot: unloader resume "
                f"{shlex.quote(broken.place)} --new-snapshot",
            ) from error
        yield OpenRun(
            run_id=first.run_id,
            tables=tuple(run for run in runs if id(run) not in lost),
            catalog=catalog,
            started=started,
            options=broken.options,
            is_single=broken.is_single,
            problems=(*broken.left_out, *lost.values()),
            resumed_in=broken.place,
        )


def _enter(
    runs: Sequence[ResolvedTable], catalog: Catalog, observe: Observer, *, is_single: bool
) -> dict[int, TableProblem]:
    """Check that each table is the planned one, and hold it.

    The list of several tables is read once, and their description is one request. The error of the
    table of a single run is raised.

    Returns:
        What keeps a table from being read, by the number of its run among these.

    Raises:
        SourceError: The database refused all of it, or a later attempt may succeed.
        SnapshotGone: The snapshot of all is lost.
    """
    observe(PhaseStarted(phase="table"))
    # The tables of the list as they are now.
    known: dict[tuple[str, str], TableInfo | Obstacle] = {}
    keys = {
        (run.plan.table.schema or "", run.plan.table.name)
        for run in runs
        if run.request.selection.query is None
    }
    if keys and not is_single:
        wanted = [table for table in catalog.list_tables().tables if table.key in keys]
        readable = [table for table in wanted if table.readable]
        described = catalog.describe_tables(readable, observe)
        known = {table.key: info for table, info in zip(readable, described, strict=True)}
        known |= {table.key: table.obstacles[0] for table in wanted if not table.readable}
    problems: dict[int, TableProblem] = {}

    def refuse(number: int, failure: Exception) -> None:
        error = translate(failure) or failure
        assert isinstance(error, UnloaderError)
        if is_single or error.retryable or isinstance(error, Interrupted):
            raise error
        label = runs[number].extract.table.label
        problems[number] = TableProblem(table=label, error=error)

    for number, run in enumerate(runs):
        selection, table = run.request.selection, run.plan.table
        found = None
        if selection.query is None:
            found = known.get((table.schema or "", table.name))
        if isinstance(found, Obstacle):
            problems[number] = problem_of(run.extract.table.label, found)
            continue
        try:
            if found is None:
                table = chosen_table(catalog, selection, observe)
            else:
                table = with_columns(found, selection, catalog.capabilities.folding)
            check_fits(run.plan, table, selection.partitions)
            catalog.check_where(run.extract)
        except SnapshotGone:
            raise  # It is the snapshot of all tables.
        except (UnloaderError, PlanError) as error:
            refuse(number, error)
    observe(PhaseStarted(phase="locking"))
    good = [number for number in range(len(runs)) if number not in problems]
    extracts = [(runs[at].extract, runs[at].plan.selectors) for at in good]
    for number, held in zip(good, hold_tables(catalog, extracts, observe), strict=True):
        if held is not None:
            refuse(number, held)
    return problems
