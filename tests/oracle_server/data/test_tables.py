"""Tables, their versions and where their rows lie."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from oracle_server.data.tables import PartitionSpec
from oracle_server.database import Database
from oracle_server.model import Column, OracleError, Rowid, SessionState, Type
from oracle_server.samples.tables import iot_table, numbers_table, reference_table

from unloader.sources.duckdb.reference import build_reference_table

NUMBER = Type(name="NUMBER", precision=10, scale=0)


@pytest.fixture
def db() -> Database:
    """A database with SCOTT and a table of 1000 numbers."""
    made = Database()
    made.add_user("SCOTT", "tiger")
    numbers_table(made, 1000)
    return made


def code_of(db: Database, sql: str) -> int:
    """Return the code a statement fails with."""
    with pytest.raises(OracleError) as caught:
        db.query("SCOTT", sql)
    return caught.value.code


def ids(db: Database, rest: str = "") -> list[int]:
    """Return the sorted ids of the rows a query finds."""
    return sorted(row[0] for row in db.query("SCOTT", f'SELECT "ID" FROM "SCOTT"."NUMBERS" {rest}'))


def test_every_change_is_a_commit_and_older_rows_stay_readable(db: Database) -> None:
    """AS OF SCN shows the rows as they were at that SCN."""
    before = db.scn
    assert db.delete("SCOTT", "NUMBERS", lambda row: row[0] <= 10) == 10
    deleted = db.scn
    assert db.update("SCOTT", "NUMBERS", lambda row: row[0] == 11, lambda row: (-11, None)) == 1
    db.insert("SCOTT", "NUMBERS", [(2000, "new")])
    assert db.scn == before + 3
    assert ids(db, f"AS OF SCN {before}") == list(range(1, 1001))
    assert ids(db, f"AS OF SCN {deleted}") == list(range(11, 1001))
    assert ids(db) == [-11, *range(12, 1001), 2000]


def test_scns_that_cannot_be_read(db: Database) -> None:
    """The future, expired undo and older definitions have each their error."""
    before = db.scn
    assert code_of(db, f"SELECT * FROM NUMBERS AS OF SCN {db.scn + 1}") == 8181
    db.commit()
    db.expire_undo(db.scn)
    assert code_of(db, f"SELECT * FROM NUMBERS AS OF SCN {before}") == 1555
    assert ids(db, f"AS OF SCN {db.scn}") == list(range(1, 1001))
    db.ddl("SCOTT", "NUMBERS")
    assert code_of(db, f"SELECT * FROM NUMBERS AS OF SCN {db.scn - 1}") == 1466


def test_truncate_gives_a_new_data_object_and_ends_open_readers(db: Database) -> None:
    """After TRUNCATE the segment is another; who is still reading the old one gets ORA-08103."""
    number = "SELECT DATA_OBJECT_ID FROM USER_OBJECTS WHERE OBJECT_NAME = 'NUMBERS'"
    old, before = db.query("SCOTT", number), db.scn
    result = db.select("SELECT * FROM NUMBERS", db._context(session(), [], ()))
    reading = iter(result.rows)
    next(reading)
    db.truncate("SCOTT", "NUMBERS")
    with pytest.raises(OracleError, match="ORA-08103"):
        list(reading)
    assert db.query("SCOTT", number) != old
    assert ids(db) == []
    assert code_of(db, f"SELECT * FROM NUMBERS AS OF SCN {before}") == 1466


def session() -> SessionState:
    """Return a session of SCOTT's."""
    return SessionState(user="SCOTT", schema="SCOTT", sid=1, serial=1)


def partitioned(db: Database, rows: int = 4000) -> None:
    """Create a table P with four hash partitions of many small extents."""
    db.create_table(
        "SCOTT",
        "P",
        columns=(Column(name="ID", type=NUMBER), Column(name="T", type=Type(name="NUMBER"))),
        partitions=tuple(PartitionSpec(name=f"P{n}") for n in range(4)),
        rows=[(n, Decimal(n) / 3) for n in range(rows)],
        rows_per_block=7,
        blocks_per_extent=4,
    )


