"""Names of tables and columns as people type them, against names as a database has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from unloader.errors import SourceError, UsageError
from unloader.model import NamePart, TableName, TableSummary
from unloader.request.settings import plain_name

_SEGMENT = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
"""Quoted text, or plain text; a dot ends a part."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
"""A name that needs no quotes, apart from its case."""

_WILD = re.compile(r"[*?\[]")


def parse_table(text: str) -> TableName:
    """Return the parts of `NAME` or `SCHEMA.NAME`; a part in double quotes is taken literally."""
    parts = parts_of(text)
    if not 1 <= len(parts) <= 2 or any(len(segments) > 1 for segments in parts):
        raise UsageError(
            f"{text!r} is not a table name",
            "write NAME or SCHEMA.NAME, with double quotes around a part that is not plain: "
            "'public.\"Mixed Case\"'",
        )
    return TableName(schema=parts[0][0] if len(parts) == 2 else None, name=parts[-1][0])


def parts_of(text: str) -> list[tuple[NamePart, ...]]:
    """Return the parts between the dots, each as its quoted and plain texts; empty if malformed.

    A blank between quoted and plain text is a slip of the hand, not part of a name.
    """
    parts: list[tuple[NamePart, ...]] = []
    position = 0
    while True:
        matches = []
        while (match := _SEGMENT.match(text, position)) is not None:
            matches.append(match)
            position = match.end()
        segments = []
        for at, match in enumerate(matches):
            quoted, plain = match.groups()
            if quoted is not None:
                segments.append(NamePart(text=quoted.replace('""', '"'), quoted=True))
                continue
            plain = plain.lstrip() if at == 0 else plain
            plain = plain.rstrip() if match is matches[-1] else plain
            # Quoted text follows quoted text nowhere: two quotes in a row are one inside.
            beside = (plain[:1] if at else "") + (plain[-1:] if match is not matches[-1] else "")
            if beside.strip() != beside:
                return []
            if plain:
                segments.append(NamePart(text=plain))
        if not segments:
            return []
        parts.append(tuple(segments))
        if position == len(text):
            return parts
        if text[position] != ".":
            return []  # an open quote
        position += 1


Folding = Literal["lower", "upper", "any"]
"""What a database makes of a plain name: lower case, upper case, or any case that is there."""


@lru_cache(maxsize=1 << 16)
def folded(text: str, folding: Folding) -> str:
    """Return a plain name as the database reads it, one letter for each.

    Only ASCII letters become lower ones, as in PostgreSQL (UTF-8), DuckDB and SQLite.
    """
    if folding == "upper":
        return "".join(up if len(up := letter.upper()) == 1 else letter for letter in text)
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def meant(part: NamePart, candidates: Iterable[str], folding: Folding) -> tuple[str, ...]:
    """Return the candidates that the database takes `part` for.

    A query may have columns that differ in case alone: a quoted part means the equal one.
    """
    names = tuple(candidates)
    if part.quoted and part.text in names:
        return (part.text,)
    if folding == "any":
        wanted = folded(part.text, folding)
        return tuple(name for name in names if folded(name, folding) == wanted)
    wanted = part.text if part.quoted else folded(part.text, folding)
    return tuple(name for name in names if name == wanted)


def matching(part: NamePart, candidates: Iterable[str], folding: Folding) -> tuple[str, ...]:
    """Return the candidates that `part` may mean, best kind of match only.

    The best is the name that the database would read, then the name as typed, then any case.
    """
    names = tuple(candidates)
    found = meant(part, names, folding)
    if found or part.quoted:
        return found
    exact = tuple(name for name in names if name == part.text)
    return exact or tuple(name for name in names if name.casefold() == part.text.casefold())


def resolve(
    wanted: TableName,
    tables: Sequence[TableSummary],
    *,
    folding: Folding,
    default_schemas: Sequence[str],
    where: str,
) -> TableSummary:
    """Return the one table that a typed name means; SourceError if it means none or several.

    Without a schema, the table is in the first default schema that has the name that the database
    would read. Only where none has, another spelling counts. No further schema is searched.
    """
    schemas: Sequence[str] = default_schemas
    if wanted.schema is not None:
        known = dict.fromkeys(table.schema or "" for table in tables)
        schemas = matching(wanted.schema, known, folding)
    by_schema = [[table for table in tables if (table.schema or "") == each] for each in schemas]
    for rule in (meant, matching):
        for inside in by_schema:
            names = rule(wanted.name, [table.name for table in inside], folding)
            found = [table for table in inside if table.name in names]
            if len(found) == 1:
                return found[0]
            if found:
                raise SourceError(
                    f"table {wanted} may mean {_listed(found, folding)}",
                    "name the schema, and put double quotes around a name that is not plain",
                )
    raise no_such_table(wanted, tables, folding, where)


