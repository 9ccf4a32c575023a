"""Reads one of the kernel's small files. Never hangs, never reads without end."""

import os
import stat
from pathlib import Path

from numa.errors import TopologyError

# The longest that is read is the mount table of a host full of containers: some 100 KB. A row of
# 1,024 distances is 4 KB.
_MOST_BYTES = 1 << 22


def text_of(path: str | Path) -> str | None:
    """Return the file's text, None if there is no such file.

    What cannot be read (no permission, a folder, a pipe, a device that went away) counts as not
    there: every caller must be able to do without it.

    Raises:
        TopologyError: The file is larger than 4 MiB, which no file of the kernel's is.
    """
    try:
        # A named pipe in a copied tree would block an ordinary open for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = bytearray()
        while piece := os.read(descriptor, 1 << 16):
            data += piece
            if len(data) > _MOST_BYTES:
                raise TopologyError(
                    f"{path} is larger than {_MOST_BYTES} bytes: it is not a file of the kernel.",
                    "run with --numa off, or give a folder with the layout of /sys/devices/system.",
                )
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("utf-8", errors="replace")


def not_understood(path: str | Path, wanted: str, text: str) -> TopologyError:
    """Return the error for a file that holds something else than what is wanted."""
    return TopologyError(
        f"{path} does not contain a {wanted}: {text.strip()[:80]!r}.",
        "run with --numa off, or report the file's text.",
    )
