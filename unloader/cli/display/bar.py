"""Progress as a bar on a terminal: the run as a whole, and a line for each worker.

The display is drawn within the calls that bring the events, and not by a separate thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unloader.cli.display import render
from unloader.cli.display.log import (
    Display,
    ended_text,
    event_text,
    phase_text,
    rough_seconds,
    speed_text,
    tables_text,
    verified_text,
)
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
)
from unloader.nouns import counted
from unloader.status.recording import Tally

REDRAW_SECONDS = 0.125
_SAID = RunStarted | UnitFailed | Notice | ParallelismChanged | SettingUsed | PointMeasured
"""Events that stay above the picture as a line."""


@contextmanager
def _surviving() -> Iterator[None]:
    """Ignore drawing errors once the terminal is gone: the run must not be lost for that."""
    try:
        yield
    except OSError:
        give_up(sys.stderr)


class BarDisplay(Display):
    """Redraws at most eight times a second, and whenever a phase begins."""

    def __init__(self, console: Console | None = None) -> None:
        """Begin without a picture; the first event draws it. The usual console is stderr."""
        self._console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._tally = Tally(time.monotonic())
        self._drawn_at = 0.0
        self._stopping = ""
        self._widths = [0] * 6
        """Of the columns of the workers, which only grow: what jumps cannot be read."""

    @_surviving()
    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
        self._tally.add(event, now)
        # Complete tables are in the picture; failures must stay in sight.
        if isinstance(event, _SAID) or (isinstance(event, TableFinished) and event.error):
            self._say(event_text(event))
        # A phase may be over before the next redraw is due, and there are few of them.
        begins = isinstance(event, (RunStarted, PhaseStarted, PointMeasured))
        if not begins and now - self._drawn_at < REDRAW_SECONDS:
            return
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        text, self._stopping = self._stopping, ""
        self._say(text)
        self._drawn_at = now
        self._live.update(self.picture(now), refresh=True)

    def stopping(self, text: str) -> None:
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
        if text:
            self._console.print(render.one_line(text), markup=False, soft_wrap=True)

    def picture(self, now: float) -> RenderableType:
        """Return the lines of the moment `now`, by the clock `time.monotonic`."""
        figures, phase = self._tally.figures(now), self._tally.phase
        seconds, checked = render.seconds(now - self._tally.phase_started), self._tally.verified
        if not figures.units:
            text = f"{phase_text(phase)} ... {seconds}"
            if checked is None:
                return self._cut(text)
            done, of = checked.done, checked.of
            if checked.of_bytes:
                done, of = checked.bytes, checked.of_bytes
            return self._bar(done / of if of else 1.0, f"{verified_text(checked)}, {text}")
        doing = f"{phase} {seconds}"
        if checked is not None:
            doing = f"{phase} {verified_text(checked)}, {seconds}"
        elif phase == "unloading":
            left = figures.seconds_left
            doing = phase if left is None else f"{rough_seconds(left)} left"
        units = f"{figures.units_done}/{figures.units} units"
        lines = [
            self._bar(figures.fraction, f"{figures.fraction * 100:3.0f} % {doing}, {units}"),
            self._cut(f"{counted(figures.rows, 'row')}, {speed_text(figures)}"),
        ]
        if figures.tables is not None:
            written, whole = render.size(figures.bytes), figures.bytes_expected
            if whole is not None and figures.fraction < 1:
                written += f" of about {render.size(whole)}"
            lines.append(self._cut(f"{tables_text(figures.tables)}, {written} written"))
        # Before and after they are at work, the lines of the workers would say nothing.
        if phase == "unloading":
            lines += map(self._cut, self._workers(now, self._console.height - 3 - len(lines)))
        return Group(*lines)

    def _bar(self, share: float, text: str) -> RenderableType:
        line = Table.grid(padding=(0, 1))
        width = 24 if self._console.width >= 80 else 8
        line.add_row(ProgressBar(total=1.0, completed=share, width=width), self._cut(text))
        return line

    def _workers(self, now: float, room: int) -> list[str]:
        """Return a line for each worker, always the same one, as many as there is room for.

        Lines and columns that came and went with the units could not be read. Figures are set to
        the right. What a narrow terminal cuts comes last.
        """
        running = self._tally.running
        workers = max(self._tally.run.workers, *(each + 1 for each in running), 1)
        shown = min(workers, max(1, room))
        rows = [[f"worker {worker}", "idle", "", "", "", ""] for worker in range(shown)]
        for worker, unit in running.items():
            if worker < shown:
                rows[worker][1:] = (
                    f"unit {unit.unit}",
                    counted(unit.rows, "row"),
                    render.rows_per_second(unit.rows_per_second(now)),
                    "" if unit.attempt == 1 else f"attempt {unit.attempt}",
                    render.name(unit.partition or ""),
                )
        columns = zip(self._widths, *rows, strict=True)
        self._widths = [max(width, *map(len, cells)) for width, *cells in columns]
        lines = []
        for cells in rows:
            sides = zip(cells, self._widths, "<<>><<", strict=True)
            padded = [f"{cell:{side}{width}}" for cell, width, side in sides]
            attempt_and_partition = filter(str.strip, padded[4:])
            lines.append("  ".join((*padded[:4], *attempt_and_partition)).rstrip())
        if shown < workers:
            hidden = sum(worker >= shown for worker in running)
            lines.append(f"and {workers - shown} more workers, {hidden} of them busy")
        return lines

    def _cut(self, line: str) -> Text:
        """Return a line that is cut where the terminal ends.

        Not as markup: a partition's name is data and may look like it.
        """
        unicode = self._console.encoding.lower().startswith("utf")
        return Text(line, no_wrap=True, overflow="ellipsis" if unicode else "crop")
