"""The tables of a PostgreSQL database: listed, described, counted and locked at the snapshot.

The rows of pg_class and the other catalogs are the rows of the snapshot: the tables, their names
and kinds. Functions answer for the present: rights, and whether a name still means the same table.

A table has the leaves that pg_inherits has at the snapshot: a partition attached later is not part
of it, a partition detached later is. So its leaves are counted. If the user may read them through
the table only, its rows in these leaves are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from partition_planner.model import TableInfo
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import Extract
from unloader.request.names import matching_partitions
from unloader.selection.listing import ListedTable, Obstacle, UnreadableColumn, family_of
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
"""Makes the results of the session's functions include later commits of other sessions.

The functions read caches. Within a transaction a cache is updated only when the session takes a
lock that it does not hold yet. This statement takes such a lock and releases it, each time again.
"""


def listed_tables(session: Session, *, policies_apply: bool) -> list[ListedTable]:
    """Return all tables, including the tables of the database itself, in any order.

    Args:
        session: The parent's session.
        policies_apply: The user asked for the rows that policies let through.
    """
    session.value(SEE_CHANGES)
    return [
        ListedTable(
            schema=row.schema,
            name=row.name,
            kind=row.kind,
            family=family_of(row.kind),
            system=row.system,
            part_of=tuple(row.parent) if row.parent else None,
            obstacles=tuple(_obstacles(row, policies_apply)),
            unreadable=tuple(_hidden_columns(row)),
        )
        for row in session.rows(TABLES, None)
    ]


def _obstacles(row: Any, policies_apply: bool) -> Iterator[Obstacle]:
    """Yield why the user cannot read a table: for a dropped table, this reason alone."""
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
        yield Obstacle(
            kind="rows hidden",
            what=f"row-level security may hide rows of it, {dictionary.hiding(row.policies)}",
            mend=(f"ALTER ROLE {quoted(reader)} BYPASSRLS",),
            hint="unload only the visible rows with --enable-row-security",
        )
    if not row.populated:
        yield Obstacle(
            kind="not populated",
            what="it is a materialized view that was never filled",
            mend=(f"REFRESH MATERIALIZED VIEW {name}",),
        )


def _hidden_columns(row: Any) -> Iterator[UnreadableColumn]:
    """Yield the columns that the user may not read, in a table with some readable columns."""
    if row.gone or not row.read_some:
        return
    grant = f"GRANT SELECT ON TABLE {qualified(row.schema, row.name)} TO {quoted(row.reader)}"
    for name in row.hidden_columns or ():
        yield UnreadableColumn(
            name=name, what=f"may not be read by user {row.reader}", mend=(grant,)
        )


OIDS = """
SELECT given.at, c.oid
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (schema, name, at)
JOIN pg_namespace n ON n.nspname = given.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = given.name
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

ACTIVE = (
    "SELECT given.oid FROM unnest($1::oid[]) AS given (oid) WHERE row_security_active(given.oid)"
)


def described_tables(
    session: Session,
    tables: Sequence[ListedTable],
    *,
    policies_apply: bool,
    observe: Observer = silent,
) -> tuple[TableInfo | Obstacle, ...]:
    """Return each table's description in the order of `tables`, or its obstacle in its place."""
    observe(PhaseStarted(phase="columns"))
    schemas, names = [table.schema for table in tables], [table.name for table in tables]
    oids = {row.at - 1: int(row.oid) for row in session.rows(OIDS, schemas, names)}
    keys = {oid: (tables[at].schema or "", tables[at].name) for at, oid in oids.items()}
    infos = described(session, keys, observe)
    # Last, so that tables dropped during the other queries are known, too.
    session.value(SEE_CHANGES)
    against: dict[int, Obstacle] = {}
    for row in session.rows(TABLES, list(keys)):
        for obstacle in _obstacles(row, policies_apply):
            against.setdefault(int(row.oid), obstacle)
    return tuple(
        against.get(oids[at], infos[oids[at]]) if at in oids else GONE for at in range(len(tables))
    )


