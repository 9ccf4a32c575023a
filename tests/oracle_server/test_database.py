"""The database through the wire, read by the real driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oracledb
import pytest
from oracle_server import OracleServer
from oracle_server.samples.tables import furnished, lob_table, reference_table, types_table

# What the driver in thin mode cannot read as it is; projections of them are read below.
UNREADABLE = {"TZ_6", "TZ_9", "TZ_0", "IDS_9", "X"}
AS_TEXT = {
    "TZ_6": "TO_CHAR(TZ_6, 'SYYYY-MM-DD HH24:MI:SS.FF6 TZR')",
    "TZ_9": "SYS_EXTRACT_UTC(TZ_9)",
    "IDS_9": "TO_CHAR(IDS_9)",
    "X": "XMLSERIALIZE(CONTENT X AS CLOB)",
    "J": "JSON_SERIALIZE(J RETURNING CLOB)",
    "VEC_FLOAT64": "VECTOR_SERIALIZE(VEC_FLOAT64 RETURNING CLOB)",
    "URID": "CAST(URID AS VARCHAR2(4000))",
    "N_PLAIN": "TO_CHAR(N_PLAIN,'TM9','NLS_NUMERIC_CHARACTERS=''.,''')",
}


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server with the furnished database and tables of every type."""
    db = furnished()
    types_table(db, rows=60)
    lob_table(db, [0, 100, 2**40])
    reference_table(db, 2000, 4)
    with OracleServer(db) as running:
        yield running


@pytest.fixture
def cursor(server: OracleServer) -> Iterator[oracledb.Cursor]:
    """A cursor of SCOTT's."""
    with oracledb.connect(user="SCOTT", password="tiger", dsn=server.dsn) as connection:
        yield connection.cursor()


def test_every_type_reaches_the_driver(server: OracleServer, cursor: oracledb.Cursor) -> None:
    """Each column can be fetched, and is NULL where the table has NULL."""
    table = server.database.table("SCOTT", "TYPES_TABLE")
    for number, column in enumerate(table.columns):
        if column.name in UNREADABLE:
            continue
        found = cursor.execute(f'SELECT "{column.name}" FROM TYPES_TABLE').fetchall()
        stored = server.database.query("SCOTT", "SELECT * FROM TYPES_TABLE")
        nulls = [row[number] is None for row in stored]
        assert [row[0] is None for row in found] == nulls, column.name


def test_projections_reach_the_driver(server: OracleServer, cursor: oracledb.Cursor) -> None:
    """Expressions arrive as the database made them."""
    for name, expression in AS_TEXT.items():
        sql = f"SELECT {expression} FROM TYPES_TABLE"
        found = [_content(row[0]) for row in cursor.execute(sql)]
        expected = [_content(row[0]) for row in server.database.query("SCOTT", sql)]
        assert found == expected, name
        assert len(set(found)) > 1


def _content(value: Any) -> Any:
    if hasattr(value, "nanos"):
        return (*value[:6], value.nanos // 1000)
    if hasattr(value, "timetuple"):
        return (*value.timetuple()[:6], value.microsecond)
    return value.read() if hasattr(value, "read") else value


def test_units_of_the_reference_table(cursor: oracledb.Cursor) -> None:
    """Partitions and address ranges of the encoded table add up to the whole."""
    whole = cursor.execute("SELECT * FROM HASH_PART_0160").fetchall()
    parts = []
    for number in range(1, 5):
        name = f"HASH_PART_0160_P0{number}"
        sql = f'SELECT * FROM "SCOTT"."HASH_PART_0160" PARTITION ("{name}")'
        parts += cursor.execute(sql).fetchall()
    assert parts == whole
    middle = cursor.execute("SELECT ROWID FROM HASH_PART_0160 ORDER BY ROWID").fetchall()[1000][0]
    below = cursor.execute(
        f"SELECT * FROM HASH_PART_0160 WHERE ROWID < CHARTOROWID('{middle}')"
    ).fetchall()
    above = cursor.execute(
        f"SELECT * FROM HASH_PART_0160 WHERE ROWID >= CHARTOROWID('{middle}')"
    ).fetchall()
    assert len(below) == len(above) == 1000
    assert set(below) | set(above) == set(whole)


def test_one_lob_by_its_address(cursor: oracledb.Cursor) -> None:
    """A LOB too large to hold is found by ROWID and read in pieces."""
    sql = "SELECT CASE WHEN DBMS_LOB.GETLENGTH(C) > 1000 THEN ROWIDTOCHAR(ROWID) END FROM LOB_TABLE"
    address = next(row[0] for row in cursor.execute(sql) if row[0])
    one = 'SELECT "C", "B" FROM "SCOTT"."LOB_TABLE" WHERE ROWID = CHARTOROWID(:1)'
    text, binary = cursor.execute(one, [address]).fetchall()[0]
    assert text.size() == binary.size() == 2**40
    assert text.read(2**33 + 1, 16) == f"{2**33:016d}"
    assert binary.read(2**33 + 1, 16) == b"%016d" % 2**33


def test_parsing_describes_and_refuses(cursor: oracledb.Cursor) -> None:
    """A parse alone tells the columns, or what is wrong."""
    cursor.parse("SELECT ID, NAME FROM NUMBERS WHERE ID = :1 AND (NAME LIKE 'a%')")
    assert [column.name for column in cursor.description] == ["ID", "NAME"]
    with pytest.raises(oracledb.DatabaseError, match="ORA-00904"):
        cursor.parse("SELECT ID FROM NUMBERS WHERE (NO_COLUMN = 1)")
    with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        cursor.parse("SELECT CURRENT_SCN FROM V$DATABASE")
