"""Which tables of a listing were asked for.

A name has the database's meaning: the same table that the source alone would find for it. A name
outside the listing (a synonym, a partition, a view of the database itself) is left to the source. A
pattern matches tables that store rows, unless other families are asked for, and never the
database's internal tables. Partitions are not separate tables: no listing has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.model import NamePart, Request, TableName, TablesOptions
from unloader.nouns import are, counted
from unloader.request.names import meant
from unloader.selection.listing import (
    STORED,
    Family,
    ListedTable,
    Listing,
    TableProblem,
    obstacles_of,
)
from unloader.selection.patterns import PartPattern, TablePattern

_SOME = 5


class TableChoice(Struct, frozen=True, kw_only=True):
    """The user's choice of tables."""

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


class AskedTables(Struct, frozen=True, kw_only=True):
    """One entry: some tables, or one table or query, that are unloaded in the same way."""

    request: Request
    """What holds for each of the tables. It names none of them if there is a choice."""
    choice: TableChoice | None = None
    """Which tables; None means the table or the query that the request names."""
    label: str = ""
    """The entry of the job file, for messages; empty for a command line."""
    group: str = ""
    """Entries of one group have the same tables, and write them in different ways."""

    @property
    def is_of_one(self) -> bool:
        """Whether it names one table, or is a query."""
        if self.choice is None:
            return True
        tables = self.choice.tables
        return len(tables) == 1 and tables[0].table is not None

    @classmethod
    def of(cls, request: Request) -> AskedTables:
        """Return the entry of the one table or query that a request names."""
        name = request.selection.table
        if name is None:
            return cls(request=request)
        # As patterns without wildcards, so that all entries share one list of tables.
        schema = None if name.schema is None else PartPattern(segments=(name.schema,))
        pattern = TablePattern(
            text=str(name),
            origin="the request",
            schema=schema,
            name=PartPattern(segments=(name.name,)),
        )
        selection = replace(request.selection, table=None)
        return cls(
            request=replace(request, selection=selection), choice=TableChoice(tables=(pattern,))
        )


class TablesRequest(Struct, frozen=True, kw_only=True):
    """What one run is asked for: one table or query, or several of them at one snapshot."""

    entries: tuple[AskedTables, ...]
    """All have the same source, and the same options of the run as a whole."""
    options: TablesOptions
    left_out: tuple[tuple[str, str], ...] = ()
    """Tables that an interrupted run, which this run replaces, could not unload; and why not."""
    is_single: bool = False
    """The run is one table or query, whose directory has the record and the manifest of the run.
    Otherwise these are in the directory around the directories of the tables."""

    @classmethod
    def one(cls, request: Request) -> TablesRequest:
        """Return the run of the one table or query that a request names."""
        output = request.output
        options = TablesOptions(destination=output.destination, overwrite=output.overwrite)
        return cls(entries=(AskedTables(request=request),), options=options, is_single=True)

    @classmethod
    def of(cls, requests: Iterable[Request], options: TablesOptions) -> TablesRequest:
        """Return the run over the tables and queries that requests name."""
        return cls(entries=tuple(map(AskedTables.of, requests)), options=options)

    @property
    def common(self) -> Request:
        """Any of the requests: source, limits, seats and retries are the same in all of them."""
        return self.entries[0].request


class NamedTable(Struct, frozen=True, kw_only=True):
    """A name that the listing does not hold; only the source knows its meaning."""

    name: TableName
    text: str


class Chosen(Struct, frozen=True, kw_only=True):
    """The tables that were asked for, each once."""

    tables: tuple[ListedTable, ...]
    unlisted: tuple[NamedTable, ...] = ()
    excluded: frozenset[tuple[str, str]] = frozenset()
    """Schema and name of the tables that the exclusions match. A name that is not in the listing
    may turn out to mean one of them."""
    notices: tuple[str, ...] = ()
    problems: tuple[TableProblem, ...] = ()
    """Of names and patterns, then of the tables, as far as the listing tells."""


def choose(wanted: TableChoice, listing: Listing) -> Chosen:
    """Return the tables of a listing that were asked for.

    Raises:
        UsageError: Neither a table nor a schema was asked for.
    """
    if not (wanted.tables or wanted.schemas):
        raise UsageError("no table is named", "name a table, a pattern of tables or a schema")
    work = _Choosing(wanted=wanted, listing=listing)
    schemas: tuple[str, ...] | None = None
    if wanted.schemas:
        matched: dict[str, None] = {}
        for schema in wanted.schemas:
            some = schema.among(work.schemas(), listing.folding)
            matched.update(dict.fromkeys(some))
            if not some:
                text = "".join(segment.text for segment in schema.segments)
                work.unmatched(text, "the schemas", "no schema of this name has tables")
        schemas = tuple(sorted(matched))
    for pattern in wanted.tables:
        if pattern.table is None or (schemas is not None and pattern.schema is None):
            work.by_pattern(pattern, schemas)
        else:
            work.by_name(pattern, pattern.table)
    for name in schemas or () if not wanted.tables else ():
        work.take(f"schema {name}", work.own(name), "the schemas")
    excluded: set[tuple[str, str]] = set()
    for pattern in wanted.exclude:
        # It matches tables of any family, and without a schema in any schema.
        by_name = pattern.table is not None
        among = tuple(listing.by_schema) if by_name else work.schemas()
        if pattern.schema is not None:
            among = pattern.schema.among(among, listing.folding)
        tables = [
            table
            for schema_name in among
            for table in listing.by_schema[schema_name]
            if by_name or not table.system
        ]
        names = pattern.name.among({table.name: None for table in tables}, listing.folding)
        found = {table.key for table in tables if table.name in names}
        excluded |= found
        if not found:
            work.unmatched(pattern.text, pattern.origin, "the exclusion matches no table")
    left = tuple(table for key, table in sorted(work.found.items()) if key not in excluded)
    if not (left or work.unlisted or work.problems):
        named = ", ".join(dict.fromkeys(each.text for each in wanted.exclude)) or "the patterns"
        hint = "exclude fewer tables, or list all tables with: unloader describe SOURCE"
        what = "none of the requested tables is left"
        work.problems.append(TableProblem.of("unmatched", named, what, hint=hint))
    labels = {table.key: table.label for table in left}
    work.notices.extend(
        f"the rows of {table.label} are unloaded twice: {labels[table.part_of]} also has them, by "
        "inheritance"
        for table in left
        if table.part_of is not None and table.part_of in labels
    )
    return Chosen(
        tables=left,
        unlisted=tuple(dict.fromkeys(work.unlisted)),
        excluded=frozenset(excluded),
        notices=tuple(dict.fromkeys(work.notices)),
        problems=(*work.problems, *obstacles_of(left)),
    )


