"""Opening the source of a run that was resolved earlier, at the same point in time, or not at all.

Two states of a table must never come together under one manifest. So the snapshot has to be the
recorded one, by kind and value, and the table has to be the one that was planned.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from partition_planner.errors import PlanError
from partition_planner.model import TableInfo
from unloader.errors import Interrupted, PlanFailed, SnapshotGone, UnloaderError, translate
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import SourceSpec, TablesOptions
from unloader.resolve.broken_run import BrokenRun
from unloader.resolve.chosen_table import chosen_table, with_columns
from unloader.resolve.patience import Patience
from unloader.resolve.plan_fit import check_fits
from unloader.resolve.preparation import hold
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.problems import TableProblem, lost_at_once
from unloader.resolve.tables.resolving import OpenTables
from unloader.selection.listing import Obstacle
from unloader.selection.problems import problem_of
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by, open_unless
from unloader.sources.many_tables import describe_listed, hold_tables, list_tables
from unloader.sources.registry import source_of


@contextmanager
def reopened(
    broken: BrokenRun,
    *,
    done: Callable[[ResolvedRun], bool] = lambda run: False,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenTables]:
    """Open the source of a run at the run's snapshot.

    Args:
        broken: The run, with what no record of it may hold.
        done: Returns whether a table is complete: such a table need not exist any more.
        stop: Asked several times a second until all is open; True cancels what is going on.
        observe: Reports each step as it begins.

    Raises:
        SnapshotGone: The source cannot go back to the snapshot, or is another one by now; or some
            tables are not what they were, and the others are not to be read without them.
        Interrupted: `stop` returned True.
        SourceError: The source refused.
    """
    started, first = time.perf_counter(), broken.first.run
    lost: dict[int, TableProblem] = {}
    observe(PhaseStarted(phase="connecting"))
    with ExitStack() as opened:
        with explained(broken):
            source = at_snapshot(first)
            patience = Patience(
                retry=first.request.retry, run_id=first.run_id, stop=stop, observe=observe
            )
            catalog = patience.with_retries("connecting", lambda: open_unless(stop, source))
            opened.callback(catalog.close)
            with cancelled_by(stop, catalog):
                enter_snapshot(first, catalog, observe)
                if broken.options is None:
                    enter_table(first, catalog, observe)
                else:
                    lost = _enter_all(broken, broken.options, done, catalog, observe)
        yield OpenTables(
            run_id=first.run_id,
            runs=tuple(each.run for each in broken.tables if id(each.run) not in lost),
            catalog=catalog,
            started=started,
            problems=(*broken.left_out, *lost.values()),
            resumed_in=broken.place,
        )


def _enter_all(
    broken: BrokenRun,
    options: TablesOptions,
    done: Callable[[ResolvedRun], bool],
    catalog: Catalog,
    observe: Observer,
) -> dict[int, TableProblem]:
    """Check several tables, and keep them as they are; return what is wrong with some of them.

    Raises:
        SnapshotGone: The others are not to be read without these.
    """
    left = [each.run for each in broken.tables if not done(each.run)]
    found = enter_tables(left, catalog, observe)
    lost = {id(left[number]): problem for number, problem in found.items()}
    goes_on = options.on_failure == "continue"
    if lost and not (goes_on and len(lost) < len(broken.tables)):
        raise lost_at_once(tuple(lost.values()), len(broken.tables))
    return lost


@contextmanager
def explained(broken: BrokenRun) -> Iterator[None]:
    """Say of whatever keeps the snapshot from being read which run it was of, and what is left."""
    try:
        yield
    except (SnapshotGone, PlanFailed) as error:
        run, snapshot = broken.first.run, broken.first.run.extract.snapshot
        named = "" if snapshot is None else f" ({snapshot.kind} {snapshot.value})"
        raise SnapshotGone(
            f"the snapshot of run {run.run_id}{named} cannot be read any more: {error.message}",
            "read all rows again at a new snapshot: unloader resume "
            f"{shlex.quote(broken.place)} --new-snapshot",
        ) from error


def at_snapshot(run: ResolvedRun) -> SourceSpec:
    """Return the source of a run as it is opened at the run's snapshot.

    Raises:
        SnapshotGone: The source cannot go back to it.
    """
    source, snapshot = run.extract.source, run.extract.snapshot
    if snapshot is None or snapshot.kind == "none":
        return source
    found = source_of(source.kind).at_snapshot(source, snapshot.kind, snapshot.value)
    if found is None:
        raise SnapshotGone("this kind of source cannot go back to a snapshot")
    return found


def enter_snapshot(run: ResolvedRun, catalog: Catalog, observe: Observer) -> None:
    """Take the snapshot of a run again.

    Raises:
        SnapshotGone: The source is at another one.
    """
    was = run.extract.snapshot
    observe(PhaseStarted(phase="snapshot"))
    now = catalog.snapshot(run.request.consistency)
    if was is not None and not was.is_same(now):
        raise SnapshotGone(f"the source is now at {now.kind} {now.value}".strip())


def enter_table(run: ResolvedRun, catalog: Catalog, observe: Observer) -> None:
    """Check that the table is the one that was planned, and keep it as it is.

    Raises:
        PlanFailed: It is another one.
        SourceError: It cannot be held.
    """
    observe(PhaseStarted(phase="table"))
    table = chosen_table(catalog, run.request.selection, observe)
    check_fits(run.plan, table, run.request.selection.partitions)
    hold(catalog, run.extract, run.plan, observe)


_Key = tuple[str, str]


def enter_tables(
    runs: Sequence[ResolvedRun], catalog: Catalog, observe: Observer
) -> dict[int, TableProblem]:
    """Check that each table is the one that was planned, and keep it as it is.

    The list of tables is asked for once, and so is the description of those that are in it.

    Args:
        runs: Of the tables.
        catalog: Has the snapshot of the run.
        observe: Called as each slow step begins.

    Returns:
        What keeps a table from being read, by the number of its run among these.

    Raises:
        SourceError: The database refused all of it, or what is wrong may pass.
        SnapshotGone: The snapshot of all is lost.
    """
    observe(PhaseStarted(phase="table"))
    known = _described(runs, catalog, observe)
    problems: dict[int, TableProblem] = {}
    for number, run in enumerate(runs):
        problem = _problem(run, known.get(_key(run)), catalog, observe)
        if problem is not None:
            problems[number] = problem
    observe(PhaseStarted(phase="locking"))
    good = [number for number in range(len(runs)) if number not in problems]
    wanted = [(runs[at].extract, runs[at].plan.selectors) for at in good]
    held = hold_tables(catalog, wanted, observe)
    for number, error in zip(good, held, strict=True):
        if error is not None:
            problems[number] = _refused(runs[number], error)
    return problems


def _key(run: ResolvedRun) -> _Key:
    table = run.plan.table
    return (table.schema or "", table.name)


def _described(
    runs: Sequence[ResolvedRun], catalog: Catalog, observe: Observer
) -> Mapping[_Key, TableInfo | Obstacle]:
    """Return what the tables are now, as far as they are in the list."""
    keys = {_key(run) for run in runs if run.request.selection.query is None}
    if not keys:
        return {}
    wanted = [table for table in list_tables(catalog).tables if table.key in keys]
    readable = [table for table in wanted if table.readable]
    described = describe_listed(catalog, readable, observe)
    return {
        **{table.key: table.obstacles[0] for table in wanted if not table.readable},
        **{table.key: info for table, info in zip(readable, described, strict=True)},
    }


def _problem(
    run: ResolvedRun, known: TableInfo | Obstacle | None, catalog: Catalog, observe: Observer
) -> TableProblem | None:
    """Return what is wrong with a table.

    Args:
        run: Of the table.
        known: What it is now; None is a query, or what the list does not hold.
        catalog: As in `enter_tables`.
        observe: Likewise.
    """
    selection = run.request.selection
    if isinstance(known, Obstacle):
        return TableProblem.of(problem_of(run.extract.table.label, known))
    try:
        if known is None or selection.query is not None:
            table = chosen_table(catalog, selection, observe)
        else:
            table = with_columns(known, selection, catalog.capabilities.folding)
        check_fits(run.plan, table, selection.partitions)
        check_where(catalog, run.extract)
    except SnapshotGone:
        raise  # It is that of all tables.
    except (UnloaderError, PlanError) as error:
        return _refused(run, error)
    return None


def _refused(run: ResolvedRun, error: Exception) -> TableProblem:
    """Return an error as that of one table; raise it if it may pass, or is no matter of tables."""
    known = translate(error) or error
    assert isinstance(known, UnloaderError)
    if known.retryable or isinstance(known, Interrupted):
        raise known
    return TableProblem(table=run.extract.table.label, error=known)
