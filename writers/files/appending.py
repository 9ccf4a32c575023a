"""Bytes at the end of an open file, by single system calls.

Errors are those of the operating system, as it raises them.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from writers.codecs.compression import BytesLike

_MOST_PIECES = 1024  # IOV_MAX of Linux, limits.h


def rest_after(pieces: Sequence[BytesLike], count: int) -> list[BytesLike]:
    """Return what is left of the pieces once `count` bytes of them are gone."""
    rest: list[BytesLike] = []
    for piece in pieces:
        view = memoryview(piece)
        if count < view.nbytes:
            rest.append(view[count:])
        count = max(0, count - view.nbytes)
    return rest


def write_some(descriptor: int, pieces: Sequence[BytesLike]) -> int:
    """Write the beginning of the pieces with one call; return the bytes it took, at least 1.

    Raises:
        OSError: The call failed, or took nothing.
    """
    if len(pieces) == 1:
        count = os.write(descriptor, pieces[0])
    else:
        count = os.writev(descriptor, pieces[:_MOST_PIECES])
    if count == 0:
        raise OSError(errno.EIO, "nothing was written")
    return count


def sync(descriptor: int, path: Path) -> None:
    """Have a file on its device, under its name.

    Raises:
        OSError: The device failed, or nothing has that name any more.
    """
    os.fsync(descriptor)
    os.stat(path)  # A file unlinked meanwhile can be synced, but is lost.
