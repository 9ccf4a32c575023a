"""Tells whether the run of another machine lives, where a lock does not say so.

A lock of the file system decides on one machine, and over NFS with a lock service. Some network
file systems keep locks to themselves on each machine. Then the only sign of life is the record of
how far the run is, which the run replaces about once a second.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unloader.storage.machine import boot_id, host_name
from writers.files.regular import open_regular

WATCH_SECONDS = 10.0
"""A run that has shown nothing for so long is dead. It shows itself about every second; a busy
machine or a slow server may delay that by seconds."""

_LOOK_SECONDS = 0.25


def is_elsewhere(host: str, boot: str) -> bool:
    """Tell whether what was written under these names was written under another kernel.

    Where nothing is known, as of an earlier version, the lock alone decides.
    """
    if boot and boot_id():
        return boot != boot_id()
    return bool(host) and host != host_name()


def is_replaced(records: Sequence[Path], run_id: str) -> bool:
    """Watch records of how far a run is; tell whether one of them is replaced meanwhile.

    Args:
        records: Where the run may keep it.
        run_id: The run; the record of another one there tells nothing.
    """
    known: dict[Path, object] = {}
    # Looks are counted: in a time in which this machine stands still there are none.
    for waits in range(1 + math.ceil(WATCH_SECONDS / _LOOK_SECONDS)):
        if waits:
            time.sleep(_LOOK_SECONDS)
        for path in records:
            state = _state(path, run_id)
            # What cannot be read for a moment is no sign of life when it can be again.
            if state is not None and known.setdefault(path, state) != state:
                return True
    return False


def _state(record: Path, run_id: str) -> object:
    with suppress(OSError, ValueError, KeyError, TypeError):
        # A network file system looks at the server again when a directory is opened.
        os.listdir(record.parent)
        with open(open_regular(record), "rb") as file:
            document = json.load(file)
            # A run on a full disk only gives its record another time.
            state = os.fstat(file.fileno()).st_mtime_ns, document["sequence"]
        return state if document["run_id"] == run_id else None
    return None
