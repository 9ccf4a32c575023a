"""Many tables of a source together: listed, described, held, and their rows counted.

A source with the abilities needs a fixed number of statements, or few for a thousand tables. Other
sources are asked table by table. Both ways give the same descriptions and counts. A refusal of one
table does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from msgspec import Struct

from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.events import Notice, Observer, silent
from unloader.model import NamePart, TableName
from unloader.selection.listing import ListedTable, Listing, Obstacle, TableProblem, problem_of
from unloader.sources.statement import condition, select

if TYPE_CHECKING:
    from partition_planner.model import Selector, TableInfo
    from unloader.model import Extract
    from unloader.selection.choice import Chosen
    from unloader.sources.base import Catalog

GONE = Obstacle(
    kind="gone",
    what="it was dropped or renamed after the run began",
    hint="leave the table out, or run again to read the tables as they are now",
)


class ListingCatalog(Protocol):
    """The extra method of a catalog with `capabilities.lists`."""

    def list_tables(self) -> Listing:
        """Return all tables and views, also known ones that the user may not read.

        Partitions are not listed. A source that reads its catalogue at the snapshot lists the
        tables of that time, with the rights of the present.

        Raises:
            SourceError: The database refused.
        """


class DescribingCatalog(Protocol):
    """The extra method of a catalog with `capabilities.describes_many`."""

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = ...
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Return for each table, in order, the result of `describe` for its name in quotes.

        An obstacle takes the place of a table that cannot be described.

        Args:
            tables: Tables of the listing, without obstacles.
            observe: As in `describe`.

        Raises:
            SourceError: The database refused all of it, or the connection is lost.
        """


class DescribedTables(Struct, frozen=True, kw_only=True):
    """The descriptions of the chosen tables."""

    tables: tuple[TableInfo, ...]
    """By schema and name, each once."""
    problems: tuple[TableProblem, ...] = ()
    """One for each table that cannot be described, without the problems of the choice."""
    notices: tuple[str, ...] = ()


def list_tables(catalog: Catalog) -> Listing:
    """Return all tables of a source.

    Raises:
        SourceError: The database refused.
    """
    if catalog.capabilities.lists:
        return cast(ListingCatalog, catalog).list_tables()
    return Listing.of(
        [ListedTable.of(table) for table in catalog.tables()],
        folding=catalog.capabilities.folding,
        # The first schema of the source's search path is unknown: the source resolves such names.
        default_schemas=("",),
        where="the source",
    )


def describe_tables(
    catalog: Catalog, chosen: Chosen, observe: Observer = silent
) -> DescribedTables:
    """Describe the chosen tables that have no obstacle yet.

    The source resolves a name that is not in the listing. If the name means a table that is chosen
    or excluded already, it adds no table.

    Args:
        catalog: A catalog with its snapshot.
        chosen: The choice from its listing.
        observe: Called as each slow step begins.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
        SourceError: The database refused all of it.
    """
    problems: list[TableProblem] = []
    notices: list[str] = []
    found: dict[tuple[str, str], TableInfo] = {}
    wanted = [table for table in chosen.tables if table.readable]
    for listed, info in zip(wanted, describe_listed(catalog, wanted, observe), strict=True):
        if isinstance(info, Obstacle):
            problems.append(problem_of(listed.label, info))
        else:
            found[listed.key] = info
    for named in chosen.unlisted:
        single = described_or_obstacle(catalog, named.name, observe)
        if isinstance(single, Obstacle):
            problems.append(problem_of(named.text, single))
            continue
        key = (single.schema or "", single.name)
        if key in chosen.excluded:
            notices.append(f"{named.text} means {single.label}, which is excluded")
        else:
            found.setdefault(key, single)
    return DescribedTables(
        tables=tuple(info for _, info in sorted(found.items())),
        problems=tuple(problems),
        notices=tuple(notices),
    )


def quoted_name(schema: str | None, name: str) -> TableName:
    """Return the name that means exactly one table."""
    return TableName(
        schema=None if schema is None else NamePart(text=schema, quoted=True),
        name=NamePart(text=name, quoted=True),
    )


