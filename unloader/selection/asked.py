"""What a run over several tables is asked for, before anybody knows which tables there are."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from unloader.model import NamePart, Request, TableName, TablesOptions
from unloader.selection.choice import TableChoice
from unloader.selection.patterns import PartPattern, TablePattern


class AskedTables(Struct, frozen=True, kw_only=True):
    """One entry: some tables, or one query, that are unloaded in the same way."""

    request: Request
    """What holds for each of the tables; it names none."""
    choice: TableChoice | None = None
    """Which tables; None is the query of the request."""
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
        table = request.selection.table
        if table is None:
            return cls(request=request)
        selection = replace(request.selection, table=None)
        return cls(
            request=replace(request, selection=selection),
            choice=TableChoice(tables=(_exactly(table),)),
        )


class TablesRequest(Struct, frozen=True, kw_only=True):
    """One run over several tables; what comes of it is a resolved run for each of them."""

    entries: tuple[AskedTables, ...]
    """All have the same source, and the same of what is of the run as a whole."""
    options: TablesOptions
    left_out: tuple[tuple[str, str], ...] = ()
    """Tables that a broken run, in whose place this one is, could not unload; and why not."""

    @classmethod
    def of(cls, requests: Iterable[Request], options: TablesOptions) -> TablesRequest:
        """Return the run over the tables and queries that requests name."""
        return cls(entries=tuple(map(AskedTables.of, requests)), options=options)

    @property
    def common(self) -> Request:
        """Any of the requests: source, limits, seats and retries are those of all."""
        return self.entries[0].request


def _exactly(name: TableName) -> TablePattern:
    """Return the pattern that is one name, and has no wildcards."""
    parts = [None if part is None else _literal(part) for part in (name.schema, name.name)]
    table = parts[1]
    assert table is not None
    return TablePattern(text=str(name), origin="the request", schema=parts[0], name=table)


def _literal(part: NamePart) -> PartPattern:
    return PartPattern(segments=(part,))
