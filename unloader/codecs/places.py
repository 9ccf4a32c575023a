"""Where a sample is put while it is measured, and which disks a run would write to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unloader.model import OutputOptions
from unloader.storage.kinds import destination_kind
from unloader.storage.opening import storage_at

_SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def scratch(wanted_bytes: int) -> Iterator[str]:
    """Yield a directory for passing files, in memory if there is room: they tell rows."""
    base: str | None = None
    try:
        room = os.statvfs(_SHARED_MEMORY)
        if room.f_bavail * room.f_frsize >= wanted_bytes and os.access(_SHARED_MEMORY, os.W_OK):
            base = str(_SHARED_MEMORY)
    except OSError:
        base = None
    with tempfile.TemporaryDirectory(prefix="unloader-sample-", dir=base) as directory:
        yield directory


def disks_of(output: OutputOptions) -> tuple[str, ...]:
    """Return a directory on each disk that is written to, existing ones in place of new ones.

    Without a destination that is the current directory. Empty if anything but a directory is among
    them (the speed of a pipe is that of its reader), or one that the run will be refused, too.
    """
    destinations = output.destinations if output.destination else (".",)
    if destination_kind(destinations) != "directories":
        return ()
    found: dict[int, str] = {}
    for place in destinations:
        disk = storage_at(place).disk(place)
        if disk is None:
            return ()
        found.setdefault(disk.number, disk.directory)
    return tuple(found.values())
