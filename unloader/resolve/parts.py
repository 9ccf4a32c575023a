"""The state of the source that all parts of a plan read: that of the plan, or none.

Rows of two states must never come together under one manifest, and the parts run at other times and
on other machines. So each goes back to the snapshot that the plan was made at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from unloader.errors import PlanFailed, SnapshotGone, UsageError
from unloader.model import Request, Snapshot
from unloader.resolve.preparation import Prepared
from unloader.resolve.resolved import ResolvedOutput, ResolvedRun
from unloader.sources.registry import source_of

_AGAIN = (
    "make the plan again and run all its parts again; on PostgreSQL with --keep-snapshot, on "
    "Oracle with enough undo"
)

_SAME_KEY = "give the key of the plan, or make a new plan and run all its parts with the same key"


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
            "--part needs a plan file: the parts of a table come from one plan",
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
    if not was.is_same(now):
        found = "none" if now is None else f"{now.kind} {now.value}".strip()
        raise SnapshotGone(f"it was {was.kind} {was.value}, and the source is now at {found}")
    # With the time at which it was taken, which names directories and files.
    return replace(ready, extract=replace(ready.extract, snapshot=was))


def with_keys_of_plan(
    outputs: tuple[ResolvedOutput, ...], planned: ResolvedRun
) -> tuple[ResolvedOutput, ...]:
    """Return the outputs of a part with the proofs of the plan's keys, once they are the same keys.

    A proof has a salt, so each run would have another one, and nobody could tell from the manifests
    of the parts whether they were masked and encrypted with one key.

    Raises:
        PlanFailed: A key is another one than when the plan was made.
    """
    return tuple(_with_keys(each, was) for each, was in zip(outputs, planned.outputs, strict=True))


def _with_keys(output: ResolvedOutput, was: ResolvedOutput) -> ResolvedOutput:
    transform, before = output.transform, was.transform
    if transform is not None and before is not None and before.options.keys:
        from unloader.resolve.outputs.transforming import has_same_keys, with_key_places

        if not has_same_keys(before.options, transform.options):
            raise PlanFailed("a masking key differs from the plan's key", _SAME_KEY)
        options = with_key_places(before.options, transform.options.keys)
        output = replace(output, transform=replace(before, options=options))
    encryption, had = output.options.encryption, was.options.encryption
    if encryption is not None and had is not None and had.key_proof:
        from unloader.secrets.encryption_keys import check_key

        encryption = replace(encryption, key_proof=had.key_proof)
        if not check_key(encryption):
            raise PlanFailed("the Parquet key differs from the plan's key", _SAME_KEY)
        output = replace(output, options=replace(output.options, encryption=encryption))
    return output


def is_of_plan(run: ResolvedRun, planned: ResolvedRun) -> bool:
    """Return whether a run is of a part of a plan, at its snapshot."""
    part = run.plan.part
    return (
        part is not None
        and part.plan_digest == planned.plan.digest
        and _snapshot_of(planned).is_same(run.extract.snapshot)
    )


def _snapshot_of(planned: ResolvedRun) -> Snapshot:
    if planned.extract.snapshot is None:
        raise PlanFailed("the plan has no snapshot that its parts could share", _AGAIN)
    return planned.extract.snapshot
