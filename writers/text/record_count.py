"""Counts the records of text that comes ready from the source, while it passes through.

The source of the text says how many records it has. Counted here, from the bytes that are written,
the number is independent of that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress

from writers.built_library import Unusable
from writers.native.library import library

_WINDOW_BYTES = 1 << 20
"""Of a larger text so much is copied at a time where it has to be."""


class RecordCounter:
    """Counts line ends outside enclosures, whatever pieces the text comes in.

    Args:
        enclosure: One byte; inside a value it is doubled. Records end in a line feed.
    """

    def __init__(self, enclosure: bytes) -> None:
        self.records = 0
        self._enclosure = enclosure
        self._inside = ctypes.c_uint8(0)
        self._native: Callable[..., int] | None = None
        with suppress(Unusable):
            self._native = library().unloader_count_records

    def add(self, text: bytes | bytearray | memoryview) -> None:
        """Count the records that end in a text, which goes on where the last one ended."""
        if self._native is not None and not (isinstance(text, memoryview) and text.readonly):
            inside = ctypes.byref(self._inside)
            where = text if isinstance(text, bytes) else (ctypes.c_char * 0).from_buffer(text)
            self.records += self._native(where, len(text), self._enclosure, inside)
            return
        for start in range(0, len(text), _WINDOW_BYTES):
            self._add(bytes(text[start : start + _WINDOW_BYTES]))

    def _add(self, text: bytes) -> None:
        if self._native is not None:
            self.add(text)
            return
        parts = text.split(self._enclosure)
        outside = parts[self._inside.value :: 2]
        self.records += sum(part.count(b"\n") for part in outside)
        self._inside.value = (self._inside.value + len(parts) - 1) % 2
