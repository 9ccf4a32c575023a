"""The picture of a run on a terminal: which lines there are, and that they stay where they are."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from unloader.cli.display.bar import BarDisplay
from unloader.events import (
    Event,
    PhaseStarted,
    PointMeasured,
    RunStarted,
    TableFinished,
    UnitAdvanced,
    UnitFinished,
    UnitStarted,
)
from unloader.model import TableCounts

EVIL = "p[red]\n\x1b[31m"


def picture(*events: Event, width: int = 100, height: int = 30, workers: int = 3) -> list[str]:
    """Return the lines of the last picture after events of a run with `workers` workers."""
    started = RunStarted(run_id="r", table="t", units=9, workers=workers, rows=900, bytes=None)
    paper = io.StringIO()
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    display = BarDisplay(console)
    for event in (started, PhaseStarted(phase="unloading"), *events):
        display(event)
    console.file = paper
    console.print(display.picture(time.monotonic()))
    console.file = io.StringIO()
    display.close(True)
    return paper.getvalue().splitlines()


def taken(worker: int, unit: str, partition: str | None = None) -> UnitStarted:
    """Return the event of a worker that takes a unit."""
    return UnitStarted(worker=worker, unit=unit, partition=partition, attempt=1, rows=100)


def test_every_worker_keeps_its_line() -> None:
    """A worker without a unit is shown as idle; no line moves when another worker finishes."""
    advanced = UnitAdvanced(worker=2, unit="0003", rows=1234, bytes=9)
    before = picture(taken(0, "0001"), taken(2, "0003"), advanced)
    assert [line.split()[:3] for line in before[2:]] == [
        ["worker", "0", "unit"],
        ["worker", "1", "idle"],
        ["worker", "2", "unit"],
    ]
    assert "1,234 rows" in before[4]
    done = UnitFinished(worker=0, unit="0001", rows=100, bytes=9, seconds=1.0)
    after = picture(taken(0, "0001"), taken(2, "0003"), advanced, done)
    assert after[2].split() == ["worker", "0", "idle"]
    assert after[4].split(" rows")[0] == before[4].split(" rows")[0]
    assert len(after) == len(before)


def test_several_tables_have_a_line() -> None:
    """How many are done, which is the largest that is not, and how much is written of how much."""
    counts = TableCounts(total=5, done=2, failed=1, largest_open="s.big")
    over = TableFinished(table="s.a", rows=1, bytes=9, directory="d", tables=counts)
    done = UnitFinished(worker=0, unit="s.a/0001", rows=100, bytes=900, seconds=1.0)
    lines = picture(taken(0, "s.a/0001"), done, over, taken(0, "s.big/0001"))
    assert lines[2].startswith("2/5 tables, 1 failed, largest still open: s.big, 900 B of about 8")
    assert "unit s.big/0001" in lines[3]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_line_is_one_line_on_any_terminal(width: int) -> None:
    """With any name of a partition and any narrow terminal, no line is broken."""
    lines = picture(taken(0, "0001", EVIL), taken(1, "0002", "x" * 300), width=width)
    assert [line.split()[1] for line in lines[-3:]] == ["0", "1", "2"]
    assert all(len(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_workers_beyond_the_screen_are_counted() -> None:
    """As many workers as fit have their lines, the rest is one figure."""
    lines = picture(taken(0, "0001"), taken(39, "0040"), height=10, workers=40)
    assert [line.split()[1] for line in lines[2:-1]] == ["0", "1", "2", "3", "4"]
    assert lines[-1].strip() == "and 35 more workers, 1 of them busy"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_figure_of_the_run_is_cut(width: int) -> None:
    """Share, time left and units are on one line, rows and both rates on the next."""
    advanced = UnitAdvanced(worker=0, unit="0001", rows=123_456_789, bytes=98_765_432_100)
    lines = picture(taken(0, "0001"), advanced, width=width)
    run = " ".join(lines[:-3])
    assert re.search(r"\d+ % .*, 0/9 units +123,456,789 rows, [\d,]+ rows/s, [\d,.]+ MB/s$", run)


def test_a_rate_that_is_not_known_yet_is_not_zero() -> None:
    """Rows may be on their way long before the first full buffer is written."""
    lines = picture(taken(0, "0001"), UnitAdvanced(worker=0, unit="0001", rows=100, bytes=0))
    assert lines[1].endswith(", - MB/s")


def test_phases_without_workers_show_the_run_alone() -> None:
    """While rows are counted and files get their names, no worker has a line."""
    assert len(picture(taken(0, "0001"), PhaseStarted(phase="counting"))) == 2


def test_measurements_of_a_sweep_stay_in_sight() -> None:
    """Each has a line above the run; a repeat beyond the plan does not change its number."""
    paper = io.StringIO()
    display = BarDisplay(Console(file=paper, width=100, color_system=None))
    for number in (1, 8):
        display(
            PointMeasured(
                number=number, of=6, settings="--parallelism 4", parallelism=4, rows_per_second=900
            )
        )
    display.close(True)
    planned, repeated = re.findall(r"measured .*?rows/s", paper.getvalue())
    assert planned == "measured 1 of 6: --parallelism 4: 900 rows/s"
    assert repeated.startswith("measured 8 (6 planned, repeated because speeds differ): ")
