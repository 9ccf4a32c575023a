"""Opening the source of a run that was resolved earlier, at the same point in time, or not at all.

Two states of a table must never come together under one manifest. So the snapshot has to be the
recorded one, by kind and value, and the table has to be the one that was planned.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from unloader.errors import PlanFailed, SnapshotGone
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import SourceSpec
from unloader.resolve.broken_run import BrokenRun
from unloader.resolve.chosen_table import chosen_table
from unloader.resolve.patience import Patience
from unloader.resolve.plan_fit import check_fits
from unloader.resolve.preparation import hold
from unloader.resolve.resolution import OpenRun
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by, open_unless
from unloader.sources.registry import source_of


@contextmanager
def reopened(
    broken: BrokenRun,
    *,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenRun]:
    """Open the source of a run at the run's snapshot.

    Args:
        broken: The run, with what no record of it may hold.
        stop: Asked several times a second until all is open; True cancels what is going on.
        observe: Reports each step as it begins.

    Raises:
        SnapshotGone: The source cannot go back to the snapshot, or is another one by now.
        Interrupted: `stop` returned True.
        SourceError: The source refused.
    """
    started, run = time.perf_counter(), broken.run
    observe(PhaseStarted(phase="connecting"))
    with ExitStack() as opened:
        with explained(broken):
            source = at_snapshot(run)
            retry = run.request.retry
            patience = Patience(retry=retry, run_id=run.run_id, stop=stop, observe=observe)
            catalog = patience.with_retries("connecting", lambda: open_unless(stop, source))
            opened.callback(catalog.close)
            with cancelled_by(stop, catalog):
                enter_snapshot(run, catalog, observe)
                enter_table(run, catalog, observe)
        yield OpenRun(run=run, catalog=catalog, started=started, resumed_in=broken.places)


@contextmanager
def explained(broken: BrokenRun, place: str = "") -> Iterator[None]:
    """Say of whatever keeps the snapshot from being read which run it was of, and what is left."""
    try:
        yield
    except (SnapshotGone, PlanFailed) as error:
        run, snapshot = broken.run, broken.run.extract.snapshot
        named = "" if snapshot is None else f" ({snapshot.kind} {snapshot.value})"
        raise SnapshotGone(
            f"the snapshot of run {run.run_id}{named} cannot be read any more: {error.message}",
            "read all rows again at a new snapshot: unloader resume "
            f"{shlex.quote(place or broken.places[0])} --new-snapshot",
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
