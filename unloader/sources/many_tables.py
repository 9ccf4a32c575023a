"""Listing all tables of a source, and describing many of them at once.

A source that has the abilities does each in a fixed number of statements, or in few for a thousand
tables; one that has not is asked table by table. Either way a table is described as the source's
`describe` would describe it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.events import Observer, silent
from unloader.model import NamePart, TableName
from unloader.selection.listing import ListedTable, Listing, Obstacle
from unloader.selection.problems import TableProblem, problem_of

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
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