def no_such_table(
    wanted: TableName, tables: Sequence[TableSummary], folding: Folding, where: str
) -> SourceError:
    """Return the error for a name without a table, with the tables of that name elsewhere."""
    name = wanted.name.text.casefold()
    near = [table for table in tables if table.name.casefold() == name][:5]
    hint = "list the tables with: unloader describe SOURCE"
    if near:
        hint = f"name it in full, {_listed(near, folding)}"
    return SourceError(
        f"the table {wanted} is not in {where}, or you have no right to read it", hint
    )


def _listed(tables: Sequence[TableSummary], folding: Folding) -> str:
    """Return the names of tables so that each means just that one."""
    return " or ".join(
        ".".join(typed(part, folding) for part in (table.schema, table.name) if part)
        for table in tables
    )


def typed(name: str, folding: Folding) -> str:
    """Return a name as a user types it to mean just this one."""
    plain = _PLAIN.fullmatch(name) and (folding == "any" or folded(name, folding) == name)
    return name if plain else '"' + name.replace('"', '""') + '"'


def choose_columns(
    names: Sequence[str], include: Sequence[str], exclude: Sequence[str], folding: Folding
) -> tuple[str, ...]:
    """Return the chosen column names: in the order asked for, or in table order without one.

    Both lists take patterns, whose columns come in table order, each once. If a name means no
    column or several, or if no column is left, the error is UsageError.
    """
    plain = [one_column(names, name, folding) for name in include if not _is_pattern(names, name)]
    if twice := sorted(name for name in plain if plain.count(name) > 1):
        raise UsageError(f"--columns names {twice[0]!r} twice", "name each column once")
    found: dict[str, dict[str, None]] = {"--columns": {}, "--exclude": {}}
    for option, words in (("--columns", include), ("--exclude", exclude)):
        for wanted in words:
            columns = _columns_of(names, wanted, folding)
            if not columns:
                raise UsageError(
                    f"{option} {wanted.strip()} matches no column",
                    "use one of: " + ", ".join(names[:50]),
                )
            found[option].update(dict.fromkeys(columns))
    chosen, dropped = found.values()
    left = tuple(name for name in (chosen or names) if name not in dropped)
    if not left:
        raise UsageError("no column is left to unload", "exclude fewer columns")
    return left


def _is_pattern(names: Iterable[str], wanted: str) -> bool:
    """Return whether a typed text is a pattern: one that is a column's name means that column."""
    stripped = wanted.strip()
    return not stripped.startswith('"') and stripped not in names and bool(_WILD.search(stripped))


def _columns_of(names: Sequence[str], wanted: str, folding: Folding) -> tuple[str, ...]:
    """Return the columns that a name or a pattern means, in table order."""
    if not _is_pattern(names, wanted):
        return (one_column(names, wanted, folding),)
    found = matching_any(names, (wanted.strip(),))
    return tuple(name for name in names if name in found)


def one_column(names: Sequence[str], wanted: str, folding: Folding) -> str:
    """Return the one column that a typed name means; UsageError if it means none or several."""
    found = matching(_typed_part(wanted), names, folding)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"unknown column {wanted!r}", "use one of: " + ", ".join(names[:50]))
    raise UsageError(
        f"column {wanted!r} may mean {' or '.join(found)}", "put double quotes around the name"
    )


def means_a_column(names: Sequence[str], wanted: str, folding: Folding) -> bool:
    """Return whether a typed name or pattern means any of the columns."""
    if _is_pattern(names, wanted):
        return bool(matching_any(names, (wanted.strip(),)))
    return bool(matching(_typed_part(wanted), names, folding))


def _typed_part(wanted: str) -> NamePart:
    stripped = wanted.strip()
    quoted = len(stripped) > 1 and stripped.startswith('"') and stripped.endswith('"')
    return NamePart(text=plain_name(stripped), quoted=quoted)


def matching_any(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """Return the names that a pattern matches in any case; a pattern that is a name means it."""
    known = frozenset(names)
    globs = [pattern.casefold() for pattern in patterns if pattern not in known]
    matched = (name for name in known if any(fnmatchcase(name.casefold(), each) for each in globs))
    return known.intersection(patterns).union(matched)


def matching_partitions(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """Return the partitions that a pattern of `--partition` matches.

    A partition with sub-partitions means these, and is not listed itself.
    """
    known = frozenset(names)
    above = (f"{pattern}/*" for pattern in patterns if pattern not in known)
    return matching_any(known, (*patterns, *above))
