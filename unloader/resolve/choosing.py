"""From a request to the described tables of an open source: one list, one description for all.

A table that an entry names is left out of the patterns of the other entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import TableInfo
from unloader.errors import UnloaderError, UsageError
from unloader.events import Observer, silent
from unloader.model import OutputOptions, Request, Selection
from unloader.request.names import Folding, choose_columns, matching_any, means_a_column
from unloader.selection.asked import AskedTables
from unloader.selection.listing import (
    ListedTable,
    Listing,
    Obstacle,
    TableProblem,
    problem_of,
    unreadable_columns,
)
from unloader.sources.base import Catalog, described_or_obstacle, quoted_name
from unloader.sources.questions import describe_query, describe_tables

if TYPE_CHECKING:
    from unloader.selection.choice import Chosen

_Key = tuple[str, str]


class ChosenTable(Struct, frozen=True, kw_only=True):
    entry: int
    request: Request
    """For this table alone: with its name, and with the part of the selection that applies."""
    table: TableInfo


def chosen_tables(
    catalog: Catalog, entries: Sequence[AskedTables], observe: Observer = silent
) -> tuple[list[ChosenTable], list[TableProblem], list[str]]:
    """Return the described tables of all entries, by entry, schema and name; problems; notices.

    UsageError is raised if an entry asks for nothing.
    The source is asked for its list of tables only if an entry has a choice.
    """
    problems: list[TableProblem] = []
    notices: list[str] = []
    chosen: list[Chosen | None] = [None] * len(entries)
    """Of each entry; None where the source is asked directly."""
    kept: list[dict[_Key, ListedTable]] = [{} for _ in entries]
    """Of each entry, the readable tables without the tables of other entries."""

    def note(number: int, problem: TableProblem) -> None:
        problems.append(replace(problem, entry=number))

    listing: Listing | None = None
    for number, entry in enumerate(entries):
        if entry.choice is not None:
            # Imported here: most runs are of one table.
            from unloader.selection.choice import choose

            listing = listing or catalog.list_tables()
            found = chosen[number] = choose(entry.choice, listing)
            notices += found.notices
            for problem in found.problems:
                note(number, problem)
            kept[number] = {table.key: table for table in found.tables if table.readable}
    # Leave each table to the entry that names it, and does not only match it.
    claims: dict[_Key, list[int]] = {}
    for number, known in enumerate(kept):
        for key in known:
            claims.setdefault(key, []).append(number)
    # Entries of one group have the same tables.
    shared = {
        key: numbers
        for key, numbers in claims.items()
        if len({entries[number].group or str(number) for number in numbers}) > 1
    }
    named: list[frozenset[_Key]] = []
    for entry, made in zip(entries, chosen, strict=True) if shared else ():
        wish = entry.choice
        named_ones = [each for each in wish.tables if each.table is not None] if wish else []
        if listing and wish and named_ones and len(named_ones) < len(wish.tables):
            by_names = replace(wish, tables=tuple(named_ones), allow_unmatched=True)
            made = choose(by_names, listing)
        by_name = made.tables if named_ones and made is not None else ()
        named.append(frozenset(table.key for table in by_name))
    labels = [entry.label or f"entry {number + 1}" for number, entry in enumerate(entries)]
    for key, numbers in shared.items():
        naming = [number for number in numbers if key in named[number]]
        for number in numbers:
            if number in naming:
                continue
            other = kept[number].pop(key)
            if naming:
                text = f"{other.label} is assigned to {labels[naming[0]]}, which names it"
                notices.append(text)
                continue
            hint = "name the table in one of them, or exclude it from the others with exclude-table"
            what = f"patterns of {' and '.join(labels[each] for each in numbers)} match it"
            note(numbers[0], TableProblem.of("twice", other.label, what, hint=hint))
    infos: dict[_Key, TableInfo] = {}
    wanted = {key: table for tables in kept for key, table in tables.items()}
    if wanted:
        from unloader.selection.choice import Chosen

        union = Chosen(tables=tuple(table for _, table in sorted(wanted.items())))
        described = describe_tables(catalog, union, observe)
        infos = {(info.schema or "", info.name): info for info in described.tables}
        against = {problem.table: problem for problem in described.problems}
        for number, known in enumerate(kept):
            for table in known.values():
                if table.label in against:
                    note(number, against[table.label])
    tables: list[ChosenTable] = []
    for number, (entry, choice) in enumerate(zip(entries, chosen, strict=True)):
        request, selection = entry.request, entry.request.selection
        if choice is None:
            try:
                only = chosen_table(catalog, selection, observe)
            except UnloaderError as error:
                if error.retryable:
                    raise
                query = f"the query of {entry.label}" if entry.label else "the query"
                name = selection.query_name or str(selection.table or query)
                note(number, TableProblem(table=name, error=error))
            else:
                tables.append(ChosenTable(entry=number, request=request, table=only))
            continue
        of_entry = {key: infos[key] for key in kept[number] if key in infos}
        for unlisted, text in choice.unlisted:
            info = described_or_obstacle(catalog, unlisted, observe)
            if isinstance(info, Obstacle):
                note(number, problem_of(text, info))
                continue
            key = (info.schema or "", info.name)
            if key in choice.excluded:
                notices.append(f"{text} means {info.label}, which is excluded")
            else:
                of_entry.setdefault(key, info)
        excluded = [selection.exclude, *(each.exclude for each in request.routes or ())]
        unmet = [
            f"--exclude {each}"
            for each in dict.fromkeys(chain.from_iterable(excluded))
            if not any(_has(table, each, catalog) for table in of_entry.values())
        ]
        unmet += [
            f"--as-text {each}"
            for each in selection.as_text
            if not any(_has_text(table, each) for table in of_entry.values())
        ]
        for name in unmet if of_entry else ():
            hint = "see their columns with: unloader describe SOURCE --table T"
            what = "it matches no column of the tables"
            note(number, TableProblem.of("unmatched", name, what, hint=hint))
        for key, info in sorted(of_entry.items()):
            own = _applied_to(request, info, catalog)
            try:
                table_info = with_columns(info, own.selection, catalog.capabilities.folding)
            except UsageError as error:
                note(number, TableProblem(table=info.label, error=error))
                continue
            names = [column.name for column in table_info.columns]
            texts, listed = matching_any(names, own.selection.as_text), kept[number].get(key)
            unread: tuple[TableProblem, ...] = ()
            if listed is not None:
                unread = unreadable_columns(listed, [name for name in names if name not in texts])
            for problem in unread:
                note(number, problem)
            if not unread:
                tables.append(ChosenTable(entry=number, request=own, table=table_info))
    return tables, problems, list(dict.fromkeys(notices))


def chosen_table(catalog: Catalog, selection: Selection, observe: Observer = silent) -> TableInfo:
    """Return the described table or query of a selection; UsageError if it has neither or both."""
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
    """Return a described table only with the chosen columns; UsageError if it lacks them."""
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
    """Raise UsageError if a pattern of `--as-text` matches no column."""
    for pattern in patterns:
        if not matching_any(names, (pattern,)):
            raise UsageError(
                f"--as-text {pattern} matches no column", "use one of: " + ", ".join(names[:50])
            )


def _applied_to(request: Request, table: TableInfo, catalog: Catalog) -> Request:
    """Return a request for one table, without the options for columns of other tables."""
    selection, routes = request.selection, request.routes

    def own(exclude: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in exclude if _has(table, each, catalog))

    selection = replace(
        selection,
        table=quoted_name(table.schema, table.name),
        exclude=own(selection.exclude),
        as_text=tuple(each for each in selection.as_text if _has_text(table, each)),
    )

    def with_own(output: OutputOptions) -> OutputOptions:
        return replace(output, lob_files=own(output.lob_files))

    if routes is not None:
        routes = tuple(
            replace(route, exclude=own(route.exclude), output=with_own(route.output))
            for route in routes
        )
    output = with_own(request.output)
    return replace(request, selection=selection, output=output, routes=routes)


def _has(table: TableInfo, wanted: str, catalog: Catalog) -> bool:
    names = [column.name for column in table.columns]
    return means_a_column(names, wanted, catalog.capabilities.folding)


def _has_text(table: TableInfo, pattern: str) -> bool:
    return bool(matching_any([column.name for column in table.columns], (pattern,)))
