"""Counts the rows of tables at the snapshot, by the database and apart from any plan.

A table is what it was at the snapshot, at which pg_inherits is read: a partition that was attached
since has no part in it, and one that was detached has. So its leaves are counted, or, where the
user may read them through the table only, those of its rows that are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from unloader.model import Extract
from unloader.request.names import matching_partitions
from unloader.sources.postgres import dictionary
from unloader.sources.postgres.session import Session
from unloader.sources.statement import (
    derived_table,
    qualified,
    quoted,
    row_conditions,
    select,
    select_count,
)

T = TypeVar("T")

ROWS = "pg_catalog.count(*)"

BATCH_RELATIONS = 100
"""Relations that one statement counts or locks."""


def counted(session: Session, extract: Extract) -> int:
    """Return the rows of the query, of the table, or of the partitions asked for."""
    conditions, most = row_conditions(extract), extract.limit_rows
    if extract.query is not None:
        sql = select_count(derived_table(extract.query), conditions, most, ROWS)
        return _number(session, sql)
    name = qualified(extract.table.schema, extract.table.name)
    oid = session.value("SELECT $1::text::regclass::oid", name)
    leaves = dictionary.leaves(session, oid)
    if extract.partitions:
        parts = dictionary.partitions(leaves, extract.table.name)
        asked = matching_partitions((part.name for part in parts), extract.partitions)
        relations = [part.relation for part in parts if part.name in asked and part.relation]
    elif [leaf.oid for leaf in leaves] != [oid] and _through_the_parent(session, oid, leaves):
        # Who has rights on columns alone may not ask which partition a row is from.
        if dictionary.tells_partitions(session, oid):
            own = f"ARRAY[{_oids(leaves)}]::pg_catalog.oid[]"
            conditions.insert(0, f"{name}.tableoid OPERATOR(pg_catalog.=) ANY ({own})")
        return _number(session, select_count(name, conditions, most, ROWS))
    else:
        relations = [leaf.relation for leaf in leaves]
    alias = quoted(extract.table.name)
    counts = [
        select_count(f"ONLY {qualified(*each)} AS {alias}", conditions, most, ROWS)
        for each in relations
    ]
    total = summed(session, counts)
    return total if most is None else min(total, most)


def summed(session: Session, counts: list[str]) -> int:
    """Return the sum of what some statements count, each with the one column `count`."""
    total = 0
    for batch in batches(counts):
        text = " UNION ALL ".join(batch)
        total += _number(session, f"SELECT pg_catalog.sum(count)::bigint FROM ({text}) AS counts")
    return total


def _number(session: Session, sql: str) -> int:
    with session.users_path():
        return int(session.value(sql))


def counted_together(session: Session, extracts: Mapping[int, Extract]) -> dict[int, int]:
    """Return the rows of those that are a single relation, by the same numbers.

    Each has a count of its own, which reads nothing but its relation; only the round trip is one.
    """
    names = [qualified(each.table.schema, each.table.name) for each in extracts.values()]
    oids = dictionary.oids_of(session, names)
    leaves = dictionary.leaves_of(session, [oid for oid in oids if oid is not None])
    counts = []
    for (at, extract), name, oid in zip(extracts.items(), names, oids, strict=True):
        own = leaves.get(oid, ()) if oid is not None else ()
        if [leaf.oid for leaf in own] == [oid]:
            relation = f"ONLY {name} AS {quoted(extract.table.name)}"
            items = f"{at} AS at, {ROWS} AS rows"
            counts.append(select(items, relation, row_conditions(extract)))
    if not counts:
        return {}
    with session.users_path():
        rows = session.rows(" UNION ALL ".join(counts))
    return {int(row.at): int(row.rows) for row in rows}


def batches(items: list[T]) -> Iterator[list[T]]:
    """Yield as many at a time as one statement is for."""
    for start in range(0, len(items), BATCH_RELATIONS):
        yield items[start : start + BATCH_RELATIONS]


def _through_the_parent(session: Session, oid: int, leaves: tuple[dictionary.Leaf, ...]) -> bool:
    """Return whether rows of partitions can be read through their table alone."""
    kept = any(not leaf.granted or leaf.guarded for leaf in leaves)
    return kept or dictionary.policies(session, oid) is not None


def _oids(leaves: tuple[dictionary.Leaf, ...]) -> str:
    return ", ".join(str(leaf.oid) for leaf in leaves)
