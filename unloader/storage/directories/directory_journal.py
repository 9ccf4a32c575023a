"""The journal of a run in a directory: its lines are appended immediately and synced by a thread.

A line is in the system's cache when `append` returns, so it survives any kill of the process. A
sync waits for the data that all workers write to the same file system, and no worker should wait
for that. So a thread syncs the lines about once a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from unloader.storage.directories.directory_staging import RunDirectory
from writers.errors import WriteError
from writers.files.regular import open_regular
from writers.files.syncing import Steps, SyncThreads, alone, opened_for_sync, together

SYNC_SECONDS = 1.0
"""Between two syncs; a power cut costs the lines since the last one."""

SHORT_SECONDS = 5.0
"""The delay before the lines of a small table are synced (a guess). Such a table is usually read in
less time than its journal takes to sync, and published before the end of the delay."""


class Journal:
    """One file that only grows; it is made if it does not exist.

    Directories with the staged files that its lines name (`folders`), and the ways to the
    directories of the run, are synced before the lines. A line waits `patience_seconds`, unless an
    earlier line is due.
    """

    def __init__(
        self,
        path: Path,
        folders: Sequence[Path] = (),
        directories: Sequence[RunDirectory] = (),
        *,
        patience_seconds: float = 0.0,
    ) -> None:
        self._descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._folders = (path.parent, *folders)
        self._directories = tuple(directories)
        self._patience = patience_seconds
        self._files: list[Path] = []
        """Not synced yet."""
        self._error: OSError | None = None
        self._lost: OSError | None = None
        self._change = threading.Condition()
        self._due: float | None = None
        """When the lines since the last sync are due, monotonic; None without such lines."""
        self._is_syncing = self._is_closed = False
        self._thread: threading.Thread | None = None

    def sync_before(self, files: Iterable[Path]) -> None:
        """Sync files before the lines that follow, except files that do not exist by then."""
        self._files += files

    def append(self, line: bytes) -> None:
        """Append a line.

        Raises:
            OSError: The file system refused it, or the sync of an earlier line. A line that was
                written in part is removed.
        """
        if self._error is not None:
            raise self._error
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                # After a short write the next one reports the reason.
                os.write(self._descriptor, line[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise
        with self._change:
            if self._due is None:
                self._due = time.monotonic() + self._patience
                self._change.notify_all()
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="journal", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The system refused a thread, because of memory or a limit, so this one syncs.
                self._due = None
                alone(self._carrying())
            else:
                self._thread = thread

    def rest(self) -> None:
        """Sync nothing until the next line, because another record replaces the lines.

        Raises:
            OSError: Files that the lines name could not be synced. They are removed.
        """
        with self._change:
            self._change.wait_for(lambda: not self._is_syncing)
            self._due = None
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Sync the rest, and close the file; never raises."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError, WriteError):
            # The file of a published run is removed, and not needed any more.
            is_needed = self._due is not None and self._error is None
            if is_needed and os.fstat(self._descriptor).st_nlink:
                alone(self._carrying())
        with suppress(OSError):
            os.close(self._descriptor)

    def _work(self) -> None:
        with SyncThreads() as threads:
            while True:
                with self._change:
                    self._change.wait_for(lambda: self._is_closed or self._due is not None)
                    while not self._is_closed and self._due is not None:
                        if (left := self._due - time.monotonic()) <= 0:
                            break
                        self._change.wait(left)
                    if self._is_closed:
                        return
                    if self._due is None:
                        continue
                    self._due, self._is_syncing = None, True
                try:
                    # The journal keeps an error, and the next append raises it.
                    for _ in together([self._carrying()], threads):
                        pass
                finally:
                    with self._change:
                        self._is_syncing = False
                        self._change.notify_all()
                with self._change:
                    self._change.wait_for(lambda: self._is_closed, SYNC_SECONDS)

    def _carrying(self) -> Steps[None]:
        """Sync the files that the lines name, and the ways to them, then the lines."""
        files, self._files = self._files, []
        try:
            way = [each for directory in self._directories for each in directory.way()]
            # The directories of a published run are removed.
            folders = [folder for folder in self._folders if os.path.lexists(folder)]
            try:
                with ExitStack() as opened:
                    descriptors = []
                    for path in files:
                        try:
                            descriptors.append(opened_for_sync(path, opened))
                        except WriteError as error:
                            # It was published and removed.
                            if not isinstance(error.__cause__, FileNotFoundError):
                                raise
                    yield (*way, *folders, *descriptors)
            except (OSError, WriteError) as error:
                if files:
                    remove_unsynced(files)
                    self._lost = _of_the_system(error)
                raise
            for directory in self._directories:
                directory.is_durable = True
            self._directories = ()
            os.fdatasync(self._descriptor)
        except (OSError, WriteError) as error:
            # A second sync would not report the lines that were lost in the first.
            self._error = _of_the_system(error)
            if self._error is error:
                raise
            raise self._error from error


def remove_unsynced(files: Iterable[Path]) -> None:
    """Remove staged files whose sync failed.

    Their next sync would succeed even if the disk does not have them.
    """
    for path in files:
        with suppress(OSError):
            path.unlink()


def _of_the_system(error: OSError | WriteError) -> OSError:
    """Return the system's error; the caller adds the name of the journal's directory."""
    if isinstance(error, OSError):
        return error
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
