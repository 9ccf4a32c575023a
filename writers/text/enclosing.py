r"""When a value is enclosed or escaped, so that a reader gets back exactly it.

`minimal` encloses what PostgreSQL's COPY does in CSV: a value with the delimiter, the enclosure or
an end of line in it, one equal to the NULL text, and a lone `\.` in a table of one column. In a
table of one column it encloses an empty text as well: many programs skip an empty line. Where
backslashes escape, it encloses a value with a backslash: some programs read escapes only between
enclosures, others everywhere. There it also encloses NULL, which MySQL reads as a null.

Marks of several characters are found from left to right, without overlap; a value whose end would
run together with the mark after it is enclosed, escaped or refused, too.

One value is written from pieces of its text. Where only some values are enclosed (`minimal`) it is
read once before it is written, up to where that is decided. A refusal may come in the middle of a
record: the file is given up then. The end of a piece is held back if it may begin a mark, or is an
odd byte of base64. Of an array only the values that hold marks are written one by one.

A program such as Excel runs a field of a CSV file that begins with one of `STARTS` as a formula. An
attacker may have written that field into the database. With a quote before it, the field is text.
The list comes from OWASP's page on CSV injection.
"""

from __future__ import annotations

import binascii
import string
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import cast

import pyarrow as pa
from msgspec.structs import replace

from writers.errors import ValueNotRepresentable
from writers.large_rows import LargeRow, LargeValue, PassedValue
from writers.model import BinaryForm, TextFormat
from writers.schema import pc, text_class
from writers.text.string_arrays import Place, joined, value_bytes, with_room

Pieces = Callable[[], Iterator[str]]
"""Reads a text from its start, at every call."""

Refuse = Callable[[str, str], ValueNotRepresentable]
"""Makes the error for a value of a reason and an advice."""

Escapes = tuple[tuple[str, str], ...]
"""Characters and what replaces each, in this order: the backslash first, as others bring new ones.
"""

_CODES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_IDENTITY_LETTERS = frozenset("ABCDEFGHIJKLMOPQRSTUVWXY")
r"""Upper-case letters that a backslash changes for no reader (\N is NULL, \Z is Ctrl-Z)."""
_BARE_ADVICE = "use --enclose minimal, --escape backslash, or another --delimiter"


