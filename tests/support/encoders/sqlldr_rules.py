"""A small reader by the published rules of SQL*Loader: its records, its fields, its NULLs.

Written from Oracle Database Utilities, chapters "SQL*Loader Control File Reference" (records) and
"SQL*Loader Field List Reference" (fields); it uses no code of ours. It implements these rules:

"Specifying Data File Format and Buffering", "Fixed Record Format", "Variable Record Format",
"Stream Record Format"
    `fix n`: every record has n bytes. `var n`: n characters of a length precede a record and
    count its bytes, not themselves. `str 'text'`: a record ends at the text in any place;
    enclosures do not protect it.
"Specifying Delimiters", "Enclosed Fields"
    TERMINATED BY text OPTIONALLY ENCLOSED BY text: a field that begins with the enclosure, after
    any blanks, ends at the next enclosure; two in a row mean one. Only whitespace may follow the
    enclosure before the terminator, else the record is rejected.
"Trimming Whitespace"
    Leading whitespace of a field is removed if optional enclosures are specified but missing.
    Trailing blanks of a field of predetermined size (POSITION) are removed, too.
"Handling Short Records with Missing Data"
    With TRAILING NULLCOLS, columns without a field are NULL; else the record is rejected. Text
    after the last field is ignored.
"Specifying Field Conditions", "Using the WHEN, NULLIF, and DEFAULTIF Clauses"
    NULLIF compares the field's text, enclosures taken off; BLANKS matches any number of blanks.

The loader makes a field of no characters NULL, for Oracle has no empty string. This reader keeps
the record's distinction: a bare empty field becomes None, an enclosed one "".
"""

from __future__ import annotations

from dataclasses import dataclass

BLANKS = object()
"""The word of NULLIF that matches a field of blanks only."""
_WHITESPACE = " \t\r\n\v\f"


class RejectedRecord(Exception):
    """SQL*Loader would put the record into its bad file."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One line of a field list."""

    position: tuple[int, int] | None = None
    """POSITION(a:b): first and last byte, from 1."""
    nullif: object = None
    """A text, BLANKS, or None for no NULLIF."""


@dataclass(frozen=True, kw_only=True)
class FieldList:
    """FIELDS TERMINATED BY ... OPTIONALLY ENCLOSED BY ..., or fields of a position each."""

    fields: tuple[Field, ...]
    terminated_by: str = ""
    optionally_enclosed_by: str = ""
    trailing_nullcols: bool = False
    characterset: str = "utf-8"

    def values(self, record: bytes) -> tuple[str | None, ...]:
        """Return the fields of a record."""
        if self.terminated_by:
            found = _delimited(record.decode(self.characterset), self)
        else:
            found = [_positioned(record, field, self.characterset) for field in self.fields]
        return tuple(
            None if _is_null(value, field) else value
            for value, field in zip(found, self.fields, strict=True)
        )


def var_records(data: bytes, digits: int) -> list[bytes]:
    """Return the records of `"var n"`."""
    found, at = [], 0
    while at < len(data):
        length = data[at : at + digits]
        if not length.isdigit() or len(length) != digits:
            raise RejectedRecord(f"{length!r} at byte {at} is no length of a record")
        at += digits
        found.append(data[at : at + int(length)])
        if len(found[-1]) != int(length):
            raise RejectedRecord(f"the record at byte {at} is shorter than {int(length)} bytes")
        at += int(length)
    return found


def stream_records(data: bytes, terminator: bytes) -> list[bytes]:
    """Return the records of `"str 'text'"`."""
    *found, rest = data.split(terminator)
    if rest:
        raise RejectedRecord(f"the last record does not end in {terminator!r}")
    return found


def fixed_records(data: bytes, length: int) -> list[bytes]:
    """Return the records of `"fix n"`."""
    if len(data) % length:
        raise RejectedRecord(f"{len(data)} bytes are no records of {length} bytes")
    return [data[at : at + length] for at in range(0, len(data), length)]


def _delimited(text: str, rules: FieldList) -> list[str | None]:
    found: list[str | None] = []
    at = 0
    for number, _ in enumerate(rules.fields, 1):
        if at > len(text):
            if not rules.trailing_nullcols:
                raise RejectedRecord(f"column {number} is not in the record")
            found.append(None)
            continue
        value, at = _field(text, at, rules)
        found.append(value)
    return found


def _field(text: str, at: int, rules: FieldList) -> tuple[str | None, int]:
    """Return a field, and where the next one begins: past the end of the record if none does."""
    end, mark = rules.terminated_by, rules.optionally_enclosed_by
    if mark:
        start = at
        while start < len(text) and text[start] in _WHITESPACE and not text.startswith(end, start):
            start += 1
        if text.startswith(mark, start):
            value, at = _enclosed(text, start + len(mark), mark)
            while at < len(text) and text[at] in _WHITESPACE and not text.startswith(end, at):
                at += 1
            if at < len(text) and not text.startswith(end, at):
                raise RejectedRecord(f"no terminator behind the enclosure at character {at}")
            return value, at + len(end)
        at = start
    stop = text.find(end, at)
    stop = len(text) if stop < 0 else stop
    return text[at:stop] or None, stop + len(end)


def _enclosed(text: str, at: int, mark: str) -> tuple[str, int]:
    value = ""
    while True:
        stop = text.find(mark, at)
        if stop < 0:
            raise RejectedRecord(f"no second enclosure behind character {at}")
        value += text[at:stop]
        at = stop + len(mark)
        if not text.startswith(mark, at):
            return value, at
        value += mark
        at += len(mark)


def _positioned(record: bytes, field: Field, characterset: str) -> str | None:
    assert field.position is not None
    first, last = field.position
    if last > len(record):
        raise RejectedRecord(f"the record has {len(record)} bytes, a field ends at {last}")
    return record[first - 1 : last].decode(characterset).rstrip(" ") or None


def _is_null(value: str | None, field: Field) -> bool:
    if value is None or field.nullif is None:
        return value is None
    return not value.strip(" ") if field.nullif is BLANKS else value == field.nullif
