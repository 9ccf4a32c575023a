"""Fields of delimited text in any dialect: a slow reader for those that pyarrow's does not know.

It follows the description of the dialects and none of the writer's code. A record that the text
ends in the middle of is read again once there is more.
"""

from __future__ import annotations

from collections.abc import Iterator

from writers.errors import WriteError
from writers.model import TextFormat
from writers.records import dataclass

Field = str | None
"""A value's text, None for NULL."""

_CODES = {"n": "\n", "t": "\t", "r": "\r"}
_PIECE = 1 << 20

_ENDS_WITHIN = "the text ends within a record."


class _Incomplete(WriteError):
    """The text ends before the record does."""


@dataclass(slots=True)
class Records:
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

        Raises:
            ValueError: The text is not of the dialect.
        """
        for piece in pieces:
            self._text, self._at = self._text[self._at :] + piece, 0
            yield from self._ready()
        self._whole = True
        yield from self._ready()
        if self._at != len(self._text):
            raise ValueError("the last record has no end")

    def _ready(self) -> Iterator[list[Field]]:
        while self._at < len(self._text):
            start = self._at
            try:
                record = self._record()
            except _Incomplete:
                self._at = start
                return
            yield record

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
            raise ValueError(f"{mark!r} is missing behind a value")
        self._at += len(mark)

    def _find(self, mark: str, start: int) -> int:
        found = self._text.find(mark, start)
        if found < 0:
            raise _Incomplete(_ENDS_WITHIN)
        return found

    def _enclosed(self, mark: str) -> str:
        escape = self.format.escape
        start = self._at
        parts: list[str] = []
        while True:
            if escape == "backslash":
                end, part = self._unescaped(start, mark)
                self._at = end + len(mark)
                return part
            end = self._find(mark, start)
            parts.append(self._text[start:end])
            self._at = end + len(mark)
            if escape != "double" or not self._is_next(mark):
                return "".join(parts)
            parts.append(mark)
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
        r"""Return where a mark stands that no backslash is in front of, and the value before it."""
        parts: list[str] = []
        while True:
            stop, escape = self._find(end, start), self._text.find("\\", start)
            if escape < 0 or escape > stop:
                return stop, "".join((*parts, self._text[start:stop]))
            if escape + 1 >= len(self._text):
                raise _Incomplete(_ENDS_WITHIN)
            following = self._text[escape + 1]
            parts += (self._text[start:escape], _CODES.get(following, following))
            start = escape + 2
