"""Keepers as the user sees and ends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unloader.errors import UsageError
from unloader.sources.postgres.keeping import records
from unloader.sources.postgres.keeping.records import Keeper


def listed(ended: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keepers that live, as values for JSON, and the runs whose keepers were ended."""
    return {"keepers": [_entry(keeper) for keeper in records.living()], "ended": list(ended)}


def ended(run_id: str | None) -> dict[str, Any]:
    """End the keepers of a run, or all that no run uses; return as `listed`.

    Raises:
        UsageError: The run has none, or is going on.
        ConfigError: A keeper cannot be ended from here.
    """
    found = [each for each in records.living() if run_id in (None, each.record.run_id)]
    if run_id is not None and not found:
        raise UsageError(
            f"no snapshot is kept for run {run_id}",
            "list the kept snapshots with: unloader keepers",
        )
    if run_id is not None and any(each.in_use for each in found):
        raise UsageError(
            f"run {run_id} is in progress and reads at the snapshot that is kept for it",
            "stop the run first",
        )
    unused = [each for each in found if not each.in_use]
    for keeper in unused:
        records.end(keeper)
    return listed(tuple(dict.fromkeys(each.record.run_id for each in unused)))


def _entry(keeper: Keeper) -> dict[str, Any]:
    record = keeper.record
    return {
        "run_id": record.run_id,
        "source": record.source,
        "snapshot": record.snapshot,
        "taken_at": record.taken_at,
        "kept_until": record.kept_until,
        "in_use": keeper.in_use,
        "server_process": record.server_process,
        "process": record.process,
        "host": record.host,
        "destinations": [str(Path(mark).parents[1]) for mark in record.marks],
    }