def describe_listed(
    catalog: Catalog, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return for each table of the listing its description or its obstacle.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
        SourceError: The database refused all of it.
    """
    if catalog.capabilities.describes_many and tables:
        return cast(DescribingCatalog, catalog).describe_tables(tables, observe)
    return tuple(
        described_or_obstacle(catalog, quoted_name(table.schema, table.name), observe)
        for table in tables
    )


def described_in_order(
    catalog: Catalog,
    tables: Sequence[ListedTable],
    infos: Iterable[TableInfo],
    there: Collection[tuple[str, str]],
    observe: Observer = silent,
) -> tuple[TableInfo | Obstacle, ...]:
    """Return a description or an obstacle of each table, in order; for `describe_tables`.

    Args:
        catalog: Describes tables that are not among `infos`, one by one.
        tables: Tables of the listing.
        infos: Descriptions of some tables, from one question.
        there: Schemas and names of the tables that exist now.
        observe: As in `describe`.
    """
    known = {(info.schema or "", info.name): info for info in infos}
    return tuple(
        known.get(table.key)
        or (
            described_or_obstacle(catalog, quoted_name(*table.key), observe)
            if table.key in there
            else GONE
        )
        for table in tables
    )


def asked_together(
    ask: Callable[[Sequence[Key]], Sequence[tuple[Key, T]]], keys: Sequence[Key]
) -> Iterator[tuple[Key, T]]:
    """Yield the answers of a source for many tables.

    One statement asks for up to a hundred tables. If it is refused, each table has a separate
    statement. A table whose statement is refused is left out.

    Raises:
        SourceError: There is one table only, and its statement is refused.
    """
    if len(keys) == 1:
        yield from ask(keys)
        return
    for start in range(0, len(keys), TOGETHER):
        some = keys[start : start + TOGETHER]
        found = result_or_error(partial(ask, some))
        if not isinstance(found, SourceError):
            yield from found
            continue
        for key in some:
            alone = result_or_error(partial(ask, [key]))
            yield from () if isinstance(alone, SourceError) else alone


def described_or_obstacle(
    catalog: Catalog, name: TableName, observe: Observer = silent
) -> TableInfo | Obstacle:
    """Describe one table; an obstacle if the database refuses that table.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
    """
    try:
        return catalog.describe(name, observe)
    except (TransientSourceError, SnapshotGone):
        raise
    except SourceError as error:
        return Obstacle(kind="refused", what=error.message, hint=error.hint)


Key = TypeVar("Key")
T = TypeVar("T")

TOGETHER = 100
"""Tables of one statement; SQLite joins 500 SELECTs at most, and more gain nothing in DuckDB."""

Held = tuple["Extract", "tuple[Selector, ...]"]
"""One table to hold."""


class HoldingCatalog(Protocol):
    """The extra method of a catalog with `capabilities.holds_many`."""

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        """Hold each table as `Catalog.hold` does; return the error of each, or None.

        All tables together wait for locks no longer than one table may.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: The snapshot of all tables is lost.
        """


class CountingCatalog(Protocol):
    """The extra method of a catalog with `capabilities.counts_many`."""

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return for each extract the result or the error of `Catalog.count`.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: The snapshot of all tables is lost.
        """


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Hold each table unchanged; return the error of each, or None.

    Args:
        catalog: The catalog with the snapshot.
        tables: The tables to hold.
        observe: Called with a notice of each kind of object that cannot be held.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    if catalog.capabilities.holds_many and len(tables) > 1:
        found = cast(HoldingCatalog, catalog).hold_tables(tables)
    else:
        found = tuple(error_or_none(partial(catalog.hold, *each)) for each in tables)
    for text in catalog.unheld():
        observe(Notice(text=text))
    return found


def count_tables(catalog: Catalog, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
    """Return the number of rows of each extract, counted by the source.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    if catalog.capabilities.counts_many and len(extracts) > 1:
        return cast(CountingCatalog, catalog).count_tables(extracts)
    return tuple(result_or_error(partial(catalog.count, each)) for each in extracts)


def counted_in_union(
    catalog: Catalog,
    rows: Callable[[str], list[tuple[Any, ...]]],
    extracts: Sequence[Extract],
    relation_of: Callable[[Extract], str],
) -> tuple[int | SourceError, ...]:
    """Count many tables with statements that join their counts; for `count_tables`.

    Tables share only the round trip. If a joined statement is refused, each table is counted
    separately, so that an error belongs to one table.

    Args:
        catalog: Counts the extracts that are not a whole table.
        rows: Runs a statement.
        extracts: The tables to count.
        relation_of: Returns the SQL of the relation that an extract reads.
    """
    found: dict[int, int | SourceError] = {}
    plain = [at for at, each in enumerate(extracts) if each.is_plain]
    for start in range(0, len(plain), TOGETHER):
        counts = []
        for at in plain[start : start + TOGETHER]:
            where = extracts[at].where
            conditions = [condition(where)] if where else []
            counts.append(select(f"{at}, count(*)", relation_of(extracts[at]), conditions))
        counted = result_or_error(partial(rows, " UNION ALL ".join(counts)))
        if not isinstance(counted, SourceError):
            found |= {int(at): int(count) for at, count in counted}
    for at, extract in enumerate(extracts):
        if at not in found:
            found[at] = result_or_error(partial(catalog.count, extract))
    return tuple(found[at] for at in range(len(extracts)))


def result_or_error(act: Callable[[], T]) -> T | SourceError:
    """Return the result of a call, or the error of its table.

    Raises:
        TransientSourceError: The connection may be lost; another attempt may succeed.
        SnapshotGone: The snapshot of all tables is lost.
    """
    try:
        return act()
    except (TransientSourceError, SnapshotGone):
        raise
    except SourceError as error:
        return error


def error_or_none(act: Callable[[], None]) -> SourceError | None:
    """Return the error of a table as `result_or_error` does, or None."""
    found = result_or_error(act)
    return found if isinstance(found, SourceError) else None
