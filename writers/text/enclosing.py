"""When a value is enclosed or escaped, so that a reader gets back exactly it.

The rules are those of `writers.text.marks`, here for whole arrays of values.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa

from writers.arrow_compute import pc
from writers.model import TextFormat
from writers.text.arrow_csv import wrapped
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
    overlaps_itself,
    protected_null,
    reads_as_null,
    refused_anywhere,
    special_characters,
)
from writers.text.refusals import Place
from writers.text.string_arrays import joined, value_bytes, with_room


class Enclosing:
    """The rules of one format.

    Args:
        format: A checked one.
        single: Whether records have one field only.
    """

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        self._backslash = format.escape == "backslash"
        self._enclosed_for = enclosed_for(format)
        self._not_bare = not_bare(format, single=single)
        self._refused = refused_anywhere(format)
        self._special = special_characters(format)

    def leaves(self, alphabet: frozenset[str] | None) -> bool:
        """Tell whether texts of these characters hold nothing that has to be escaped."""
        return alphabet is not None and not alphabet & self._special

    def cells(
        self, texts: pa.Array, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> pa.Array:
        """Return the texts as they stand between two delimiters; null stays, for NULL.

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
        for mark in _found(texts, self._refused):
            found = pc.match_substring(texts, mark)
            place.refuse_where(found, *holds_refused(self._format, mark))
        if self.leaves(alphabet):
            if always:
                return self._wrapped(texts)
            if not any(_has(texts, text) for text in self._not_bare):
                return texts
        if self._format.enclose == "none":
            return self._escaped(texts, place) if self._backslash else self._checked(texts, place)
        if always:
            return self._wrapped(self._inside(texts, place))
        return self._enclosed_where_needed(texts, place)

    def _wrapped(self, texts: pa.Array) -> pa.Array:
        mark = self._format.enclosure
        enclosed = wrapped(texts, mark)
        return joined(mark, texts, mark) if enclosed is None else enclosed

    def _enclosed_where_needed(self, texts: pa.Array, place: Place) -> pa.Array:
        tests = [pc.match_substring(texts, mark) for mark in _found(texts, self._enclosed_for)]
        tests += _running_into(texts, self._format.delimiter)
        tests += [pc.equal(texts, text) for text in self._not_bare if _has(texts, text)]
        if not tests:
            return texts
        need = pc.fill_null(reduce(pc.or_, tests), False)
        if not pc.any(need).as_py():
            return texts
        rows = pc.indices_nonzero(need)
        enclosed = self._wrapped(self._inside(texts.take(rows), place.at(rows)))
        return pc.replace_with_mask(texts, need, enclosed)

    def _inside(self, texts: pa.Array, place: Place) -> pa.Array:
        """Escape what values that will be enclosed hold of the enclosure."""
        mark = self._format.enclosure
        if self._backslash:
            return _replaced(texts, enclosed_escapes(self._format))
        found = _found(texts, (mark,))
        if found and self._format.escape == "none":
            place.refuse_where(pc.match_substring(texts, mark), *holds_enclosure(self._format))
        for runs in _running_into(texts, mark):
            place.refuse_where(runs, *meets_enclosure(self._format))
        return pc.replace_substring(texts, mark, mark * 2) if found else texts

    def _escaped(self, texts: pa.Array, place: Place) -> pa.Array:
        """Write bare values with backslashes."""
        null = self._format.null
        result = _replaced(texts, bare_escapes(self._format))
        if not _has(result, null):
            return result
        like_null = pc.equal(result, null)
        protected = protected_null(null)
        if protected is None:
            place.refuse_where(like_null, *reads_as_null(self._format))
        return pc.if_else(like_null, pa.scalar(protected, result.type), result)

    def _checked(self, texts: pa.Array, place: Place) -> pa.Array:
        """Return bare values that need neither enclosure nor escape; refuse the others."""
        format = self._format
        for mark in _found(texts, forbidden_bare(format)):
            place.refuse_where(pc.match_substring(texts, mark), *holds_bare(format, mark))
        for mark in behind_bare(format):
            for runs in _running_into(texts, mark):
                place.refuse_where(runs, *meets_bare(mark))
        place.refuse_where(pc.equal(texts, format.null), *reads_as_null(format))
        return texts


def _replaced(texts: pa.Array, pairs: tuple[tuple[str, str], ...]) -> pa.Array:
    for old, new in pairs:
        if _found(texts, (old,)):
            texts = pc.replace_substring(texts, old, new)
    return texts


def _found(texts: pa.Array, marks: tuple[str, ...]) -> list[str]:
    """Return the marks that occur anywhere in the values: one fast search over their bytes."""
    data = bytes(value_bytes(texts))
    # One byte is searched for many times faster than several.
    return [mark for mark in marks if (b := mark.encode())[:1] in data and b in data]


def _has(texts: pa.Array, text: str) -> bool:
    """Tell whether a value equals a text."""
    if not text:
        return bool(pc.min(pc.binary_length(texts)).as_py() == 0)
    return bool(_found(texts, (text,))) and bool(pc.any(pc.equal(texts, text)).as_py())


def _running_into(texts: pa.Array, mark: str) -> list[pa.Array]:
    """Return where the first `mark` that a reader finds at a value's end begins inside the value.

    Nothing is returned when that cannot happen, as with marks of one character.
    """
    if not overlaps_itself(mark) or not _found(texts, (mark[0],)):
        return []
    stand_in = "\x01" if "\x01" not in mark else next(c for c in "\x02\x03\x04" if c not in mark)
    followed = joined(texts, mark)
    return [pc.invert(pc.ends_with(pc.replace_substring(followed, mark, stand_in), stand_in))]
