"""The statements over a work unit's rows, the same in parent and workers."""

from __future__ import annotations

from collections.abc import Iterator

from partition_planner.model import RowRange, TableInfo, WorkUnit
from unloader.model import Extract
from unloader.sources.sqlite.types import ROWID, attribute, first_row, refused_class, value_of
from unloader.sources.statement import condition, derived_table, qualified, quoted, select

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_COLUMNS_PER_SEARCH = 200
"""SQLite nests a chain of OR, and its expressions may be 1000 deep."""


def relation_of(extract: Extract) -> str:
    """Return the table expression that holds the rows."""
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)


def relation_name(table: TableInfo, query: str | None) -> str:
    """Return the name under which a statement refers to columns of `relation_of`."""
    return table.name if query is None else "query"


def conditions(extract: Extract, unit: WorkUnit | None) -> list[str]:
    """Return what holds for the rows of a unit, or for all rows asked for where that is None."""
    found = [] if unit is None else list(_range(extract.table, unit))
    if extract.where is not None:
        found.append(condition(extract.where))
    return found


def unit_statement(extract: Extract, unit: WorkUnit) -> str:
    """Return the statement that reads a unit.

    Its first row is not one of the unit: it fixes the types of the result.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    rows = select(items, relation_of(extract), conditions(extract, unit))
    return f"SELECT {first_row(columns)} UNION ALL {rows}"


def sample_statement(extract: Extract, unit: WorkUnit, rows: int) -> str:
    """Return the statement for the first rows of a unit's range, whatever the user's condition.

    As in `unit_statement`, a row that fixes the types comes first.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    found = select(items, relation_of(extract), list(_range(extract.table, unit)))
    return f"SELECT {first_row(columns)} UNION ALL {found} LIMIT {rows + 1}"


def searches(extract: Extract, unit: WorkUnit) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield column names, and the statement that finds a row whose values stop the unit.

    Each statement gives one row at most: the rowid as text, or NULL where there is none, and for
    each of the columns the storage class of a refused value, or NULL.
    """
    relation = relation_name(extract.table, extract.query)
    refused = []
    for column in extract.projection.columns:
        value = value_of(column.name, relation)
        bad = refused_class(column, value)
        if bad is not None:
            refused.append((column.name, value, bad))
    rowid = _rowid(extract.table)
    for start in range(0, len(refused), _COLUMNS_PER_SEARCH):
        part = refused[start : start + _COLUMNS_PER_SEARCH]
        items = [f"CAST({rowid} AS TEXT)" if rowid else "NULL"]
        items += [f"CASE WHEN {bad} THEN typeof({value}) END" for _, value, bad in part]
        any_bad = f"({' OR '.join(bad for _, _, bad in part)})"
        rows = select(", ".join(items), relation_of(extract), [*conditions(extract, unit), any_bad])
        yield tuple(name for name, _, _ in part), f"{rows} LIMIT 1"


def _range(table: TableInfo, unit: WorkUnit) -> Iterator[str]:
    if not isinstance(unit.selector, RowRange):
        return
    rowid = _rowid(table)
    first, last = unit.selector.first, unit.selector.last
    # An integer literal beyond 64 bits would be a real.
    if first is not None and first > _LOWEST:
        yield f"{rowid} >= {first}" if first <= _HIGHEST else "0"
    if last is not None and last <= _HIGHEST:
        yield f"{rowid} < {last}" if last > _LOWEST else "0"


def _rowid(table: TableInfo) -> str | None:
    name = attribute(table.columns[0], ROWID) if table.columns else None
    return None if name is None else f"{quoted(table.name)}.{name}"