def described(
    session: Session, keys: Mapping[int, tuple[str, str]], observe: Observer = silent
) -> dict[int, TableInfo]:
    """Return what follows from the columns and leaves of tables, by oid.

    Args:
        session: The parent's session.
        keys: Schema and name of each table, by its oid.
        observe: Called as each slow step begins.
    """
    columns = dictionary.columns_of(session, list(keys))
    observe(PhaseStarted(phase="partitions"))
    leaves_of = dictionary.leaves_of(session, list(keys))
    several = [oid for oid, key in keys.items() if not _is_single(leaves_of.get(oid, ()), key)]
    # What policies say counts only where partitions could be read by their own names.
    guarded = {int(row.oid) for row in session.rows(ACTIVE, several)} if several else set()
    found = {}
    for oid, key in keys.items():
        leaves, single = leaves_of.get(oid, ()), oid not in several
        known_rows = [leaf.rows for leaf in leaves if leaf.rows is not None]
        known_bytes = [leaf.bytes for leaf in leaves if leaf.bytes is not None]
        # Rights on some columns do not include ctid, and rights on a table do not include its
        # partitions. A user who reads partitions by name is subject to their policies, not the
        # table's.
        readable = all(leaf.granted for leaf in leaves) and (
            single or not (any(leaf.guarded for leaf in leaves) or oid in guarded)
        )
        row_ranges = readable and any(leaf.extents for leaf in leaves)
        found[oid] = TableInfo(
            schema=key[0],
            name=key[1],
            columns=columns.get(oid, ()),
            partitions=dictionary.partitions(leaves, key[1]) if readable and not single else (),
            rows=sum(known_rows) if known_rows else None,
            bytes=sum(known_bytes) if known_bytes else None,
            extents=leaves[0].extents if readable and single else (),
            ranges_from="pg_relation_size" if row_ranges else None,
            named_partitions=True,
            row_ranges=row_ranges,
        )
    return found


def _is_single(leaves: tuple[Leaf, ...], key: tuple[str, str]) -> bool:
    return len(leaves) == 1 and leaves[0].relation == key


T = TypeVar("T")

ROWS = "pg_catalog.count(*)"

BATCH_RELATIONS = 100


def counted(session: Session, extract: Extract) -> int:
    conditions, most = row_conditions(extract), extract.limit_rows
    if extract.query is not None:
        sql = select_count(derived_table(extract.query), conditions, most, ROWS)
        return _number(session, sql)
    name = qualified(extract.table.schema, extract.table.name)
    oid = session.value("SELECT $1::text::regclass::oid", name)
    leaves = dictionary.leaves_of(session, [oid]).get(oid, ())
    if extract.partitions:
        parts = dictionary.partitions(leaves, extract.table.name)
        asked = matching_partitions((part.name for part in parts), extract.partitions)
        relations = [part.relation for part in parts if part.name in asked and part.relation]
    elif [leaf.oid for leaf in leaves] != [oid] and (
        any(not leaf.granted or leaf.guarded for leaf in leaves)
        or dictionary.policies(session, [name])
    ):
        # Rows of partitions can be read through their table alone. Who has rights on columns alone
        # may not ask which partition a row is from.
        if session.value(dictionary.MAY_READ_TABLEOID, oid):
            oids = ", ".join(str(leaf.oid) for leaf in leaves)
            own = f"ARRAY[{oids}]::pg_catalog.oid[]"
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
    total = 0
    for batch in batches(counts):
        text = " UNION ALL ".join(batch)
        total += _number(session, f"SELECT pg_catalog.sum(count)::bigint FROM ({text}) AS counts")
    return total


def _number(session: Session, sql: str) -> int:
    with session.users_path():
        return int(session.value(sql))


def counted_together(session: Session, extracts: Mapping[int, Extract]) -> dict[int, int]:
    """Return the row counts of the extracts that are a single relation, by the same numbers.

    Each has a separate count, which reads only its relation. They share one round trip.
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
    for start in range(0, len(items), BATCH_RELATIONS):
        yield items[start : start + BATCH_RELATIONS]
