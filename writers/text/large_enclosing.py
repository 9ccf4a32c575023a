"""The rules of `writers.text.enclosing` for one value in pieces; the bytes are the same.

Where only some values are enclosed (`minimal`) a value is read once before it is written, up to
where that is decided. A refusal may come in the middle of a record: the file is given up then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from writers.model import TextFormat
from writers.text.large_texts import Pieces, replaced
from writers.text.marks import (
    bare_escapes,
    behind_bare,
    enclosed_escapes,
    enclosed_for,
    forbidden_bare,
    holds_bare,
    holds_enclosure,
    holds_refused,
    meets_bare,
    meets_enclosure,
    not_bare,
    protected_null,
    reads_as_null,
    refused_anywhere,
    runs_into,
)
from writers.text.refusals import Place


class LargeEnclosing:
    """The rules of one format.

    Args:
        format: A checked one.
        single: Whether records have one field only.
    """

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        self._backslash = format.escape == "backslash"
        self._not_bare = not_bare(format, single=single)
        self._refused = refused_anywhere(format)

    def cell(
        self, pieces: Pieces, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> Pieces:
        """Return the text as it stands between two delimiters, the enclosure included.

        Args:
            pieces: The text of one value that is not NULL.
            place: Named when the value is refused, of an array of this value alone.
            always: Enclose it in any case.
            alphabet: Characters the text is made of, None if any.

        Returns:
            Reads the final text; may raise `ValueNotRepresentable` at any piece.
        """
        if self._refused:
            pieces = partial(self._allowed, pieces, place)
        if self._format.enclose == "none":
            return partial(self._escaped if self._backslash else self._checked, pieces, place)
        if always or self._needs_enclosing(pieces, alphabet):
            return partial(self._enclosed, pieces, place)
        return pieces

    def _allowed(self, pieces: Pieces, place: Place) -> Iterator[str]:
        tail = _Tail(self._refused)
        for piece in pieces():
            if mark := tail.found(piece):
                raise place.refusal(0, *holds_refused(self._format, mark))
            yield piece

    def _needs_enclosing(self, pieces: Pieces, alphabet: frozenset[str] | None) -> bool:
        format = self._format
        marks = enclosed_for(format)
        harmless = alphabet is not None and not alphabet & set("".join(marks))
        longest = max(map(len, self._not_bare))
        start, tail = "", _Tail(marks)
        for piece in pieces():
            start += piece[: longest + 1 - len(start)]
            if tail.found(piece):
                return True
            if harmless and len(start) > longest:
                return False
        return start in self._not_bare or runs_into(tail.text, format.delimiter)

    def _enclosed(self, pieces: Pieces, place: Place) -> Iterator[str]:
        mark = self._format.enclosure
        yield mark
        if self._backslash:
            yield from replaced(pieces, enclosed_escapes(self._format))
        else:
            yield from self._doubled(pieces, place)
        yield mark

    def _doubled(self, pieces: Pieces, place: Place) -> Iterator[str]:
        mark, held = self._format.enclosure, ""
        for piece in pieces():
            *before, rest = (held + piece).split(mark)
            if before and self._format.escape == "none":
                raise place.refusal(0, *holds_enclosure(self._format))
            # As much as may be the beginning of a mark.
            cut = max(0, len(rest) - len(mark) + 1)
            held = rest[cut:]
            yield (mark * 2).join([*before, rest[:cut]])
        if runs_into(held, mark):
            raise place.refusal(0, *meets_enclosure(self._format))
        yield held

    def _escaped(self, pieces: Pieces, place: Place) -> Iterator[str]:
        null = self._format.null
        start: str | None = ""
        for piece in replaced(pieces, bare_escapes(self._format)):
            if start is None:
                yield piece
                continue
            start += piece
            if len(start) > len(null):
                yield start
                start = None
        if start == null:
            start = protected_null(null)
            if start is None:
                raise place.refusal(0, *reads_as_null(self._format))
        if start is not None:
            yield start

    def _checked(self, pieces: Pieces, place: Place) -> Iterator[str]:
        format = self._format
        start, tail = "", _Tail(forbidden_bare(format))
        for piece in pieces():
            start += piece[: len(format.null) + 1 - len(start)]
            if mark := tail.found(piece):
                raise place.refusal(0, *holds_bare(format, mark))
            yield piece
        for mark in behind_bare(format):
            if runs_into(tail.text, mark):
                raise place.refusal(0, *meets_bare(mark))
        if start == format.null:
            raise place.refusal(0, *reads_as_null(format))


class _Tail:
    """Searches a text in pieces for marks, keeping as much of its end as may begin one."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._kept = max(map(len, marks)) - 1
        self.text = ""

    def found(self, piece: str) -> str:
        """Return a mark that ends in this piece, or nothing."""
        window = self.text + piece
        self.text = window[max(0, len(window) - self._kept) :]
        return next((mark for mark in self._marks if mark in window), "")
