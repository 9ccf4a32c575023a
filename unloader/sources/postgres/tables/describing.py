"""Columns, leaf partitions and heap blocks of many tables of PostgreSQL, in five statements."""

from __future__ import annotations

from collections.abc import Sequence

from partition_planner.model import ColumnInfo, TableInfo
from unloader.events import Observer, PhaseStarted, silent
from unloader.selection.listing import ListedTable, Obstacle
from unloader.sources.many_tables import GONE
from unloader.sources.postgres import dictionary
from unloader.sources.postgres.dictionary import Leaf
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.tables.listing import obstacles

OIDS = """
SELECT given.at, c.oid, row_security_active(c.oid) AS guarded
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (schema, name, at)
JOIN pg_namespace n ON n.nspname = given.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = given.name
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


def described_tables(
    session: Session,
    tables: Sequence[ListedTable],
    *,
    policies_apply: bool,
    observe: Observer = silent,
) -> tuple[TableInfo | Obstacle, ...]:
    """Return what is known of each table, in their order; what keeps one from it in its place.

    Args:
        session: Of the parent.
        tables: Of the listing.
        policies_apply: The user asked for the rows that policies let through.
        observe: Called as each slow step begins.
    """
    observe(PhaseStarted(phase="columns"))
    schemas, names = [table.schema for table in tables], [table.name for table in tables]
    found = {row.at - 1: row for row in session.rows(OIDS, schemas, names)}
    oids = [int(row.oid) for row in found.values()]
    columns = dictionary.columns_of(session, oids)
    observe(PhaseStarted(phase="partitions"))
    leaves = dictionary.leaves_of(session, oids)
    # Last, so that what was dropped while the others were asked for is known, too.
    against = obstacles(session, oids, policies_apply=policies_apply)
    made: list[TableInfo | Obstacle] = []
    for at, table in enumerate(tables):
        row = found.get(at)
        if row is None:
            made.append(GONE)
        elif row.oid in against:
            made.append(against[row.oid])
        else:
            oid, schema = row.oid, table.schema or ""
            own = leaves.get(oid, ())
            guarded = not is_single(own, schema, table.name) and row.guarded
            made.append(described(schema, table.name, columns.get(oid, ()), own, guarded=guarded))
    return tuple(made)


def is_single(leaves: tuple[Leaf, ...], schema: str, name: str) -> bool:
    """Return whether a table's rows are in the relation of its own name, and nowhere else."""
    return len(leaves) == 1 and leaves[0].relation == (schema, name)


def described(
    schema: str,
    name: str,
    columns: tuple[ColumnInfo, ...],
    leaves: tuple[Leaf, ...],
    *,
    guarded: bool,
) -> TableInfo:
    """Return what follows from a table's columns and leaves.

    Args:
        schema: Of the table.
        name: Of the table.
        columns: In table order.
        leaves: The relations that hold its rows.
        guarded: Policies of the table choose its rows; not asked where it is a single relation.
    """
    known_rows = [leaf.rows for leaf in leaves if leaf.rows is not None]
    known_bytes = [leaf.bytes for leaf in leaves if leaf.bytes is not None]
    single = is_single(leaves, schema, name)
    # Rights on some columns only do not reach to ctid, nor rights on a table to its partitions;
    # and who reads partitions by name goes by their policies, not by those of the table.
    readable = all(leaf.granted for leaf in leaves) and (
        single or not (any(leaf.guarded for leaf in leaves) or guarded)
    )
    row_ranges = readable and any(leaf.extents for leaf in leaves)
    return TableInfo(
        schema=schema,
        name=name,
        columns=columns,
        partitions=dictionary.partitions(leaves, name) if readable and not single else (),
        rows=sum(known_rows) if known_rows else None,
        bytes=sum(known_bytes) if known_bytes else None,
        extents=leaves[0].extents if readable and single else (),
        ranges_from="pg_relation_size" if row_ranges else None,
        named_partitions=True,
        row_ranges=row_ranges,
    )
