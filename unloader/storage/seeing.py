"""Whether this machine sees the places of a run that another machine has taken."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable

from unloader.errors import OutputFailed
from unloader.storage.model import RUN_RECORD
from unloader.storage.opening import storage_at

_TOKENS = ("lock", RUN_RECORD)
"""Records with the id of the run: of a directory each one's lock, of an object store that of the
run, which is looked for where the lock says."""

_SECONDS = 5.0
"""A network file system may show a file to other machines only after a while (guess)."""


def check_seen(places: Iterable[str], run_id: str) -> None:
    """Look for what the run has written into each of its places.

    Args:
        places: As the run has taken them.
        run_id: No other run has it.

    Raises:
        OutputFailed: It is not there.
    """
    until = time.monotonic() + _SECONDS
    for place in places:
        while not _is_seen(place, run_id.encode()):
            if time.monotonic() > until:
                raise OutputFailed(
                    f"{place} on {socket.gethostname()} is not the same place as on the "
                    "machine of the run: it does not show the files of the run",
                    "give a destination that all machines of the cluster share: an object store, "
                    "or a network file system with the same mount point on every machine",
                )
            time.sleep(0.2)


def _is_seen(place: str, token: bytes) -> bool:
    storage = storage_at(place)
    try:
        return any(token in storage.record(place, name) for name in _TOKENS)
    except OSError:
        return False
