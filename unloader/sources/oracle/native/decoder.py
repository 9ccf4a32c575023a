"""One statement's rows on their way out of the server's responses, through the library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pyarrow as pa

from unloader.sources.oracle.native.library import Description, Progress, library
from writers.built_library import ArrowArray

NO_MORE_ROWS = 1403
"""The server's error number at the end of the rows."""

_NO_MEMORY = -1
_MOMENT = 6
_REASONS = {
    1: "a packet has an impossible length",
    2: "a message arrived where its kind is not allowed",
    3: "a bit vector contradicts itself or the row after it",
    4: "a value is longer than its column",
    5: "the bytes of a value do not fit its type",
    _MOMENT: "a date is outside the years 1 to 9999, or does not exist in the Gregorian calendar",
    7: "more rows arrived than were requested",
    8: "the response ended within its rows",
    9: "the server's count of rows differs from the rows that arrived",
    10: "text is not UTF-8",
}
"""Why a response was refused: `Refusal` in `response.h`."""


class Refused(Exception):
    """A response that is not read natively; nothing of it may be used.

    Attributes:
        reason: Why, as a part of a sentence.
        column: Index of the column with the value, -1 if it is not about one.
        is_moment: It is a date that timestamps of this program cannot hold.
    """

    def __init__(self, reason: str, column: int = -1, *, is_moment: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column
        self.is_moment = is_moment


class RowDecoder:
    """Decodes the responses to the fetches of one statement, one after the other.

    Args:
        columns: What is known of each column.

    Raises:
        Unusable: The library cannot be used.
        MemoryError: There is no memory for it.
    """

    def __init__(self, columns: Sequence[Description]) -> None:
        self._library = library()
        self._count = len(columns)
        self._progress = Progress()
        self._pointer = ctypes.c_void_p()
        self._decoder: int | None = self._library.unloader_fetch_open(
            (Description * len(columns))(*columns), len(columns)
        )
        if self._decoder is None:
            raise MemoryError("not enough memory to decode rows")

    def __del__(self) -> None:
        if getattr(self, "_decoder", None):
            self._library.unloader_fetch_close(self._decoder)

    def begin(self, most_rows: int) -> None:
        """Expect the response to a fetch of as many rows at most; rows not taken are gone."""
        self._check(self._library.unloader_fetch_begin(self._decoder, most_rows))

    def feed(self, received: memoryview | bytes) -> None:
        """Take bytes as they came from the server.

        Raises:
            Refused: They are not what they should be.
        """
        size = len(received)
        if isinstance(received, bytes):
            status = self._library.unloader_fetch_feed(self._decoder, received, size)
        else:
            # One byte stands for all: an array type of each size would be a class of its own.
            start = ctypes.addressof(ctypes.c_char.from_buffer(received))
            status = self._library.unloader_fetch_feed(self._decoder, start, size)
        self._check(status)

    def passed_on(self) -> bytes:
        """Return the bytes that are for the driver, each of them once; empty if there are none."""
        size = self._library.unloader_fetch_output(self._decoder, ctypes.byref(self._pointer))
        if not size:
            return b""
        found = ctypes.string_at(self._pointer.value or 0, size)
        self._library.unloader_fetch_passed(self._decoder)
        return found

    def partial(self) -> bytes:
        """Return what came of a packet that is not whole yet."""
        size = self._library.unloader_fetch_partial(self._decoder, ctypes.byref(self._pointer))
        return ctypes.string_at(self._pointer.value or 0, size) if size else b""

    def finish(self) -> Progress:
        """Check a response that the driver has read to its end; return how far the rows are.

        Raises:
            Refused: It is not whole, or the server counts other rows.
        """
        self._check(self._library.unloader_fetch_finish(self._decoder))
        return self._now()

    def take(self, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the rows of the response, an array for each column.

        Args:
            kinds: The columns' types.
        """
        arrays = (ArrowArray * self._count)()
        self._check(self._library.unloader_fetch_take(self._decoder, arrays))
        size = ctypes.sizeof(ArrowArray)
        start = ctypes.addressof(arrays)
        return [
            pa.Array._import_from_c(start + index * size, kind) for index, kind in enumerate(kinds)
        ]

    def _now(self) -> Progress:
        self._library.unloader_fetch_progress(self._decoder, ctypes.byref(self._progress))
        return self._progress

    def _check(self, status: int) -> None:
        if status == 0:
            return
        if status == _NO_MEMORY:
            raise MemoryError("not enough memory to decode rows")
        raise Refused(_REASONS[status], self._now().column, is_moment=status == _MOMENT)
