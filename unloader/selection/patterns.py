"""Patterns of table names as people type them, and which names they match.

A pattern is `NAME` or `SCHEMA.NAME`. Outside of double quotes `*`, `?` and `[...]` are wildcards,
as in a shell, and letters are read in the case of the database. Inside, every character means
itself, wildcards and dots included. A part may mix both: `"Order ["*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from pathlib import Path

from msgspec import Struct

from unloader.errors import UsageError
from unloader.model import NamePart, TableName
from unloader.request.names import Folding, folded
from writers.files.regular import read_named

_SEGMENT = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
"""Quoted text, or plain text; a dot ends a part."""
_CLASS = re.compile(r"\[!?\]?[^\]]*\]")
_WILD = re.compile(rf"[*?]|{_CLASS.pattern}")
_CLASS_OR_BRACKET = re.compile(rf"{_CLASS.pattern}|\[")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
"""A plain name that databases read alike, apart from its case."""

_Fold = Callable[[str], str]


class PartPattern(Struct, frozen=True, kw_only=True):
    """One part of a pattern: texts in quotes and outside of them, in their order."""

    segments: tuple[NamePart, ...]

    @property
    def literal(self) -> NamePart | None:
        if len(self.segments) > 1:
            return None
        (segment,) = self.segments
        return segment if segment.quoted or not _WILD.search(segment.text) else None

    @property
    def certain(self) -> bool:
        """Whether it is a name, and one that databases read alike apart from its case."""
        name = self.literal
        return name is not None and (name.quoted or _PLAIN.fullmatch(name.text) is not None)

    def among(self, candidates: Iterable[str], folding: Folding) -> tuple[str, ...]:
        """Return the candidates it matches, best kind of match only, in their order.

        The best kind is how the database reads plain letters. Only where it would find none they
        mean the case in which they were typed, otherwise any case.
        """
        names = tuple(candidates)

        def fold(text: str) -> str:
            return folded(text, folding)

        if folding == "any":
            return self._found(names, plain=fold, quoted=fold, name=fold)
        found = self._found(names, plain=fold, quoted=_same, name=_same)
        if found or any(segment.quoted for segment in self.segments):
            return found
        typed = self._found(names, plain=_same, quoted=_same, name=_same)
        return typed or self._found(
            names, plain=str.casefold, quoted=str.casefold, name=str.casefold
        )

    def _found(
        self, names: tuple[str, ...], *, plain: _Fold, quoted: _Fold, name: _Fold
    ) -> tuple[str, ...]:
        glob = "".join(
            _escaped(quoted(segment.text)) if segment.quoted else _closed(plain(segment.text))
            for segment in self.segments
        )
        wanted = re.compile(translate(glob))
        return tuple(each for each in names if wanted.match(name(each)))


class TablePattern(Struct, frozen=True, kw_only=True):
    """A table's name, or a pattern of names, as the user wrote it."""

    text: str
    origin: str
    """Where it was written: an option, or the line of a file."""
    schema: PartPattern | None
    name: PartPattern

    @property
    def table(self) -> TableName | None:
        schema = None if self.schema is None else self.schema.literal
        name = self.name.literal
        if name is None or (schema is None and self.schema is not None):
            return None
        return TableName(schema=schema, name=name)

    @property
    def certain(self) -> bool:
        return self.name.certain and (self.schema is None or self.schema.certain)


def parse_pattern(text: str, origin: str = "--table") -> TablePattern:
    """Return the pattern that a text is.

    A text without wildcards that `names.parse_table` takes for a name is that name.

    Raises:
        UsageError: The text is empty, has an open quote or more than two parts.
    """
    parts = _parts(text)
    if parts is None or len(parts) > 2:
        raise UsageError(
            f"{text!r} in {origin} is neither a table name nor a pattern",
            "write NAME or SCHEMA.NAME; put double quotes around special names and around "
            "characters that are not wildcards: '\"Mixed Case\".ORDERS_*'",
        )
    return TablePattern(
        text=text,
        origin=origin,
        schema=parts[0] if len(parts) == 2 else None,
        name=parts[-1],
    )


