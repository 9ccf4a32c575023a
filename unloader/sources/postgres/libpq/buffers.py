"""Memory that chunks of rows lie in, used again once nobody has a view of it any more.

A buffer of this size is given back to the kernel by the C library as soon as it is freed, and the
next one is made of pages that the kernel has to find and to clear: that took a tenth of the CPU of
a worker that does nothing but pass text on.
"""

from __future__ import annotations

import sys
import threading

_MOST_BYTES = 16 * 1024 * 1024
"""Of all buffers that are remembered; no more than were in use at the same time before."""
_MOST_BUFFERS = 64


def _references(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])


_IDLE = _references([bytearray()], 0)
"""What CPython counts where only the list has it. Each view counts, and each view of a view."""


class Buffers:
    """Buffers of one size, of which some are idle; several threads may take some."""

    def __init__(self) -> None:
        """Begin without any."""
        self._all: list[bytearray] = []
        self._lock = threading.Lock()

    def take(self, least: int, most: int) -> bytearray:
        """Return an idle buffer of `most` bytes, else a new one of `least`; whatever is in it."""
        with self._lock:
            if self._all and len(self._all[0]) != most:
                self._all.clear()
            for index in range(len(self._all)):
                if _references(self._all, index) == _IDLE:
                    return self._all[index]
            buffer = bytearray(least)
            count = len(self._all) + 1
            if least == most and count <= _MOST_BUFFERS and count * most <= _MOST_BYTES:
                self._all.append(buffer)
            return buffer


BUFFERS = Buffers()
"""Those of this process."""
