"""The journal of a run: lines that are appended at once and synced behind the run's back.

A line is in the system's cache when `append` returns, so it outlives any kill of the process. A
thread of its own carries it to the disk, about once a second: a sync waits for what all workers
write to the same file system, and no worker should wait for that. One thread does it for all
journals of the process: a run over many tables has one for each table that it is at.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from writers.errors import WriteError
from writers.files.regular import open_regular
from writers.files.syncing import Steps, SyncThreads, Wanted, alone, opened_for_sync, together

SYNC_SECONDS = 1.0
"""Between two syncs; a power cut costs the lines since the last one."""

SHORT_SECONDS = 5.0
"""For so long the lines of a journal that may soon be done with are not synced (guess): a small
table is most often published before that, and read in less time than its journal takes to sync."""

_TOGETHER = 16
"""Journals that are synced at once (guess); who closes one of them waits for the others."""


class Way(Protocol):
    """A directory of the run, as far as what leads to it must be on the disk before the lines."""

    def way(self) -> tuple[Wanted, ...]:
        """Return what is to be synced; nothing once that was done."""

    def is_durable(self, since: float) -> None:
        """Take note that it is synced."""


class Journal:
    """One file that only grows."""

    def __init__(
        self,
        path: Path,
        folders: Sequence[Path] = (),
        directories: Sequence[Way] = (),
        *,
        patience_seconds: float = 0.0,
    ) -> None:
        """Open the file, or make it.

        Args:
            path: The file.
            folders: Directories whose names are synced before its lines, since those tell of them.
            directories: What leads to them, which is synced before its lines, too.
            patience_seconds: A line is not synced for so long, unless one before it is.

        Raises:
            OSError: The file system refused.
        """
        self._descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._folders = (path.parent, *folders)
        self._directories = tuple(directories)
        self.patience_seconds = patience_seconds
        self._files: list[Path] = []
        """Not synced yet."""
        self._error: OSError | None = None
        self._lost: OSError | None = None

    def sync_before(self, files: Iterable[Path]) -> None:
        """Sync files before the lines that follow; those that are gone by then are passed over."""
        self._files += files

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
        if not _SYNCING.wake(self):
            # The system refuses another thread, for memory or a limit: then it is done here.
            self.carry()

    def rest(self) -> None:
        """Sync nothing until the next line: all that the lines tell is told by something else.

        Raises:
            OSError: Files that the lines tell of could not be synced. They are gone.
        """
        _SYNCING.rest(self)
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Sync what is left, and close the file; never raises."""
        waiting = _SYNCING.leave(self)
        with suppress(OSError):
            # Of a run that is published it is gone, and nothing of it is wanted any more.
            if waiting and self._error is None and os.fstat(self._descriptor).st_nlink:
                self.carry()
        with suppress(OSError):
            os.close(self._descriptor)

    def carry(self) -> None:
        """Sync the names of the files that the lines tell of, then the lines.

        Raises:
            OSError: The file system refused.
        """
        alone(self.carrying())

    def carrying(self) -> Steps[None]:
        """Do the same in steps."""
        began = time.monotonic()
        try:
            way = [each for directory in self._directories for each in directory.way()]
            # Of a run that was published they have been cleared away.
            folders = [folder for folder in self._folders if os.path.lexists(folder)]
            files, self._files = self._files, []
            try:
                with ExitStack() as opened:
                    yield (*way, *folders, *_opened(files, opened))
            except (OSError, WriteError) as error:
                if files:
                    remove_unsynced(files)
                    self._lost = _of_the_system(error)
                raise
            for directory in self._directories:
                directory.is_durable(began)
            self._directories = ()
            os.fdatasync(self._descriptor)
        except OSError as error:
            # A second sync would not tell of the lines that were lost in the first.
            self._error = error
            raise
        except WriteError as error:
            self._error = _of_the_system(error)
            raise self._error from error


def remove_unsynced(files: Iterable[Path]) -> None:
    """Remove staged files whose sync failed, so that nobody takes them for written.

    The next sync of them would succeed, whatever the disk has.
    """
    for path in files:
        with suppress(OSError):
            path.unlink()


def _opened(files: Iterable[Path], opened: ExitStack) -> Iterator[int]:
    """Open files to be synced, but for those that have been published, and cleared away."""
    for path in files:
        try:
            yield opened_for_sync(path, opened)
        except WriteError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise


def _of_the_system(error: OSError | WriteError) -> OSError:
    """Return what the system said, which whoever writes the journal tells with its place."""
    if isinstance(error, OSError):
        return error
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))


class _Syncing:
    """The thread, while there are journals with lines."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._known: set[Journal] = set()
        """Those that have had lines and are not closed."""
        self._waiting: dict[Journal, float] = {}
        """Those with lines that are not synced, the oldest first, and when that is to be done."""
        self._in_hand: list[Journal] = []
        self._thread: threading.Thread | None = None

    def wake(self, journal: Journal) -> bool:
        """Have a journal synced soon; return False if there is no thread to do it."""
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
                # Behind others that wait nothing is due before them.
                if not journal.patience_seconds or len(self._waiting) == 1:
                    self._change.notify_all()
        return True

    def rest(self, journal: Journal) -> None:
        """Take a journal's lines as synced, once it is not in hand."""
        with self._change:
            self._change.wait_for(lambda: journal not in self._in_hand)
            self._waiting.pop(journal, None)

    def leave(self, journal: Journal) -> bool:
        """Forget a journal, which nobody syncs any more; return whether it has lines left."""
        with self._change:
            while journal in self._in_hand:
                self._change.wait()
            self._known.discard(journal)
            found = journal in self._waiting
            self._waiting.pop(journal, None)
            ended, self._thread = (None, self._thread) if self._known else (self._thread, None)
            self._change.notify_all()
        if ended is not None:
            ended.join()
        return found

    def _work(self) -> None:
        me = threading.current_thread()
        with SyncThreads() as threads:
            while True:
                with self._change:
                    self._await_some(me)
                    if self._thread is not me:
                        return
                    now = time.monotonic()
                    journals = [each for each, due in self._waiting.items() if due <= now]
                for first in range(0, len(journals), _TOGETHER):
                    self._carry(journals[first : first + _TOGETHER], threads)
                with self._change:
                    self._change.wait_for(lambda: self._thread is not me, SYNC_SECONDS)

    def _await_some(self, me: threading.Thread) -> None:
        """Wait until some are to be synced, or the thread is to end; called with the lock."""
        while self._thread is me:
            now = time.monotonic()
            due = min(self._waiting.values(), default=None)
            if due is not None and due <= now:
                return
            self._change.wait(None if due is None else due - now)

    def _carry(self, journals: Sequence[Journal], threads: SyncThreads) -> None:
        with self._change:
            self._in_hand = [each for each in journals if each in self._waiting]
            for journal in self._in_hand:
                del self._waiting[journal]
        try:
            # An error is the journal's: whoever appends the next line gets it.
            for _ in together([journal.carrying() for journal in self._in_hand], threads):
                pass
        finally:
            with self._change:
                self._in_hand = []
                self._change.notify_all()


_SYNCING = _Syncing()
