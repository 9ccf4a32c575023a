"""The state of the source that all parts of a plan read: that of the plan, or none.

Rows of two states must never come together under one manifest, and the parts run at other times and
on other machines. So each goes back to the snapshot that the plan was made at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from unloader.errors import PlanFailed, SnapshotGone, UsageError
from unloader.model import Request, Snapshot
from unloader.resolve.preparation import Prepared
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.registry import source_of

_AGAIN = (
    "make the plan again and run its parts from the beginning; on PostgreSQL with --keep-snapshot, "
    "on Oracle with enough undo"
)


@contextmanager
def explained() -> Iterator[None]:
    """Say of a snapshot that is gone that it was the plan's, and what to do."""
    try:
        yield
    except SnapshotGone as error:
        raise SnapshotGone(
            f"the snapshot of the plan cannot be read any more: {error.message}", _AGAIN
        ) from error


def at_snapshot_of_plan(
    request: Request, planned: ResolvedRun | None
) -> tuple[Request, ResolvedRun]:
    """Return the request for a part with its source as it is opened at the snapshot of its plan.

    Raises:
        UsageError: There is no plan, or this kind of source cannot go back to its snapshot.
    """
    if planned is None:
        raise UsageError(
            "--part needs a plan file: the parts of a table are those of one plan",
            "make one with unloader plan SOURCE --output plan.json, and run plan.json",
        )
    snapshot = _snapshot_of(planned)
    if snapshot.kind == "none":
        return request, planned  # The user has said that rows need not be of one moment.
    found = source_of(request.source.kind).at_snapshot(
        request.source, snapshot.kind, snapshot.value
    )
    if found is None:
        raise UsageError(
            f"{request.source.kind} cannot go back to the snapshot of the plan, {snapshot.kind} "
            f"{snapshot.value}",
            "run the plan as a whole, without --part",
        )
    return replace(request, source=found), planned


def in_snapshot_of_plan(ready: Prepared, planned: ResolvedRun) -> Prepared:
    """Return what was opened for a part, once it is known to be at the plan's snapshot.

    Raises:
        SnapshotGone: It is at another one.
    """
    was, now = _snapshot_of(planned), ready.extract.snapshot
    if now is None or (now.kind, now.value) != (was.kind, was.value):
        found = "none" if now is None else f"{now.kind} {now.value}".strip()
        raise SnapshotGone(f"it was {was.kind} {was.value}, and the source is now at {found}")
    # With the time at which it was taken, which names directories and files.
    return replace(ready, extract=replace(ready.extract, snapshot=was))


def is_of_plan(run: ResolvedRun, planned: ResolvedRun) -> bool:
    """Return whether a run is of a part of a plan, at its snapshot."""
    part, was, wanted = run.plan.part, run.extract.snapshot, _snapshot_of(planned)
    return (
        part is not None
        and part.whole == planned.plan.digest
        and was is not None
        and (was.kind, was.value) == (wanted.kind, wanted.value)
    )


def _snapshot_of(planned: ResolvedRun) -> Snapshot:
    if planned.extract.snapshot is None:
        raise PlanFailed("the plan has no snapshot that its parts could share", _AGAIN)
    return planned.extract.snapshot
