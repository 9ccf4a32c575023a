"""Syncs: acts in steps that share their waits for the disk.

An act is a generator: it yields the files and directories to sync, and continues after their sync.
One act is carried out alone. Many are carried out together, step by step: the first sync of a step
brings the data of the others to the disk too. So a step costs about one wait for the disk, and the
order within each act is kept.

    def act() -> Steps[None]:
        rename(...)
        yield (directory,)
        rename(...)
        yield (directory,)
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TypeVar

from writers.errors import WriteError
from writers.files.regular import open_regular, write_error

T = TypeVar("T")

_AT_A_TIME = 4
"""Syncs that wait for the disk together. With 16 a run over 500 tables was not faster: each wakes
up for the interpreter lock, which the others need too."""

START_WRITING = 2  # SYNC_FILE_RANGE_WRITE, sync_file_range(2)

Wanted = int | Path
"""An open file by its descriptor, or a directory by its path."""

Steps = Generator[Sequence[Wanted], None, T]
"""An act. The error of a sync is raised at its `yield`."""


def opened_for_sync(path: Path, opened: ExitStack) -> int:
    """Open another process's file until `opened` ends; its sync reports new errors of writes."""
    try:
        descriptor = open_regular(path)
    except OSError as exc:
        raise write_error("sync", path, exc) from exc
    opened.callback(os.close, descriptor)
    return descriptor


def alone(act: Steps[T]) -> T:
    """Carry out one act; return its result."""
    error: Exception | None = None
    while True:
        try:
            wanted = act.send(None) if error is None else act.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        try:
            for each in wanted:
                sync(each)
        except (OSError, WriteError) as failure:
            error = failure


def together(
    acts: Sequence[Steps[T]], threads: SyncThreads
) -> Iterator[tuple[int, T | BaseException]]:
    """Carry out many acts step by step; yield the number of each with its result, or its error."""
    errors: dict[int, Exception | None] = dict.fromkeys(range(len(acts)))
    while errors:
        wanted: dict[int, Sequence[Wanted]] = {}
        for number, error in errors.items():
            act = acts[number]
            try:
                wanted[number] = act.send(None) if error is None else act.throw(error)
            except StopIteration as end:
                yield number, end.value
            except BaseException as raised:
                yield number, raised
        # Many acts may sync the same directory.
        failed = threads.sync(dict.fromkeys(each for things in wanted.values() for each in things))
        errors = {
            number: next((failed[each] for each in things if each in failed), None)
            for number, things in wanted.items()
        }


class SyncThreads:
    """Threads that sync several things at a time; used with `with`, by one thread.

    A disk ends many syncs together, and a clean file costs a wait too. The caller syncs as well,
    and each takes the next thing until none is left: a wake-up for each would cost more than most
    syncs.
    """

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._others = ThreadPoolExecutor(_AT_A_TIME - 1, thread_name_prefix="syncing")

    def __enter__(self) -> SyncThreads:
        return self

    def __exit__(self, *exception: object) -> None:
        self._others.shutdown()

    def sync(self, wanted: Collection[Wanted]) -> dict[Wanted, Exception]:
        # Without that each of many small files would begin a transaction of the file system.
        if (begin := sync_file_range()) is not None:
            for each in wanted:
                if isinstance(each, int):
                    begin(each, 0, 0, START_WRITING)
        left, failed = deque(wanted), dict[Wanted, Exception]()
        helping, is_refused = [], False
        try:
            for _ in range(min(_AT_A_TIME, len(wanted)) - 1):
                helping.append(self._others.submit(_sync_all, left, failed))
        except RuntimeError:
            is_refused = True
        _sync_all(left, failed)
        wait(helping)
        if is_refused:
            # The pool keeps the task whose thread the system refused: another one may be at it.
            self._others.shutdown()
            self._renew()
        return failed


def _sync_all(left: deque[Wanted], failed: dict[Wanted, Exception]) -> None:
    """Sync one after the other until all are taken, by this thread or by others."""
    while True:
        try:
            each = left.popleft()
        except IndexError:
            return
        try:
            sync(each)
        # Every kind of error: a thing without an error counts as synced.
        except Exception as error:
            failed[each] = error


def sync(wanted: Wanted) -> None:
    """Make a file (OSError), or names in a directory (WriteError), survive a power cut."""
    if isinstance(wanted, int):
        os.fsync(wanted)
        return
    try:
        descriptor = os.open(wanted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise write_error("sync", wanted, exc) from exc


@cache
def sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the call of the system; None without it."""
    try:
        found = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call
