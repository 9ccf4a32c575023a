"""The tables of a PostgreSQL database: listed, described, counted and locked at the snapshot.

Source of truth: pg_class, pg_inherits, pg_attribute, pg_type, pg_am. Row counts are the planner's
statistics (`reltuples`); bytes are the current sizes of the files. The rows of the catalogs are the
rows of the snapshot: the tables, their names and kinds. Functions answer for the present: rights,
and whether a name still means the same table.

A table has the leaves that pg_inherits has at the snapshot: a partition detached later is part of
it, a partition attached later is not. So its leaves are counted, through the table if the user may
read them only so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from partition_planner.model import ColumnInfo, PartitionInfo, RowExtent, TableInfo
from unloader.errors import SnapshotGone, SourceError
from unloader.events import Observer, PhaseStarted, silent
from unloader.selection.listing import Obstacle
from unloader.sources.postgres.errors import LOCK_NOT_AVAILABLE, state_of
from unloader.sources.postgres.session import Session
from unloader.sources.questions import GONE
from unloader.sources.statement import qualified, quoted

SIZES = """
WITH RECURSIVE tree (root, oid) AS (
  SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY($1::oid[])
  UNION SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
SELECT root, sum(CASE WHEN c.oid = ANY ($2::oid[]) THEN
         c.relpages * current_setting('block_size')::bigint ELSE pg_table_size(c.oid) END)::bigint
         AS bytes,
       sum(CASE WHEN c.reltuples >= 0 AND c.relkind <> 'p' THEN c.reltuples END)::bigint AS rows,
       count(*) FILTER (WHERE c.relkind <> 'p') AS leaves
FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind <> 'v' GROUP BY root
"""

COLUMNS = """
WITH RECURSIVE chain (attrelid, attnum, oid, typmod, kind, base, basemod) AS (
  SELECT a.attrelid, a.attnum, t.oid, a.atttypmod, t.typtype, t.typbasetype, t.typtypmod
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT chain.attrelid, chain.attnum, t.oid,
         CASE WHEN chain.basemod >= 0 THEN chain.basemod ELSE chain.typmod END, t.typtype,
         t.typbasetype, t.typtypmod
  FROM chain JOIN pg_type t ON t.oid = chain.base WHERE chain.kind = 'd')
SELECT a.attrelid AS oid, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull AS required, format_type(chain.oid, chain.typmod) AS base_type
FROM pg_attribute a
JOIN chain ON chain.attrelid = a.attrelid AND chain.attnum = a.attnum AND chain.kind <> 'd'
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

TYPES = """
SELECT given.oid, format_type(given.oid, NULL) AS name FROM unnest($1::oid[]) AS given (oid)
"""

LEAVES = """
WITH RECURSIVE tree (root, oid, path, names) AS (
  SELECT given.oid, given.oid, ARRAY[]::oid[], ARRAY[]::text[]
  FROM unnest($1::oid[]) AS given (oid)
  UNION ALL
  SELECT tree.root, i.inhrelid, tree.path || i.inhrelid, tree.names || (
           CASE WHEN count(*) OVER (PARTITION BY tree.root, tree.path, c.relname) > 1
                THEN n.nspname::text || '.' ELSE '' END || c.relname::text) COLLATE "default"
  FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid JOIN pg_class c ON c.oid = i.inhrelid
       JOIN pg_namespace n ON n.oid = c.relnamespace)
SELECT DISTINCT ON (tree.root, tree.oid) tree.root, tree.oid, tree.path,
       array_to_string(CASE WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = tree.oid)
                            THEN tree.names || tree.names[cardinality(tree.names)]
                            ELSE tree.names END, '/') AS name,
       n.nspname AS schema, c.relname AS relation,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
       CASE WHEN c.oid = ANY ($2::oid[]) THEN
              c.relpages * current_setting('block_size')::bigint
            WHEN c.relkind IN ('r', 'm') THEN pg_table_size(c.oid) END AS bytes,
       CASE WHEN am.amname IS DISTINCT FROM 'heap'
              OR current_setting('server_version_num')::int < 140000 THEN NULL
            WHEN c.oid = ANY ($2::oid[]) THEN c.relpages::bigint
            WHEN c.relkind IN ('r', 'm')
            THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS blocks,
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS granted,
       row_security_active(c.oid) AS guarded
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am am ON am.oid = c.relam
WHERE c.relkind <> 'p'
ORDER BY tree.root, tree.oid, tree.path
"""
"""The relations that hold the rows of tables. `name`: the path of partition names below the table,
`/` between levels; empty for the table itself. Partitions of one parent that differ only in the
schema are named with it. A table with children that inherit from it is a level, and its own rows
have a further name below it: `a/a`. `blocks`: heap blocks; NULL where ranges of them cannot be read
alone: only from version 14 on a condition on `ctid` reads only the blocks asked for (TID Range
Scan). `granted`: the user may read the relation by its own name. `guarded`: its own policies would
choose its rows, which do not count for who reads the table."""

LOCKED = """
SELECT DISTINCT relation FROM pg_locks
WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock' AND pid <> pg_backend_pid()
"""
"""Includes locks that sessions still wait for: a later session waits until they are released."""

CHANGED = """
SELECT l.relation::regclass::text FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation >= 16384
  AND CASE WHEN c.oid IS NULL THEN pg_index_has_property(l.relation, 'clusterable') IS NULL
           ELSE c.relkind IN ('r', 'm')
                AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode END
LIMIT 1
"""
"""One changed relation among the relations that the session has locked, also for views and queries.
Numbers from 16384 on are users' own. A new index has a property; a new table does not."""

REPLACED = """
SELECT given.name FROM unnest($1::text[]) AS given (name)
LEFT JOIN pg_class c ON c.oid = to_regclass(given.name)
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"'
      IS DISTINCT FROM given.name
LIMIT 1
"""

RENAMED = """
SELECT l.relation::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation >= 16384
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
  AND (pg_identify_object('pg_class'::regclass, l.relation, 0)).identity
      IS DISTINCT FROM quote_ident(n.nspname) || '.' || quote_ident(c.relname)
LIMIT 1
"""
"""Two tables that exchanged names: the text of a query now means the other one.
`pg_identify_object` reads the latest committed state; it names a temporary schema differently."""

FOREIGN = """
SELECT DISTINCT c.oid::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND c.relkind = 'f' ORDER BY 1
"""

MAY_READ_TABLEOID = "SELECT has_column_privilege($1::oid, 'tableoid', 'SELECT')"
"""It takes a right on all of the table."""

LOCKABLE = """
SELECT given.name FROM unnest($1::text[]) AS given (name)
JOIN pg_class c ON c.oid = to_regclass(given.name)
WHERE c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT') AND NOT (
  given.name = ANY ($2::text[])
  AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid))
"""
"""LOCK TABLE accepts only these kinds, and requires the right to the whole table."""

SHORT_SECONDS = 0.2
"""Guess: locks of short statements are free again within that time."""


def users_schemas(session: Session, *, implicit: bool) -> tuple[str, ...]:
    """Return the schemas of the user's search path, in its order; `implicit`: also `pg_catalog`."""
    sql = "SELECT pg_catalog.current_schemas($1::boolean)::pg_catalog.text[]"
    with session.users_path():
        return tuple(session.value(sql, implicit) or ())


def sized(session: Session, sql: str, oids: list[int]) -> list[Any]:
    """Return the rows of a statement that asks for sizes.

    A function that returns a size waits for a session with an exclusive lock on the relation. Many
    tables must not wait for one: such a relation's size comes from its last ANALYZE.
    """
    if not session.in_transaction:
        return session.rows(sql, oids, [])
    try:
        with session.waiting(SHORT_SECONDS), session.apart():
            return session.rows(sql, oids, [])
    except SourceError as error:
        if state_of(error.__cause__) != LOCK_NOT_AVAILABLE:
            raise
    locked = [row.relation for row in session.rows(LOCKED)]
    with session.apart():
        return session.rows(sql, oids, locked)


def leaves_of(session: Session, oids: list[int]) -> dict[int, list[Any]]:
    """Return the rows of `LEAVES` for each table, by its oid; partitions as created."""
    found: dict[int, list[Any]] = {}
    for row in sorted(sized(session, LEAVES, oids), key=lambda row: list(row.path)):
        found.setdefault(row.root, []).append(row)
    return found


def policies(session: Session, keys: Sequence[tuple[str, str]]) -> str | None:
    """Return which of some tables hides rows from this user, and why."""
    oids = list(oids_of(session, keys).values())
    for row in session.rows(TABLES, oids) if oids else ():
        if row.policies is not None:
            table = f"{row.schema}.{row.name}"
            return f"row-level security may hide rows of {table}, {hiding(row.policies)}"
    return None


def check_unchanged(session: Session, names: Sequence[str] = (), *, by_name: bool = True) -> None:
    """Raise `SnapshotGone` if a relation that the session has locked is not as at the snapshot.

    Its files differ (TRUNCATE, a rewritten table), it did not exist (dropped and created again), or
    it had another name. A query of pg_class shows the snapshot; locks, `to_regclass` and
    `pg_relation_filenode` show the latest committed state. `names`: relations that are read by
    name, schema and name quoted. `by_name`: texts of the user or of functions name further
    relations.
    """
    found = session.rows(CHANGED) or session.rows(REPLACED, list(names))
    if by_name and not found:
        found = session.rows(RENAMED)
    if found:
        raise SnapshotGone(
            f"{found[0][0]} was truncated, rewritten or replaced after the snapshot was taken",
            "run again: the snapshot is older than this change and cannot show those rows any more",
        )


def hiding(names: str) -> str:
    """Return why policies with these names choose rows; without any no row is let through."""
    return f"by policy {names}" if names else "because no policy shows any row to this user"


def partitions(found: list[Any], table: str) -> tuple[PartitionInfo, ...]:
    """Return leaves as partitions; the table itself, where it holds rows, under its own name."""
    names = [leaf.name or table for leaf in found]
    often = Counter(names)
    return tuple(
        PartitionInfo(
            name=name if often[name] == 1 else f"{leaf.schema}.{leaf.relation}",
            relation=(leaf.schema, leaf.relation),
            position=position,
            rows=leaf.rows,
            bytes=leaf.bytes,
            extents=_extents(leaf),
        )
        for position, (name, leaf) in enumerate(zip(names, found, strict=True))
    )


def _extents(leaf: Any) -> tuple[RowExtent, ...]:
    return () if leaf.blocks is None else (RowExtent(first=0, last=leaf.blocks),)


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
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_(toast|temp)'
  AND ($1::oid[] IS NULL AND NOT c.relispartition OR c.oid = ANY ($1))
"""
"""All relations except partitions, or the given ones. A function that is asked for a table which is
gone returns NULL."""

SEE_CHANGES = "SELECT pg_relation_size('pg_catalog.pg_conversion'::regclass)"
"""Makes the results of the session's functions include later commits of other sessions.

The functions read caches. Within a transaction a cache is updated only when the session takes a
lock that it does not hold yet. This statement takes such a lock and releases it, each time again.
"""


def readable(session: Session, oid: int | None = None) -> list[Any]:
    """Return the rows of `TABLES` that the user may read, by schema and name, or only one."""
    rows = session.rows(TABLES, None if oid is None else [oid])
    found = (row for row in rows if row.enter and (row.read or row.read_some) and not row.system)
    return sorted(found, key=lambda row: (row.schema, row.name))


def obstacles(row: Any, policies_apply: bool) -> Iterator[Obstacle]:
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
            what=f"row-level security may hide rows of it, {hiding(row.policies)}",
            mend=(f"ALTER ROLE {quoted(reader)} BYPASSRLS",),
            hint="unload only the visible rows with --enable-row-security",
        )
    if not row.populated:
        yield Obstacle(
            kind="not populated",
            what="it is a materialized view that was never filled",
            mend=(f"REFRESH MATERIALIZED VIEW {name}",),
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


def oids_of(session: Session, keys: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Return the oids of the tables that exist at the snapshot, by their places in `keys`."""
    rows = session.rows(OIDS, [schema for schema, _ in keys], [name for _, name in keys])
    return {row.at - 1: int(row.oid) for row in rows}


def described(
    session: Session, keys: Mapping[int, tuple[str, str]], observe: Observer = silent
) -> dict[int, TableInfo]:
    """Return the descriptions of tables by oid; `keys` has schema and name of each."""
    columns: dict[int, list[ColumnInfo]] = {}
    for oid, name, native, required, base in session.rows(COLUMNS, list(keys)):
        column = ColumnInfo(
            name=name,
            native_type=native,
            nullable=not required,
            attributes=(("base_type", base),) if base != native else (),
        )
        columns.setdefault(oid, []).append(column)
    observe(PhaseStarted(phase="partitions"))
    found_leaves = leaves_of(session, list(keys))
    single = {oid for oid in keys if [leaf.oid for leaf in found_leaves.get(oid, ())] == [oid]}
    several = [oid for oid in keys if oid not in single]
    # What policies say counts only where partitions could be read by their own names.
    guarded = {int(row.oid) for row in session.rows(ACTIVE, several)} if several else set()
    found = {}
    for oid, key in keys.items():
        leaves = found_leaves.get(oid, [])
        known_rows = [leaf.rows for leaf in leaves if leaf.rows is not None]
        known_bytes = [leaf.bytes for leaf in leaves if leaf.bytes is not None]
        # Rights on some columns do not include ctid, and rights on a table do not include its
        # partitions. A user who reads partitions by name is subject to their policies, not the
        # table's.
        readable = all(leaf.granted for leaf in leaves) and (
            oid in single or not (any(leaf.guarded for leaf in leaves) or oid in guarded)
        )
        row_ranges = readable and any(leaf.blocks is not None for leaf in leaves)
        found[oid] = TableInfo(
            schema=key[0],
            name=key[1],
            columns=tuple(columns.get(oid, ())),
            partitions=partitions(leaves, key[1]) if readable and oid not in single else (),
            rows=sum(known_rows) if known_rows else None,
            bytes=sum(known_bytes) if known_bytes else None,
            extents=_extents(leaves[0]) if readable and oid in single else (),
            ranges_from="pg_relation_size" if row_ranges else None,
            named_partitions=True,
            row_ranges=row_ranges,
        )
    return found


T = TypeVar("T")

ROWS = "pg_catalog.count(*)"

BATCH_RELATIONS = 100


def summed(session: Session, counts: list[str]) -> int:
    total = 0
    for batch in batches(counts):
        text = " UNION ALL ".join(batch)
        total += number(session, f"SELECT pg_catalog.sum(count)::bigint FROM ({text}) AS counts")
    return total


def number(session: Session, sql: str) -> int:
    with session.users_path():
        return int(session.value(sql))


def batches(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), BATCH_RELATIONS):
        yield items[start : start + BATCH_RELATIONS]
