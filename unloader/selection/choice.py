"""Which tables of a listing were asked for: by names, or by patterns as people type them.

A name has the database's meaning: the same table that the source alone would find for it. A name
outside the listing (a synonym, a partition, a view of the database itself) is left to the source. A
pattern matches tables that store rows, unless other families are asked for, and never the
database's internal tables. Partitions are not separate tables: no listing has them.

A pattern is `NAME` or `SCHEMA.NAME`. Outside of double quotes `*`, `?` and `[...]` are wildcards,
as in a shell, and letters are read in the case of the database. Inside, every character means
itself, wildcards and dots included. A part may mix both: `"Order ["*`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from pathlib import Path

from msgspec import Struct

from unloader.errors import UsageError
from unloader.model import NamePart, TableName
from unloader.nouns import are, counted
from unloader.request.names import Folding, folded, meant, parts_of
from unloader.selection.listing import (
    STORED,
    Family,
    ListedTable,
    Listing,
    TableProblem,
    problem_of,
)
from writers.files.regular import read_named

_SOME = 5

_CLASS = re.compile(r"\[!?\]?[^\]]*\]")
_WILD = re.compile(rf"[*?]|{_CLASS.pattern}")
_CLASS_OR_BRACKET = re.compile(rf"{_CLASS.pattern}|\[")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
"""A plain name that databases read alike, apart from its case."""


class PartPattern(Struct, frozen=True, kw_only=True):
    """One part of a pattern: texts in quotes and outside of them, in their order."""

    segments: tuple[NamePart, ...]

    @property
    def literal(self) -> NamePart | None:
        if len(self.segments) > 1:
            return None
        (segment,) = self.segments
        return segment if segment.quoted or not _WILD.search(segment.text) else None

    def among(self, candidates: Iterable[str], folding: Folding) -> tuple[str, ...]:
        """Return the candidates it matches, in their order.

        Plain letters are read as the database reads them. Only where it would find none they mean
        the case in which they were typed, otherwise any case.
        """
        names = tuple(candidates)

        def matched(plain: Callable[[str], str], other: Callable[[str], str]) -> tuple[str, ...]:
            """Compare with plain text in one case, quoted text and the names in the other."""
            glob = "".join(
                re.sub(r"[*?\[]", r"[\g<0>]", other(segment.text))
                if segment.quoted
                else _closed(plain(segment.text))
                for segment in self.segments
            )
            wanted = re.compile(translate(glob))
            return tuple(each for each in names if wanted.match(other(each)))

        def fold(text: str) -> str:
            return folded(text, folding)

        if folding == "any":
            return matched(fold, fold)
        found = matched(fold, str)
        if found or any(segment.quoted for segment in self.segments):
            return found
        return matched(str, str) or matched(str.casefold, str.casefold)


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


def parse_pattern(text: str, origin: str = "--table") -> TablePattern:
    """Return the pattern, or the name, that a text is; UsageError for any other text."""
    parts = [PartPattern(segments=each) for each in parts_of(text)]
    if not 1 <= len(parts) <= 2:
        raise UsageError(
            f"{text!r} in {origin} is neither a table name nor a pattern",
            "write NAME or SCHEMA.NAME; put double quotes around special names and around "
            "characters that are not wildcards: '\"Mixed Case\".ORDERS_*'",
        )
    return TablePattern(
        text=text, origin=origin, schema=parts[0] if len(parts) == 2 else None, name=parts[-1]
    )


def parse_schema(text: str, origin: str) -> PartPattern:
    """Return the pattern of schema names that a text is; UsageError as `parse_pattern`."""
    parts = parts_of(text)
    if len(parts) != 1:
        raise UsageError(
            f"{text!r} in {origin} is neither the name of a schema nor a pattern",
            "write one name or pattern; put double quotes around a special name: '\"Mixed Case\"'",
        )
    return PartPattern(segments=parts[0])


def read_patterns(path: Path) -> tuple[TablePattern, ...]:
    """Return the patterns of a file, in its order; UsageError if it is not a list of patterns."""
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
    """Return the patterns of a text, one a line; UsageError as `parse_pattern`.

    Blank lines and lines that begin with `#` are left out; a name that begins with it is quoted. A
    line end within double quotes belongs to the name.
    """
    found: list[TablePattern] = []
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
            found.append(parse_pattern("\n".join(pending).strip(), f"{where}, line {begun}"))
            pending = []
    if pending:
        raise UsageError(
            f"{where}, line {begun}, has a double quote without a closing quote",
            "close it; write a double quote inside a name twice",
        )
    return tuple(found)


def _closed(glob: str) -> str:
    """Return a glob whose every `[` opens a class: any other would be closed further on."""
    return _CLASS_OR_BRACKET.sub(
        lambda match: "[[]" if match.group() == "[" else match.group(), glob
    )


class TableChoice(Struct, frozen=True, kw_only=True):
    tables: tuple[TablePattern, ...] = ()
    """The patterns of the command line and of files together."""
    schemas: tuple[PartPattern, ...] = ()
    """Where tables without a schema are looked for; without any table, all of those schemas."""
    exclude: tuple[TablePattern, ...] = ()
    """One without a schema is for every schema."""
    families: tuple[Family, ...] = STORED
    """What a pattern matches; a name means a table of any family."""
    allow_unmatched: bool = False
    """A name or pattern without a table is reported, and not a problem."""


class Chosen(Struct, frozen=True, kw_only=True):
    tables: tuple[ListedTable, ...]
    unlisted: tuple[tuple[TableName, str], ...] = ()
    """Names that the listing does not hold, also as they were typed; the source may know them."""
    excluded: frozenset[tuple[str, str]] = frozenset()
    """Schema and name of the tables that the exclusions match. A name that is not in the listing
    may turn out to mean one of them."""
    notices: tuple[str, ...] = ()
    problems: tuple[TableProblem, ...] = ()
    """Of names and patterns, then of the tables, as far as the listing tells."""


def choose(wanted: TableChoice, listing: Listing) -> Chosen:
    """Return the tables of a listing that were asked for; UsageError without table and schema."""
    if not (wanted.tables or wanted.schemas):
        raise UsageError("no table is named", "name a table, a pattern of tables or a schema")
    folding, by_schema, users = listing.folding, listing.by_schema, listing.users
    taken: dict[tuple[str, str], ListedTable] = {}
    unlisted: dict[tuple[TableName, str], None] = {}
    notices: list[str] = []
    problems: list[TableProblem] = []

    def unmatched(text: str, origin: str, what: str, hint: str = "") -> None:
        """Note a pattern that matches nothing: as a problem, or as a notice if that is allowed."""
        if wanted.allow_unmatched:
            notices.append(f"{text} in {origin}: {what}")
            return
        hint = hint or (
            "list the tables with: unloader describe SOURCE; or give --allow-unmatched to accept "
            "patterns, schemas and exclusions that match nothing"
        )
        problems.append(TableProblem.of("unmatched", text, f"{what} in {listing.where}", hint=hint))

    def take(
        text: str, found: Iterable[ListedTable], origin: str, *, any_family: bool = False
    ) -> None:
        kinds: Counter[str] = Counter()
        is_empty = True
        for table in found:
            if any_family or table.family in wanted.families:
                taken[table.key] = table
                is_empty = False
            else:
                kinds[table.kind] += 1
        parts = [counted(number, kind) for kind, number in sorted(kinds.items())]
        others = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
        if is_empty:
            what = f"it matches {others} but no table" if others else "it matches no table"
            hint = "give their full names, or give --table-kinds" if others else ""
            unmatched(text, origin, what, hint)
        elif others:
            left_out = f"which {are(kinds.total())} left out"
            notices.append(f"{text} also matches {others}, {left_out}")

    schemas: tuple[str, ...] | None = None
    if wanted.schemas:
        matched: dict[str, None] = {}
        for schema in wanted.schemas:
            some = schema.among(users, folding)
            matched.update(dict.fromkeys(some))
            if not some:
                text = "".join(segment.text for segment in schema.segments)
                unmatched(text, "the schemas", "no schema of this name has tables")
        schemas = tuple(sorted(matched))
    for pattern in wanted.tables:
        name = pattern.table
        if name is not None and (schemas is None or pattern.schema is not None):
            named = _named(name, listing)
            if named is None:
                unlisted[name, pattern.text] = None
            else:
                taken[named.key] = named
            continue
        # All tables that a pattern matches; a plain name is a pattern in named schemas.
        among: Iterable[str] = listing.default_schemas if schemas is None else schemas
        if pattern.schema is not None:
            among = pattern.schema.among(users, folding)
        pool = [table for schema in among for table in users.get(schema, ())]
        names = set(pattern.name.among((table.name for table in pool), folding))
        found = [table for table in pool if table.name in names]
        is_name = pattern.name.literal is not None
        take(pattern.text, found, pattern.origin, any_family=is_name)
        segments = pattern.name.segments
        if not names or any(segment.quoted for segment in segments):
            continue
        # Report the names that the pattern would match if letters had the other case.
        rest = {
            table.name.casefold(): table
            for table in pool
            if table.name not in names and table.family in wanted.families
        }
        lower = tuple(NamePart(text=segment.text.casefold()) for segment in segments)
        missed = [rest[each].label for each in PartPattern(segments=lower).among(rest, "any")]
        if missed:
            more = len(missed) - _SOME
            shown = ", ".join(missed[:_SOME]) + (f" and {more} more" if more > 0 else "")
            notices.append(
                f"{pattern.text} does not match {shown}, because of upper and lower case; put "
                "double quotes around letters whose case matters"
            )
    for each in schemas or () if not wanted.tables else ():
        take(f"schema {each}", users.get(each, ()), "the schemas")
    excluded: set[tuple[str, str]] = set()
    for pattern in wanted.exclude:
        # It matches tables of any family, and without a schema in any schema. A name means a table
        # of the database itself, too.
        pools = users if pattern.table is None else by_schema
        among = pools if pattern.schema is None else pattern.schema.among(pools, folding)
        pool = [table for schema in among for table in pools[schema]]
        names = set(pattern.name.among({table.name: None for table in pool}, folding))
        keys = {table.key for table in pool if table.name in names}
        excluded |= keys
        if not keys:
            unmatched(pattern.text, pattern.origin, "the exclusion matches no table")
    left = tuple(table for key, table in sorted(taken.items()) if key not in excluded)
    if not (left or unlisted or problems):
        texts = ", ".join(dict.fromkeys(each.text for each in wanted.exclude)) or "the patterns"
        hint = "exclude fewer tables, or list all tables with: unloader describe SOURCE"
        what = "none of the requested tables is left"
        problems.append(TableProblem.of("unmatched", texts, what, hint=hint))
    labels = {table.key: table.label for table in left}
    notices += [
        f"the rows of {table.label} are unloaded twice: {labels[table.part_of]} also has them, by "
        "inheritance"
        for table in left
        if table.part_of is not None and table.part_of in labels
    ]
    obstacles = [problem_of(table.label, each) for table in left for each in table.obstacles]
    return Chosen(
        tables=left,
        unlisted=tuple(unlisted),
        excluded=frozenset(excluded),
        notices=tuple(dict.fromkeys(notices)),
        problems=(*problems, *obstacles),
    )


def _named(name: TableName, listing: Listing) -> ListedTable | None:
    """Return the table that the database would find for a name; None leaves it to the source.

    A system table is left to the source, too: only the source knows whether it can be unloaded.
    """
    schemas: Sequence[str] = listing.default_schemas
    if name.schema is not None:
        schemas = meant(name.schema, listing.by_schema, listing.folding)
    parts = (part for part in (name.schema, name.name) if part is not None)
    if not all(part.quoted or _PLAIN.fullmatch(part.text) for part in parts):
        return None
    for schema in schemas:
        tables = listing.by_schema.get(schema, [])
        names = meant(name.name, (table.name for table in tables), listing.folding)
        found = [table for table in tables if table.name in names]
        if found:
            return found[0] if len(found) == 1 and not found[0].system else None
    return None
