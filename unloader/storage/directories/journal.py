"""The journal of a run: lines that are appended at once and synced behind the run's back.

A line is in the system's cache when `append` returns, so it outlives any kill of the process. A
thread of its own carries it to the disk, about once a second: a sync waits for what all workers
write to the same file system, and no worker should wait for that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SYNC_SECONDS = 1.0
"""Between two syncs; a power cut costs the lines since the last one."""


class Journal:
    """One file that only grows."""

    def __init__(self, path: Path, folders: Sequence[Path] = ()) -> None:
        """Open the file, or make it.

        Args:
            path: The file.
            folders: Directories whose names are synced before its lines, since those tell of them.

        Raises:
            OSError: The file system refused.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o666)
        self._folders = (path.parent, *folders)
        self._waiting = threading.Event()
        self._ended = threading.Event()
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def append(self, line: bytes) -> None:
        """Append a line.

        Raises:
            OSError: The file system refused it, or an earlier one when that was synced. A line of
                which only a part was taken is taken back.
        """
        if self._error is not None:
            raise self._error
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                # What was refused says why.
                os.write(self._descriptor, line[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise
        self._wake()

    def close(self) -> None:
        """Sync what is left, and close the file; never raises."""
        self._ended.set()
        self._waiting.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError):
            os.close(self._descriptor)

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._sync, name="journal", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The system refuses another thread, for memory or a limit: then it is done here.
                self._carry()
                return
            self._thread = thread
        self._waiting.set()

    def _sync(self) -> None:
        while not (self._ended.is_set() and not self._waiting.is_set()):
            self._waiting.wait()
            self._waiting.clear()
            try:
                self._carry()
            except OSError as error:
                # A second sync would not tell of the lines that were lost in the first.
                self._error = error
                return
            self._ended.wait(SYNC_SECONDS)

    def _carry(self) -> None:
        """Sync the names of the files that the lines tell of, then the lines."""
        for folder in self._folders:
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # It has been published, and cleared away.
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.fdatasync(self._descriptor)
