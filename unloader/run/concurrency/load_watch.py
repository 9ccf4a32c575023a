"""Counts the active sessions of others about once a second, in a thread with a session of its own.

The run's own call into the database may take any time; a limit on its load may not wait for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from unloader.errors import UnloaderError
from unloader.sources.abilities import LoadReader

EVERY_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
_SILENT_SECONDS = 8.0
"""After so long without a count nobody knows whether the limit is kept."""


class LoadWatch:
    """The thread, and what it has counted."""

    def __init__(self, reader: LoadReader, reopen: Callable[[], LoadReader]) -> None:
        """Begin to count.

        Args:
            reader: A session that counts.
            reopen: Opens another one where that is lost; called in the thread.
        """
        self._reader: LoadReader | None = reader
        self._reopen = reopen
        self._over = threading.Event()
        self._counts: list[int] = []
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="load", daemon=True)
        self._thread.start()

    def taken(self) -> list[int]:
        """Return the counts since the last call."""
        found, self._counts = self._counts, []
        return found

    @property
    def is_silent(self) -> bool:
        """Whether there has been no count for a while."""
        return time.monotonic() - self._heard > _SILENT_SECONDS

    def close(self) -> None:
        """End the thread and the session; may be called again."""
        self._over.set()
        self._thread.join(_AGAIN_SECONDS)

    def _watch(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            wait = EVERY_SECONDS
            try:
                if self._reader is None:
                    self._reader = self._reopen()
                count = self._reader.others()
            # Whatever a driver raises in another thread, the count is not known.
            except (UnloaderError, OSError, RuntimeError):
                self._drop()
                wait = _AGAIN_SECONDS
            else:
                self._heard = time.monotonic()
                self._counts = [*self._counts[-10:], count]
        self._drop()

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
