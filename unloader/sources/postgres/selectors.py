"""The statements that read what a selector stands for, word for word as a worker sends them."""

from __future__ import annotations

from partition_planner.model import NamedPartition, RowRange, Selector, WholeTable
from unloader.model import Extract
from unloader.sources.statement import (
    derived_table,
    limit_clause,
    qualified,
    quoted,
    row_conditions,
    select,
)


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    """Return a SELECT of `columns` over the rows of one selector."""
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        for compared, block in ((">=", selector.first), ("<", selector.last)):
            if block is not None:
                row = f"'({block},0)'::pg_catalog.tid"
                conditions.append(f"ctid OPERATOR(pg_catalog.{compared}) {row}")
    else:
        assert isinstance(selector, (NamedPartition, WholeTable)), (
            "the source describes only these kinds"
        )
    conditions += row_conditions(extract)
    rows = select(columns, relation_of(extract, selector), conditions)
    return rows + limit_clause(extract.limit_rows)


def relation_of(extract: Extract, selector: Selector) -> str:
    """Return what a selector reads from; a partition answers to the name of its table."""
    if extract.query is not None:
        return derived_table(extract.query)
    name = relation_name(extract, selector)
    if is_alone(selector):
        # ONLY, for the table itself may be among its partitions where children inherit from it.
        return f"ONLY {name} AS {quoted(extract.table.name)}"
    return f"ONLY {name}" if isinstance(selector, RowRange) else name


def is_alone(selector: Selector) -> bool:
    """Return whether a selector reads from a partition by its own name."""
    return isinstance(selector, (NamedPartition, RowRange)) and bool(selector.relation)


def reads_only_one(selector: Selector) -> bool:
    """Return whether a selector reads from one relation, and from none of those below it."""
    return isinstance(selector, RowRange) or is_alone(selector)


def relation_name(extract: Extract, selector: Selector) -> str:
    """Return the partition that a selector reads from, or the table."""
    if isinstance(selector, (NamedPartition, RowRange)) and selector.relation:
        return qualified(*selector.relation)
    return qualified(extract.table.schema, extract.table.name)
