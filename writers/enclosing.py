r"""When a value is enclosed or escaped, so that a reader gets back exactly it.

`minimal` encloses what PostgreSQL's COPY does in CSV: a value with the delimiter, the enclosure or
an end of line in it, one equal to the NULL text, and a lone `\.` in a table of one column. Marks
of several characters are found from left to right, without overlap; a value whose end would run
together with the mark behind it is enclosed, escaped or refused, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from writers.model import TextFormat
from writers.refusals import Place
from writers.string_arrays import joined, value_bytes, with_room

_END_OF_DATA = "\\."
_CODES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_IDENTITY_LETTERS = frozenset("ABCDEFGHIJKLMOPQRSTUVWXY")
r"""Upper-case letters that a backslash changes for no reader (\N is NULL, \Z is Ctrl-Z)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The final texts of a column; null is NULL."""

    texts: pa.Array
    enclosed: bool = False
    """The enclosure still has to be put around every text; there is no null then."""


class Enclosing:
    """The rules of one format.

    Args:
        format: A checked one.
        single: Whether records have one field only.
    """

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        self._single = single
        self._backslash = format.escape == "backslash"
        ends = {"\r", "\n", *format.eol}
        self._enclosed_for = sorted({format.delimiter, format.enclosure, *ends} - {""})
        self._marks = ends | set(format.delimiter + format.enclosure)
        if self._backslash:
            self._marks.add("\\")

    def cells(
        self, texts: pa.Array, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> Cells:
        """Return the texts as they stand between two delimiters.

        Args:
            texts: string or large_string.
            place: Named when a value is refused.
            always: Enclose every value but NULL.
            alphabet: Characters the texts are made of, None if any.

        Raises:
            ValueNotRepresentable: The format has no way to write a value.
        """
        # Escaping at most doubles a value, which is then enclosed.
        texts = with_room(texts, factor=2, more=2 * len(self._format.enclosure.encode()))
        if alphabet is not None and not alphabet & self._marks:
            if always:
                return self._all_enclosed(texts)
            if not pc.any(pc.equal(texts, self._format.null)).as_py():
                return Cells(texts=texts)
        if self._format.enclose == "none":
            bare = self._escaped if self._backslash else self._checked
            return Cells(texts=bare(texts, place))
        inner = self._doubled_backslashes(texts)
        if always:
            return self._all_enclosed(self._inside(inner, place))
        return Cells(texts=self._enclosed_where_needed(texts, inner, place))

    def _all_enclosed(self, texts: pa.Array) -> Cells:
        if texts.null_count:
            return Cells(texts=self._wrapped(texts))
        return Cells(texts=texts, enclosed=True)

    def _wrapped(self, texts: pa.Array) -> pa.Array:
        return joined(self._format.enclosure, texts, self._format.enclosure)

    def _doubled_backslashes(self, texts: pa.Array) -> pa.Array:
        if self._backslash and _found(texts, ["\\"]):
            return pc.replace_substring(texts, "\\", "\\\\")
        return texts

    def _enclosed_where_needed(self, texts: pa.Array, inner: pa.Array, place: Place) -> pa.Array:
        null = self._format.null
        tests = [pc.match_substring(texts, mark) for mark in _found(texts, self._enclosed_for)]
        tests += _running_into(texts, self._format.delimiter)
        tests.append(pc.equal(texts, null))
        if inner is not texts:
            tests.append(pc.equal(inner, null))
        if self._single:
            tests.append(pc.equal(texts, _END_OF_DATA))
        need = pc.fill_null(reduce(pc.or_, tests), False)
        if not pc.any(need).as_py():
            return inner
        rows = pc.indices_nonzero(need)
        enclosed = self._wrapped(self._inside(inner.take(rows), place.at(rows)))
        return pc.replace_with_mask(inner, need, enclosed)

    def _inside(self, texts: pa.Array, place: Place) -> pa.Array:
        """Escape the enclosures inside values that will be enclosed."""
        mark = self._format.enclosure
        if self._backslash:
            # Its first character only: no part of the mark is then left that could join the next.
            found = _found(texts, [mark[0]])
            return pc.replace_substring(texts, mark[0], "\\" + mark[0]) if found else texts
        found = _found(texts, [mark])
        if found and self._format.escape == "none":
            place.refuse_where(
                pc.match_substring(texts, mark),
                f"the value holds the enclosure {mark!r}, which --escape none cannot write",
                "use --escape double, or another --enclosure",
            )
        for runs in _running_into(texts, mark):
            place.refuse_where(
                runs,
                f"the end of the value runs into the enclosure {mark!r} behind it, where a reader "
                "would end it too early",
                "use another --enclosure, such as a single character",
            )
        return pc.replace_substring(texts, mark, mark * 2) if found else texts

    def _escaped(self, texts: pa.Array, place: Place) -> pa.Array:
        """Write bare values with backslashes, as PostgreSQL's COPY does in its text format."""
        format = self._format
        marks = {mark[0] for mark in (format.delimiter, format.eol, format.enclosure) if mark}
        result = texts
        for character in ["\\", *sorted(marks | set(_CODES))]:
            if _found(texts, [character]):
                code = _CODES.get(character, "\\" + character)
                result = pc.replace_substring(result, character, code)
        like_null = pc.equal(result, format.null)
        if not pc.any(like_null).as_py():
            return result
        protected = _protected_null(format.null)
        if protected is None:
            place.refuse_where(
                like_null,
                f"the value would read as NULL, which is written {format.null!r}",
                "use another --null, or --enclose minimal",
            )
        return pc.if_else(like_null, pa.scalar(protected, result.type), result)

    def _checked(self, texts: pa.Array, place: Place) -> pa.Array:
        """Return bare values that need neither enclosure nor escape; refuse the others."""
        format = self._format
        only_newlines = set(format.eol) <= {"\r", "\n"}
        ends = ["\r", "\n"] if only_newlines else [format.eol]
        marks = [format.delimiter, *ends, *([format.enclosure] if format.enclosure else [])]
        advice = "use --enclose minimal, --escape backslash, or another --delimiter"
        for mark in _found(texts, marks):
            what = f"the value holds {mark!r}, and --enclose none with --escape {format.escape}"
            holds = pc.match_substring(texts, mark)
            place.refuse_where(holds, f"{what} cannot write that", advice)
        for mark in (format.delimiter, *([] if only_newlines else [format.eol])):
            for runs in _running_into(texts, mark):
                reason = f"the end of the value runs into {mark!r} behind it"
                place.refuse_where(runs, reason, advice)
        place.refuse_where(
            pc.equal(texts, format.null),
            f"the value would read as NULL, which is written {format.null!r}",
            "use another --null, or --enclose minimal",
        )
        return texts


