"""The standard streams, made safe: a cron job or a daemon may start us without them, or full.

Otherwise a file or a connection of the program would become descriptor 1 or 2, and receive text for
the terminal.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from unloader.redaction import guard_streams

NAMES = ("stdin", "stdout", "stderr")
"""By file descriptor."""

_closed: set[int] = set()


def make_ready() -> None:
    """Point closed standard streams at nothing, let every character be written, and no password.

    Descriptors are opened for child processes, too. Call it before anything else opens a file.
    """
    for descriptor, name in enumerate(NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            _closed.add(descriptor)
            # The lowest free descriptor is this one: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A name in the database may not exist in the terminal's character set.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    guard_streams()


def was_closed(descriptor: int) -> bool:
    """Return whether the program was started without this standard stream."""
    return descriptor in _closed


def give_up(stream: TextIO) -> None:
    """Stop writing to a stream: its buffered text is dropped.

    The interpreter flushes the streams once more at its end, and would complain.
    """
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
