"""Progress as a bar on a terminal: the run as a whole, and a line for each worker.

A sweep also has its curve: speed by parallelism. The display is drawn within the calls that bring
the events, and not by a separate thread.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unloader.cli.display import render
from unloader.cli.display.log import (
    EVENT_TEXTS,
    ended_text,
    measured_text,
    phase_text,
    rough_seconds,
    tables_text,
    verified_share,
    verified_text,
)
from unloader.cli.display.sparkline import plot, speeds_text
from unloader.cli.streams import give_up
from unloader.events import (
    Event,
    Notice,
    ParallelismChanged,
    PhaseStarted,
    PointMeasured,
    RunStarted,
    SettingUsed,
    TableFinished,
    UnitFailed,
    Verified,
)
from unloader.nouns import counted
from unloader.status.tally import Figures, Running, Speeds, Tally

WIDEST_CURVE, HIGHEST_CURVE = 72, 12
LOWEST_CURVE = 4
"""Lines; a smaller terminal shows no plot."""

_BETWEEN = 60
"""Dots of a line from one point to the next; more than a terminal can tell apart."""


class Curve:
    """The points of a sweep so far; repeats of a point are one, with the median speed."""

    def __init__(self) -> None:
        """Begin without a point."""
        self._speeds: dict[tuple[int, str], list[float]] = {}
        self._last: PointMeasured | None = None

    def add(self, point: PointMeasured) -> None:
        """Take a measurement."""
        self._speeds.setdefault((point.parallelism, point.settings), []).append(
            point.rows_per_second
        )
        self._last = point

    def lines(self, width: int, height: int, *, unicode: bool) -> list[str]:
        """Return the curve for a terminal; nothing before the first point, or without room.

        Args:
            width: Columns that there are.
            height: Lines that there are.
            unicode: Whether braille can be shown.
        """
        if self._last is None:
            return []
        medians = [
            (float(level), statistics.median_low(speeds))
            for (level, _), speeds in self._speeds.items()
        ]
        top = render.rows_per_second(max(speed for _, speed in medians))
        most = counted(round(max(level for level, _ in medians)), "worker")
        lines = [measured_text(self._last)]
        columns, rows = min(WIDEST_CURVE, width - 3), min(HIGHEST_CURVE, height - 4)
        if columns < len(most) + 2 or rows < LOWEST_CURVE:
            return lines
        corner, side = ("└", "│") if unicode else ("+", "|")
        across = ("─" if unicode else "-") * columns
        drawn = plot(self._joined(), width=columns, height=rows, unicode=unicode)
        return [
            *lines,
            top,
            *(f"{side}{line}".rstrip() for line in drawn),
            f"{corner}{across}",
            f" 0{most:>{columns - 1}}",
        ]

    def _joined(self) -> Iterator[tuple[float, float]]:
        """Yield the medians, and points between two neighbours that differ only in parallelism."""
        series: dict[str, list[tuple[float, float]]] = {}
        for (level, settings), speeds in sorted(self._speeds.items()):
            others = settings.replace(f"--parallelism {level}", "").strip()
            series.setdefault(others, []).append((float(level), statistics.median_low(speeds)))
        for points in series.values():
            yield points[0]
            for (x, y), (right, up) in pairwise(points):
                for step in range(1, _BETWEEN + 1):
                    share = step / _BETWEEN
                    yield x + share * (right - x), y + share * (up - y)


REDRAW_SECONDS = 0.125
SPEED_SECONDS = 1.0
"""Between two looks at the speed of a run, whose curve grows on a line."""

NARROWEST_BAR, WIDEST_BAR = 8, 24
"""Columns; with less the line is folded."""

FEWEST_SPEEDS = 3
"""Means that make a curve."""


_SAID = RunStarted | UnitFailed | Notice | ParallelismChanged | SettingUsed
"""Events that stay above the picture as a line."""


@contextmanager
def _surviving() -> Iterator[None]:
    """Ignore drawing errors once the terminal is gone: the run must not be lost for that."""
    try:
        yield
    except OSError:
        give_up(sys.stderr)


class BarDisplay:
    """Redraws at most eight times a second, and whenever a phase begins."""

    def __init__(self, console: Console | None = None) -> None:
        """Begin without a picture; the first event draws it.

        Args:
            console: Where to draw; None is stderr.
        """
        self._console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._tally = Tally(time.monotonic())
        self._drawn_at = 0.0
        self._stopping = ""
        self._curve = Curve()
        self._speeds = Speeds()
        self._looked_at = 0.0
        self._widths = [0] * 6
        self._bar_width = WIDEST_BAR
        self._folded = False

    @_surviving()
    def __call__(self, event: Event) -> None:
        """Take one event and redraw if it is time."""
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
        self._tally.add(event, now)
        self._look(now)
        if isinstance(event, RunStarted):
            self._speeds = Speeds()
        elif isinstance(event, PointMeasured):
            self._curve.add(event)
        # Complete tables are in the picture; failures must stay in sight.
        if isinstance(event, _SAID) or (isinstance(event, TableFinished) and event.error):
            self._say(EVENT_TEXTS[type(event)][1](event))
        # A phase may be over before the next redraw is due, and there are few of them.
        begins = isinstance(event, (RunStarted, PhaseStarted, PointMeasured))
        if begins or now - self._drawn_at >= REDRAW_SECONDS:
            self._draw(now)

    def _look(self, now: float) -> None:
        """Note how far the run is, if it is time."""
        if self._tally.phase == "unloading" and now - self._looked_at >= SPEED_SECONDS:
            self._looked_at = now
            self._speeds.add(now, self._tally.figures(now).rows)

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""
        if self._live is None:
            with suppress(OSError):
                os.write(2, f"{text}\n".encode())
        else:
            # The picture belongs to the code that the signal interrupted.
            self._stopping = text

    @_surviving()
    def close(self, finished: bool) -> None:
        """Take the picture away and leave one line on how far the run came.

        The next one of several runs begins with its `RunStarted`.
        """
        if self._live is not None:
            self._live.stop()
            self._live = None
        if not finished:
            self._tally.give_up()
        if self._tally.run.units:
            self._say(ended_text(self._tally.figures(time.monotonic()), finished))

    def _say(self, text: str) -> None:
        if not text:
            return
        self._console.print(render.one_line(text), markup=False, soft_wrap=True)

    def _draw(self, now: float) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        if self._stopping:
            text, self._stopping = self._stopping, ""
            self._say(text)
        self._drawn_at = now
        self._live.update(self.picture(now), refresh=True)

    def picture(self, now: float) -> RenderableType:
        """Return the lines of the moment `now`, by the clock `time.monotonic`."""
        figures = self._tally.figures(now)
        for_so_long = render.seconds(now - self._tally.phase_started)
        checked = self._tally.verified
        if curve := self._sweep(figures, for_so_long):
            return curve
        if not figures.units:
            text = f"{phase_text(self._tally.phase)} ... {for_so_long}"
            return self._cut(text) if checked is None else self._checking(checked, text)
        if checked is not None:
            for_so_long = f"{verified_text(checked)}, {for_so_long}"
        overall = self._overall(figures, for_so_long)
        if figures.tables is not None:
            overall = Group(overall, self._cut(f"{tables_text(figures.tables)}, {_whole(figures)}"))
        # Before and after they are at work their lines would say nothing.
        if self._tally.phase != "unloading":
            return overall
        speeds = self._speeds.values()
        several = figures.tables is not None
        if len(speeds) < FEWEST_SPEEDS:
            return Group(overall, self._workers(now, 0 + several))
        line = f"so far {speeds_text(speeds, self._console.width - 8, unicode=self._unicode)}"
        return Group(overall, self._cut(line), self._workers(now, 1 + several))

    def _sweep(self, figures: Figures, for_so_long: str) -> RenderableType | None:
        """Return the curve of a sweep over the run of the moment, None without a point of one."""
        size = self._console.size
        # The run takes two lines on a narrow terminal, and the cursor is on the line below.
        lines = self._curve.lines(size.width, size.height - 3, unicode=self._unicode)
        if not lines:
            return None
        doing = f"{phase_text(self._tally.phase)} ... {for_so_long}"
        run = self._overall(figures, for_so_long) if figures.units else self._cut(doing)
        return Group(*map(self._cut, lines), run)

    @property
    def _unicode(self) -> bool:
        return self._console.encoding.lower().startswith("utf")

    def _checking(self, checked: Verified, text: str) -> RenderableType:
        """Return the bar of a command that checks finished files, and its current step."""
        bar = ProgressBar(total=1.0, completed=verified_share(checked), width=WIDEST_BAR)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, self._cut(f"{verified_text(checked)}, {text}"))
        return line

    def _overall(self, figures: Figures, for_so_long: str) -> RenderableType:
        """Return the bar and the run in one line, or in two where one would be cut.

        The bar only ever shrinks and folded stays folded: what jumps cannot be read.
        """
        share, amount = _share(figures, self._tally.phase, for_so_long), _amount(figures)
        room = self._console.width - 1 - len(f"{share}, {amount}")
        self._folded = self._folded or room < NARROWEST_BAR
        if self._folded:
            room = self._console.width - 1 - len(share)
        self._bar_width = min(self._bar_width, max(room, NARROWEST_BAR))
        bar = ProgressBar(total=1.0, completed=figures.fraction, width=self._bar_width)
        first = Table.grid(padding=(0, 1))
        first.add_row(bar, self._cut(share if self._folded else f"{share}, {amount}"))
        return Group(first, self._cut(amount)) if self._folded else first

    def _workers(self, now: float, lines_above: int) -> RenderableType:
        """Return a line for each worker, always the same one, as many as the terminal has room for.

        Lines and columns that came and went with the units could not be read.
        """
        workers = max(self._tally.run.workers, *(each + 1 for each in self._tally.running), 1)
        shown = min(workers, max(1, self._console.height - 4 - self._folded - lines_above))
        rows = [
            _worker_cells(worker, self._tally.running.get(worker), now) for worker in range(shown)
        ]
        self._widths = [
            max(width, *map(len, cells))
            for width, cells in zip(self._widths, zip(*rows, strict=True), strict=True)
        ]
        lines = [_line(self._widths, cells) for cells in rows]
        if shown < workers:
            hidden = sum(worker >= shown for worker in self._tally.running)
            lines.append(f"and {workers - shown} more workers, {hidden} of them busy")
        return Group(*map(self._cut, lines))

    def _cut(self, line: str) -> Text:
        """Return a line that is cut where the terminal ends.

        Not as markup: a partition's name is data and may look like it.
        """
        return Text(line, no_wrap=True, overflow="ellipsis" if self._unicode else "crop")


def _share(figures: Figures, phase: str, for_so_long: str) -> str:
    """Return the finished share of the run, and its current step or its remaining time."""
    left = figures.seconds_left
    if phase != "unloading":
        shown = f"{phase} {for_so_long}"
    else:
        shown = phase if left is None else f"{rough_seconds(left)} left"
    return f"{figures.fraction * 100:3.0f} % {shown}, {figures.units_done}/{figures.units} units"


def _amount(figures: Figures) -> str:
    return (
        f"{counted(figures.rows, 'row')}, {render.rows_per_second(figures.rows_per_second)}, "
        f"{render.megabytes_per_second(figures.bytes_per_second)}"
    )


def _whole(figures: Figures) -> str:
    """Return how much is written, and of how much in all, where that can be said."""
    whole = figures.bytes_expected
    likely = "" if whole is None or figures.fraction >= 1 else f" of about {render.size(whole)}"
    return f"{render.size(figures.bytes)}{likely} written"


def _worker_cells(worker: int, running: Running | None, now: float) -> tuple[str, ...]:
    if running is None:
        return (f"worker {worker}", "idle", "", "", "", "")
    return (
        f"worker {worker}",
        f"unit {running.unit}",
        counted(running.rows, "row"),
        render.rows_per_second(running.rows_per_second(now)),
        "" if running.attempt == 1 else f"attempt {running.attempt}",
        render.name(running.partition or ""),
    )


def _line(widths: Sequence[int], cells: tuple[str, ...]) -> str:
    """Return the cells in columns, figures to the right; what a narrow terminal cuts comes last."""
    worker, unit, rows, rate, attempt, partition = (
        f"{cell:>{width}}" if place in (2, 3) else f"{cell:<{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((worker, unit, rows, rate, *filter(str.strip, (attempt, partition)))).rstrip()
