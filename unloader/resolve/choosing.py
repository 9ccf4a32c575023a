"""From a request to the described tables of an open source: one list, one description for all.

A table that an entry names is left out of the patterns of the other entries. If patterns of two
entries match it, neither is preferred: that is a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import TableInfo
from unloader.errors import UnloaderError, UsageError
from unloader.events import Observer, silent
from unloader.model import Request, Selection
from unloader.request.names import Folding, choose_columns, matching_any, means_a_column
from unloader.selection.choice import AskedTables, Chosen, choose
from unloader.selection.listing import (
    ListedTable,
    Listing,
    Obstacle,
    TableProblem,
    each_once,
    problem_of,
    unreadable_columns,
)
from unloader.sources.base import Catalog, described_or_obstacle, quoted_name
from unloader.sources.questions import describe_query, describe_tables

_Key = tuple[str, str]


class ChosenTable(Struct, frozen=True, kw_only=True):
    """One table or query."""

    entry: int
    request: Request
    """For this table alone: with its name, and with the part of the selection that applies."""
    table: TableInfo


class ChosenTables(Struct, frozen=True, kw_only=True):
    """All requested tables that exist."""

    tables: tuple[ChosenTable, ...]
    """By entry, then by schema and name."""
    problems: tuple[TableProblem, ...] = ()
    notices: tuple[str, ...] = ()


def chosen_tables(
    catalog: Catalog, entries: Sequence[AskedTables], observe: Observer = silent
) -> ChosenTables:
    """Return the tables of all entries, described.

    The source is asked for its list of tables only if an entry has a choice.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
        SourceError: The database refused all of it.
        UsageError: An entry asks for nothing.
    """
    work = _Choosing(catalog=catalog, entries=entries, observe=observe)
    work.choose()
    if any(work.kept):
        work.describe()
    for number in range(len(entries)):
        work.finish(number)
    return ChosenTables(
        tables=tuple(work.tables),
        problems=each_once(work.problems),
        notices=tuple(dict.fromkeys(work.notices)),
    )


def chosen_table(catalog: Catalog, selection: Selection, observe: Observer = silent) -> TableInfo:
    """Return the table that a selection names with its chosen columns, or its query as a table.

    Raises:
        UsageError: Neither or both of table and query, or an unknown column.
        SourceError: The source refused.
    """
    if (selection.table is None) == (selection.query is None):
        raise UsageError("a run reads one table or one query", "give --table or --query")
    if selection.query is not None:
        table = describe_query(catalog, selection.query)
        table = replace(table, name=selection.query_name or table.name)
    else:
        assert selection.table is not None
        table = catalog.describe(selection.table, observe)
    return with_columns(table, selection, catalog.capabilities.folding)


def with_columns(table: TableInfo, selection: Selection, folding: Folding) -> TableInfo:
    """Return a described table only with the chosen columns.

    Raises:
        UsageError: It has no columns, or not the chosen columns.
    """
    if not table.columns:
        raise UsageError(
            f"{table.label} has no columns, so there is nothing to unload", "choose another table"
        )
    names = [column.name for column in table.columns]
    chosen = choose_columns(names, selection.columns, selection.exclude, folding)
    if selection.as_text:
        check_as_text(chosen, selection.as_text)
    columns = tuple(table.columns[names.index(name)] for name in chosen)
    return replace(table, columns=columns)


def check_as_text(names: Sequence[str], patterns: Sequence[str]) -> None:
    """Check that each pattern of `--as-text` matches a column.

    Raises:
        UsageError: One does not.
    """
    for pattern in patterns:
        if not matching_any(names, (pattern,)):
            raise UsageError(
                f"--as-text {pattern} matches no column", "use one of: " + ", ".join(names[:50])
            )


class _Choosing(Struct, kw_only=True):
    """One choice as it is made."""

    catalog: Catalog
    entries: Sequence[AskedTables]
    observe: Observer
    chosen: list[Chosen | None] = field(default_factory=list)
    """Of each entry; None where the source is asked directly."""
    kept: list[list[ListedTable]] = field(default_factory=list)
    """Of each entry, without the tables of other entries."""
    infos: dict[_Key, TableInfo] = field(default_factory=dict)
    tables: list[ChosenTable] = field(default_factory=list)
    problems: list[TableProblem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def choose(self) -> None:
        listing: Listing | None = None
        for number, entry in enumerate(self.entries):
            found = None
            if entry.choice is not None:
                listing = listing or self.catalog.list_tables()
                found = choose(entry.choice, listing)
                self.notices += found.notices
                for problem in found.problems:
                    self._note(number, problem)
            self.chosen.append(found)
            self.kept.append([] if found is None else [t for t in found.tables if t.readable])
        if listing is not None:
            self._share(listing)

    def _note(self, entry: int, problem: TableProblem) -> None:
        self.problems.append(replace(problem, entry=entry))

    def _share(self, listing: Listing) -> None:
        """Leave each table to the entry that names it, and does not only match it."""
        claims: dict[_Key, list[int]] = {}
        for number, tables in enumerate(self.kept):
            for table in tables:
                claims.setdefault(table.key, []).append(number)
        # Entries of one group have the same tables.
        shared = {
            key: numbers
            for key, numbers in claims.items()
            if len({self.entries[number].group or str(number) for number in numbers}) > 1
        }
        if not shared:
            return
        named: list[frozenset[_Key]] = []
        for entry, chosen in zip(self.entries, self.chosen, strict=True):
            choice = entry.choice
            names = [each for each in choice.tables if each.table is not None] if choice else []
            if choice is not None and names and len(names) < len(choice.tables):
                chosen = choose(replace(choice, tables=tuple(names), allow_unmatched=True), listing)
            named.append(
                frozenset(table.key for table in chosen.tables)
                if names and chosen is not None
                else frozenset()
            )
        for key, numbers in shared.items():
            naming = [number for number in numbers if key in named[number]]
            for number in numbers:
                if number in naming:
                    continue
                (table,) = (each for each in self.kept[number] if each.key == key)
                self.kept[number].remove(table)
                if naming:
                    label = self._label(naming[0])
                    self.notices.append(f"{table.label} is assigned to {label}, which names it")
                    continue
                labels = " and ".join(map(self._label, numbers))
                hint = (
                    "name the table in one of them, or exclude it from the others with "
                    "exclude-table"
                )
                what = f"patterns of {labels} match it"
                self._note(numbers[0], TableProblem.of("twice", table.label, what, hint=hint))

    def _label(self, number: int) -> str:
        return self.entries[number].label or f"entry {number + 1}"

    def describe(self) -> None:
        wanted = {table.key: table for tables in self.kept for table in tables}
        union = Chosen(tables=tuple(table for _, table in sorted(wanted.items())))
        described = describe_tables(self.catalog, union, self.observe)
        self.infos = {(info.schema or "", info.name): info for info in described.tables}
        against = {problem.table: problem for problem in described.problems}
        for number, tables in enumerate(self.kept):
            for table in tables:
                if table.label in against:
                    self._note(number, against[table.label])

    def finish(self, number: int) -> None:
        entry, chosen = self.entries[number], self.chosen[number]
        if chosen is None:
            request = entry.request
            try:
                only = chosen_table(self.catalog, request.selection, self.observe)
            except UnloaderError as error:
                if error.retryable:
                    raise
                query = f"the query of {entry.label}" if entry.label else "the query"
                name = request.selection.query_name or str(request.selection.table or query)
                self._note(number, TableProblem(table=name, error=error))
                return
            self.tables.append(ChosenTable(entry=number, request=request, table=only))
            return
        listed = {table.key: table for table in self.kept[number]}
        found = {key: self.infos[key] for key in listed if key in self.infos}
        for named in chosen.unlisted:
            # Only the source knows what names mean that the list does not hold.
            info = described_or_obstacle(self.catalog, named.name, self.observe)
            if isinstance(info, Obstacle):
                self._note(number, problem_of(named.text, info))
                continue
            key = (info.schema or "", info.name)
            if key in chosen.excluded:
                self.notices.append(f"{named.text} means {info.label}, which is excluded")
            else:
                found.setdefault(key, info)
        tables, selection = list(found.values()), entry.request.selection
        excluded = [selection.exclude, *(each.exclude for each in entry.request.routes or ())]
        unmet = [
            f"--exclude {each}"
            for each in dict.fromkeys(chain.from_iterable(excluded))
            if not any(_has(table, each, self.catalog) for table in tables)
        ]
        unmet += [
            f"--as-text {each}"
            for each in selection.as_text
            if not any(_has_text(table, each) for table in tables)
        ]
        for name in unmet if tables else ():
            hint = "see their columns with: unloader describe SOURCE --table T"
            what = "it matches no column of the tables"
            self._note(number, TableProblem.of("unmatched", name, what, hint=hint))
        for key, info in sorted(found.items()):
            self._take(number, info, listed.get(key))

    def _take(self, number: int, info: TableInfo, listed: ListedTable | None) -> None:
        request = _applied_to(self.entries[number].request, info, self.catalog)
        selection = replace(request.selection, table=quoted_name(info.schema, info.name))
        request = replace(request, selection=selection)
        try:
            table = with_columns(info, selection, self.catalog.capabilities.folding)
        except UsageError as error:
            self._note(number, TableProblem(table=info.label, error=error))
            return
        names = [column.name for column in table.columns]
        texts = matching_any(names, selection.as_text)
        against = (
            ()
            if listed is None
            else unreadable_columns(listed, [name for name in names if name not in texts])
        )
        for problem in against:
            self._note(number, problem)
        if not against:
            self.tables.append(ChosenTable(entry=number, request=request, table=table))


def _applied_to(request: Request, table: TableInfo, catalog: Catalog) -> Request:
    """Return a request without the columns of other tables that it leaves out or has as text."""
    selection, routes = request.selection, request.routes

    def own(exclude: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in exclude if _has(table, each, catalog))

    return replace(
        request,
        selection=replace(
            selection,
            exclude=own(selection.exclude),
            as_text=tuple(each for each in selection.as_text if _has_text(table, each)),
        ),
        routes=None
        if routes is None
        else tuple(replace(route, exclude=own(route.exclude)) for route in routes),
    )


def _has(table: TableInfo, wanted: str, catalog: Catalog) -> bool:
    names = [column.name for column in table.columns]
    return means_a_column(names, wanted, catalog.capabilities.folding)


def _has_text(table: TableInfo, pattern: str) -> bool:
    return bool(matching_any([column.name for column in table.columns], (pattern,)))
