"""What Oracle's data dictionary says of tables: names, synonyms, columns, keys.

Source of truth: the static views of the Database Reference. ALL_ views show what the user has some
right to. Rows, blocks and the length of a row are what the statistics say, and nothing where they
were never gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

from partition_planner.model import ColumnInfo
from unloader.model import TableSummary
from unloader.sources.oracle.columns.native import ROWID, native_text
from unloader.sources.oracle.connection.session import Session

BLOCK_BYTES = 8192
"""Size of a block where only their number is known; the database's default."""

INDEX_ORGANIZED = "index-organized table"

MAINTAINED = (
    *("SYS", "SYSTEM", "AUDSYS", "APPQOSSYS", "CTXSYS", "DBSFWUSER", "DBSNMP", "DVF", "DVSYS"),
    *("EXFSYS", "GGSYS", "GSMADMIN_INTERNAL", "LBACSYS", "MDSYS", "OJVMSYS", "OLAPSYS", "ORDDATA"),
    *("ORDPLUGINS", "ORDSYS", "OUTLN", "SI_INFORMTN_SCHEMA", "SYSMAN", "VECSYS", "WMSYS", "XDB"),
)
"""Schemas of the database itself, whose tables are not listed; they can be unloaded by name."""

_OTHERS = "NOT IN (" + ", ".join(f"'{name}'" for name in MAINTAINED) + ")"

TABLES = f"""
SELECT OWNER, TABLE_NAME, NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, IOT_TYPE FROM ALL_TABLES
WHERE NESTED = 'NO' AND SECONDARY = 'N' AND DROPPED = 'NO'
AND (IOT_TYPE IS NULL OR IOT_TYPE = 'IOT') AND OWNER {_OTHERS} ORDER BY OWNER, TABLE_NAME
"""
VIEWS = f"SELECT OWNER, VIEW_NAME FROM ALL_VIEWS WHERE OWNER {_OTHERS}"
MATERIALIZED = f"SELECT OWNER, MVIEW_NAME FROM ALL_MVIEWS WHERE OWNER {_OTHERS}"
EXTERNAL = f"SELECT OWNER, TABLE_NAME FROM ALL_EXTERNAL_TABLES WHERE OWNER {_OTHERS}"
LEAF_COUNTS = """
SELECT TABLE_OWNER, TABLE_NAME,
SUM(CASE WHEN SUBPARTITION_COUNT > 0 THEN SUBPARTITION_COUNT ELSE 1 END)
FROM ALL_TAB_PARTITIONS GROUP BY TABLE_OWNER, TABLE_NAME
"""

CANDIDATES = """
SELECT OWNER, OBJECT_NAME, OBJECT_TYPE FROM ALL_OBJECTS
WHERE UPPER(OBJECT_NAME) = UPPER(:name)
AND OBJECT_TYPE IN ('TABLE', 'VIEW', 'MATERIALIZED VIEW', 'SYNONYM')
"""
SYNONYM = """
SELECT TABLE_OWNER, TABLE_NAME, DB_LINK FROM ALL_SYNONYMS
WHERE OWNER = :owner AND SYNONYM_NAME = :name
"""

