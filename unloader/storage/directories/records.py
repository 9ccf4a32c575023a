"""Small files of a `_run`: how they are read, and those by which a run is watched and steered.

STATUS                    how far the run is; replaced as a whole
REQUESTS                  what other processes ask the process of the run for
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unloader.storage.directories.leftovers import Holder
from unloader.storage.storage_protocol import REQUESTS, STATUS, Requests
from writers.files.regular import open_regular, read_regular
from writers.files.staging import PART_SUFFIX


def read_record(room: Path, name: str) -> bytes:
    """Return a file of a `_run`; empty where there is none.

    Raises:
        OSError: It cannot be read.
    """
    try:
        return read_regular(room / name)
    except FileNotFoundError:
        return b""


class Status:
    """The record of how far a run is, in its `_run` wherever that is moved."""

    def __init__(self, room: Path) -> None:
        """Remember where the `_run` is now; it is opened with the first record."""
        self._room = room
        self._descriptor: int | None = None

    def replace(self, data: bytes) -> None:
        """Replace the record, so that readers see the old one or the new.

        Raises:
            OSError: The file system refused.
        """
        # By descriptor: the `_run` has another path once it is exchanged.
        if self._descriptor is None:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._room, flags)
        room, staged = self._descriptor, f"{STATUS}{PART_SUFFIX}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with open(open_regular(staged, flags, dir_fd=room), "wb") as file:
                file.write(data)
            os.replace(staged, STATUS, src_dir_fd=room, dst_dir_fd=room)
        except OSError:
            with suppress(OSError):
                os.unlink(staged, dir_fd=room)
            with suppress(OSError):
                # A sign of life that needs no space.
                os.utime(STATUS, dir_fd=room)
            raise

    def close(self) -> None:
        """Forget the `_run`."""
        if self._descriptor is not None:
            os.close(self._descriptor)


def read_requests(room: Path, holder: Holder) -> Requests:
    """Return what this process of the run is asked for."""
    try:
        # A network file system looks at the server again when a directory is opened.
        if REQUESTS not in os.listdir(room):
            return Requests()
        return Requests.read(read_regular(room / REQUESTS), holder.process)
    except PermissionError:
        return Requests(stop=True)  # It is another user's, who may not have wanted it to be read.
    except OSError:
        return Requests()