class Enclosing:
    """The rules of a checked format; `single` is whether records have one field only."""

    def __init__(self, format: TextFormat, *, single: bool) -> None:
        self._format = format
        mark, null = format.enclosure, format.null
        self.is_bare = format.enclose == "none"
        self.backslash = format.escape == "backslash"
        escape = {"\\"} if self.backslash else set()
        line = {"\r", "\n", *format.eol}
        self.enclosed_for = tuple(sorted(({format.delimiter, mark} | line | escape) - {""}))
        """The marks for which `minimal` encloses a value that holds one."""
        self.not_bare: tuple[str, ...] = (null,)
        """The texts that may not be written bare."""
        if not self.is_bare:
            self.not_bare += ("NULL",) * self.backslash + ("", "\\.") * single
        ends_always = format.eol_ends_always and not format.record_length_digits
        self.refused = (*format.refused, *((format.eol,) if ends_always else ()))
        """The texts that no value may hold, enclosed or not."""
        codes = set(_CODES) if self.backslash else set()
        self._special = {*line, *format.delimiter, *mark, *format.refused} | escape | codes
        line_ends = ("\r", "\n") if set(format.eol) <= {"\r", "\n"} else (format.eol,)
        self.forbidden_bare = tuple(filter(None, (format.delimiter, *line_ends, mark)))
        """The marks that a value may not hold without enclosing and escaping."""
        self.after_bare = (format.delimiter, *(line_ends if line_ends == (format.eol,) else ()))
        """The marks that a bare value's end may run into."""
        firsts = {each[0] for each in (format.delimiter, format.eol, mark) if each}
        # As PostgreSQL's COPY does in its text format.
        self.bare_escapes: Escapes = tuple(
            (each, _CODES.get(each, "\\" + each)) for each in ("\\", *sorted(firsts | set(_CODES)))
        )
        # Of the enclosure its first character only: no part is then left that could join the next.
        self.enclosed_escapes: Escapes = (("\\", "\\\\"), (mark[:1], "\\" + mark[:1]))
        self.protected_null = "" if "\\" in null else _protected(null)
        """The NULL text spelled with a backslash, so that it reads as text; empty if none can."""
        self._escapes: Escapes = ()
        """What escapes the values of a whole array: a mark of one character, or a backslash."""
        if self.backslash:
            self._escapes = self.enclosed_escapes
        elif format.escape == "double" and len(mark) == 1:
            self._escapes = ((mark, mark * 2),)
        inside = () if self._escapes else (mark[:1],)
        bare = [each for each, _ in self.bare_escapes] if self.backslash else self.forbidden_bare
        before_bare = () if self.backslash else endings(*self.after_bare)
        self._odd = (
            (*(bare if self.is_bare else inside), *self.refused),
            before_bare if self.is_bare else (),
        )
        """Values that hold one of the first marks or end in the second are written one by one."""

    def leaves(self, alphabet: frozenset[str] | None) -> bool:
        """Return whether texts of an alphabet hold no character of a mark."""
        return alphabet is not None and not alphabet & self._special

    def cells(
        self, texts: pa.Array, place: Place, *, always: bool, alphabet: frozenset[str] | None
    ) -> pa.Array:
        """Return the texts between two delimiters; null stays, for NULL.

        With `always` every value but NULL is enclosed. An alphabet has all characters of the texts;
        None if they have any.
        """
        # Escaping at most doubles a value, which is then enclosed.
        mark = self._format.enclosure
        texts = with_room(texts, factor=2, more=2 * len(mark.encode()))
        leaves = self.leaves(alphabet)
        if not (always or self.is_bare):
            marks = () if leaves else (*self.enclosed_for, *self.refused)
            need = _where(texts, marks, endings(self._format.delimiter), self.not_bare)
            if need is None:
                return texts
            rows = pc.indices_nonzero(need)
            found = self.cells(texts.take(rows), place.at(rows), always=True, alphabet=alphabet)
            return pc.replace_with_mask(texts, need, found)
        cells = texts
        if not self.is_bare:
            for old, new in () if leaves else self._escapes:
                if _held(texts, (old,)):
                    cells = pc.replace_substring(cells, old, new)
            cells = joined(mark, cells, mark)
        marks, ends = ((), ()) if leaves else self._odd
        odd = _where(texts, marks, ends, self.not_bare if self.is_bare else ())
        if odd is None:
            return cells
        rows = pc.indices_nonzero(odd)
        place = place.at(rows)
        made = [
            "".join(self.cell(partial(iter, (text,)), place, index, always=True)())
            for index, text in enumerate(texts.take(rows).to_pylist())
        ]
        return pc.replace_with_mask(cells, odd, pa.array(made, cells.type))

    def cell(
        self,
        pieces: Pieces,
        place: Place,
        index: int = 0,
        *,
        always: bool,
        alphabet: frozenset[str] | None = None,
    ) -> Pieces:
        """Return a reader of the text for a value; it refuses it by its place and index."""
        refuse = partial(place.refusal, index)
        if self.refused:
            pieces = partial(self._allowed, pieces, refuse)
        if self.is_bare:
            return partial(self._escaped if self.backslash else self._checked, pieces, refuse)
        if always or self._needs_enclosing(pieces, alphabet):
            return partial(self._enclosed, pieces, refuse)
        return pieces

    def _allowed(self, pieces: Pieces, refuse: Refuse) -> Iterator[str]:
        tail = _Tail(self.refused)
        for piece in pieces():
            if (mark := tail.found(piece)) == self._format.eol:
                raise refuse(
                    f"the value holds the end of a record {mark!r}, and SQL*Loader ends a record "
                    "there even inside an enclosure",
                    "use another --eol, or write the length of each record with --record-length 10",
                )
            if mark:
                raise refuse(
                    f"the value holds U+{ord(mark):04X}, which the program that loads this dialect "
                    "cannot read",
                    "use another dialect, such as --dialect rfc4180, or replace the character with "
                    "--query",
                )
            yield piece

    def _needs_enclosing(self, pieces: Pieces, alphabet: frozenset[str] | None) -> bool:
        harmless = alphabet is not None and not alphabet & set("".join(self.enclosed_for))
        longest = max(map(len, self.not_bare))
        start, tail = "", _Tail(self.enclosed_for)
        for piece in pieces():
            start += piece[: longest + 1 - len(start)]
            if tail.found(piece):
                return True
            if harmless and len(start) > longest:
                return False
        return start in self.not_bare or tail.text.endswith(endings(self._format.delimiter))

    def _enclosed(self, pieces: Pieces, refuse: Refuse) -> Iterator[str]:
        mark, held = self._format.enclosure, ""
        yield mark
        if self.backslash:
            yield from _replaced(pieces, self.enclosed_escapes)
        else:
            for piece in pieces():
                *before, rest = (held + piece).split(mark)
                if before and self._format.escape == "none":
                    raise refuse(
                        f"the value holds the enclosure {mark!r}, which --escape none cannot write",
                        "use --escape double, or another --enclosure",
                    )
                # As much as may be the beginning of a mark.
                cut = max(0, len(rest) - len(mark) + 1)
                held = rest[cut:]
                yield (mark * 2).join([*before, rest[:cut]])
            if held.endswith(endings(mark)):
                raise refuse(
                    f"the end of the value runs into the enclosure {mark!r} after it, so a reader "
                    "would end the value too early",
                    "use another --enclosure, such as a single character",
                )
            yield held
        yield mark

    def _escaped(self, pieces: Pieces, refuse: Refuse) -> Iterator[str]:
        start: str | None = ""
        for piece in _replaced(pieces, self.bare_escapes):
            if start is None:
                yield piece
                continue
            start += piece
            if len(start) > len(self._format.null):
                yield start
                start = None
        if start == self._format.null:
            start = self.protected_null
            if not start:
                raise self._reads_as_null(refuse)
        if start is not None:
            yield start

    def _checked(self, pieces: Pieces, refuse: Refuse) -> Iterator[str]:
        format = self._format
        start, tail = "", _Tail(self.forbidden_bare)
        for piece in pieces():
            start += piece[: len(format.null) + 1 - len(start)]
            if mark := tail.found(piece):
                raise refuse(
                    f"the value holds {mark!r}, which --enclose none with --escape {format.escape} "
                    "cannot write",
                    _BARE_ADVICE,
                )
            yield piece
        for mark in self.after_bare:
            if tail.text.endswith(endings(mark)):
                raise refuse(f"the end of the value runs into {mark!r} after it", _BARE_ADVICE)
        if start == format.null:
            raise self._reads_as_null(refuse)

    def _reads_as_null(self, refuse: Refuse) -> ValueNotRepresentable:
        return refuse(
            f"the value would read as NULL, which is written {self._format.null!r}",
            "use another --null, or --enclose minimal",
        )


