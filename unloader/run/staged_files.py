"""Confirming what a broken run has staged, before it is taken as done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as NotYet
from itertools import islice

from unloader.engine.engine import TICK_SECONDS
from unloader.errors import VerifyMismatch
from unloader.manifest.build import FinishedUnit
from unloader.manifest.file_check import check_bytes
from unloader.storage.base import RunStorage
from writers.errors import StoreFailed, Superseded, WriteError

MOST_THREADS = 8
"""Checksums and reads leave the interpreter; more threads than that no disk has use for."""
_AHEAD = 64
"""Units in work or waiting, for each thread: those of a run may be a hundred thousand."""


def damaged_units(
    storage: RunStorage, finished: Mapping[str, FinishedUnit], tick: Callable[[], None]
) -> dict[str, str]:
    """Return the units whose staged files are not as they were reported, with what is wrong.

    Each file is read as a whole, and its size and checksum are compared. Of an upload, which nobody
    can read, the sizes and checksums of its parts are.

    Args:
        storage: Where they are staged.
        finished: By id.
        tick: Called several times a second; what it raises ends the check.
    """
    found = {}
    threads = max(1, min(MOST_THREADS, len(finished), os.cpu_count() or 1))
    with ThreadPoolExecutor(threads, thread_name_prefix="confirm") as pool:
        try:
            waiting = iter(finished.items())
            while part := list(islice(waiting, threads * _AHEAD)):
                asked = {pool.submit(_damage, storage, unit): name for name, unit in part}
                for future in _completed(asked, tick):
                    if wrong := future.result():
                        found[asked[future]] = wrong
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _completed(futures: Iterable[Future[str]], tick: Callable[[], None]) -> Iterator[Future[str]]:
    left = set(futures)
    while left:
        try:
            for future in as_completed(left, timeout=TICK_SECONDS):
                left.discard(future)
                yield future
        except NotYet:
            pass
        tick()


def _damage(storage: RunStorage, unit: FinishedUnit) -> str:
    """Return what is wrong with the files of a unit; empty if nothing is."""
    for file in unit.result.files:
        try:
            if file.upload is not None:
                storage.compare_upload(unit.directory, file.upload)
            else:
                check_bytes(storage.staged_file(unit.directory, file.path), file)
        except StoreFailed as error:
            # A store that does not answer now tells nothing of what it has.
            if not isinstance(error, Superseded):
                raise
            return error.message
        except (VerifyMismatch, WriteError) as error:
            return str(getattr(error, "message", error))
    return ""