def test_extents_agree_with_addresses_and_lie_apart(db: Database) -> None:
    """Every ROWID lies in an extent of its data object; extents of a segment are not adjacent."""
    partitioned(db)
    db.privileges.grant("SCOTT", "DBA_EXTENTS")
    found = db.query(
        "SCOTT",
        "SELECT O.DATA_OBJECT_ID, E.RELATIVE_FNO, E.BLOCK_ID, E.BLOCKS, E.EXTENT_ID FROM "
        "DBA_EXTENTS E JOIN ALL_OBJECTS O ON O.OWNER = E.OWNER AND O.OBJECT_NAME = E.SEGMENT_NAME "
        "AND O.SUBOBJECT_NAME = E.PARTITION_NAME WHERE E.SEGMENT_NAME = 'P'",
    )
    blocks = {
        (number, file, block + n) for number, file, block, count, _ in found for n in range(count)
    }
    rowids = [row[0] for row in db.query("SCOTT", "SELECT ROWID FROM P")]
    assert len(set(rowids)) == 4000
    assert {address[:3] for address in rowids} < blocks
    for number in {row[0] for row in found}:
        mine = sorted(row[1:4] for row in found if row[0] == number)
        assert len({file for file, _, _ in mine}) > 1
        gaps = [b for a, b in pairwise(mine) if a[0] == b[0] and a[1] + a[2] < b[1]]
        assert gaps


def test_ranges_of_addresses_cut_a_table_without_loss(db: Database) -> None:
    """Disjoint ranges that cover all addresses find every row once, also after DML."""
    partitioned(db)
    db.delete("SCOTT", "P", lambda row: row[0] % 10 == 0)
    db.insert("SCOTT", "P", [(n, None) for n in range(5000, 5200)])
    rowids = sorted(row[0] for row in db.query("SCOTT", "SELECT ROWID FROM P"))
    cuts = [rowids[n]._replace(slot=0) for n in range(100, len(rowids), 311)]
    found: list[Rowid] = []
    for low, high in zip([None, *cuts], [*cuts, None], strict=True):
        conditions = []
        if low:
            conditions.append(f"ROWID >= CHARTOROWID('{low}')")
        if high:
            conditions.append(f"ROWID < CHARTOROWID('{high}')")
        where = " AND ".join(conditions)
        part = [row[0] for row in db.query("SCOTT", f'SELECT ROWID FROM "SCOTT"."P" WHERE {where}')]
        assert all((not low or low <= one) and (not high or one < high) for one in part)
        found += part
    assert sorted(found) == rowids


def test_index_organized_tables_are_in_key_order(db: Database) -> None:
    """Rows come by key, key ranges cut them, addresses are logical, and extents are an index's."""
    iot_table(db)
    rows = db.query("SCOTT", "SELECT REGION, CODE FROM COUNTRIES")
    assert rows == sorted(rows)
    low = db.query("SCOTT", "SELECT REGION FROM COUNTRIES WHERE REGION < 20")
    high = db.query("SCOTT", "SELECT REGION FROM COUNTRIES WHERE REGION >= 20")
    assert low + high == [row[:1] for row in rows]
    addresses = db.query("SCOTT", "SELECT ROWID FROM COUNTRIES")
    assert len(set(addresses)) == len(rows)
    assert all(address[0].startswith("*BA") for address in addresses)
    assert db.query("SCOTT", "SELECT 1 FROM USER_SEGMENTS WHERE SEGMENT_NAME = 'COUNTRIES'") == []
    sample = db.query("SCOTT", 'SELECT "CODE" FROM COUNTRIES SAMPLE (10) ORDER BY "CODE"')
    assert sample == sorted(sample)
    assert 0 < len(sample) < 150


def test_reference_table_is_the_one_of_the_generator(tmp_path: Path) -> None:
    """The reference table has the rows of the DuckDB file, partition by partition, in order."""
    db = Database()
    db.add_user("SCOTT", "tiger")
    reference_table(db, 3000, 4)
    path = tmp_path / "reference.duckdb"
    build_reference_table(path, 3000, partitions=4, stop=lambda: False)
    found = db.query("SCOTT", "SELECT * FROM HASH_PART_0160")
    with duckdb.connect(str(path), read_only=True) as connection:
        expected = connection.execute("SELECT * FROM HASH_PART_0160 ORDER BY rowid").fetchall()

    def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(tuple(value[:6]) if hasattr(value, "nanos") else value for value in row)

    def fields(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            tuple(value.timetuple()[:6]) if hasattr(value, "timetuple") else value for value in row
        )

    assert [plain(row) for row in found] == [fields(row) for row in expected]
    counts = [
        db.query("SCOTT", f"SELECT COUNT(*) FROM HASH_PART_0160 PARTITION (HASH_PART_0160_P0{n})")
        for n in range(1, 5)
    ]
    assert sum(count[0][0] for count in counts) == 3000
