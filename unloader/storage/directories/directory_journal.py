"""The journal of a run in a directory: its lines are appended immediately and synced by a thread.

A line is in the system's cache when `append` returns, so it survives any kill of the process. A
sync waits for the data that all workers write to the same file system, and no worker should wait
for that. So one thread syncs all journals of the process about once a second. A run over many
tables has a journal for each table in work.
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

_TOGETHER = 16
"""Journals that are synced together (a guess); the close of one of them waits for the others."""


class Journal:
    """One file that only grows.

    Args:
        path: The file; it is made if it does not exist.
        folders: Directories with the staged files that its lines name. They are synced before the
            lines.
        directories: Their ways are synced before the lines.
        patience_seconds: The delay before a line is synced, unless an earlier line is due.
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
        self.patience_seconds = patience_seconds
        self._files: list[Path] = []
        """Not synced yet."""
        self._error: OSError | None = None
        self._lost: OSError | None = None

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
        if not _SYNCING.wake(self):
            # The system refused a thread, because of memory or a limit, so this one syncs.
            alone(self.carrying())

    def rest(self) -> None:
        """Sync nothing until the next line, because another record replaces the lines.

        Raises:
            OSError: Files that the lines name could not be synced. They are removed.
        """
        _SYNCING.take_out(self)
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Sync the rest, and close the file; never raises."""
        waiting = _SYNCING.take_out(self, known=False)
        with suppress(OSError):
            # The file of a published run is removed, and not needed any more.
            if waiting and self._error is None and os.fstat(self._descriptor).st_nlink:
                alone(self.carrying())
        with suppress(OSError):
            os.close(self._descriptor)

    def carrying(self) -> Steps[None]:
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


class _Syncing:
    """The thread, while there are journals with lines."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._known: set[Journal] = set()
        """Open journals that have had lines."""
        self._waiting: dict[Journal, float] = {}
        """Journals with lines that are not synced, the oldest first, and when the sync is due."""
        self._in_hand: list[Journal] = []
        """Journals that are being synced."""
        self._thread: threading.Thread | None = None

    def wake(self, journal: Journal) -> bool:
        """Let the thread sync a journal soon; return False without a thread."""
        with self._change:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            self._known.add(journal)
            if journal not in self._waiting:
                self._waiting[journal] = time.monotonic() + journal.patience_seconds
                # A delayed journal that is not the first is not due before the others.
                if not journal.patience_seconds or len(self._waiting) == 1:
                    self._change.notify_all()
        return True

    def take_out(self, journal: Journal, *, known: bool = True) -> bool:
        """Treat a journal's lines as synced, as soon as it is not being synced.

        Args:
            journal: The journal.
            known: It stays open. The thread ends without open journals.

        Returns:
            Whether it had lines that were not synced.
        """
        ended = None
        with self._change:
            self._change.wait_for(lambda: journal not in self._in_hand)
            found = self._waiting.pop(journal, None) is not None
            if not known:
                self._known.discard(journal)
                if not self._known:
                    ended, self._thread = self._thread, None
                    self._change.notify_all()
        if ended is not None:
            ended.join()
        return found

    def _work(self) -> None:
        me = threading.current_thread()
        with SyncThreads() as threads:
            while True:
                with self._change:
                    while self._thread is me:
                        now = time.monotonic()
                        due = min(self._waiting.values(), default=None)
                        if due is not None and due <= now:
                            break
                        self._change.wait(None if due is None else due - now)
                    if self._thread is not me:
                        return
                    journals = [each for each, due in self._waiting.items() if due <= now]
                for first in range(0, len(journals), _TOGETHER):
                    with self._change:
                        some = journals[first : first + _TOGETHER]
                        self._in_hand = [each for each in some if each in self._waiting]
                        for journal in self._in_hand:
                            del self._waiting[journal]
                    try:
                        # The journal keeps an error, and the next append raises it.
                        acts = [journal.carrying() for journal in self._in_hand]
                        for _ in together(acts, threads):
                            pass
                    finally:
                        with self._change:
                            self._in_hand = []
                            self._change.notify_all()
                with self._change:
                    self._change.wait_for(lambda: self._thread is not me, SYNC_SECONDS)


_SYNCING = _Syncing()
