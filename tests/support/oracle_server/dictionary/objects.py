"""Rows of the dictionary's views: objects, columns, and space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from oracle_server.data.definitions import CREATED, Definitions
from oracle_server.data.tables import (
    ABSOLUTE_FILE_OFFSET,
    BLOCK_BYTES,
    HEADER_BLOCKS,
    Segment,
    Table,
)
from oracle_server.model import Column, Type

COLUMNS = (
    "OWNER TABLE_NAME COLUMN_NAME DATA_TYPE DATA_TYPE_MOD DATA_TYPE_OWNER DATA_LENGTH:N "
    "DATA_PRECISION:N DATA_SCALE:N NULLABLE COLUMN_ID:N DEFAULT_LENGTH:N DATA_DEFAULT:T "
    "NUM_DISTINCT:N NUM_NULLS:N CHARACTER_SET_NAME CHAR_COL_DECL_LENGTH:N AVG_COL_LEN:N "
    "CHAR_LENGTH:N CHAR_USED HIDDEN_COLUMN VIRTUAL_COLUMN SEGMENT_COLUMN_ID:N "
    "INTERNAL_COLUMN_ID:N QUALIFIED_COL_NAME USER_GENERATED IDENTITY_COLUMN COLLATION"
)
_FIXED_LENGTHS = {
    "NUMBER": 22, "FLOAT": 22, "DATE": 7, "BINARY_FLOAT": 4, "BINARY_DOUBLE": 8, "CLOB": 4000,
    "NCLOB": 4000, "BLOB": 4000, "ROWID": 10, "UROWID": 4000, "JSON": 8200, "XMLTYPE": 2000,
    "VECTOR": 8200, "BOOLEAN": 1, "LONG": 0, "LONG RAW": 0, "INTERVAL YEAR TO MONTH": 5,
    "INTERVAL DAY TO SECOND": 11,
}  # fmt: skip
_CHARACTER = ("CHAR", "VARCHAR2", "CLOB", "LONG")


def data_type(kind: Type) -> str:
    """Return DATA_TYPE: digits of seconds are part of it, precision and length are not."""
    if kind.name.startswith("TIMESTAMP"):
        digits = 6 if kind.scale is None else kind.scale
        return kind.name.replace("TIMESTAMP", f"TIMESTAMP({digits})", 1)
    years = 2 if kind.precision is None else kind.precision
    if kind.name == "INTERVAL YEAR TO MONTH":
        return f"INTERVAL YEAR({years}) TO MONTH"
    if kind.name == "INTERVAL DAY TO SECOND":
        digits = 6 if kind.scale is None else kind.scale
        return f"INTERVAL DAY({years}) TO SECOND({digits})"
    return kind.name


def _bytes(kind: Type) -> int:
    if kind.name.startswith("TIMESTAMP"):
        if kind.name == "TIMESTAMP WITH TIME ZONE":
            return 13
        return 7 if kind.scale == 0 else 11
    if kind.name in _FIXED_LENGTHS:
        return _FIXED_LENGTHS[kind.name]
    length = kind.length or 0
    if kind.name in ("NVARCHAR2", "NCHAR"):
        return 2 * length
    return min(4 * length, 4000) if kind.in_chars else length


def _described(column: Column) -> dict[str, Any]:
    kind = column.type
    text = kind.name in ("VARCHAR2", "CHAR", "NVARCHAR2", "NCHAR")
    national = kind.name in ("NVARCHAR2", "NCHAR", "NCLOB")
    character_set = "CHAR_CS" if kind.name in _CHARACTER else "NCHAR_CS" if national else None
    precision = kind.precision
    if kind.name == "FLOAT" and precision is None:
        precision = 126
    scale = kind.scale
    if kind.name.startswith("INTERVAL") and precision is None:
        precision = 2
    if kind.name.startswith("TIMESTAMP") and scale is None:
        scale = 6
    if kind.name == "INTERVAL DAY TO SECOND" and scale is None:
        scale = 6
    if kind.name == "INTERVAL YEAR TO MONTH":
        scale = 0
    return {
        "COLUMN_NAME": column.name,
        "DATA_TYPE": data_type(kind),
        "DATA_TYPE_OWNER": "PUBLIC" if kind.name == "XMLTYPE" else None,
        "DATA_LENGTH": _bytes(kind),
        "DATA_PRECISION": precision,
        "DATA_SCALE": scale if kind.name != "FLOAT" else None,
        "NULLABLE": "Y" if column.nullable else "N",
        "CHARACTER_SET_NAME": character_set,
        "CHAR_COL_DECL_LENGTH": _bytes(kind) if text else None,
        "CHAR_LENGTH": (kind.length or 0) if text else 0,
        "CHAR_USED": ("C" if kind.in_chars or national else "B") if text else None,
        "QUALIFIED_COL_NAME": column.name,
    }


def tab_cols(database: Definitions) -> Iterator[dict[str, Any]]:
    for relation in database.catalog.relations():
        for number, column in enumerate(relation.columns, 1):
            yield {
                "OWNER": relation.owner,
                "TABLE_NAME": relation.name,
                **_described(column),
                "COLUMN_ID": number,
                "SEGMENT_COLUMN_ID": number,
                "INTERNAL_COLUMN_ID": number,
                "HIDDEN_COLUMN": "NO",
                "VIRTUAL_COLUMN": "NO",
                "USER_GENERATED": "YES",
                "IDENTITY_COLUMN": "NO",
            }


Rows = Iterator[dict[str, Any]]


def key_name(table: Table) -> str:
    return f"PK_{table.name}"


TABLESPACE = "USERS"


def row_bytes(table: Table) -> int:
    """Return a guess at the bytes of a row."""
    for segment in table.segments:
        for row in list(segment.base[:20]) + segment.tail[:20]:
            return sum(len(str(value)) + 1 for value in row if value is not None)
    return 0


def live_rows(segment: Segment) -> int:
    gone = sum(1 for versions in segment.changes.values() if versions[-1].died is not None)
    return len(segment) - gone


def block_count(segment: Segment) -> int:
    return sum(extent.blocks for extent in segment.layout.extents)


def measures(table: Table, parts: list[Segment]) -> dict[str, Any]:
    """Return the columns about size that partitions and sub-partitions share."""
    return {
        "TABLESPACE_NAME": TABLESPACE,
        "NUM_ROWS": sum(map(live_rows, parts)),
        "BLOCKS": sum(map(block_count, parts)),
        "AVG_ROW_LEN": row_bytes(table),
        "SEGMENT_CREATED": "YES",
        "COMPRESSION": "DISABLED",
        "LAST_ANALYZED": CREATED,
    }


def _segments(database: Definitions) -> Iterator[tuple[str, str, str | None, str, Segment]]:
    """Yield (owner, name, partition, type, segment) of all that takes space."""
    for table in database.catalog.tables.values():
        index = table.organization == "index"
        if table.organization == "external":
            continue
        name = key_name(table) if index else table.name
        for segment in table.segments:
            kind = "INDEX" if index else "TABLE"
            kind += " SUBPARTITION" if segment.subpartition else ""
            kind += " PARTITION" if segment.partition and not segment.subpartition else ""
            part = segment.subpartition or segment.partition
            yield table.owner, name, part, kind, segment


def extents(database: Definitions) -> Rows:
    for owner, name, part, kind, segment in _segments(database):
        for number, extent in enumerate(segment.layout.extents):
            yield {
                "OWNER": owner, "SEGMENT_NAME": name, "PARTITION_NAME": part,
                "SEGMENT_TYPE": kind, "TABLESPACE_NAME": TABLESPACE, "EXTENT_ID": number,
                "FILE_ID": extent.file + ABSOLUTE_FILE_OFFSET, "BLOCK_ID": extent.block,
                "BYTES": extent.blocks * BLOCK_BYTES, "BLOCKS": extent.blocks,
                "RELATIVE_FNO": extent.file,
            }  # fmt: skip
    for number, extent in enumerate(database.storage.others):
        yield {
            "OWNER": "SYS", "SEGMENT_NAME": "OTHER_WORK", "PARTITION_NAME": None,
            "SEGMENT_TYPE": "TABLE", "TABLESPACE_NAME": TABLESPACE, "EXTENT_ID": number,
            "FILE_ID": extent.file + ABSOLUTE_FILE_OFFSET, "BLOCK_ID": extent.block,
            "BYTES": extent.blocks * BLOCK_BYTES, "BLOCKS": extent.blocks,
            "RELATIVE_FNO": extent.file,
        }  # fmt: skip


def segments(database: Definitions) -> Rows:
    for owner, name, part, kind, segment in _segments(database):
        if not segment.layout.extents:
            continue
        first, blocks = segment.layout.extents[0], block_count(segment)
        yield {
            "OWNER": owner, "SEGMENT_NAME": name, "PARTITION_NAME": part, "SEGMENT_TYPE": kind,
            "SEGMENT_SUBTYPE": "ASSM", "TABLESPACE_NAME": TABLESPACE,
            "HEADER_FILE": first.file + ABSOLUTE_FILE_OFFSET,
            "HEADER_BLOCK": first.block + HEADER_BLOCKS - 1, "BYTES": blocks * BLOCK_BYTES,
            "BLOCKS": blocks, "EXTENTS": len(segment.layout.extents), "RELATIVE_FNO": first.file,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of view."""

    columns: str
    """Words such as `NUM_ROWS:N`."""
    rows: Callable[[Definitions], Iterable[dict[str, Any]]]
    owner: str | None = "OWNER"
    """The column that says whose it is, which USER_ views lack."""
    name: str = "TABLE_NAME"
    """The column with the name of what one must be allowed to see."""
    dba_only: tuple[str, ...] = ()
    """Columns that USER_ views lack."""
    prefixes: tuple[str, ...] = ("ALL_", "USER_", "DBA_")


