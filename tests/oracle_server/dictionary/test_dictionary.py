"""The data dictionary as each user sees it."""

from __future__ import annotations

import pytest
from oracle_server.database import Database
from oracle_server.dictionary.dynamic_views import VIEWS
from oracle_server.dictionary.objects import SHAPES
from oracle_server.samples.tables import furnished, long_tables, types_table


@pytest.fixture(scope="module")
def db() -> Database:
    """The furnished database with the tables of all types."""
    made = furnished()
    types_table(made)
    long_tables(made)
    return made


def test_every_view_can_be_read(db: Database) -> None:
    """Each view exists under each of its prefixes, with the columns it declares."""
    names = [prefix + name for name, shape in SHAPES.items() for prefix in shape.prefixes]
    for name in [*names, *VIEWS]:
        rows = db.query("DBADMIN", f"SELECT * FROM {name}")
        assert all(len(row) == len(rows[0]) for row in rows), name


def test_prefixes_decide_what_is_seen(db: Database) -> None:
    """USER_ has one's own, ALL_ what one may read, DBA_ everything."""
    own = {row[0] for row in db.query("SCOTT", "SELECT TABLE_NAME FROM USER_TABLES")}
    seen = set(db.query("SCOTT", "SELECT OWNER, TABLE_NAME FROM ALL_TABLES"))
    everything = set(db.query("DBADMIN", "SELECT OWNER, TABLE_NAME FROM DBA_TABLES"))
    assert seen == {("SCOTT", name) for name in own} | {("HR", "EMPLOYEES")}
    assert everything - seen == {("HR", "SECRETS")}


def test_columns_are_described_as_oracle_does(db: Database) -> None:
    """TAB_COLS has types with their fractions, lengths in bytes and characters, and NULLs."""
    rows = db.query(
        "SCOTT",
        "SELECT COLUMN_NAME, DATA_TYPE, DATA_LENGTH, DATA_PRECISION, DATA_SCALE, CHAR_LENGTH, "
        "CHAR_USED, NULLABLE FROM ALL_TAB_COLS WHERE OWNER = :o AND TABLE_NAME = :t "
        "ORDER BY COLUMN_ID",
        ["SCOTT", "TYPES_TABLE"],
    )
    found = {row[0]: row[1:] for row in rows}
    assert found["ID"] == ("NUMBER", 22, 10, 0, 0, None, "N")
    assert found["N_PLAIN"] == ("NUMBER", 22, None, None, 0, None, "Y")
    assert found["N_10_M2"] == ("NUMBER", 22, 10, -2, 0, None, "Y")
    assert found["N_INTEGER"] == ("NUMBER", 22, None, 0, 0, None, "Y")
    assert found["F_126"] == ("FLOAT", 22, 126, None, 0, None, "Y")
    assert found["V_CHARS"] == ("VARCHAR2", 400, None, None, 100, "C", "Y")
    assert found["C_8"] == ("CHAR", 8, None, None, 8, "B", "Y")
    assert found["NV"] == ("NVARCHAR2", 200, None, None, 100, "C", "Y")
    assert found["TS_9"] == ("TIMESTAMP(9)", 11, None, 9, 0, None, "Y")
    assert found["TZ_6"] == ("TIMESTAMP(6) WITH TIME ZONE", 13, None, 6, 0, None, "Y")
    assert found["TL_9"][0] == "TIMESTAMP(9) WITH LOCAL TIME ZONE"
    assert found["IDS_9"] == ("INTERVAL DAY(9) TO SECOND(9)", 11, 9, 9, 0, None, "Y")
    assert found["IYM"] == ("INTERVAL YEAR(2) TO MONTH", 5, 2, 0, 0, None, "Y")
    assert [found[name][0] for name in ("X", "J", "B", "RID")] == [
        "XMLTYPE",
        "JSON",
        "BOOLEAN",
        "ROWID",
    ]


def test_partitions_and_their_objects(db: Database) -> None:
    """Sub-partitions have data objects, partitions above them have none."""
    objects = db.query(
        "SCOTT",
        "SELECT OBJECT_TYPE, SUBOBJECT_NAME, DATA_OBJECT_ID FROM ALL_OBJECTS "
        "WHERE OWNER = 'SCOTT' AND OBJECT_NAME = 'ORDERS'",
    )
    kinds: dict[str, list[object]] = {}
    for kind, _, number in objects:
        kinds.setdefault(kind, []).append(number)
    assert kinds["TABLE"] == [None]
    assert kinds["TABLE PARTITION"] == [None] * 3
    assert len(set(kinds["TABLE SUBPARTITION"])) == 12
    parts = db.query(
        "SCOTT",
        "SELECT PARTITION_NAME, PARTITION_POSITION, SUBPARTITION_COUNT, COMPOSITE, NUM_ROWS "
        "FROM USER_TAB_PARTITIONS WHERE TABLE_NAME = 'ORDERS' ORDER BY PARTITION_POSITION",
    )
    assert parts == [
        ("P_2023", 1, 4, "YES", 300), ("P_2024", 2, 4, "YES", 300), ("P_EMPTY", 3, 4, "YES", 0),
    ]  # fmt: skip
    table = db.query(
        "SCOTT",
        "SELECT P.PARTITIONING_TYPE, P.SUBPARTITIONING_TYPE, K.COLUMN_NAME FROM ALL_PART_TABLES P "
        "JOIN ALL_PART_KEY_COLUMNS K ON K.OWNER = P.OWNER AND K.NAME = P.TABLE_NAME",
    )
    assert table == [("RANGE", "HASH", "ORDERED")]


