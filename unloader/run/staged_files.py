"""Confirming what a broken run has staged, before it is taken as done."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from unloader.errors import VerifyMismatch
from unloader.model import FinishedUnit
from unloader.storage.base import RunStorage
from unloader.verification.files import Advance, check_bytes, in_parallel
from writers.errors import StoreFailed, Superseded, WriteError

MOST_THREADS = 8
"""Checksums and reads leave the interpreter; more threads than that no disk has use for."""


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
    jobs = [partial(_damage, storage, unit) for unit in finished.values()]
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    texts = in_parallel(jobs, threads, lambda done, amount: tick())
    return {name: wrong for name, wrong in zip(finished, texts, strict=True) if wrong}


def _damage(storage: RunStorage, unit: FinishedUnit, advance: Advance) -> str:
    """Return what is wrong with the files of a unit; empty if nothing is."""
    for file in unit.files:
        try:
            if file.upload is not None:
                storage.compare_upload(file.directory, file.upload)
            else:
                check_bytes(storage.staged_file(file.directory, file.path), file, advance)
        except StoreFailed as error:
            # A store that does not answer now tells nothing of what it has.
            if not isinstance(error, Superseded):
                raise
            return error.message
        except (VerifyMismatch, WriteError) as error:
            return str(getattr(error, "message", error))
    return ""
