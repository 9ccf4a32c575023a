"""The curve of a sweep that grows, and the speed of a run as a line."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from unloader.cli.display.bar import BarDisplay, Curve
from unloader.cli.display.log import measured_text
from unloader.cli.display.sparkline import plot, sparkline
from unloader.events import PhaseStarted, PointMeasured, RunStarted


def point(number: int, level: int, speed: float) -> PointMeasured:
    """Return one of six measurements."""
    return PointMeasured(
        number=number,
        of=6,
        settings=f"--parallelism {level}",
        parallelism=level,
        rows_per_second=speed,
    )


def test_sparkline() -> None:
    """The largest value has the highest character, nothing the lowest."""
    assert sparkline([0, 1, 4, 8], unicode=True) == "▁▁▄█"
    assert sparkline([0, 8], unicode=False) == "_#"
    assert sparkline([0, 0], unicode=True) == "▁▁"
    assert sparkline([], unicode=True) == ""


def test_plot() -> None:
    """The largest point is in the upper right corner, the origin in the lower left one."""
    assert plot([(0, 0), (2, 5)], width=3, height=2, unicode=False) == ["  *", "*  "]
    assert plot([(0, 0), (2, 5)], width=1, height=1, unicode=True) == [chr(0x2800 + 0x40 + 0x08)]
    assert plot([], width=2, height=1, unicode=True) == ["  "]


def test_curve_grows() -> None:
    """Each measurement is shown; repeats of a point are one, with the median speed."""
    curve = Curve()
    assert curve.lines(60, 20, unicode=True) == []
    curve.add(point(1, 1, 100.0))
    curve.add(point(2, 4, 300.0))
    curve.add(point(3, 4, 330.0))
    curve.add(point(4, 4, 900.0))
    told, top, *drawn, axis, most = curve.lines(20, 10, unicode=False)
    assert told == "measured 4 of 6: --parallelism 4: 900 rows/s"
    assert top == "330 rows/s", "the median, not the one that is out of line"
    assert drawn[0].endswith("*")
    assert len(drawn) == 6
    assert all(len(line) <= 18 for line in (*drawn, axis, most))
    assert (axis, most.split()) == ("+" + "-" * 17, ["0", "4", "workers"])
    assert curve.lines(60, 6, unicode=False) == [told], "no room for a plot"


def test_repeats_beyond_the_plan_keep_its_number() -> None:
    """The number of planned measurements does not grow with each repeat."""
    text = measured_text(point(8, 4, 900.0))
    assert text.startswith("measured 8 (6 planned, repeated because speeds differ): ")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_shows_the_curve(encoding: str) -> None:
    """The bar's display draws it in place of a run's bar, in the terminal's encoding."""
    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=written, width=50, height=16, force_terminal=True)
    display = BarDisplay(console)
    for number, level in enumerate((1, 2, 4), 1):
        display(point(number, level, 1000.0 * level))
    display.close(True)
    written.seek(0)
    shown = written.read()
    assert "measured 3 of 6: --parallelism 4: 4,000 rows/s" in shown
    assert "4 workers" in shown
    assert ("*" in shown) == (encoding == "ascii")


@pytest.mark.parametrize("height", [8, 12, 30])
@pytest.mark.parametrize("width", [40, 60, 120])
def test_curve_and_run_have_room(width: int, height: int) -> None:
    """The curve leaves room for the run that is measured; no line is broken or out of sight."""
    paper = io.StringIO()
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    display = BarDisplay(console)
    for number, level in enumerate((1, 2, 4), 1):
        display(point(number, level, 1000.0 * level))
    display(RunStarted(run_id="r", table="t", units=9, workers=2, rows=900, bytes=None))
    display(PhaseStarted(phase="unloading"))
    console.file = paper
    console.print(display.picture(time.monotonic()))
    console.file = io.StringIO()
    display.close(True)
    lines = paper.getvalue().splitlines()
    assert len(lines) < height
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("measured 3 of 6: --parallelism 4")
    assert any("0/9 units" in line for line in lines)
