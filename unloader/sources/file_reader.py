"""A database file as a worker reads it: in the state of the snapshot, and without losing locks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unloader.errors import SnapshotGone, SourceError
from unloader.sources.file_state import inode_of


def kept_header_of(path: str, length: int) -> bytes:
    """Return the first bytes of a file for a worker; the descriptor stays open and keeps locks."""
    try:
        status = os.stat(path)
        inode = status.st_dev, status.st_ino
        if inode not in _kept:
            _kept[inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(_kept[inode], length, 0)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error}") from error


_kept: dict[tuple[int, int], int] = {}
"""By device and inode: the descriptors that stay open."""


class FileAtSnapshot:
    """A file that a worker reads in the state of the run's snapshot.

    Locks do not keep other programs from replacing the file, or from copying another one over it.
    """

    def __init__(self, path: str, state: Callable[[], str]) -> None:
        """Remember the file before the database opens it; `state` returns what must not change."""
        self._path, self._state = path, state
        self._wanted: str | None = None
        self._inode, self._stamp = inode_of(path), _stamp(path)

    def check_opened(self, wanted: str | None, state: str | None = None) -> None:
        """Raise `SnapshotGone` if the database has not opened the file in the state `wanted`.

        `state` was the state when the database opened it; None is the current state.
        """
        self._wanted = wanted
        if wanted is None:
            return
        same = wanted == (self._state() if state is None else state)
        if not same or inode_of(self._path) != self._inode:
            raise self._gone("was replaced after the snapshot was taken")

    @contextmanager
    def read(self) -> Iterator[None]:
        """Raise `SnapshotGone` after a unit if the file was written since it was opened.

        A file that was moved or deleted meanwhile stays as it was for those who have it open.
        """
        try:
            yield
        except Exception:
            self._check_unchanged()
            raise
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        now = _stamp(self._path)
        if self._wanted is None or now == self._stamp or inode_of(self._path) != self._inode:
            return
        # Its rights or links may have changed, which does no harm.
        if self._state() != self._wanted:
            raise self._gone("was written while the run read it")
        self._stamp = now

    def _gone(self, what: str) -> SnapshotGone:
        return SnapshotGone(
            f"{self._path} {what}",
            "run again; no program may write or replace the file during a run",
        )


def _stamp(path: str) -> tuple[int, int]:
    """Return values that change with each write to a file, or zeros if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_ctime_ns)
