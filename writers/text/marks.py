r"""The limits that the marks of a format (delimiter, enclosure, end of line, NULL) set on a value.

`minimal` encloses what PostgreSQL's COPY does in CSV: a value with the delimiter, the enclosure or
an end of line in it, one equal to the NULL text, and a lone `\.` in a table of one column. In a
table of one column it encloses an empty text as well: many programs skip an empty line. Where
backslashes escape, it encloses a value with a backslash: some programs read escapes only between
enclosures, others everywhere. There it also encloses NULL, which MySQL reads as a null.

Marks of several characters are found from left to right, without overlap; a value whose end would
run together with the mark after it is enclosed, escaped or refused, too.
"""

from __future__ import annotations

from writers.model import TextFormat

END_OF_DATA = "\\."
_CODES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_IDENTITY_LETTERS = frozenset("ABCDEFGHIJKLMOPQRSTUVWXY")
r"""Upper-case letters that a backslash changes for no reader (\N is NULL, \Z is Ctrl-Z)."""

Refusal = tuple[str, str]
"""Why a value cannot be written, and what to do about it."""

_BARE_ADVICE = "use --enclose minimal, --escape backslash, or another --delimiter"


def enclosed_for(format: TextFormat) -> tuple[str, ...]:
    """Return the marks for which `minimal` encloses a value that holds one."""
    backslash = {"\\"} if format.escape == "backslash" else set()
    marks = {format.delimiter, format.enclosure, "\r", "\n", *format.eol} | backslash
    return tuple(sorted(marks - {""}))


def not_bare(format: TextFormat, *, single: bool) -> tuple[str, ...]:
    """Return the texts that may not be written bare; `single` is whether records have one field
    only."""
    if format.enclose == "none":
        return (format.null,)
    mysql_null = ("NULL",) if format.escape == "backslash" else ()
    return (format.null, *mysql_null, *(("", END_OF_DATA) if single else ()))


def refused_anywhere(format: TextFormat) -> tuple[str, ...]:
    """Return the texts that no value may hold, enclosed or not."""
    ends = format.eol_ends_always and not format.record_length_digits
    return (*format.refused, *((format.eol,) if ends else ()))


def special_characters(format: TextFormat) -> frozenset[str]:
    """Return all characters that the marks are made of; a value without them stays as it is."""
    escape = {"\\", *_CODES} if format.escape == "backslash" else set()
    marks = {"\r", "\n", *format.eol, *format.delimiter, *format.enclosure, *format.refused}
    return frozenset(marks | escape)


def forbidden_bare(format: TextFormat) -> tuple[str, ...]:
    """Return the marks that a value may not hold without enclosing and escaping."""
    enclosure = (format.enclosure,) if format.enclosure else ()
    return (format.delimiter, *_line_ends(format), *enclosure)


def behind_bare(format: TextFormat) -> tuple[str, ...]:
    """Return the marks that a bare value's end may run into."""
    ends = _line_ends(format)
    return (format.delimiter, *(ends if ends == (format.eol,) else ()))


def _line_ends(format: TextFormat) -> tuple[str, ...]:
    return ("\r", "\n") if set(format.eol) <= {"\r", "\n"} else (format.eol,)


def bare_escapes(format: TextFormat) -> tuple[tuple[str, str], ...]:
    """Return the escape of each character in a bare value, to be replaced in this order.

    As PostgreSQL's COPY does in its text format.
    """
    marks = {mark[0] for mark in (format.delimiter, format.eol, format.enclosure) if mark}
    # The backslash first: the other replacements bring new ones.
    characters = ["\\", *sorted(marks | set(_CODES))]
    return tuple((character, _CODES.get(character, "\\" + character)) for character in characters)


def enclosed_escapes(format: TextFormat) -> tuple[tuple[str, str], ...]:
    """Return the same for an enclosed value of a format that escapes with a backslash."""
    # Of the enclosure its first character only: no part is then left that could join the next.
    first = format.enclosure[0]
    return (("\\", "\\\\"), (first, "\\" + first))


def overlaps_itself(mark: str) -> bool:
    """Return whether a mark's beginning is also its end, as with `~~` and `aba`.

    Only such a mark can be found too early where a value's end and the mark meet.
    """
    return any(mark.startswith(mark[start:]) for start in range(1, len(mark)))


def runs_into(text: str, mark: str) -> bool:
    """Return whether a reader finds the mark that follows a text partly inside the text. The text
    holds no whole mark."""
    return (text + mark).find(mark) != len(text)


def protected_null(null: str) -> str | None:
    """Return the NULL text spelled with a backslash, so that it reads as text; None if none can."""
    if "\\" in null:
        return None
    for index, character in enumerate(null):
        if not character.isalnum() or character in _IDENTITY_LETTERS:
            return f"{null[:index]}\\{null[index:]}"
    return None


def holds_enclosure(format: TextFormat) -> Refusal:
    return (
        f"the value holds the enclosure {format.enclosure!r}, which --escape none cannot write",
        "use --escape double, or another --enclosure",
    )


def meets_enclosure(format: TextFormat) -> Refusal:
    """Return the refusal of an enclosed value whose end runs into the enclosure after it."""
    return (
        f"the end of the value runs into the enclosure {format.enclosure!r} after it, so a reader "
        "would end the value too early",
        "use another --enclosure, such as a single character",
    )


def holds_refused(format: TextFormat, mark: str) -> Refusal:
    if mark == format.eol:
        return (
            f"the value holds the end of a record {mark!r}, and SQL*Loader ends a record there "
            "even inside an enclosure",
            "use another --eol, or write the length of each record with --record-length 10",
        )
    return (
        f"the value holds U+{ord(mark):04X}, which the program that loads this dialect cannot read",
        "use another dialect, such as --dialect rfc4180, or replace the character with --query",
    )


def holds_bare(format: TextFormat, mark: str) -> Refusal:
    return (
        f"the value holds {mark!r}, which --enclose none with --escape {format.escape} cannot "
        "write",
        _BARE_ADVICE,
    )


def meets_bare(mark: str) -> Refusal:
    return f"the end of the value runs into {mark!r} after it", _BARE_ADVICE


def reads_as_null(format: TextFormat) -> Refusal:
    return (
        f"the value would read as NULL, which is written {format.null!r}",
        "use another --null, or --enclose minimal",
    )
