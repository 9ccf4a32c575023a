"""Acts in steps, each of which must be on the disk before the next one begins.

An act is a generator: it yields what is to be synced, and goes on once that is done. One act is
carried out alone. Many are carried out together, step by step: what the first sync of a step
carries to the disk is there for the others, so a step costs about one wait for the disk however
many acts take it, and the order within each act is kept.

    def act() -> Steps[None]:
        rename(...)
        yield (directory,)
        rename(...)
        yield (directory,)
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from writers.errors import WriteError
from writers.files.os_errors import write_error
from writers.files.regular import open_regular
from writers.files.writeback import start_writing

T = TypeVar("T")

_AT_A_TIME = 4
"""Syncs that wait for the disk together. With four times as many a run over 500 tables was no
faster: each wakes up for the interpreter, which the others want, too."""

Wanted = int | Path
"""What is synced: an open file by its descriptor, or a directory by its path."""

Steps = Generator[Sequence[Wanted], None, T]
"""An act. An error of a sync is raised in it, where it waits."""


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut.

    Raises:
        WriteError: The file system refused.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise write_error("sync", directory, exc) from exc


def opened_for_sync(path: Path, opened: ExitStack) -> int:
    """Open a file that others have written, so that it can be synced; return its descriptor.

    What went wrong when the system wrote it is told by the sync, if nobody was told before.

    Args:
        path: The file.
        opened: Closes it.

    Raises:
        WriteError: It cannot be opened.
    """
    try:
        descriptor = open_regular(path)
    except OSError as exc:
        raise write_error("sync", path, exc) from exc
    opened.callback(os.close, descriptor)
    return descriptor


def alone(act: Steps[T]) -> T:
    """Carry out one act; return what it returns.

    Raises:
        Exception: Whatever the act raises.
    """
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
                _sync(each)
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
        # Many acts may want the directory that they all have their own in.
        failed = threads.sync(dict.fromkeys(each for things in wanted.values() for each in things))
        errors = {
            number: next((failed[each] for each in things if each in failed), None)
            for number, things in wanted.items()
        }


class SyncThreads:
    """Threads that sync several things at a time; used with `with`, by one thread.

    A disk brings many syncs to their end together, and a clean file costs a wait, too. They are
    started when there is something to do for them. Who calls syncs as well, and each takes the next
    thing until none is left: to be woken up for each would cost more than most syncs do.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._given: queue.SimpleQueue[_Syncs | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> SyncThreads:
        """Return them."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End them."""
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def sync(self, wanted: Collection[Wanted]) -> dict[Wanted, Exception]:
        """Sync all of these; return what went wrong with which of them."""
        for each in wanted:
            if isinstance(each, int):
                start_writing(each)
        syncs = _Syncs(wanted)
        others = self._start(min(_AT_A_TIME, len(wanted)) - 1)
        for _ in range(others):
            self._given.put(syncs)
        syncs.carry_out()
        for _ in range(others):
            self._done.get()
        return syncs.failed

    def _start(self, count: int) -> int:
        """Have so many threads, or fewer where the system refuses some; return how many."""
        while len(self._threads) < count:
            thread = threading.Thread(target=self._work, name="syncing", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break
            self._threads.append(thread)
        return max(0, min(count, len(self._threads)))

    def _work(self) -> None:
        while (syncs := self._given.get()) is not None:
            try:
                syncs.carry_out()
            finally:
                # Whatever ends this thread, nobody waits for it without end.
                self._done.put(None)


class _Syncs:
    """Things to be synced, which several threads share out among each other."""

    def __init__(self, wanted: Collection[Wanted]) -> None:
        self._left = deque(wanted)
        self.failed: dict[Wanted, Exception] = {}

    def carry_out(self) -> None:
        """Sync one after the other until none is left."""
        while True:
            try:
                each = self._left.popleft()
            except IndexError:
                return
            if (error := _tried(each)) is not None:
                self.failed[each] = error


def _tried(wanted: Wanted) -> Exception | None:
    try:
        _sync(wanted)
    # Of any kind: a thread that ended with it would be waited for without end, and what is never
    # told as failed counts as synced.
    except Exception as error:
        return error
    return None


def _sync(wanted: Wanted) -> None:
    if isinstance(wanted, int):
        os.fsync(wanted)
    else:
        sync_directory(wanted)