def _protected(null: str) -> str:
    for index, character in enumerate(null):
        if not character.isalnum() or character in _IDENTITY_LETTERS:
            return f"{null[:index]}\\{null[index:]}"
    return ""


def endings(*marks: str) -> tuple[str, ...]:
    """Return ends of a value that begin a mark whose beginning is also its end, like `~~`."""
    return tuple(
        mark[:size]
        for mark in marks
        for size in range(1, len(mark))
        if (mark[:size] + mark).startswith(mark)
    )


def _held(texts: pa.Array, marks: Iterable[str]) -> set[str]:
    """Return the marks that occur anywhere in the values: a fast search over their bytes."""
    data = bytes(value_bytes(texts))
    # One byte is searched for many times faster than several.
    return {mark for mark in marks if (code := mark.encode())[:1] in data and code in data}


def _where(
    texts: pa.Array, marks: Iterable[str], ends: Iterable[str], equal: Iterable[str]
) -> pa.Array | None:
    """Return which values hold a mark, end in a text or equal one; None if no value does."""
    held = _held(texts, (*marks, *ends, *equal))
    tests = [pc.match_substring(texts, mark) for mark in marks if mark in held]
    tests += [pc.ends_with(texts, end) for end in ends if end in held]
    tests += [pc.equal(texts, text) for text in equal if text in held]
    if not tests:
        return None
    found = pc.fill_null(reduce(pc.or_, tests), False)
    return found if pc.any(found).as_py() else None


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


_HEX_LETTERS = frozenset(string.hexdigits.lower() + "\\x")
_BASE64_LETTERS = frozenset(string.ascii_letters + string.digits + "+/=")


def large_text(value: LargeValue, form: BinaryForm, decimal_separator: str = ".") -> Pieces:
    """Return the text of a large value; only numbers have another decimal separator."""
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


def _replaced(pieces: Pieces, pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
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
    """Return whether texts may be taken for formulas: no numbers, dates or timestamps."""
    return _plain(field.type) in (pa.string(), pa.large_string()) and not text_class(field)


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
        columns = list(batch.columns)
        for index, field in enumerate(self.schema):
            if self._guarded[index]:
                texts = columns[index] = pc.cast(columns[index], field.type)
                found = pc.match_substring_regex(texts, _PATTERN)
                if pc.any(found).as_py():
                    columns[index] = pc.if_else(found, joined(GUARD, texts), texts)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def row(self, row: LargeRow) -> LargeRow:
        values = tuple(
            (index, PassedValue(value, _guarded) if self._guarded[index] else value)
            for index, value in row.values
        )
        return replace(row, row=self.batch(row.row), values=values)


def _guarded(pieces: Iterator[str]) -> Iterator[str]:
    begun = False
    for piece in pieces:
        yield piece if begun else guarded_name(piece)
        begun = begun or bool(piece)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type for texts taken out of a column; Arrow has functions for this type."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if kind == pa.string_view() else kind