TABLE = """
SELECT NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, TEMPORARY, IOT_TYPE, CLUSTER_NAME FROM ALL_TABLES
WHERE OWNER = :owner AND TABLE_NAME = :name
"""
IS_EXTERNAL = "SELECT 1 FROM ALL_EXTERNAL_TABLES WHERE OWNER = :owner AND TABLE_NAME = :name"
COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, DATA_TYPE_OWNER, DATA_LENGTH, DATA_PRECISION, DATA_SCALE, NULLABLE,
CHAR_LENGTH, CHAR_USED FROM ALL_TAB_COLS
WHERE OWNER = :owner AND TABLE_NAME = :name AND HIDDEN_COLUMN = 'NO' ORDER BY COLUMN_ID
"""
KEY_COLUMN = """
SELECT CC.COLUMN_NAME FROM ALL_CONSTRAINTS C JOIN ALL_CONS_COLUMNS CC
ON CC.OWNER = C.OWNER AND CC.CONSTRAINT_NAME = C.CONSTRAINT_NAME
WHERE C.OWNER = :owner AND C.TABLE_NAME = :name AND C.CONSTRAINT_TYPE = 'P' AND CC.POSITION = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table or view, its name as the dictionary has it."""

    owner: str
    name: str
    kind: str
    """table, partitioned table, index-organized table, external table, view, ..."""
    rows: int | None = None
    bytes: int | None = None
    """What the statistics make of it."""

    @property
    def binds(self) -> dict[str, str]:
        """Owner and name for a statement about the table."""
        return {"owner": self.owner, "name": self.name}

    @property
    def has_rowids(self) -> bool:
        """Whether its rows lie at addresses of their own segment."""
        return self.kind in ("table", "partitioned table", "materialized view")

    @property
    def is_index(self) -> bool:
        """Whether its rows lie in the index of its key."""
        return self.kind == INDEX_ORGANIZED


def tables(session: Session) -> tuple[TableSummary, ...]:
    """Return the tables and views the user may see, without those that serve others."""
    materialized = set(session.run(MATERIALIZED))
    external = set(session.run(EXTERNAL))
    leaves = {(owner, name): int(count) for owner, name, count in session.run(LEAF_COUNTS)}
    found = []
    for owner, name, rows, blocks, row_length, partitioned, iot in session.run(TABLES):
        kind = INDEX_ORGANIZED if iot else "partitioned table" if partitioned == "YES" else "table"
        if (owner, name) in materialized:
            kind = "materialized view"
        elif (owner, name) in external:
            kind = "external table"
        found.append(
            TableSummary(
                schema=owner,
                name=name,
                kind=kind,
                rows=integer(rows),
                bytes=statistical_bytes(rows, blocks, row_length),
                partitions=leaves.get((owner, name), 0),
            )
        )
    found += [
        TableSummary(schema=owner, name=name, kind="view", rows=None, bytes=None, partitions=0)
        for owner, name in session.run(VIEWS)
    ]
    return tuple(sorted(found, key=lambda table: (table.schema or "", table.name)))


def candidates(session: Session, name: str) -> tuple[TableSummary, ...]:
    """Return the tables, views and synonyms of that name, whatever its case and schema."""
    kinds: dict[tuple[str, str], str] = {}
    for owner, found, kind in session.run(CANDIDATES, {"name": name}):
        # A materialized view is listed as the table it is kept in, too.
        if kind != "TABLE" or (owner, found) not in kinds:
            kinds[owner, found] = kind.lower()
    return tuple(
        TableSummary(schema=owner, name=found, kind=kind, rows=None, bytes=None, partitions=0)
        for (owner, found), kind in sorted(kinds.items())
    )


def synonym_target(session: Session, owner: str, name: str) -> tuple[str | None, str, str | None]:
    """Return the schema, name and database link that a synonym stands for."""
    rows = session.run(SYNONYM, {"owner": owner, "name": name})
    return rows[0] if rows else (None, name, None)


def relation(session: Session, owner: str, name: str, kind: str) -> Relation:
    """Return what is known of one table or view.

    Args:
        session: Of the parent.
        owner: Its schema.
        name: Its name.
        kind: table, view or materialized view, as far as is known.
    """
    binds = {"owner": owner, "name": name}
    found = [] if kind == "view" else session.run(TABLE, binds)
    if not found:
        return Relation(owner=owner, name=name, kind=kind)
    rows, blocks, row_length, partitioned, temporary, iot, cluster = found[0]
    if iot is not None:
        kind = INDEX_ORGANIZED
    elif temporary == "Y":
        kind = "temporary table"
    elif cluster is not None:
        kind = "clustered table"
    elif kind == "table" and session.run(IS_EXTERNAL, binds):
        kind = "external table"
    elif kind == "table" and partitioned == "YES":
        kind = "partitioned table"
    return Relation(
        owner=owner,
        name=name,
        kind=kind,
        rows=integer(rows),
        bytes=statistical_bytes(rows, blocks, row_length),
    )


def columns(session: Session, table: Relation) -> tuple[ColumnInfo, ...]:
    """Return the columns that `SELECT *` has, virtual ones included."""
    attributes = () if table.has_rowids else ((ROWID, "no"),)
    return tuple(
        ColumnInfo(
            name=name,
            native_type=_native_type(data_type, type_owner, length, facts),
            nullable=nullable == "Y",
            attributes=attributes,
        )
        for name, data_type, type_owner, length, *facts, nullable in (
            (row[0], row[1], row[2], row[3], row[4], row[5], row[7], row[8], row[6])
            for row in session.run(COLUMNS, table.binds)
        )
    )


def _native_type(
    data_type: str, type_owner: str | None, length: int | None, facts: list[int | str | None]
) -> str:
    precision, scale, characters, used = facts
    if type_owner is not None:
        return f"{type_owner}.{data_type}"
    if data_type == "NUMBER" and precision is None and scale == 0:
        precision = 38  # INTEGER, which SQL*Plus and the driver describe so.
    sized = length if data_type in ("RAW", "UROWID") else characters
    return native_text(
        data_type,
        precision=integer(precision),
        scale=integer(scale),
        length=integer(sized),
        in_chars=used == "C",
    )


def key_column(session: Session, table: Relation) -> str | None:
    """Return the first column of the primary key, None if the user may not see it."""
    found = session.value(KEY_COLUMN, table.binds)
    return None if found is None else str(found)


def statistical_bytes(
    rows: float | None, blocks: float | None, row_length: float | None
) -> int | None:
    """Return the size that statistics amount to, None where they do not."""
    if blocks:
        return int(blocks) * BLOCK_BYTES
    if rows is None or row_length is None:
        return None
    return int(rows) * int(row_length)


def integer(value: object) -> int | None:
    """Return a number of the dictionary, None for NULL."""
    return int(str(value)) if value is not None else None
