"""What a process loads before workers are forked from it, and how its libraries are kept quiet."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unloader.model import Preload

ENTRY = "unloader.worker.process:work"
"""The function that does the tasks of a worker."""


def keep_single() -> None:
    """Have no library start threads of its own; before any of them is loaded."""
    # A library for linear algebra that Arrow may load starts a thread for each CPU, which nobody
    # here needs; where it is refused one it interrupts the program as Ctrl-C would.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The same of an allocator that Arrow has beside the one in use.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def load_for_machines(wanted: Preload) -> None:
    """Load what workers of a cluster need, who look at the places of the run."""
    load_for_workers(wanted)
    with suppress(Exception):
        from unloader.storage.opening import storage_at
        from unloader.storage.seeing import check_seen  # noqa: F401

        for each in wanted.stores or ("",):
            storage_at(f"{each}://bucket" if each else ".")


def load_for_workers(wanted: Preload) -> None:
    """Load what workers need. What cannot be loaded is an error where it is needed."""
    keep_single()
    with suppress(Exception):
        import_module(ENTRY.partition(":")[0])
        from unloader.sources.registry import source_of
        from writers.registry import load

        for each in wanted.formats:
            load(each)
        source_of(wanted.source_kind).load()
    with suppress(Exception):
        if "s3" in wanted.stores:
            from writers.objects.s3 import load as load_s3

            load_s3()
