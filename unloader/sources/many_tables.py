"""Many tables of a source at once: listed, described, held, and their rows counted.

A source that has the abilities does each in a fixed number of statements, or in few for a thousand
tables; any other is asked table by table. In both cases a table is described and counted as the
source does it for that table alone. What the database says against one table does not affect the
others.
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
    """What a catalog has besides where `capabilities.lists` is true."""

    def list_tables(self) -> Listing:
        """Return all tables and views, those the user may not read included, if they are known.

        Partitions are no tables of their own. Where the catalogue is read at the snapshot, so is
        the list; what the user may do is as of now.

        Raises:
            SourceError: The database refused.
        """


class DescribingCatalog(Protocol):
    """What a catalog has besides where `capabilities.describes_many` is true."""

    def describe_tables(
        self, tables: Sequence[ListedTable], observe: Observer = ...
    ) -> tuple[TableInfo | Obstacle, ...]:
        """Return for each table, in their order, what `describe` returns for its name in quotes.

        What keeps one table from being described stands in its place.

        Args:
            tables: Of the listing, without obstacles.
            observe: As in `describe`.

        Raises:
            SourceError: The database refused all of it, or the connection is lost.
        """


class DescribedTables(Struct, frozen=True, kw_only=True):
    """The tables that were chosen, as far as they can be described."""

    tables: tuple[TableInfo, ...]
    """By schema and name, each once."""
    problems: tuple[TableProblem, ...] = ()
    """Of the others; what the choice itself found is not among them."""
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
        # In which schema the source looks first is not known: such names are left to it.
        default_schemas=("",),
        where="the source",
    )


def describe_tables(
    catalog: Catalog, chosen: Chosen, observe: Observer = silent
) -> DescribedTables:
    """Describe the tables that were chosen, but for those that have obstacles already.

    A name that the listing does not hold is resolved by the source. If it turns out to mean a table
    that was chosen, or excluded, it adds nothing.

    Args:
        catalog: Its snapshot has been taken.
        chosen: Of its listing.
        observe: Called as each slow step begins.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: So is the snapshot.
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
    """Return the name that means one table and no other."""
    return TableName(
        schema=None if schema is None else NamePart(text=schema, quoted=True),
        name=NamePart(text=name, quoted=True),
    )


def describe_listed(
    catalog: Catalog, tables: Sequence[ListedTable], observe: Observer = silent
) -> tuple[TableInfo | Obstacle, ...]:
    """Return for each table of the listing what it is, or what keeps it from being described.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: So is the snapshot.
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
    """Return what is known of each table, in their order; for `describe_tables` of a catalog.

    Args:
        catalog: Describes tables that are not among `infos`, one by one.
        tables: Of the listing.
        infos: What is known of some of them, asked for together.
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
    """Yield what a source answers for each of many tables.

    One statement asks for up to a hundred tables. If it is refused, each of them is asked for
    alone, and a table whose statement is refused is left out.

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
    """Describe one table by itself; what the database says against that table is an obstacle.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: So is the snapshot.
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
"""What is to be held of one table."""


class HoldingCatalog(Protocol):
    """What a catalog has besides where `capabilities.holds_many` is true."""

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        """Do for each table what `Catalog.hold` does; return what keeps each from being held.

        All of them together wait no longer for the locks of others than one alone would.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: So is the snapshot of all.
        """


class CountingCatalog(Protocol):
    """What a catalog has besides where `capabilities.counts_many` is true."""

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return for each extract what `Catalog.count` returns, or raises for that table alone.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: So is the snapshot of all.
        """


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Keep what is to be read of each table as it is; return what keeps each from being held.

    Args:
        catalog: Has the snapshot.
        tables: What is to be held.
        observe: Called with a notice of each thing that cannot be held.

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
    """Return the rows of each extract, counted by the source for each by itself.

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
    """Count many tables by statements that join the counts of each; an ability for catalogs.

    Each table has a count of its own, which reads nothing but that table; only the round trip is
    one. Where the statement is refused each is counted alone, so that what the database says of one
    is its own.

    Args:
        catalog: Counts those that are no whole table.
        rows: Runs a statement.
        extracts: What is counted.
        relation_of: Returns what an extract reads from.
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
    """Return what a call returns, or the error that is of its table alone.

    Raises:
        TransientSourceError: The connection may be lost; another attempt may succeed.
        SnapshotGone: The call says so of all tables.
    """
    try:
        return act()
    except (TransientSourceError, SnapshotGone):
        raise
    except SourceError as error:
        return error


def error_or_none(act: Callable[[], None]) -> SourceError | None:
    """Return the error that is of a table alone, as `result_or_error` tells it; None without."""
    found = result_or_error(act)
    return found if isinstance(found, SourceError) else None
