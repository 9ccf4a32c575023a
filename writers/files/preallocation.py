"""Taking a growing file's space in large steps, so that it lies together and is mapped at once."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_SMALLEST_BYTES = 4 * 1024 * 1024
_LARGEST_BYTES = 64 * 1024 * 1024

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE, fallocate(2): the length stays that of what was written


class Preallocation:
    """The space behind the end of one file.

    A step is as large as the file already is, within limits: a small file takes little that it
    may not need, which on a nearly full disk others would lack. It is no error when there is
    not so much space or no such call; the writes themselves tell what is wrong.

    Args:
        descriptor: Of the file, which begins empty.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reserved = 0
        self._call = _fallocate()

    def reserve(self, size: int) -> None:
        """Have space for a file of `size` bytes, and some to spare."""
        if self._call is None or size <= self._reserved:
            return
        step = min(max(self._reserved, _SMALLEST_BYTES), _LARGEST_BYTES)
        wanted = max(size, self._reserved + step)
        if self._call(self._descriptor, _KEEP_SIZE, self._reserved, wanted - self._reserved) == 0:
            self._reserved = wanted
        else:
            self._call = None

    def release(self, size: int) -> None:
        """Give back what lies behind `size`, the length of the file.

        Raises:
            OSError: The file system refused.
        """
        if self._reserved > size:
            os.ftruncate(self._descriptor, size)
            self._reserved = size


@cache
def _fallocate() -> Any:
    try:
        call = ctypes.CDLL(None).fallocate64
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call.restype = ctypes.c_int
    return call
