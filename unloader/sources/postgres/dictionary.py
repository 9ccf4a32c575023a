"""What PostgreSQL's system catalogs say: relations, columns, leaf partitions and their sizes.

Source of truth: pg_class, pg_inherits, pg_attribute, pg_type, pg_am (chapter "System Catalogs").
Row counts are the planner's statistics (`reltuples`), bytes are what the files hold now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from partition_planner.model import ColumnInfo, PartitionInfo, RowExtent
from unloader.sources.postgres.session import Session

RELATIONS = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relispartition AS is_partition,
       CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
            WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END AS kind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
  AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
ORDER BY 2, 3
"""

SIZES = """
WITH RECURSIVE tree (root, oid) AS (
  SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY($1::oid[])
  UNION SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
SELECT root, sum(pg_table_size(c.oid))::bigint AS bytes,
       sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples END)::bigint AS rows,
       count(*) FILTER (WHERE c.relkind <> 'p') AS leaves
FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind <> 'v' GROUP BY root
"""

COLUMNS = """
WITH RECURSIVE chain (attnum, oid, typmod, kind, base, basemod) AS (
  SELECT a.attnum, t.oid, a.atttypmod, t.typtype, t.typbasetype, t.typtypmod
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT chain.attnum, t.oid, CASE WHEN chain.basemod >= 0 THEN chain.basemod ELSE chain.typmod END,
         t.typtype, t.typbasetype, t.typtypmod
  FROM chain JOIN pg_type t ON t.oid = chain.base WHERE chain.kind = 'd')
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
       format_type(chain.oid, chain.typmod) AS base_type
FROM pg_attribute a JOIN chain ON chain.attnum = a.attnum AND chain.kind <> 'd'
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

LEAVES = """
WITH RECURSIVE tree (oid, path, names) AS (
  SELECT $1::oid, ARRAY[]::oid[], ARRAY[]::text[]
  UNION ALL
  SELECT i.inhrelid, tree.path || i.inhrelid, tree.names || c.relname::text COLLATE "default"
  FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid JOIN pg_class c ON c.oid = i.inhrelid)
SELECT DISTINCT ON (tree.oid) tree.oid, tree.path, array_to_string(tree.names, '/') AS name,
       n.nspname AS schema, c.relname AS relation, c.relkind::text AS kind,
       coalesce(am.amname, '') AS access_method,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_table_size(c.oid) END AS bytes,
       CASE WHEN c.relkind IN ('r', 'm')
            THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS blocks,
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS readable
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am am ON am.oid = c.relam
WHERE c.relkind <> 'p'
ORDER BY tree.oid, tree.path
"""

CHANGED_FILES = """
WITH RECURSIVE tree (oid) AS (
  SELECT given.name::regclass::oid FROM unnest($1::text[]) AS given (name)
  UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
SELECT c.oid::regclass::text FROM tree JOIN pg_class c ON c.oid = tree.oid
WHERE c.relkind IN ('r', 'm') AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode
LIMIT 1
"""

TID_RANGE_VERSION = 14
"""First major version whose `ctid` conditions read only the blocks asked for (TID Range Scan)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One relation that holds rows of a table: the table itself, a partition or a child."""

    name: str
    """Path of partition names below the table, `/` between levels; empty for the table itself."""
    relation: tuple[str, str]
    """Schema and name."""
    rows: int | None
    bytes: int | None
    extents: tuple[RowExtent, ...]
    """Heap blocks; () where ranges of them cannot be read alone."""
    readable: bool


def relations(session: Session) -> list[Any]:
    """Return the relations the user may read: oid, schema, name, is_partition, kind."""
    return session.rows(RELATIONS)


def sizes(session: Session, oids: list[int]) -> dict[int, Any]:
    """Return bytes, rows and leaves of whole partition trees, by the oid of their root."""
    return {row["root"]: row for row in session.rows(SIZES, oids)}


def columns(session: Session, oid: int) -> tuple[ColumnInfo, ...]:
    """Return the columns in table order; domains come with the type behind them."""
    return tuple(
        ColumnInfo(
            name=row["name"],
            native_type=row["type"],
            nullable=not row["required"],
            attributes=(("base_type", row["base_type"]),)
            if row["base_type"] != row["type"]
            else (),
        )
        for row in session.rows(COLUMNS, oid)
    )


def leaves(session: Session, oid: int) -> tuple[Leaf, ...]:
    """Return the relations that hold the table's rows, partitions in order of their creation."""
    ranges = session.version[0] >= TID_RANGE_VERSION
    rows = sorted(session.rows(LEAVES, oid), key=lambda row: list(row["path"]))
    return tuple(
        Leaf(
            name=row["name"],
            relation=(row["schema"], row["relation"]),
            rows=row["rows"],
            bytes=row["bytes"],
            extents=(RowExtent(first=0, last=row["blocks"]),)
            if ranges and row["access_method"] == "heap" and row["blocks"] is not None
            else (),
            readable=row["readable"],
        )
        for row in rows
    )


def changed_files(session: Session, names: list[str]) -> str | None:
    """Return a relation at or below these whose files are other ones than at the snapshot.

    A query of pg_class goes by the snapshot, `pg_relation_filenode` by what is committed now.

    Args:
        session: Within a snapshot, the relations locked.
        names: Quoted as in SQL.
    """
    found = session.rows(CHANGED_FILES, names)
    return str(found[0][0]) if found else None


def partitions(found: tuple[Leaf, ...], table: str) -> tuple[PartitionInfo, ...]:
    """Return leaves as partitions; the table itself, where it holds rows, under its own name."""
    names = [leaf.name or table for leaf in found]
    return tuple(
        PartitionInfo(
            name=name if names.count(name) == 1 else ".".join(leaf.relation),
            relation=leaf.relation,
            position=position,
            rows=leaf.rows,
            bytes=leaf.bytes,
            extents=leaf.extents,
        )
        for position, (name, leaf) in enumerate(zip(names, found, strict=True))
    )
