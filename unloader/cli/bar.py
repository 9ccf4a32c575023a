"""Progress as a bar on a terminal: the run as a whole, and a line for each busy worker.

Drawn within the calls that bring the events, never by a thread of its own.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unloader.cli import render
from unloader.cli.log import ended_text, failed_text, rough_seconds, started_text
from unloader.cli.tally import Figures, Running, Tally
from unloader.events import Event, Notice, PhaseStarted, RunStarted, UnitFailed
from unloader.locations import redact

REDRAW_SECONDS = 0.125


class BarDisplay:
    """Redraws at most eight times a second, and whenever a phase begins."""

    def __init__(self) -> None:
        """Begin without a picture; the first event draws it."""
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._tally = Tally(time.monotonic())
        self._drawn_at = 0.0
        self._stopping = ""

    def __call__(self, event: Event) -> None:
        """Take one event and redraw if it is time."""
        now = time.monotonic()
        if isinstance(event, RunStarted):
            self.close(True)
        self._tally.add(event, now)
        if isinstance(event, RunStarted):
            self._say(started_text(event))
        elif isinstance(event, UnitFailed):
            self._say(failed_text(event))
        elif isinstance(event, Notice):
            self._say(event.text)
        # A phase may be over before the next redraw is due, and there are few of them.
        begins = isinstance(event, (RunStarted, PhaseStarted))
        if begins or now - self._drawn_at >= REDRAW_SECONDS:
            self._draw(now)

    def stopping(self, text: str) -> None:
        """Tell that a signal asked to stop; safe within a signal handler."""
        if self._live is None:
            with suppress(OSError):
                os.write(2, f"{text}\n".encode())
        else:
            # The picture belongs to the code that the signal interrupted.
            self._stopping = text

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
        self._console.print(redact(text), markup=False, soft_wrap=True)

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
        self._live.update(self._picture(now), refresh=True)

    def _picture(self, now: float) -> RenderableType:
        figures = self._tally.figures(now)
        if not figures.units:
            return Text(f"{self._tally.phase} ... {render.seconds(figures.seconds)}")
        return Group(_overall(figures, self._tally.phase), self._workers(now))

    def _workers(self, now: float) -> RenderableType:
        """Return a line for each busy worker, as many as the terminal has room for."""
        room = max(1, self._console.height - 4)
        busy = sorted(self._tally.running.items())
        grid = Table.grid(padding=(0, 2))
        for worker, running in busy[:room]:
            grid.add_row(*_worker_cells(worker, running, now))
        if len(busy) > room:
            grid.add_row(f"and {len(busy) - room} more workers")
        return grid


def _overall(figures: Figures, phase: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    left = figures.seconds_left
    shown = phase if phase != "unloading" or left is None else f"{rough_seconds(left)} left"
    grid.add_row(
        ProgressBar(total=1.0, completed=figures.fraction, width=24),
        f"{figures.fraction * 100:3.0f} %",
        f"{figures.units_done}/{figures.units} units,",
        f"{render.count(figures.rows)} rows,",
        f"{render.rows_per_second(figures.rows_per_second)},",
        f"{render.megabytes_per_second(figures.bytes_per_second)},",
        shown,
    )
    return grid


def _worker_cells(worker: int, running: Running, now: float) -> tuple[str | Text, ...]:
    attempt = "" if running.attempt == 1 else f"attempt {running.attempt}"
    return (
        f"worker {worker}",
        f"unit {running.unit}",
        # A partition's name is data: it may look like markup.
        Text(running.partition or ""),
        f"{render.count(running.rows)} rows",
        render.rows_per_second(running.rows_per_second(now)),
        attempt,
    )