def parse_schema(text: str, origin: str) -> PartPattern:
    """Return the pattern of schema names that a text is.

    Raises:
        UsageError: The text is empty, has an open quote or a dot outside of quotes.
    """
    parts = _parts(text)
    if parts is None or len(parts) > 1:
        raise UsageError(
            f"{text!r} in {origin} is neither the name of a schema nor a pattern",
            "write one name or pattern; put double quotes around a special name: '\"Mixed Case\"'",
        )
    return parts[0]


def read_patterns(path: Path) -> tuple[TablePattern, ...]:
    """Return the patterns of a file, in its order.

    Raises:
        UsageError: The file cannot be read, is not UTF-8, is empty, or has a line that is not a
            pattern.
    """
    try:
        # Line ends as they are: a name in quotes may hold one.
        text = read_named(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"cannot read the list of tables {path}: {error.strerror or error}",
            "give a file with one table name on each line",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the list of tables {path} is not UTF-8 text: byte {error.start}, {error.reason}",
            "save the file as UTF-8",
        ) from error
    found = patterns_of(text, str(path))
    if not found:
        raise UsageError(
            f"the list of tables {path} is empty", "write a table or a pattern on each line"
        )
    return found


def patterns_of(text: str, where: str) -> tuple[TablePattern, ...]:
    """Return the patterns of a text, one a line.

    Blank lines and lines that begin with `#` are left out; a name that begins with it is quoted. A
    line end within double quotes belongs to the name.

    Raises:
        UsageError: A line is not a pattern, or has a quote that is never closed.
    """
    return tuple(
        parse_pattern(line, f"{where}, line {number}") for number, line in _lines(text, where)
    )


def _lines(text: str, where: str) -> Iterator[tuple[int, str]]:
    pending: list[str] = []
    begun, is_open = 0, False
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begun = number
        pending.append(line)
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            yield begun, "\n".join(pending).strip()
            pending = []
    if pending:
        raise UsageError(
            f"{where}, line {begun}, has a double quote without a closing quote",
            "close it; write a double quote inside a name twice",
        )


def _parts(text: str) -> list[PartPattern] | None:
    """Return the parts between the dots, None where the text is malformed."""
    parts: list[PartPattern] = []
    position = 0
    while True:
        segments: list[NamePart] = []
        while (match := _SEGMENT.match(text, position)) is not None:
            quoted, plain = match.groups()
            segments.append(
                NamePart(text=plain)
                if quoted is None
                else NamePart(text=quoted.replace('""', '"'), quoted=True)
            )
            position = match.end()
        part = _trimmed(segments)
        if part is None:
            return None
        parts.append(part)
        if position == len(text):
            return parts
        if text[position] != ".":
            return None  # an open quote
        position += 1


def _trimmed(segments: list[NamePart]) -> PartPattern | None:
    """Return a part without the blanks around it; None if nothing is left, or blanks are within.

    A blank between quoted and plain text is a slip of the hand, not part of a name.
    """
    last = len(segments) - 1
    kept = []
    for at, segment in enumerate(segments):
        text = segment.text
        if not segment.quoted:
            text = text.lstrip() if at == 0 else text
            text = text.rstrip() if at == last else text
            # Quoted text follows quoted text nowhere: two quotes in a row are one inside.
            beside = (text[:1] if at else "") + (text[-1:] if at < last else "")
            if beside.strip() != beside:
                return None
        if text:
            kept.append(NamePart(text=text, quoted=segment.quoted))
    return PartPattern(segments=tuple(kept)) if kept else None


def _same(text: str) -> str:
    return text


def _escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def _closed(glob: str) -> str:
    """Return a glob whose every `[` opens a class; one that is never closed means itself.

    Otherwise a bracket in quotes, further on, would close it.
    """
    return _CLASS_OR_BRACKET.sub(
        lambda match: "[[]" if match.group() == "[" else match.group(), glob
    )