def test_keys_of_index_organized_tables(db: Database) -> None:
    """The primary key of an IOT is found through constraints, and through its index."""
    keys = db.query(
        "SCOTT",
        "SELECT CC.COLUMN_NAME FROM ALL_CONSTRAINTS C, ALL_CONS_COLUMNS CC WHERE C.OWNER = CC.OWNER "
        "AND C.CONSTRAINT_NAME = CC.CONSTRAINT_NAME AND C.CONSTRAINT_TYPE = 'P' "
        "AND C.TABLE_NAME = 'COUNTRIES' ORDER BY CC.POSITION",
    )
    assert keys == [("REGION",), ("CODE",)]
    top = "SELECT INDEX_NAME FROM USER_INDEXES WHERE INDEX_TYPE = 'IOT - TOP'"
    assert db.query("SCOTT", top) == [("PK_COUNTRIES",)]
    iot = "SELECT IOT_TYPE, TABLESPACE_NAME FROM USER_TABLES WHERE TABLE_NAME = 'COUNTRIES'"
    assert db.query("SCOTT", iot) == [("IOT", None)]


def test_segments_are_the_sum_of_their_extents(db: Database) -> None:
    """DBA_SEGMENTS and DBA_EXTENTS agree; other segments' extents lie between."""
    different = db.query(
        "DBADMIN",
        "SELECT S.SEGMENT_NAME FROM DBA_SEGMENTS S JOIN (SELECT OWNER, SEGMENT_NAME, "
        "NVL(PARTITION_NAME, '-') P, SUM(BYTES) B, COUNT(*) N FROM DBA_EXTENTS "
        "GROUP BY OWNER, SEGMENT_NAME, NVL(PARTITION_NAME, '-')) E ON E.OWNER = S.OWNER AND "
        "E.SEGMENT_NAME = S.SEGMENT_NAME AND E.P = NVL(S.PARTITION_NAME, '-') "
        "WHERE E.B <> S.BYTES OR E.N <> S.EXTENTS",
    )
    assert different == []
    assert db.query("DBADMIN", "SELECT COUNT(*) FROM DBA_EXTENTS WHERE OWNER = 'SYS'") > [(0,)]


def test_views_follow_the_catalogue(db: Database) -> None:
    """A change of objects, rows or rights is seen at once."""
    db.add_user("NEW", "new")
    db.privileges.grant("NEW", "SELECT", on=("HR", "SECRETS"))
    sql = "SELECT TABLE_NAME, NUM_ROWS FROM ALL_TABLES WHERE OWNER = 'HR'"
    assert db.query("NEW", sql) == [("SECRETS", 10)]
    db.insert("HR", "SECRETS", [(11, "x")])
    assert db.query("NEW", sql) == [("SECRETS", 11)]
    db.privileges.revoke("NEW", "SELECT", on=("HR", "SECRETS"))
    assert db.query("NEW", sql) == []


def test_scn_and_versions(db: Database) -> None:
    """The SCN is read afresh every time; versions follow the server's mode."""
    sql = "SELECT CURRENT_SCN, OPEN_MODE FROM V$DATABASE"
    assert db.query("DBADMIN", sql) == [(db.scn, "READ WRITE")]
    db.commit()
    assert db.query("DBADMIN", sql) == [(db.scn, "READ WRITE")]
    old = furnished(version="19c")
    full = "SELECT VERSION_FULL FROM PRODUCT_COMPONENT_VERSION"
    assert old.query("SCOTT", full) == [("19.22.0.0.0",)]
    charset = "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'"
    assert db.query("SCOTT", charset) == [("AL32UTF8",)]


def test_synonyms_lead_to_their_tables(db: Database) -> None:
    """Private and public synonyms are listed with what they stand for."""
    rows = db.query(
        "SCOTT", "SELECT OWNER, SYNONYM_NAME, TABLE_OWNER, TABLE_NAME FROM ALL_SYNONYMS"
    )
    assert set(rows) == {
        ("SCOTT", "STAFF", "HR", "EMPLOYEES"),
        ("PUBLIC", "EVERYBODY", "HR", "EMPLOYEES"),
    }
