"""The first cell of a file, where it begins with U+FEFF.

Readers take that character for a byte order mark at the start of a file, and drop it. They keep it
in an enclosure, so the cell is enclosed. A format that cannot enclose refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from writers.errors import ValueNotRepresentable
from writers.model import TextFormat
from writers.text.marks import overlaps_itself
from writers.text.output_encoding import OutputEncoding

if TYPE_CHECKING:
    import pyarrow as pa

BYTE_ORDER_MARK = "\ufeff"


class FirstCell:
    """Passes the text of one file on, and encloses its first cell where that is needed.

    Args:
        format: A checked one.
        column: Name of the first column, for the error.
    """

    def __init__(self, format: TextFormat, column: str) -> None:
        self._format = format
        self._column = column
        encoding = OutputEncoding(format.encoding)
        unicode = encoding.holds_all and not format.record_length_digits
        self._mark = encoding.encode(BYTE_ORDER_MARK) if unicode else b""
        self._enclosure = encoding.encode(format.enclosure)
        self._ends = [encoding.encode(end) for end in (format.delimiter, format.eol) if end]
        self._width = len(encoding.encode(" "))
        self._kept = max(map(len, self._ends), default=0) - self._width
        """Bytes of the cell that may begin one of its ends."""
        self._held = b""
        self._is_inside = False
        self.is_over = not unicode
        """Whether all further text is passed on as it is."""

    def concerns(self, batch: pa.RecordBatch) -> bool:
        """Tell whether the first value of a batch begins with U+FEFF."""
        from pyarrow import types

        column = getattr(batch.column(0), "storage", batch.column(0))
        kind = column.type
        if types.is_dictionary(kind):
            kind = kind.value_type
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
            return False
        value = column[0].as_py()
        return value is not None and value.startswith(BYTE_ORDER_MARK)

    def passed(self, text: bytes) -> bytes:
        """Return what is written of the next bytes; some may be kept until the next call.

        Raises:
            ValueNotRepresentable: The cell has to be enclosed, and cannot be.
        """
        if self.is_over:
            return text
        text, self._held = self._held + text, b""
        if self._is_inside:
            return self._ended(text)
        if not text.startswith(self._mark):
            if self._mark.startswith(text):
                self._held = text
                return b""
            self.is_over = True
            return text
        if not self._enclosure or overlaps_itself(self._format.enclosure):
            raise ValueNotRepresentable(
                f"column {self._column}, row 1: the first value of the file begins with U+FEFF, "
                "which readers drop at the start of a file.",
                "use --header, or --enclose minimal with an --enclosure of one character.",
            )
        self._is_inside = True
        return self._enclosure + self._ended(text)

    def rest(self) -> bytes:
        """Return what is still kept at the end of the file."""
        self.is_over = True
        return self._held

    def _ended(self, text: bytes) -> bytes:
        """Return a part of the cell, with the enclosure at its end if that is in it."""
        end = self._end_in(text)
        if end < 0:
            cut = max(0, len(text) - self._kept)
            self._held = text[cut:]
            return text[:cut]
        self.is_over = True
        return b"".join((text[:end], self._enclosure, text[end:]))

    def _end_in(self, text: bytes) -> int:
        """Return where the cell ends; a bare one holds no end. -1: later."""
        found = []
        for end in self._ends:
            at = text.find(end)
            while at % self._width and at >= 0:
                at = text.find(end, at + 1)
            found.append(at)
        return min((at for at in found if at >= 0), default=-1)