def tables(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        heap = table.organization == "heap"
        yield {
            "OWNER": table.owner,
            "TABLE_NAME": table.name,
            "TABLESPACE_NAME": TABLESPACE if heap and not table.partitions else None,
            "STATUS": "VALID",
            "NUM_ROWS": sum(map(live_rows, table.segments)),
            "BLOCKS": sum(map(block_count, table.segments)) if heap else None,
            "AVG_ROW_LEN": row_bytes(table),
            "PARTITIONED": "YES" if table.partitions else "NO",
            "IOT_TYPE": "IOT" if table.organization == "index" else None,
            "EXTERNAL": "YES" if table.organization == "external" else "NO",
            "TEMPORARY": "N", "NESTED": "NO", "SECONDARY": "N", "DROPPED": "NO",
            "COMPRESSION": "DISABLED", "SEGMENT_CREATED": "YES", "READ_ONLY": "NO",
            "ROW_MOVEMENT": "DISABLED", "DEGREE": "1", "LAST_ANALYZED": CREATED,
            "SAMPLE_SIZE": sum(map(live_rows, table.segments)),
        }  # fmt: skip


def views(database: Definitions) -> Rows:
    for view in database.catalog.views.values():
        yield {"OWNER": view.owner, "VIEW_NAME": view.name, "TEXT": view.sql,
               "TEXT_VC": view.sql, "TEXT_LENGTH": len(view.sql), "READ_ONLY": "N"}  # fmt: skip


def tab_comments(database: Definitions) -> Rows:
    comments = database.catalog.comments
    for table in database.catalog.tables.values():
        yield {"OWNER": table.owner, "TABLE_NAME": table.name, "TABLE_TYPE": "TABLE",
               "COMMENTS": comments.get((table.owner, table.name))}  # fmt: skip


def mviews(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        if table.materialized:
            yield {"OWNER": table.owner, "MVIEW_NAME": table.name, "CONTAINER_NAME": table.name,
                   "STALENESS": "FRESH", "REFRESH_MODE": "DEMAND"}  # fmt: skip


def _object(owner: str, name: str, kind: str, number: int, data: int | None, sub: str | None = None
            ) -> dict[str, Any]:  # fmt: skip
    return {"OWNER": owner, "OBJECT_NAME": name, "SUBOBJECT_NAME": sub, "OBJECT_ID": number,
            "DATA_OBJECT_ID": data, "OBJECT_TYPE": kind, "CREATED": CREATED,
            "LAST_DDL_TIME": CREATED, "STATUS": "VALID", "TEMPORARY": "N", "GENERATED": "N",
            "SECONDARY": "N", "NAMESPACE": 1, "ORACLE_MAINTAINED": "N"}  # fmt: skip


def objects(database: Definitions) -> Rows:
    catalog = database.catalog
    for table in catalog.tables.values():
        yield from _table_objects(table)
    for view in catalog.views.values():
        yield _object(view.owner, view.name, "VIEW", view.object_id, None)
    for (owner, name), number in catalog.synonym_ids.items():
        yield _object(owner, name, "SYNONYM", number, None)


def _table_objects(table: Table) -> Rows:
    heap = table.organization == "heap"
    data = table.segments[0].data_object_id if heap and not table.partitions else None
    yield _object(table.owner, table.name, "TABLE", table.object_id, data)
    if table.materialized:
        yield _object(table.owner, table.name, "MATERIALIZED VIEW", table.object_id + 500_000, None)
    if table.key:
        number = table.object_id + 600_000
        yield _object(table.owner, key_name(table), "INDEX", number, number)
    for partition, number in table.partition_objects.items():
        yield _object(table.owner, table.name, "TABLE PARTITION", number, None, partition)
    for segment in table.segments if table.partitions else ():
        sub = segment.subpartition
        kind = "TABLE SUBPARTITION" if sub else "TABLE PARTITION"
        own = segment.data_object_id if heap else None
        name = sub or segment.partition
        yield _object(table.owner, table.name, kind, segment.object_id, own, name)


def synonyms(database: Definitions) -> Rows:
    for (owner, name), (target_owner, target) in database.catalog.synonyms.items():
        yield {"OWNER": owner, "SYNONYM_NAME": name, "TABLE_OWNER": target_owner,
               "TABLE_NAME": target, "DB_LINK": None}  # fmt: skip


def tab_partitions(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        for position, spec in enumerate(table.partitions, 1):
            parts = [s for s in table.segments if s.partition == spec.name]
            yield {
                "TABLE_OWNER": table.owner, "TABLE_NAME": table.name,
                "COMPOSITE": "YES" if spec.subpartitions else "NO", "PARTITION_NAME": spec.name,
                "SUBPARTITION_COUNT": len(spec.subpartitions), "HIGH_VALUE": spec.high_value,
                "HIGH_VALUE_LENGTH": len(spec.high_value or ""), "PARTITION_POSITION": position,
                **measures(table, parts), "INTERVAL": "NO",
            }  # fmt: skip


def tab_subpartitions(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        for part, spec in enumerate(table.partitions, 1):
            for position, sub in enumerate(spec.subpartitions, 1):
                parts = [s for s in table.segments if s.subpartition == sub]
                yield {
                    "TABLE_OWNER": table.owner, "TABLE_NAME": table.name,
                    "PARTITION_NAME": spec.name, "SUBPARTITION_NAME": sub, "HIGH_VALUE": None,
                    "PARTITION_POSITION": part, "SUBPARTITION_POSITION": position,
                    **measures(table, parts),
                }  # fmt: skip


def constraints(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        if table.key:
            yield {"OWNER": table.owner, "CONSTRAINT_NAME": key_name(table),
                   "CONSTRAINT_TYPE": "P", "TABLE_NAME": table.name, "STATUS": "ENABLED",
                   "VALIDATED": "VALIDATED", "INDEX_OWNER": table.owner,
                   "INDEX_NAME": key_name(table), "DEFERRABLE": "NOT DEFERRABLE"}  # fmt: skip


def cons_columns(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        for position, column in enumerate(table.key, 1):
            yield {"OWNER": table.owner, "CONSTRAINT_NAME": key_name(table),
                   "TABLE_NAME": table.name, "COLUMN_NAME": column,
                   "POSITION": position}  # fmt: skip


def tab_privs(database: Definitions) -> Rows:
    """TAB_PRIVS; TABLE_SCHEMA is what ALL_TAB_PRIVS calls the owner."""
    for grantee, privilege, owner, name in database.privileges.on_objects():
        yield {"GRANTEE": grantee, "OWNER": owner, "TABLE_SCHEMA": owner, "TABLE_NAME": name,
               "GRANTOR": owner, "PRIVILEGE": privilege, "GRANTABLE": "NO", "HIERARCHY": "NO",
               "TYPE": "TABLE"}  # fmt: skip


def external_tables(database: Definitions) -> Rows:
    for table in database.catalog.tables.values():
        if table.organization == "external":
            yield {"OWNER": table.owner, "TABLE_NAME": table.name, "TYPE_NAME": "ORACLE_LOADER",
                   "DEFAULT_DIRECTORY_NAME": "DATA_DIR"}  # fmt: skip


_DBA = ("DBA_", "USER_")
_PARTITION = (
    "TABLESPACE_NAME NUM_ROWS:N BLOCKS:N AVG_ROW_LEN:N SEGMENT_CREATED COMPRESSION LAST_ANALYZED:D"
)
_PLACE = ("OWNER", "FILE_ID", "BLOCK_ID", "RELATIVE_FNO", "HEADER_FILE", "HEADER_BLOCK")
SHAPES: dict[str, Shape] = {
    "TABLES": Shape(
        columns="OWNER TABLE_NAME TABLESPACE_NAME STATUS NUM_ROWS:N BLOCKS:N AVG_ROW_LEN:N "
        "PARTITIONED IOT_TYPE IOT_NAME CLUSTER_NAME EXTERNAL TEMPORARY NESTED SECONDARY DROPPED "
        "COMPRESSION SEGMENT_CREATED READ_ONLY ROW_MOVEMENT DEGREE LAST_ANALYZED:D SAMPLE_SIZE:N",
        rows=tables,
    ),
    "VIEWS": Shape(
        columns="OWNER VIEW_NAME TEXT_LENGTH:N TEXT:T TEXT_VC:T READ_ONLY",
        rows=views,
        name="VIEW_NAME",
    ),
    "MVIEWS": Shape(
        columns="OWNER MVIEW_NAME CONTAINER_NAME STALENESS REFRESH_MODE",
        rows=mviews,
        name="MVIEW_NAME",
    ),
    "TAB_COMMENTS": Shape(columns="OWNER TABLE_NAME TABLE_TYPE COMMENTS:T", rows=tab_comments),
    "TAB_COLS": Shape(columns=COLUMNS, rows=tab_cols),
    "OBJECTS": Shape(
        columns="OWNER OBJECT_NAME SUBOBJECT_NAME OBJECT_ID:N DATA_OBJECT_ID:N OBJECT_TYPE "
        "CREATED:D LAST_DDL_TIME:D STATUS TEMPORARY GENERATED SECONDARY NAMESPACE:N "
        "ORACLE_MAINTAINED",
        rows=objects,
        name="OBJECT_NAME",
    ),
    "SYNONYMS": Shape(
        columns="OWNER SYNONYM_NAME TABLE_OWNER TABLE_NAME DB_LINK",
        rows=synonyms,
        name="SYNONYM_NAME",
    ),
    "TAB_PARTITIONS": Shape(
        columns="TABLE_OWNER TABLE_NAME COMPOSITE PARTITION_NAME SUBPARTITION_COUNT:N HIGH_VALUE:T "
        f"HIGH_VALUE_LENGTH:N PARTITION_POSITION:N INTERVAL {_PARTITION}",
        rows=tab_partitions,
        owner="TABLE_OWNER",
    ),
    "TAB_SUBPARTITIONS": Shape(
        columns="TABLE_OWNER TABLE_NAME PARTITION_NAME SUBPARTITION_NAME HIGH_VALUE:T "
        f"PARTITION_POSITION:N SUBPARTITION_POSITION:N {_PARTITION}",
        rows=tab_subpartitions,
        owner="TABLE_OWNER",
    ),
    "CONSTRAINTS": Shape(
        columns="OWNER CONSTRAINT_NAME CONSTRAINT_TYPE TABLE_NAME R_OWNER R_CONSTRAINT_NAME STATUS "
        "DEFERRABLE VALIDATED INDEX_OWNER INDEX_NAME",
        rows=constraints,
    ),
    "CONS_COLUMNS": Shape(
        columns="OWNER CONSTRAINT_NAME TABLE_NAME COLUMN_NAME POSITION:N", rows=cons_columns
    ),
    "TAB_PRIVS": Shape(
        columns="GRANTEE OWNER TABLE_SCHEMA TABLE_NAME GRANTOR PRIVILEGE GRANTABLE HIERARCHY TYPE",
        rows=tab_privs,
        owner="TABLE_SCHEMA",
    ),
    "EXTERNAL_TABLES": Shape(
        columns="OWNER TABLE_NAME TYPE_NAME DEFAULT_DIRECTORY_NAME", rows=external_tables
    ),
    "EXTENTS": Shape(
        columns="OWNER SEGMENT_NAME PARTITION_NAME SEGMENT_TYPE TABLESPACE_NAME EXTENT_ID:N "
        "FILE_ID:N BLOCK_ID:N BYTES:N BLOCKS:N RELATIVE_FNO:N",
        rows=extents,
        dba_only=_PLACE,
        prefixes=_DBA,
    ),
    "SEGMENTS": Shape(
        columns="OWNER SEGMENT_NAME PARTITION_NAME SEGMENT_TYPE SEGMENT_SUBTYPE TABLESPACE_NAME "
        "HEADER_FILE:N HEADER_BLOCK:N BYTES:N BLOCKS:N EXTENTS:N RELATIVE_FNO:N",
        rows=segments,
        dba_only=_PLACE,
        prefixes=_DBA,
    ),
}
