"""The statements over a selector's rows, the same in parent and workers."""

from __future__ import annotations

from partition_planner.model import RowRange, Selector, WholeTable
from unloader.model import Extract
from unloader.sources.statement import (
    derived_table,
    limit_clause,
    qualified,
    row_conditions,
    select,
)


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of `columns` over the rows of one selector."""
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        if selector.first is not None:
            conditions.append(f"rowid >= {selector.first}")
        if selector.last is not None:
            conditions.append(f"rowid < {selector.last}")
    else:
        assert isinstance(selector, WholeTable), "the source describes only these kinds"
    conditions += row_conditions(extract)
    return select(columns, relation_of(extract), conditions) + limit_clause(extract.limit_rows)


def relation_of(extract: Extract) -> str:
    """Return the table expression that holds the rows."""
    if extract.query is not None:
        return derived_table(extract.query)
    return qualified(extract.table.schema, extract.table.name)
