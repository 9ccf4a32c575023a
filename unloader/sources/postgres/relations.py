"""The tables of a PostgreSQL database: listed, described, and counted at the snapshot.

Within a snapshot the rows of pg_class and its neighbours are those of the snapshot: which tables
there are, their names and kinds. What functions say is as of now: rights, and whether a name still
means the table that it meant.

A table is what it was at the snapshot, at which pg_inherits is read: a partition that was attached
since has no part in it, and one that was detached has. So its leaves are counted, or, where the
user may read them through the table only, those of its rows that are in these leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from partition_planner.model import ColumnInfo, TableInfo
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Extract
from unloader.request.names import matching_partitions
from unloader.selection.listing import Family, ListedTable, Obstacle, UnreadableColumn, family_of
from unloader.sources.many_tables import GONE
from unloader.sources.postgres import dictionary
from unloader.sources.postgres.dictionary import Leaf
from unloader.sources.postgres.session import Session
from unloader.sources.statement import (
    derived_table,
    qualified,
    quoted,
    row_conditions,
    select,
    select_count,
)

TABLES = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relispopulated AS populated,
       CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
            WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END AS kind,
       may.system, may.enter, may.read, current_user::text AS reader,
       CASE WHEN may.enter AND NOT may.system
            THEN to_regclass(quote_ident(n.nspname) || '.' || quote_ident(c.relname))::oid
                 IS DISTINCT FROM c.oid ELSE may.read IS NULL END AS gone,
       CASE WHEN NOT may.read THEN ARRAY(
         SELECT a.attname::text FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND has_column_privilege(c.oid, a.attnum, 'SELECT') IS NOT TRUE
         ORDER BY a.attnum) END AS hidden_columns,
       has_any_column_privilege(c.oid, 'SELECT') AS read_some,
       CASE WHEN row_security_active(c.oid) THEN coalesce(
         (SELECT string_agg(p.polname, ', ' ORDER BY p.polname) FROM pg_policy p
          WHERE p.polrelid = c.oid AND p.polcmd IN ('r', '*')
            AND (p.polroles = '{0}' OR EXISTS (
              SELECT FROM unnest(p.polroles) AS role (oid)
              WHERE pg_has_role(current_user, role.oid, 'USAGE')))), '') END AS policies,
       (SELECT ARRAY[pn.nspname::text, pc.relname::text] FROM pg_inherits i
        JOIN pg_class pc ON pc.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = pc.relnamespace
        WHERE i.inhrelid = c.oid ORDER BY i.inhseqno LIMIT 1) AS parent
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT
  n.nspname IN ('pg_catalog', 'information_schema') AS system,
  coalesce(has_schema_privilege(n.oid, 'USAGE'), false) AS enter,
  has_table_privilege(c.oid, 'SELECT') AS read) AS may
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^pg_(toast|temp)' AND ($1::oid[] IS NULL OR c.oid = ANY ($1))
"""
"""A function that is asked for a table which is gone returns NULL."""

SEE_CHANGES = "SELECT pg_relation_size('pg_catalog.pg_conversion'::regclass)"
"""Makes the session see what others have committed meanwhile, in what its functions say.

They go by caches, and within a transaction those are only brought up to date where the session
takes a lock that it has not had yet. This takes one and gives it back, each time anew.
"""


def listed_tables(session: Session, *, policies_apply: bool) -> list[ListedTable]:
    """Return all tables, those of the database itself included, in no order.

    Args:
        session: Of the parent.
        policies_apply: The user asked for the rows that policies let through.
    """
    return [_listed(row, policies_apply) for row in _rows(session, None)]


def obstacles(session: Session, oids: list[int], *, policies_apply: bool) -> dict[int, Obstacle]:
    """Return the first obstacle of each of these tables that has one, by its oid."""
    found: dict[int, Obstacle] = {}
    for row in _rows(session, oids):
        for obstacle in _obstacles(row, policies_apply):
            found.setdefault(int(row.oid), obstacle)
    return found


def _rows(session: Session, oids: list[int] | None) -> list[Any]:
    session.value(SEE_CHANGES)
    return session.rows(TABLES, oids)


def _listed(row: Any, policies_apply: bool) -> ListedTable:
    kind = row.kind
    family: Family = family_of(kind)
    parent = row.parent
    return ListedTable(
        schema=row.schema,
        name=row.name,
        kind=kind,
        family=family,
        system=row.system,
        part_of=(parent[0], parent[1]) if parent else None,
        obstacles=tuple(_obstacles(row, policies_apply)),
        unreadable=tuple(_hidden_columns(row)),
    )


def _obstacles(row: Any, policies_apply: bool) -> Iterator[Obstacle]:
    """Yield why the user cannot read a table: what is gone has no other reason."""
    if row.gone:
        yield GONE
        return
    reader, name = row.reader, qualified(row.schema, row.name)
    grants = []
    if not row.enter:
        grants.append(f"GRANT USAGE ON SCHEMA {quoted(row.schema)} TO {quoted(reader)}")
    if not (row.read or row.read_some):
        grants.append(f"GRANT SELECT ON TABLE {name} TO {quoted(reader)}")
    if grants:
        what = f"user {reader} may not read it"
        yield Obstacle(kind="no right", what=what, mend=tuple(grants))
    if row.policies is not None and not policies_apply:
        yield _hidden_rows(row.policies, reader)
    if not row.populated:
        yield Obstacle(
            kind="not populated",
            what="it is a materialized view that was never filled",
            mend=(f"REFRESH MATERIALIZED VIEW {name}",),
        )


def _hidden_rows(policies: str, reader: str) -> Obstacle:
    why = f"by policy {policies}" if policies else "because no policy shows any row to this user"
    return Obstacle(
        kind="rows hidden",
        what=f"row-level security may hide rows of it, {why}",
        mend=(f"ALTER ROLE {quoted(reader)} BYPASSRLS",),
        hint="unload only the visible rows with --enable-row-security",
    )


def _hidden_columns(row: Any) -> Iterator[UnreadableColumn]:
    """Yield the columns that the user may not read, of a table of which he may read some."""
    if row.gone or not row.read_some:
        return
    grant = f"GRANT SELECT ON TABLE {qualified(row.schema, row.name)} TO {quoted(row.reader)}"
    for name in row.hidden_columns or ():
        yield UnreadableColumn(
            name=name, what=f"may not be read by user {row.reader}", mend=(grant,)
        )


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
