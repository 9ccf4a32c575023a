"""How the speed of a run is shown by `unloader status`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from unloader.cli.commands.runs import status_page
from unloader.cli.display.render import speeds_text
from unloader.status.model import LiveStatus, UnitCounts
from unloader.status.reading import RunStatus
from unloader.storage.storage_protocol import Leftover

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def so_far(speeds: tuple[float, ...], width: int | None) -> list[str]:
    """Return the lines of the page that show the speed so far."""
    live = LiveStatus(
        run_id="r",
        sequence=7,
        updated="2026-01-01T00:00:00+00:00",
        phase="unloading",
        units=UnitCounts(total=2, done=1, running=1),
        speeds=speeds,
    )
    status = RunStatus(destination="/extract", state="running", run_id="r", live=live)
    lines = status_page(status, NOW, width).splitlines()
    return [line for line in lines if line.startswith("so far")]


def test_the_speed_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark for each mean, with the highest in figures; a single mean is not shown."""
    monkeypatch.setattr("unloader.cli.display.render.can_show_blocks", lambda _: True)
    assert so_far((0.0, 500.0, 1000.0), None) == ["so far       ▁▄█ up to 1,000 rows/s"]
    assert so_far((500.0,), None) == []
    monkeypatch.setattr("unloader.cli.display.render.can_show_blocks", lambda _: False)
    assert so_far((0.0, 1000.0), None) == ["so far       _# up to 1,000 rows/s"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_speed_has_room_on_a_terminal(width: int) -> None:
    """Where 61 marks have no room they are fewer means, of all of the time."""
    speeds = tuple(float(each) for each in range(61))
    (line,) = so_far(speeds, width)
    assert len(line) <= width
    assert ("up to 60 rows/s" in line) == (width > 20)
    assert len(line.split()[2]) > 5


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


def test_a_narrow_curve_has_means_of_neighbours() -> None:
    """All values count: each mark is a mean, and the figure is the highest value."""
    curve = speeds_text([float(each) for each in range(16)], 30, unicode=True)
    assert curve == "▁▂▃▄▅▆▇█ up to 15 rows/s"
    assert speeds_text([0.0, 0.0], 30, unicode=False) == "__ up to 0 rows/s"
