"""The list of a PostgreSQL database's tables, and what keeps this user from reading one.

Within a snapshot the rows of pg_class and its neighbours are those of the snapshot: which tables
there are, their names and kinds. What functions say is as of now: rights, and whether a name still
means the table that it meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unloader.selection.listing import Family, ListedTable, Obstacle, UnreadableColumn, family_of
from unloader.sources.many_tables import GONE
from unloader.sources.postgres.session import Session
from unloader.sources.statement import qualified, quoted

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
