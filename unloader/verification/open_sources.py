"""The source of finished runs, opened once for all tables that are compared with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.errors import SourceError
from unloader.events import Notice, Observer
from unloader.resolve.chosen_table import chosen_table, with_columns
from unloader.selection.listing import Obstacle
from unloader.sources.many_tables import describe_listed, list_tables
from unloader.sources.registry import source_of
from unloader.verification.source_values import Hashers

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.model import Selection, Snapshot, SourceSpec
    from unloader.sources.base import Catalog

TableKey = tuple[str, str]
"""Schema and name."""


class OpenedSource(Struct, frozen=True, kw_only=True):
    """One open source, in one state of it."""

    catalog: Catalog
    snapshot: Snapshot
    hashers: Hashers
    tables: Mapping[TableKey, TableInfo | Obstacle]
    """Of those that were named beforehand, what is in the list of tables."""

    def table(self, selection: Selection) -> TableInfo:
        """Return a table cut down to its chosen columns, or a query as a table.

        Raises:
            SourceError: The source refused.
            UsageError: It has not those columns.
        """
        name = selection.table
        if name is not None and name.schema is not None:
            found = self.tables.get((name.schema.text, name.name.text))
            if found is not None and not isinstance(found, Obstacle):
                return with_columns(found, selection, self.catalog.capabilities.folding)
        # What is against it is said in the database's own words.
        return chosen_table(self.catalog, selection)


class OpenSources:
    """A source as it was at snapshots, and as it is now: each opened once; a context manager."""

    def __init__(self, observe: Observer, tables: Collection[TableKey] = ()) -> None:
        """Open nothing yet.

        Args:
            observe: Gets what is to be told of the source as a whole.
            tables: Those that will be asked for; they are described together.
        """
        self._observe = observe
        self._tables = frozenset(tables)
        self._held = ExitStack()
        self._opened: dict[SourceSpec, OpenedSource] = {}
        self._refused: dict[SourceSpec, SourceError] = {}
        self._told: set[str] = set()

    def at(self, source: SourceSpec) -> OpenedSource:
        """Return an open source.

        Raises:
            SourceError: It refused, now or before.
        """
        if source in self._refused:
            raise self._refused[source]
        if source not in self._opened:
            try:
                self._opened[source] = self._open(source)
            except SourceError as error:
                self._refused[source] = error
                raise
        return self._opened[source]

    @property
    def refused(self) -> bool:
        """Whether none could be opened, neither as it was nor as it is now."""
        return not self._opened

    def tell(self, text: str) -> None:
        """Tell something of the source, once."""
        if text not in self._told:
            self._told.add(text)
            self._observe(Notice(text=text))

    def __enter__(self) -> OpenSources:
        """Return the sources."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self._held.close()

    def _open(self, source: SourceSpec) -> OpenedSource:
        with ExitStack() as opened:
            catalog = opened.enter_context(closing(source_of(source.kind).open_catalog(source)))
            snapshot = catalog.snapshot("snapshot")
            hashers = opened.enter_context(closing(Hashers(catalog)))
            found = OpenedSource(
                catalog=catalog,
                snapshot=snapshot,
                hashers=hashers,
                tables=self._described(catalog),
            )
            self._held.push(opened.pop_all())
        return found

    def _described(self, catalog: Catalog) -> Mapping[TableKey, TableInfo | Obstacle]:
        if not self._tables:
            return {}
        listed = [each for each in list_tables(catalog).tables if each.key in self._tables]
        wanted = [each for each in listed if each.readable]
        found = describe_listed(catalog, wanted)
        return {table.key: info for table, info in zip(wanted, found, strict=True)}
