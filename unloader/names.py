"""Names of tables and columns as people type them, against names as a database has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from unloader.errors import SourceError, UsageError
from unloader.model import NamePart, TableName, TableSummary

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".]*[^".\s]))\s*')
"""One part with the blanks around it."""


def parse_table(text: str) -> TableName:
    """Return the parts of `NAME` or `SCHEMA.NAME`; a part in double quotes is taken literally.

    Raises:
        UsageError: The text is empty, has an open quote or more than two parts.
    """
    parts: list[NamePart] = []
    position = 0
    while (match := _PART.match(text, position)) is not None:
        quoted, plain = match.groups()
        parts.append(
            NamePart(text=quoted.replace('""', '"'), quoted=True)
            if quoted is not None
            else NamePart(text=plain)
        )
        position = match.end() + 1
        if text[match.end() : position] != ".":
            break
    # One past the end: the last part ended with the text, not with a dot or rubbish behind it.
    if position != len(text) + 1 or not 1 <= len(parts) <= 2:
        raise UsageError(
            f"{text!r} is not a table name",
            "write NAME or SCHEMA.NAME, with double quotes around a part that is not plain: "
            "'public.\"Mixed Case\"'",
        )
    return TableName(schema=parts[0] if len(parts) == 2 else None, name=parts[-1])


def matching(part: NamePart, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates that `part` may mean, best kind of match only.

    A quoted part matches exactly. A plain one matches exactly if it can, otherwise whatever equals
    it without regard to case, as every database folds plain names one way or the other.
    """
    names = tuple(candidates)
    exact = tuple(name for name in names if name == part.text)
    if exact or part.quoted:
        return exact
    folded = part.text.casefold()
    return tuple(name for name in names if name.casefold() == folded)


def resolve(
    wanted: TableName,
    tables: Sequence[TableSummary],
    *,
    default_schemas: Sequence[str],
    where: str,
) -> TableSummary:
    """Return the one table that a typed name means.

    Without a schema the default schemas are searched first, in their order, then all others. An
    exact name wins over one that only differs in case.

    Raises:
        SourceError: No such table, or several; the message names them.
    """
    if wanted.schema is not None:
        schemas = matching(wanted.schema, {table.schema or "" for table in tables})
        found = _named(wanted, [table for table in tables if (table.schema or "") in schemas])
    else:
        for schema in default_schemas:
            found = _named(wanted, [table for table in tables if table.schema == schema])
            if found:
                break
        else:
            found = _named(wanted, tables)
    if len(found) == 1:
        return found[0]
    if not found:
        raise SourceError(
            f"there is no table {wanted} in {where}, or no right to read it",
            "list the tables with: unloader describe SOURCE",
        )
    names_found = " or ".join(f"{table.schema}.{table.name}" for table in found)
    raise SourceError(
        f"table {wanted} may mean {names_found}",
        "name the schema, and put double quotes around a name that is not plain",
    )


def _named(wanted: TableName, tables: Sequence[TableSummary]) -> list[TableSummary]:
    names = matching(wanted.name, {table.name for table in tables})
    return [table for table in tables if table.name in names]


def choose_columns(
    names: Sequence[str], include: Sequence[str], exclude: Sequence[str]
) -> tuple[str, ...]:
    """Return the chosen column names: in the order asked for, or in table order without one.

    Raises:
        UsageError: An unknown or ambiguous name, one named twice, or nothing left.
    """
    chosen = [one_column(names, name) for name in include] or list(names)
    twice = {name for name in chosen if chosen.count(name) > 1}
    if twice:
        raise UsageError(f"--columns names {sorted(twice)[0]!r} twice", "name each column once")
    dropped = {one_column(names, name) for name in exclude}
    left = tuple(name for name in chosen if name not in dropped)
    if not left:
        raise UsageError("no column is left to unload", "exclude fewer columns")
    return left


def one_column(names: Sequence[str], wanted: str) -> str:
    """Return the one column that a typed name means; quotes and case are as for tables.

    Raises:
        UsageError: There is none, or several.
    """
    stripped = wanted.strip()
    quoted = len(stripped) > 1 and stripped.startswith('"') and stripped.endswith('"')
    part = NamePart(text=stripped[1:-1].replace('""', '"') if quoted else stripped, quoted=quoted)
    found = matching(part, names)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no column {wanted!r}", "use one of: " + ", ".join(names[:50]))
    raise UsageError(
        f"column {wanted!r} may mean {' or '.join(found)}", "put double quotes around the name"
    )


def matching_any(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """Return the names that a glob pattern matches, without regard to case.

    A pattern that is one of the names means just that one, not others that differ in case.
    """
    known = frozenset(names)
    globs = [pattern for pattern in patterns if pattern not in known]
    exact = known.intersection(patterns)
    return exact | {name for name in known if matches_any(name, globs)}


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a glob pattern matches the name, without regard to case."""
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)
