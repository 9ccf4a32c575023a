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
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from writers.errors import WriteError
from writers.files.os_errors import write_error
from writers.files.writeback import start_writing

T = TypeVar("T")

_AT_A_TIME = 16
"""Guess: about as many syncs as a disk brings to their end together."""

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


def together(acts: Sequence[Steps[T]]) -> Iterator[tuple[int, T | BaseException]]:
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
        errors = dict.fromkeys(wanted)
        # Many acts may want the directory that they all have their own in.
        failed = _sync_all(list({each: None for things in wanted.values() for each in things}))
        for number, things in wanted.items():
            errors[number] = next((failed[each] for each in things if each in failed), None)


def _sync_all(wanted: Sequence[Wanted]) -> dict[Wanted, Exception]:
    """Sync many things, several at a time; return what went wrong with which of them."""
    for each in wanted:
        if isinstance(each, int):
            start_writing(each)
    left, failed = iter(wanted), dict[Wanted, Exception]()

    def work() -> None:
        for each in left:
            try:
                _sync(each)
            except (OSError, WriteError) as error:
                failed[each] = error

    threads = [
        threading.Thread(target=work, name="syncing", daemon=True)
        for _ in range(min(_AT_A_TIME, len(wanted)) - 1)
    ]
    # One that the system refuses is left out: this one does the work then.
    started = [thread for thread in threads if _is_started(thread)]
    work()
    for thread in started:
        thread.join()
    return failed


def _is_started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _sync(wanted: Wanted) -> None:
    if isinstance(wanted, int):
        os.fsync(wanted)
    else:
        sync_directory(wanted)
