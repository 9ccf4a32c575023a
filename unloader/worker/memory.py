"""The special settings of a worker's process: how it manages memory, and its peak use.

All settings here were measured on the reference table; none of them changes the written files.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_ALLOCATION = (
    ("MALLOC_ARENA_MAX", -8, 1),
    # What asyncio reads from a socket at a time.
    ("MALLOC_MMAP_THRESHOLD_", -3, 256 * 1024),
    # A few batches of usual rows, without the buffers that are mapped.
    ("MALLOC_TRIM_THRESHOLD_", -1, 8 * 1024 * 1024),
)
"""The user's possible settings, and the request to `mallopt` without them: the option's number in
glibc's malloc.h, and its value."""
_YOUNG_OBJECTS = 50_000


def keep_single() -> None:
    """Keep libraries from starting threads: a process with threads cannot be forked."""
    # A library for linear algebra that Arrow may load starts a thread for each CPU. Where it is
    # refused one, it interrupts the program as Ctrl-C would.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # An allocator that Arrow has beside the one in use.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def tune() -> None:
    """Settle how memory is managed; called before Arrow is imported and before there are threads.

    Arrow has a separate allocator: in the C library's heap, its pieces and the drivers' pieces left
    more and more gaps between each other. The C library keeps one heap for all threads, and in it
    no piece of 256 KiB or more: a wide row that came in such pieces took twice its size. It gives
    the end of its heap back once 8 MiB are free there. At the usual 128 KiB, the kernel had to
    clear memory again for each batch of a driver that takes its buffers from the heap. The garbage
    collector looks seldom: fetched rows hold no cycles, and the search for cycles took 3 % of the
    CPU.
    """
    keep_single()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    for variable, option, value in _ALLOCATION:
        if variable not in os.environ:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).mallopt(option, value)
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


_PIECE_BYTES = 4 * 1024 * 1024


def keep_pieces() -> None:
    """Keep memory for pieces of large objects in the heap, where the next piece finds it.

    libpq allocates each row. With rows of 1 MB, memory that the kernel has to clear again took 1.4
    times the CPU.
    """
    with suppress(OSError, AttributeError):
        for _, option, _ in _ALLOCATION[1:]:
            ctypes.CDLL(None).mallopt(option, _PIECE_BYTES)


def peak_rss_bytes() -> int:
    """Return the peak of resident memory; `ru_maxrss` would begin with the parent's size."""
    with suppress(OSError):
        if found := _PEAK.search(_STATUS.read_bytes()):
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
