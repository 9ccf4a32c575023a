"""Chooses the display of progress of a command, and lets it know that time passes.

The engine sends ticks while workers run. Before and after that, the thread that sends the events
may wait for minutes in one call. A display without ticks would then look hung.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unloader.cli.display.log import Display, LogDisplay
from unloader.events import Event, Tick

TICK_SECONDS = 0.25


class Ticking(Display):
    """A display that gets a `Tick` a few times a second, and one event at a time."""

    def __init__(self, display: Display) -> None:
        """Take the display; ticks begin with the first event, as nothing is shown before it."""
        self._display = display
        # Never taken by `stopping`: the code that a signal interrupts may hold it.
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Hand on one event."""
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._tick, name="ticks", daemon=True)
            self._thread.start()
        with self._lock:
            self._display(event)

    def stopping(self, text: str) -> None:
        """Show that a signal asked to stop; safe in a signal handler."""
        self._display.stopping(text)

    def close(self, finished: bool) -> None:
        """End the ticks, then the display."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._display.close(finished)

    def _tick(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            try:
                self(Tick())
            except OSError:
                # The terminal has gone; the next event ends as it would without us.
                return


@contextmanager
def display_for(values: Mapping[str, Any]) -> Iterator[Display]:
    """Yield the display that the options ask for, and close it when the run ends.

    Args:
        values: `progress`, `log_format`, `log_interval` and `quiet`.
    """
    as_json = values["log_format"] == "json"
    can_draw = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
    display: Display
    if values["quiet"]:
        display = Display()
    elif values["progress"] == "none":
        display = LogDisplay(as_json=as_json, interval_seconds=None)
    elif values["progress"] == "log" or as_json or not can_draw:
        # A bar needs a terminal even where it was asked for by name; JSON lines are never a bar.
        display = Ticking(LogDisplay(as_json=as_json, interval_seconds=values["log_interval"]))
    else:
        # Imported on use: rich is slow to load, and most runs have no terminal.
        from unloader.cli.display.bar import BarDisplay

        display = Ticking(BarDisplay())
    finished = False
    try:
        yield display
        finished = True
    finally:
        display.close(finished)
