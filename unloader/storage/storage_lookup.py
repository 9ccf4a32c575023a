"""The storage of a place, and whether another machine sees the same place."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import RUN_RECORD
from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.storage.storage_protocol import Storage

_VISIBLE_SECONDS = 5.0
"""A network file system may show a file to other machines only after a while (a guess)."""


def storage_at(place: str) -> Storage:
    if is_location(place):
        from unloader.storage.objects.object_storage import ObjectStorage

        return ObjectStorage()

    return LocalDirectories()


def unreadable(place: str, error: OSError) -> OutputFailed:
    named = f"{error.filename}: " if error.filename else ""
    return OutputFailed(
        f"cannot read what a run left in {place}: {named}{error.strerror or error}",
        f"restore that file and check its permissions; or move {place}/_run away, and unload again",
    )


def check_seen(places: Iterable[str], run_id: str) -> None:
    """Check that this machine sees the records of a run in each of its places."""
    until = time.monotonic() + _VISIBLE_SECONDS
    for place in places:
        storage = storage_at(place)
        while True:
            # The id is in the lock of a directory, and in the record of the run.
            with suppress(OSError):
                if any(run_id.encode() in storage.record(place, n) for n in ("lock", RUN_RECORD)):
                    break
            if time.monotonic() > until:
                raise OutputFailed(
                    f"{place} on {socket.gethostname()} is not the same place as on the "
                    "machine of the run: it does not show the files of the run",
                    "give a destination that all machines of the cluster share: an object store, "
                    "or a network file system with the same mount point on every machine",
                )
            time.sleep(0.2)
