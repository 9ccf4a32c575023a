"""What Oracle's data dictionary says of tables: names, synonyms, columns, keys.

Source of truth: the static views of the Database Reference. ALL_ views show what the user has some
right to. Rows, blocks and the length of a row are what the statistics say, and nothing where they
were never gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from partition_planner.model import ColumnInfo
from unloader.model import TableSummary
from unloader.sources.oracle.columns.native import ROWID, native_text
from unloader.sources.oracle.connection.session import Session
from unloader.sources.oracle.tables.questions import Dictionary, Question

BLOCK_BYTES = 8192
"""Size of a block where only their number is known; the database's default."""

INDEX_ORGANIZED = "index-organized table"

MAINTAINED = (
    *("SYS", "SYSTEM", "AUDSYS", "APPQOSSYS", "CTXSYS", "DBSFWUSER", "DBSNMP", "DVF", "DVSYS"),
    *("EXFSYS", "GGSYS", "GSMADMIN_INTERNAL", "LBACSYS", "MDSYS", "OJVMSYS", "OLAPSYS", "ORDDATA"),
    *("ORDPLUGINS", "ORDSYS", "OUTLN", "SI_INFORMTN_SCHEMA", "SYSMAN", "VECSYS", "WMSYS", "XDB"),
)
"""Schemas of the database itself, whose tables are not listed; they can be unloaded by name."""

OTHERS = "NOT IN (" + ", ".join(f"'{name}'" for name in MAINTAINED) + ")"
"""The condition that an owner is none of them."""

TABLES = f"""
SELECT OWNER, TABLE_NAME, NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, TEMPORARY, IOT_TYPE,
CLUSTER_NAME FROM ALL_TABLES
WHERE NESTED = 'NO' AND SECONDARY = 'N' AND DROPPED = 'NO'
AND (IOT_TYPE IS NULL OR IOT_TYPE = 'IOT') AND OWNER {OTHERS} ORDER BY OWNER, TABLE_NAME
"""
VIEWS = f"SELECT OWNER, VIEW_NAME FROM ALL_VIEWS WHERE OWNER {OTHERS}"
MATERIALIZED = f"SELECT OWNER, MVIEW_NAME FROM ALL_MVIEWS WHERE OWNER {OTHERS}"
EXTERNAL = f"SELECT OWNER, TABLE_NAME FROM ALL_EXTERNAL_TABLES WHERE OWNER {OTHERS}"
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

TABLE = Question(
    select="NUM_ROWS, BLOCKS, AVG_ROW_LEN, PARTITIONED, TEMPORARY, IOT_TYPE, CLUSTER_NAME",
    view="ALL_TABLES",
)
IS_EXTERNAL = Question(select="1", view="ALL_EXTERNAL_TABLES")
COLUMNS = Question(
    select="COLUMN_NAME, DATA_TYPE, DATA_TYPE_OWNER, DATA_LENGTH, DATA_PRECISION, DATA_SCALE, "
    "NULLABLE, CHAR_LENGTH, CHAR_USED",
    view="ALL_TAB_COLS",
    where="HIDDEN_COLUMN = 'NO'",
    order="COLUMN_ID",
)
KEY_COLUMN = Question(
    select="CC.COLUMN_NAME",
    view="ALL_CONSTRAINTS C JOIN ALL_CONS_COLUMNS CC "
    "ON CC.OWNER = C.OWNER AND CC.CONSTRAINT_NAME = C.CONSTRAINT_NAME",
    owner="C.OWNER",
    name="C.TABLE_NAME",
    where="C.CONSTRAINT_TYPE = 'P' AND CC.POSITION = 1",
)


class Relation(Struct, frozen=True, kw_only=True):
    """A table or view, its name as the dictionary has it."""

    owner: str
    name: str
    kind: str
    """table, partitioned table, index-organized table, external table, view, ..."""
    rows: int | None = None
    bytes: int | None = None
    """What the statistics make of it."""

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
    for owner, name, rows, blocks, row_length, *facts in session.run(TABLES):
        kind = "materialized view" if (owner, name) in materialized else "table"
        kind = _kind(kind, *facts, external=partial(external.__contains__, (owner, name)))
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


def relation(dictionary: Dictionary, owner: str, name: str, kind: str) -> Relation:
    """Return what is known of one table or view.

    Args:
        dictionary: Is asked.
        owner: Its schema.
        name: Its name.
        kind: table, view or materialized view, as far as is known.
    """
    found = [] if kind == "view" else dictionary.rows(TABLE, owner, name)
    if not found:
        return Relation(owner=owner, name=name, kind=kind)
    rows, blocks, row_length, *facts = found[0]
    kind = _kind(kind, *facts, external=lambda: bool(dictionary.rows(IS_EXTERNAL, owner, name)))
    return Relation(
        owner=owner,
        name=name,
        kind=kind,
        rows=integer(rows),
        bytes=statistical_bytes(rows, blocks, row_length),
    )


def _kind(
    kind: str,
    partitioned: str,
    temporary: str,
    iot: str | None,
    cluster: str | None,
    *,
    external: Callable[[], bool],
) -> str:
    """Return what kind of table one is that is listed as a table or a materialized view."""
    if iot is not None:
        return INDEX_ORGANIZED
    if temporary == "Y":
        return "temporary table"
    if cluster is not None:
        return "clustered table"
    if kind == "table" and external():
        return "external table"
    return "partitioned table" if kind == "table" and partitioned == "YES" else kind


def columns(dictionary: Dictionary, table: Relation) -> tuple[ColumnInfo, ...]:
    """Return the columns that `SELECT *` has, virtual ones included."""
    attributes = () if table.has_rowids else ((ROWID, "no"),)
    return tuple(
        ColumnInfo(
            name=name,
            native_type=column_type(data_type, type_owner, length, facts),
            nullable=nullable == "Y",
            attributes=attributes,
        )
        for name, data_type, type_owner, length, *facts, nullable in (
            (row[0], row[1], row[2], row[3], row[4], row[5], row[7], row[8], row[6])
            for row in dictionary.rows(COLUMNS, table.owner, table.name)
        )
    )


def column_type(
    data_type: str, type_owner: str | None, length: int | None, facts: list[int | str | None]
) -> str:
    """Return a column's type as `native` prints it.

    Args:
        data_type: DATA_TYPE.
        type_owner: DATA_TYPE_OWNER; only types of users have one.
        length: DATA_LENGTH.
        facts: DATA_PRECISION, DATA_SCALE, CHAR_LENGTH and CHAR_USED.
    """
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


def key_column(dictionary: Dictionary, table: Relation) -> str | None:
    """Return the first column of the primary key, None if the user may not see it."""
    found = dictionary.rows(KEY_COLUMN, table.owner, table.name)
    return str(found[0][0]) if found else None


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
