"""The reusable buffers that lie between a producer of bytes and the threads behind it."""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from writers.codecs.compression import BytesLike

_HOLD_BYTES = 8 * 1024
"""Pieces from this size on are held, not copied: measured, a copy costs more than a call."""


class Buffer:
    """A number of bytes on their way: in memory of its own, and in objects of others.

    The memory is anonymous and starts at a page. The kernel gives it out as it is filled, so a
    buffer that only holds other people's objects takes none.

    Args:
        capacity: Bytes it takes at most, its own and held ones together.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # By default Python would map shared memory, which belongs to a file system of its own.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=flags))
        self._pieces: list[memoryview] = []
        self._begun = self._used = 0
        self.filled = 0
        """Bytes in it."""

    @property
    def is_full(self) -> bool:
        """Whether it takes no further byte."""
        return self.filled == self.capacity

    def room(self) -> memoryview:
        """Return the memory that the next bytes go to: as much as the buffer still takes."""
        return self._memory[self._used : self._used + self.capacity - self.filled]

    def advance(self, count: int) -> None:
        """Take the first `count` bytes of `room` for filled.

        Raises:
            ValueError: There is not that much room.
        """
        if not 0 <= count <= self.capacity - self.filled:
            raise ValueError(f"{count} bytes do not fit {self.capacity - self.filled} bytes")
        self._used += count
        self.filled += count

    def take(self, data: memoryview, *, hold: bool) -> int:
        """Take as many of the bytes as fit.

        Args:
            data: A view of single bytes.
            hold: Large pieces may be kept as they are; they must not change then until `reset`.

        Returns:
            How many bytes were taken.
        """
        count = data.nbytes
        if count > self.capacity - self.filled:
            count = self.capacity - self.filled
            data = data[:count]
        if hold and count >= _HOLD_BYTES:
            self._end_piece()
            self._pieces.append(data)
        else:
            end = self._used + count
            self._memory[self._used : end] = data
            self._used = end
        self.filled += count
        return count

    def pieces(self) -> list[BytesLike]:
        """Return what is in it, in order; one piece where nothing is held."""
        self._end_piece()
        return list(self._pieces)

    def reset(self) -> None:
        """Empty it and let go of held objects."""
        self._pieces.clear()
        self._begun = self._used = self.filled = 0

    def _end_piece(self) -> None:
        if self._used > self._begun:
            self._pieces.append(self._memory[self._begun : self._used])
            self._begun = self._used


class Ring:
    """A fixed number of buffers, made when they are first needed, used again and again.

    It has no lock: a caller with several threads brings one. Buffers of a ring that is no
    longer used serve the next one of this process.

    Args:
        buffers: How many there are.
        capacity: Bytes of each.
    """

    def __init__(self, buffers: int, capacity: int) -> None:
        self._capacity = capacity
        self._unmade = buffers
        self._free: list[Buffer] = []

    @property
    def has_free(self) -> bool:
        """Whether `take` has a buffer to give."""
        return bool(self._free or self._unmade)

    def take(self) -> Buffer:
        """Return an empty buffer, the one used last where there is a choice."""
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        return _spare_buffer(self._capacity) or Buffer(self._capacity)

    def give_back(self, buffer: Buffer) -> None:
        """Empty a buffer and have it free again."""
        buffer.reset()
        self._free.append(buffer)

    def retire(self) -> None:
        """Leave the free buffers to the next ring; this one must not be used any more."""
        with _lock:
            # Another size is not asked for again by the same run.
            kept = [each for each in _spare if each.capacity == self._capacity]
            _spare[:] = (kept + self._free)[:_MOST_SPARE]
        self._free = []


_MOST_SPARE = 4
"""Buffers that lie idle between two files at most, the default number of a ring."""

_spare: list[Buffer] = []
"""Measured: memory that the kernel gives out anew costs a tenth of the CPU of encoding into it."""

_lock = threading.Lock()


def _spare_buffer(capacity: int) -> Buffer | None:
    with _lock:
        if _spare and _spare[-1].capacity == capacity:
            return _spare.pop()
    return None
