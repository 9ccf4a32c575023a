"""Fields of delimited text in any dialect: a slow reader for those that pyarrow's does not know.

It follows the description of the dialects and none of the writer's code. A record that the text
ends in the middle of is read again once there is more.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from msgspec import Struct

from writers.errors import WriteError
from writers.model import TextFormat

Field = str | None
"""A value's text, None for NULL."""

_CODES = {"n": "\n", "t": "\t", "r": "\r"}
_PIECE = 1 << 20

_ENDS_WITHIN = "the text ends within a record."


class _Incomplete(WriteError):
    """The text ends before the record does."""


class Records(Struct):
    """Reads records out of pieces of text.

    Args:
        format: The dialect.
        columns: Fields of a record.
    """

    format: TextFormat
    columns: int
    _text: str = ""
    _at: int = 0
    _whole: bool = False
    """All pieces have come."""

    def read(self, pieces: Iterator[str]) -> Iterator[list[Field]]:
        """Yield the fields of each record, the header among them.

        A record that has not ended is read again once there is twice as much of it, so the time
        grows with its size and not with the square of it.

        Raises:
            ValueError: The text is not of the dialect.
        """
        waiting: list[str] = []
        size = 0
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= len(self._text):
                yield from self._ready(waiting)
                waiting, size = [], 0
        self._whole = True
        yield from self._ready(waiting)
        if self._text:
            raise ValueError("the last record has no end")

    def _ready(self, pieces: list[str]) -> Iterator[list[Field]]:
        """Yield the records that end in the text and some further pieces, and keep the rest."""
        self._text, self._at = "".join((self._text, *pieces)), 0
        while self._at < len(self._text):
            start = self._at
            try:
                record = self._record()
            except _Incomplete:
                self._text, self._at = self._text[start:], 0
                return
            yield record
        self._text, self._at = "", 0

    def _record(self) -> list[Field]:
        format = self.format
        self._at += format.record_length_digits
        fields = []
        for column in range(self.columns):
            last = column == self.columns - 1 and not format.trailing_delimiter
            fields.append(self._field(format.eol if last else format.delimiter))
        if format.trailing_delimiter:
            self._skip(format.eol)
        return fields

    def _field(self, end: str) -> Field:
        mark = self.format.enclosure
        if mark and self.format.enclose != "none" and self._is_next(mark):
            self._at += len(mark)
            value = self._enclosed(mark)
            self._skip(end)
            return value
        return self._bare(end)

    def _is_next(self, mark: str) -> bool:
        if not self._whole and len(self._text) - self._at < len(mark):
            raise _Incomplete(_ENDS_WITHIN)
        return self._text.startswith(mark, self._at)

    def _skip(self, mark: str) -> None:
        if not self._is_next(mark):
            if self._whole and self._at >= len(self._text):
                raise _Incomplete(_ENDS_WITHIN)
            raise ValueError(f"{mark!r} is missing after a value")
        self._at += len(mark)

    def _find(self, mark: str, start: int) -> int:
        found = self._text.find(mark, start)
        if found < 0:
            raise _Incomplete(_ENDS_WITHIN)
        return found

    def _enclosed(self, mark: str) -> str:
        start = self._at
        if self.format.escape == "backslash":
            end, value = self._unescaped(start, mark)
            self._at = end + len(mark)
            return value
        text = io.StringIO()
        while True:
            end = self._find(mark, start)
            text.write(self._text[start:end])
            self._at = end + len(mark)
            if self.format.escape != "double" or not self._is_next(mark):
                return text.getvalue()
            text.write(mark)
            start = self._at + len(mark)

    def _bare(self, end: str) -> Field:
        start = self._at
        if self.format.escape == "backslash":
            stop, value = self._unescaped(start, end)
        else:
            stop = self._find(end, start)
            value = self._text[start:stop]
        self._at = stop + len(end)
        return None if self._text[start:stop] == self.format.null else value

    def _unescaped(self, start: int, end: str) -> tuple[int, str]:
        r"""Return the place of the first mark without a backslash before it, and the value."""
        value = io.StringIO()
        stop = self._find(end, start)
        while (escape := self._text.find("\\", start, stop)) >= 0:
            following = self._text[escape + 1]
            value.write(self._text[start:escape])
            value.write(_CODES.get(following, following))
            start = escape + 2
            if start > stop:
                stop = self._find(end, start)
        value.write(self._text[start:stop])
        return stop, value.getvalue()
