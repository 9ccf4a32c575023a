"""Tables, their versions and where their rows lie."""

from __future__ import annotations

import threading
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from oracle_server.data.tables import PartitionSpec
from oracle_server.database import Database
from oracle_server.model import Column, OracleError, Rowid, SessionState, Type
from oracle_server.samples.tables import furnished, iot_table, numbers_table, reference_table

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


def test_an_updated_row_keeps_its_address(db: Database) -> None:
    """A row's ROWID stays through updates."""
    where = "SELECT ROWID FROM NUMBERS WHERE NAME = :1"
    address = db.query("SCOTT", where, ["name 7"])
    db.update("SCOTT", "NUMBERS", lambda row: row[0] == 7, lambda row: (7, "other"))
    assert db.query("SCOTT", where, ["other"]) == address


def test_empty_text_is_null_and_char_is_padded(db: Database) -> None:
    """Values are stored as Oracle stores them, padding counted in bytes or characters."""
    columns = (
        Column(name="V", type=Type(name="VARCHAR2", length=5)),
        Column(name="B", type=Type(name="CHAR", length=4)),
        Column(name="C", type=Type(name="CHAR", length=4, in_chars=True)),
        Column(name="L", type=Type(name="CLOB")),
    )
    db.create_table("SCOTT", "T", columns=columns, rows=[("", "ü", "ü", "")])
    assert db.query("SCOTT", "SELECT * FROM T") == [(None, "ü  ", "ü   ", "")]


def test_not_null_is_kept(db: Database) -> None:
    """A NULL where none may be is refused with ORA-01400."""
    with pytest.raises(OracleError, match=r'ORA-01400: .*"SCOTT"."NUMBERS"."ID"'):
        db.insert("SCOTT", "NUMBERS", [(None, "x")])


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


def test_block_samples_are_whole_blocks_and_repeat(db: Database) -> None:
    """SAMPLE BLOCK takes every row of some blocks, the same at every time."""
    partitioned(db)
    rows = db.query("SCOTT", "SELECT ROWID FROM P SAMPLE BLOCK (20)")
    assert rows == db.query("SCOTT", "SELECT ROWID FROM P SAMPLE BLOCK (20)")
    chosen = {row[0][:3] for row in rows}
    everything = [row[0] for row in db.query("SCOTT", "SELECT ROWID FROM P")]
    assert [(address,) for address in everything if address[:3] in chosen] == rows
    assert 40 < len(chosen) < 200
    parts = ", ".join(
        f"DBMS_ROWID.ROWID_{part}(ROWID)" for part in ("OBJECT", "RELATIVE_FNO", "BLOCK_NUMBER")
    )
    blocks = db.query("SCOTT", f"SELECT DISTINCT {parts} FROM P SAMPLE BLOCK (20)")
    assert sorted(blocks) == sorted(chosen)


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


def test_writers_and_readers_at_once(db: Database) -> None:
    """A query as of an SCN finds the same rows however much is written meanwhile."""
    scn, stop = db.scn, threading.Event()
    expected = ids(db, f"AS OF SCN {scn}")

    def write_once(number: int) -> None:
        db.insert("SCOTT", "NUMBERS", [(number, "w")])
        db.update("SCOTT", "NUMBERS", lambda row: row[0] == number % 900, lambda row: (row[0], "u"))
        db.delete("SCOTT", "NUMBERS", lambda row: row[0] == number - 5)

    def write() -> None:
        for number in count(10_000):
            write_once(number)
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [ids(db, f"AS OF SCN {scn}") for _ in range(20)]
    finally:
        stop.set()
        writer.join()
    assert all(one == expected for one in seen)
    assert db.scn > scn


def test_exchanged_partition_has_another_data_object(db: Database) -> None:
    """EXCHANGE PARTITION puts other rows under the same name and another data object id."""
    partitioned(db)
    sql = "SELECT DATA_OBJECT_ID FROM USER_OBJECTS WHERE SUBOBJECT_NAME = 'P1'"
    old = db.query("SCOTT", sql)
    db.exchange_partition("SCOTT", "P", "P1", [(-1, None)])
    assert db.query("SCOTT", sql) != old
    assert db.query("SCOTT", "SELECT ID FROM P PARTITION (P1)") == [(-1,)]


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


def test_large_tables_are_encoded_once(db: Database) -> None:
    """Units of one projection are slices of one encoded table, until the rows change."""

    def encoded() -> list[int]:
        return [id(slot._table) for slot in db._encodings._found.values()]

    sql = 'SELECT "ID", TO_CHAR("ID", \'TM9\') AS "T" FROM "SCOTT"."NUMBERS"'
    db.execute(session(), sql)
    first = encoded()
    db.execute(session(), f"{sql} WHERE ROWID >= CHARTOROWID('AAARFxAAEAAAACEAAA')")
    assert encoded() == first
    assert len(first) == 1
    db.insert("SCOTT", "NUMBERS", [(0, "x")])
    db.execute(session(), sql)
    assert len(encoded()) == 2


def test_furnished_database_has_a_table_of_every_kind() -> None:
    """The ready-made database has what its description says."""
    db = furnished()
    assert db.query("SCOTT", "SELECT COUNT(*) FROM STAFF") == [(100,)]
    assert db.query("SCOTT", "SELECT COUNT(*) FROM EVERYBODY") == [(100,)]
    assert db.query("SCOTT", 'SELECT "select" FROM "Mixed Case.Table" WHERE "Id" = 3') == [
        ("value 3",)
    ]
    assert len(db.query("SCOTT", "SELECT * FROM SMALL_NUMBERS")) == 10
    total = db.query("SCOTT", "SELECT COUNT(*) FROM ORDERS")[0][0]
    parts = db.query("SCOTT", "SELECT SUBPARTITION_NAME FROM USER_TAB_SUBPARTITIONS")
    assert total == sum(
        db.query("SCOTT", f'SELECT COUNT(*) FROM ORDERS SUBPARTITION ("{name}")')[0][0]
        for (name,) in parts
    )
