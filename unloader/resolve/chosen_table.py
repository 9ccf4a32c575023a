"""The table that a selection names, with the columns that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from partition_planner.model import TableInfo
from unloader.errors import UsageError
from unloader.events import Observer, silent
from unloader.model import Selection
from unloader.request.names import Folding, choose_columns, matching_any
from unloader.sources.abilities import describe_query
from unloader.sources.base import Catalog


def chosen_table(catalog: Catalog, selection: Selection, observe: Observer = silent) -> TableInfo:
    """Return the table cut down to the chosen columns, or the query as a table.

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
    """Return a described table cut down to the chosen columns.

    Raises:
        UsageError: It has no columns, or not those.
    """
    if not table.columns:
        raise UsageError(
            f"{table.label} has no columns, so there is nothing to unload", "choose another table"
        )
    names = [column.name for column in table.columns]
    chosen = choose_columns(names, selection.columns, selection.exclude, folding)
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