def _found(texts: pa.Array, marks: list[str]) -> list[str]:
    """Return the marks that occur anywhere in the values: one fast search over their bytes."""
    data = bytes(value_bytes(texts))
    return [mark for mark in marks if mark.encode() in data]


def _running_into(texts: pa.Array, mark: str) -> list[pa.Array]:
    """Return where the first `mark` that a reader finds at a value's end begins inside the value.

    Nothing is returned when that cannot happen, as with marks of one character: it takes a mark
    like `~~` or `aba`, whose beginning is also its end.
    """
    overlaps = any(mark.startswith(mark[start:]) for start in range(1, len(mark)))
    if not overlaps or not _found(texts, [mark[0]]):
        return []
    stand_in = "\x01" if "\x01" not in mark else next(c for c in "\x02\x03\x04" if c not in mark)
    followed = joined(texts, mark)
    return [pc.invert(pc.ends_with(pc.replace_substring(followed, mark, stand_in), stand_in))]


def _protected_null(null: str) -> str | None:
    """Return the NULL text spelled with a backslash, so that it reads as text; None if none can."""
    if "\\" in null:
        return None
    for index, character in enumerate(null):
        if not character.isalnum() or character in _IDENTITY_LETTERS:
            return f"{null[:index]}\\{null[index:]}"
    return None
