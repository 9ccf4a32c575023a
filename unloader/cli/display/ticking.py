"""Lets a display know that time passes while the program waits for a database or a disk.

The engine sends ticks of its own while workers run. Before and after that the thread that sends the
events may be inside one call for minutes, and a display that stood still would look hung.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from unloader.events import Tick

if TYPE_CHECKING:
    from unloader.cli.display.base import Display
    from unloader.events import Event

TICK_SECONDS = 0.25


class Ticking:
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
