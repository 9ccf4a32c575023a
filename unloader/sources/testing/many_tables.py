"""Whether a source lists and describes many tables as it does one; part of its contract."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from msgspec.structs import replace

from partition_planner.model import TableInfo
from unloader.model import SourceSpec
from unloader.selection.choice import Chosen
from unloader.selection.listing import FAMILIES, ListedTable, Listing, Obstacle
from unloader.sources.base import Catalog, Source
from unloader.sources.many_tables import (
    describe_tables,
    described_or_obstacle,
    list_tables,
    quoted_name,
)
from unloader.sources.testing.rows import ensure

GONE = "unloader no such table"


def check_many_tables(source: Source, spec: SourceSpec, *, at_least: int = 1) -> Listing:
    """Check a source's list of tables, and that it describes all of them as it does each alone.

    Args:
        source: The source under test.
        spec: A database whose tables may all be described.
        at_least: How many tables must have been compared.

    Returns:
        The list.

    Raises:
        AssertionError: The source broke a promise.
    """
    with closing(source.open_catalog(spec)) as catalog:
        consistency = "snapshot" if catalog.capabilities.shared_snapshot else "none"
        catalog.snapshot(consistency)  # type: ignore[arg-type]
        listing = list_tables(catalog)
        check_listing(catalog, listing)
        tables = [table for table in listing.tables if not table.system and table.readable]
        ensure(len(tables) >= at_least, f"{len(tables)} tables are listed, not {at_least}")
        check_descriptions(catalog, tables)
        ensure(list_tables(catalog) == listing, "a second list of the tables differs")
    return listing


def check_among_others(catalog: Catalog, info: TableInfo) -> None:
    """Check that one table is listed, and described among others as it is alone."""
    listing = list_tables(catalog)
    check_listing(catalog, listing)
    key = (info.schema or "", info.name)
    found = [table for table in listing.tables if table.key == key]
    ensure(len(found) == 1, f"{info.label} is not in the list of tables")
    check_descriptions(catalog, found)


def check_listing(catalog: Catalog, listing: Listing) -> None:
    """Check that a list is in order, has each table once, and all that the source tells users of.

    A table that `tables` has and the list has not would never be matched by a pattern.
    """
    keys = [table.key for table in listing.tables]
    ensure(keys == sorted(set(keys)), "the list has a table twice, or is not in order")
    ensure(
        listing.folding == catalog.capabilities.folding,
        "the list reads names in another way than the catalog",
    )
    for table in listing.tables:
        ensure(table.family in FAMILIES, f"{table.label} has an unknown family: {table.family}")
    known = {table.key: table for table in listing.tables}
    for one in catalog.tables():
        listed = known.get((one.schema or "", one.name))
        ensure(listed is not None, f"{one.schema}.{one.name} is not in the list")
        assert listed is not None
        same = listed.kind == one.kind or one.kind == "table"
        ensure(same, f"{listed.label} is a {listed.kind} instead of a {one.kind}")


def check_descriptions(catalog: Catalog, tables: Sequence[ListedTable]) -> None:
    """Check that tables described together are what each is alone, and that one may be missing."""
    alone = [
        described_or_obstacle(catalog, quoted_name(table.schema, table.name)) for table in tables
    ]
    chosen = Chosen(tables=tuple(tables))
    together = describe_tables(catalog, chosen)
    infos = {(info.schema or "", info.name): info for info in together.tables}
    refused = {problem.table for problem in together.problems}
    for table, one in zip(tables, alone, strict=True):
        if isinstance(one, Obstacle):
            ensure(table.label in refused, f"{table.label} is described only among others")
            continue
        _same(table, one, infos.get(table.key))
    if catalog.capabilities.describes_many and tables:
        _check_missing(catalog, tables[0])


def _same(table: ListedTable, alone: TableInfo, among: TableInfo | None) -> None:
    ensure(among is not None, f"{table.label} is not described among others")
    ensure(
        alone == among,
        f"{table.label} is described as {among} among other tables, but as {alone} alone",
    )


def _check_missing(catalog: Catalog, table: ListedTable) -> None:
    """Check that a table which was dropped meanwhile is told of, and the others described."""
    gone = replace(table, name=GONE)
    found = describe_tables(catalog, Chosen(tables=(gone, table)))
    ensure(
        len(found.tables) == 1, "a table is not described next to one that does not exist any more"
    )
    kinds = [(problem.kind, problem.table) for problem in found.problems]
    ensure(
        kinds == [("gone", gone.label)],
        f"for a table that does not exist any more the catalog returns: {kinds}",
    )
