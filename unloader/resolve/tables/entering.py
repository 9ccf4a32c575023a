"""Whether the tables of a run that is gone on with are still what they were: asked all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partition_planner.errors import PlanError
from partition_planner.model import TableInfo
from unloader.errors import Interrupted, SnapshotGone, UnloaderError, translate
from unloader.events import Observer, PhaseStarted
from unloader.resolve.chosen_table import chosen_table, with_columns
from unloader.resolve.plan_fit import check_fits
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.problems import TableProblem
from unloader.selection.listing import Obstacle
from unloader.selection.problems import problem_of
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog
from unloader.sources.many_tables import describe_listed, hold_tables, list_tables

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
