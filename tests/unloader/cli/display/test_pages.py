"""How `unloader status` shows a run that was killed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from unloader.cli.commands.runs import status_page
from unloader.status.model import LiveStatus, UnitCounts
from unloader.status.reading import RunStatus
from unloader.storage.storage_protocol import Leftover

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept", "seen", "rows"),
    [
        (15, 0, "unknown of about 9,000"),
        (15, 8, "8 of about 9,000 (0 %) when last seen"),
        (1, 8, "8 of about 9,000 (0 %)"),
    ],
)
def test_rows_of_a_killed_run_may_be_older_than_its_units(kept: int, seen: int, rows: str) -> None:
    """The journal has units that the run has not shown, and their rows are not in it."""
    live = LiveStatus(
        run_id="r",
        sequence=7,
        updated="2026-01-01T00:00:00+00:00",
        phase="unloading",
        units=UnitCounts(total=1125, done=1),
        rows=seen,
        rows_expected=9000,
    )
    left = Leftover(directory="/extract", run_id="r", units=kept, files=kept, bytes=9)
    status = RunStatus(
        destination="/extract", state="interrupted", run_id="r", live=live, left=left
    )
    lines = {line.split()[0]: line for line in status_page(status, NOW).splitlines()}
    assert f"{kept} of 1,125 done" in lines["units"]
    assert lines["rows"].endswith(f" {rows}")
