"""What the snapshots of a table tell of runs, as long as it remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.errors import OutputFailed
from unloader.lakehouse.model import RUN_ID
from unloader.model import LakeTable

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAIN = "main"


def snapshot_of_run(table: Table, run_id: str) -> str:
    """Return the snapshot of a table that tells of a run; empty if none does."""
    for each in table.metadata.snapshots:
        if each.summary is not None and each.summary.additional_properties.get(RUN_ID) == run_id:
            return str(each.snapshot_id)
    return ""


def head_of(table: Table, branch: str | None) -> str:
    """Return the newest snapshot of a branch, or of what it would be made of; empty if none."""
    refs = table.metadata.refs
    ref = refs.get(branch or MAIN) or refs.get(MAIN)
    return "" if ref is None else str(ref.snapshot_id)


def check_remembers(table: Table, was: LakeTable, run_id: str) -> None:
    """Check that a run that no snapshot tells of was never committed.

    Raises:
        OutputFailed: Snapshots have expired since it began.
    """
    known = table.metadata.snapshots
    if was.base:
        sure = any(str(each.snapshot_id) == was.base for each in known)
    else:
        sure = not known or min(each.sequence_number or 0 for each in known) <= 1
    if not sure:
        raise OutputFailed(
            f"the table {was.name} no longer has the snapshot at which run {run_id} began, so it "
            "is unknown whether the run was committed",
            f"look for its rows in the table, then remove {was.files} if they are not there",
        )