class _Choosing(Struct, kw_only=True):
    """One choice as it is made."""

    wanted: TableChoice
    listing: Listing
    found: dict[tuple[str, str], ListedTable] = field(default_factory=dict)
    unlisted: list[NamedTable] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    problems: list[TableProblem] = field(default_factory=list)

    def schemas(self) -> tuple[str, ...]:
        """Return the schemas that have a table of a user."""
        return tuple(schema for schema in self.listing.by_schema if self.own(schema))

    def own(self, schema: str) -> list[ListedTable]:
        """Return the tables of a schema that are not the database's own."""
        return [table for table in self.listing.by_schema.get(schema, ()) if not table.system]

    def by_name(self, pattern: TablePattern, name: TableName) -> None:
        """Take the table that the database would find, or leave the name to the source.

        A system table is left to the source, too: only the source knows whether it can be unloaded.
        """
        folding = self.listing.folding
        schemas: Sequence[str] = self.listing.default_schemas
        if name.schema is not None:
            schemas = meant(name.schema, self.listing.by_schema, folding)
        for schema in schemas if pattern.certain else ():
            tables = self.listing.by_schema.get(schema, [])
            names = meant(name.name, (table.name for table in tables), folding)
            found = [table for table in tables if table.name in names]
            if len(found) == 1 and not found[0].system:
                self.found[found[0].key] = found[0]
                return
            if found:
                break
        self.unlisted.append(NamedTable(name=name, text=pattern.text))

    def by_pattern(self, pattern: TablePattern, asked: tuple[str, ...] | None) -> None:
        """Take all tables that a pattern matches; a plain name is a pattern in named schemas."""
        folding = self.listing.folding
        if pattern.schema is not None:
            schemas = pattern.schema.among(self.schemas(), folding)
        else:
            schemas = self.listing.default_schemas if asked is None else asked
        pool = [table for schema in schemas for table in self.own(schema)]
        names = set(pattern.name.among((table.name for table in pool), folding))
        found = [table for table in pool if table.name in names]
        any_family = pattern.name.literal is not None
        self.take(pattern.text, found, pattern.origin, any_family=any_family)
        segments = pattern.name.segments
        if not names or any(segment.quoted for segment in segments):
            return
        # Report the names that the pattern would match if letters had the other case.
        rest = {
            table.name.casefold(): table
            for table in pool
            if table.name not in names and table.family in self.wanted.families
        }
        lower = tuple(NamePart(text=segment.text.casefold()) for segment in segments)
        missed = [rest[name].label for name in PartPattern(segments=lower).among(rest, "any")]
        if missed:
            more = len(missed) - _SOME
            shown = ", ".join(missed[:_SOME]) + (f" and {more} more" if more > 0 else "")
            self.notices.append(
                f"{pattern.text} does not match {shown}, because of upper and lower case; put "
                "double quotes around letters whose case matters"
            )

    def take(
        self, text: str, found: Iterable[ListedTable], origin: str, *, any_family: bool = False
    ) -> None:
        """Take the tables of the requested families; report the others."""
        kept = 0
        kinds: Counter[str] = Counter()
        for table in found:
            if any_family or table.family in self.wanted.families:
                self.found[table.key] = table
                kept += 1
            else:
                kinds[table.kind] += 1
        parts = [counted(number, kind) for kind, number in sorted(kinds.items())]
        others = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
        if not kept:
            what = f"it matches {others} but no table" if others else "it matches no table"
            hint = "give their full names, or give --table-kinds" if others else ""
            self.unmatched(text, origin, what, hint)
        elif others:
            left_out = f"which {are(kinds.total())} left out"
            self.notices.append(f"{text} also matches {others}, {left_out}")

    def unmatched(self, text: str, origin: str, what: str, hint: str = "") -> None:
        """Note a pattern that matches nothing: as a problem, or as a notice if that is allowed."""
        if self.wanted.allow_unmatched:
            self.notices.append(f"{text} in {origin}: {what}")
            return
        hint = hint or (
            "list the tables with: unloader describe SOURCE; or give --allow-unmatched to accept "
            "patterns, schemas and exclusions that match nothing"
        )
        where = f"{what} in {self.listing.where}"
        self.problems.append(TableProblem.of("unmatched", text, where, hint=hint))
