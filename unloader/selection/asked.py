"""What one run is asked for: the requests, and which tables each is for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from unloader.model import Request, TablesOptions

if TYPE_CHECKING:
    from unloader.selection.choice import TableChoice


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
        # Imported here: most runs are of one table.
        from unloader.selection.choice import PartPattern, TableChoice, TablePattern

        # As patterns without wildcards, so that all entries share one list of tables.
        pattern = TablePattern(
            text=str(name),
            origin="the request",
            schema=None if name.schema is None else PartPattern(segments=(name.schema,)),
            name=PartPattern(segments=(name.name,)),
        )
        request = replace(request, selection=replace(request.selection, table=None))
        return cls(request=request, choice=TableChoice(tables=(pattern,)))


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
