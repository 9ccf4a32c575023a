"""Named pipes: making them, opening them for a reader that may not be there yet.

A pipe cannot be opened for writing before a program reads it. Closing it again would end the data
for the reader, so an open descriptor is kept until all is written.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from unloader.errors import OutputFailed

_POLL_SECONDS = 0.05


class Fifos:
    """The named pipes of one run; `close` removes the pipes that the run made."""

    def __init__(self) -> None:
        """Begin with none."""
        self._made: list[tuple[Path, int]] = []

    def provide(self, path: Path) -> None:
        """Make a named pipe, or take the one that is there.

        Raises:
            OutputFailed: Something else is there, or it cannot be made.
        """
        try:
            if not stat.S_ISFIFO(path.stat().st_mode):
                raise OutputFailed(
                    f"{path} already exists and is not a named pipe",
                    "move it away, or give another name after pipe:",
                )
            return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused(path, error) from error
        try:
            os.mkfifo(path)
            self._made.append((path, path.stat().st_ino))
        except OSError as error:
            raise _refused(path, error) from error

    def close(self) -> None:
        """Remove the pipes made here; never raises."""
        for path, inode in self._made:
            try:
                if path.lstat().st_ino == inode:
                    path.unlink()
            except OSError:
                continue
        self._made.clear()


def open_for_reader(path: str, seconds: float, waiting: Callable[[], None]) -> int:
    """Open a named pipe for writing as soon as a program has opened it for reading.

    Args:
        path: The pipe.
        seconds: Longest wait; 0 sets no limit.
        waiting: Called many times a second until then; an error ends the wait.

    Returns:
        A descriptor that does not block and is not inherited.

    Raises:
        OutputFailed: No program opened it in time, or it cannot be opened.
    """
    begun = time.monotonic()
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise _refused(Path(path), error) from error
        if seconds and time.monotonic() - begun >= seconds:
            raise OutputFailed(
                f"no program opened the pipe {path} for reading within {seconds:g} s",
                "start the reader before or together with unloader, or increase --pipe-timeout",
            )
        waiting()
        time.sleep(_POLL_SECONDS)


def _refused(path: Path, error: OSError) -> OutputFailed:
    return OutputFailed(
        f"cannot use the pipe {path}: {error.strerror or error}",
        "check the path and its permissions; its directory must exist",
    )
