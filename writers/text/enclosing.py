"""When a value is enclosed or escaped, so that a reader gets back exactly it.

The rules of `writers.text.marks`, for whole arrays of values and for one value in pieces; the bytes
are the same. Where only some values are enclosed (`minimal`) a value in pieces is read once before
it is written, up to where that is decided. A refusal may come in the middle of a record: the file
is given up then. The end of a piece is held back if it may begin a mark, or is an odd byte of
base64.

A program such as Excel runs a field of a CSV file that begins with one of `STARTS` as a formula. An
attacker may have written that field into the database. With a quote before it, the field is text.
The list comes from OWASP's page on CSV injection.
"""

from __future__ import annotations

import binascii
import string
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from writers.large_rows import LargeValue
from writers.model import BinaryForm, TextFormat
from writers.schema import pc, text_class
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
    runs_into,
    special_characters,
)
from writers.text.string_arrays import Place, joined, value_bytes, with_room

if TYPE_CHECKING:
    from writers.large_rows import LargeRow, LargeValue


class Enclosing:
    """The rules of a checked format; `single` is whether records have one field only."""

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        self._backslash = format.escape == "backslash"
        self._enclosed_for = enclosed_for(format)
        self._not_bare = not_bare(format, single=single)
        self._refused = refused_anywhere(format)
        self._special = special_characters(format)

    def leaves(self, alphabet: frozenset[str] | None) -> bool:
        return alphabet is not None and not alphabet & self._special

    def cells(
        self, texts: pa.Array, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> pa.Array:
        """Return the texts between two delimiters; null stays, for NULL.

        Args:
            texts: string or large_string.
            place: Named when a value is refused.
            always: Enclose every value but NULL.
            alphabet: Characters the texts are made of, None if any.
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
        return joined(mark, texts, mark)

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
        """Escape the enclosures in values that will be enclosed."""
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
    if not text:
        return bool(pc.min(pc.binary_length(texts)).as_py() == 0)
    return bool(_found(texts, (text,))) and bool(pc.any(pc.equal(texts, text)).as_py())


def _running_into(texts: pa.Array, mark: str) -> list[pa.Array]:
    """Return where the first `mark` that a reader finds at a value's end begins inside the value,
    or nothing."""
    if not overlaps_itself(mark) or not _found(texts, (mark[0],)):
        return []
    stand_in = "\x01" if "\x01" not in mark else next(c for c in "\x02\x03\x04" if c not in mark)
    followed = joined(texts, mark)
    return [pc.invert(pc.ends_with(pc.replace_substring(followed, mark, stand_in), stand_in))]


class LargeEnclosing:
    """The same rules for one value in pieces."""

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        self._backslash = format.escape == "backslash"
        self._not_bare = not_bare(format, single=single)
        self._refused = refused_anywhere(format)

    def cell(
        self, pieces: Pieces, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> Pieces:
        """Return a reader of the text between two delimiters, for a value that is not NULL.

        The arguments are those of `Enclosing.cells`. Reading may raise `ValueNotRepresentable`.
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


Pieces = Callable[[], Iterator[str]]
"""Reads a text from its start, at every call."""

_HEX_LETTERS = frozenset(string.hexdigits.lower() + "\\x")
_BASE64_LETTERS = frozenset(string.ascii_letters + string.digits + "+/=")


def large_text(value: LargeValue, form: BinaryForm, decimal_separator: str = ".") -> Pieces:
    """Return the text of a large value; only numbers have a decimal separator different from a
    point."""
    if not value.binary:
        if decimal_separator == ".":
            return lambda: cast("Iterator[str]", value.pieces())
        return lambda: (
            piece.replace(".", decimal_separator) for piece in cast("Iterator[str]", value.pieces())
        )
    if form == "base64":
        return lambda: _base64(cast("Iterator[bytes]", value.pieces()))
    prefix = "\\x" if form == "prefixed-hex" else ""
    return lambda: _hex(cast("Iterator[bytes]", value.pieces()), prefix)


def large_alphabet(value: LargeValue, form: BinaryForm) -> frozenset[str] | None:
    if not value.binary:
        return None
    return _BASE64_LETTERS if form == "base64" else _HEX_LETTERS


def replaced(pieces: Pieces, pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for piece in pieces():
        text = piece
        for old, new in pairs:
            text = text.replace(old, new)
        yield text


def _hex(pieces: Iterator[bytes], prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    for piece in pieces:
        yield binascii.hexlify(piece).decode("ascii")


def _base64(pieces: Iterator[bytes]) -> Iterator[str]:
    held = b""
    for piece in pieces:
        data = held + piece
        # Three bytes make four characters; only the value's end may be padded.
        whole = len(data) - len(data) % 3
        held = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False).decode("ascii")
    yield binascii.b2a_base64(held, newline=False).decode("ascii")


STARTS = "=+-@\t\r\n＝＋－＠"
"""The last four are the wide forms of the first four."""

GUARD = "'"

_PATTERN = rf"\A[{STARTS.replace('-', chr(92) + '-')}]"


def guarded_name(name: str) -> str:
    return GUARD + name if name.startswith(tuple(STARTS)) else name


def is_guarded(field: pa.Field) -> bool:
    """Return whether a column has texts that may be taken for formulas: no numbers, dates or
    timestamps."""
    return _is_text(_plain(field.type)) and not text_class(field)


class FormulaGuard:
    """Puts a quote before texts of one schema that begin like a formula."""

    def __init__(self, schema: pa.Schema) -> None:

        self._guarded = tuple(map(is_guarded, schema))
        fields = [
            field.with_name(guarded_name(field.name)).with_type(
                _plain(field.type) if guarded else field.type
            )
            for field, guarded in zip(schema, self._guarded, strict=True)
        ]
        self.schema = pa.schema(fields, metadata=schema.metadata)
        """Of the guarded batches, its names guarded, too."""

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:

        columns = [
            _guard(pc.cast(column, field.type)) if guarded else column
            for column, field, guarded in zip(
                batch.columns, self.schema, self._guarded, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def row(self, row: LargeRow) -> LargeRow:
        values = tuple(
            (index, _GuardedValue(value) if self._guarded[index] else value)
            for index, value in row.values
        )
        return replace(row, row=self.batch(row.row), values=values)


class _GuardedValue(Struct, frozen=True):
    """A large text, with the quote before it if it begins like a formula."""

    value: LargeValue

    @property
    def binary(self) -> bool:
        return self.value.binary

    def pieces(self) -> Iterator[str]:
        begun = False
        for piece in self.value.pieces():
            assert isinstance(piece, str)
            yield piece if begun else guarded_name(piece)
            begun = begun or bool(piece)


def _guard(column: pa.Array) -> pa.Array:

    found = pc.match_substring_regex(column, _PATTERN)
    if not pc.any(found).as_py():
        return column
    quote = pa.scalar(GUARD, column.type)
    quoted = pc.binary_join_element_wise(quote, column, pa.scalar("", column.type))
    return pc.if_else(found, quoted, column)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type for texts taken out of a column; Arrow has functions for this type."""

    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if kind == pa.string_view() else kind


def _is_text(kind: pa.DataType) -> bool:

    return kind in (pa.string(), pa.large_string())
