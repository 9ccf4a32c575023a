"""The tables of one schema, each with the name that means it and no other."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from unloader.errors import SourceError, UsageError
from unloader.model import TableSummary
from unloader.request.names import matching, parse_table, typed
from unloader.sources.base import Catalog

_SHOWN = 20
"""Schemas that an error lists."""


class SchemaTable(Struct, frozen=True, kw_only=True):
    """One table or view."""

    typed: str
    """Its name as an option takes it: with its schema, quoted where it is not plain."""
    summary: TableSummary

    @property
    def is_view(self) -> bool:
        """Whether its rows are those of other tables, maybe."""
        return "view" in self.summary.kind and "materialized" not in self.summary.kind


def schema_tables(catalog: Catalog, schema: str | None) -> tuple[SchemaTable, ...]:
    """Return the tables and views of a schema, by name.

    Args:
        catalog: The open source.
        schema: As it was typed; None is the only one that has tables.

    Raises:
        UsageError: There are several and none is named, or the name is none.
        SourceError: No such schema has a table, or no right to one.
    """
    tables, folding = catalog.tables(), catalog.capabilities.folding
    known = list(dict.fromkeys(table.schema or "" for table in tables))
    if not known:
        raise SourceError(
            "the source has no tables, or this user may not read them",
            "see them with: unloader describe",
        )
    shown = [typed(each, folding) for each in known]
    wanted = known if schema is None else _meant(schema, known, catalog)
    if not wanted:
        raise SourceError(
            f"no schema {schema} has tables that this user may read",
            f"use one of: {_listed(shown)}",
        )
    if len(wanted) > 1:
        raise UsageError(
            f"the source has tables in {len(known)} schemas, but a job file is made for one schema",
            f"give --schema with one of: {_listed(shown)}",
        )
    return tuple(
        SchemaTable(
            typed=".".join(typed(part, folding) for part in (each.schema, each.name) if part),
            summary=each,
        )
        for each in tables
        if (each.schema or "") == wanted[0]
    )


def _meant(schema: str, known: Sequence[str], catalog: Catalog) -> list[str]:
    name = parse_table(schema)
    if name.schema is not None:
        raise UsageError(
            "--schema is the name of a schema, not of a table", "leave out the other names"
        )
    return list(matching(name.name, known, catalog.capabilities.folding))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
