"""Tables defined and filled by SQL through the real driver."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.data.tables import Table
from oracle_server.database import Database
from oracle_server.model import Column, Type
from oracle_server.samples import tables as samples

ID = Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0))
TEXT = Column(name="V", type=Type(name="VARCHAR2", length=10))


@pytest.fixture
def leg() -> Iterator[OracleLeg]:
    """An empty database."""
    with oracle_leg.opened("23ai") as found:
        yield found


def _rows(database: Database, table: Table) -> list[tuple[Any, ...]]:
    return [row for segment in table.segments for _, row in segment.view(database.scn).rows()]


def _held(row: tuple[Any, ...]) -> list[Any]:
    """Return values that compare exactly, NaN and the sign of zero included."""
    plain = [v.read(0, v.length) if hasattr(v, "read") else v for v in row]
    return [repr(v) if isinstance(v, float) else v for v in plain]


def test_literals_make_the_very_values(leg: OracleLeg) -> None:
    """Texts of every type, and binds of long ones, put in exactly what the sample tables hold."""
    scratch = Database()
    scratch.add_user("SCOTT", "tiger")
    tables = (
        samples.types_table(scratch, rows=64),
        samples.bc_table(scratch),
        *samples.long_tables(scratch),
        samples.lob_table(scratch, (0, 1, 2001, 100_000)),
        samples.names_table(scratch),
    )
    for table in tables:
        wanted = _rows(scratch, table)
        leg.create(table.name, table.columns, rows=wanted)
        made = leg.database.table(leg.schema, table.name)
        assert made.columns == table.columns
        assert list(map(_held, _rows(leg.database, made))) == list(map(_held, wanted)), table.name


def test_a_transaction_is_seen_at_its_commit(leg: OracleLeg) -> None:
    """Changes wait for the commit, then all have one SCN; what is rolled back never was."""
    leg.create("T", (ID, TEXT), rows=[(1, "one"), (2, "two")])
    before = leg.database.scn
    with leg.writer() as writer:
        assert writer.run("INSERT INTO T (V, ID) VALUES (:1, :2)", "three", 3) == 1
        assert writer.run("UPDATE T SET V = V || '!' WHERE ID >= 2") == 1
        assert writer.run("DELETE FROM T WHERE ID = :1", 1) == 1
        assert leg.database.scn == before
        assert leg.run("SELECT ID, V FROM T ORDER BY ID") == [(1, "one"), (2, "two")]
        writer.commit()
        writer.run("DELETE FROM T")
        writer.run("ROLLBACK")
    assert leg.database.scn == before + 1
    assert leg.run("SELECT ID, V FROM T ORDER BY ID") == [(2, "two!"), (3, "three!")]
    assert leg.run(f"SELECT ID FROM T AS OF SCN {before} ORDER BY ID") == [(1,), (2,)]


def test_partitions_take_the_rows_that_belong_there(leg: OracleLeg) -> None:
    """RANGE, LIST and sub-partitions place rows by their key, and an update moves them."""
    day = Column(name="D", type=Type(name="DATE"))
    leg.run(
        "CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, D DATE NOT NULL, V VARCHAR2(10)) "
        "PARTITION BY RANGE (D) SUBPARTITION BY HASH (ID) SUBPARTITIONS 2 ("
        "PARTITION OLD VALUES LESS THAN (TO_DATE('2020-01-01','YYYY-MM-DD')), "
        "PARTITION REST VALUES LESS THAN (MAXVALUE)) ENABLE ROW MOVEMENT"
    )
    table = leg.database.table(leg.schema, "T")
    assert [s.subpartition for s in table.segments] == ["OLD_S1", "OLD_S2", "REST_S1", "REST_S2"]
    assert table.columns == (
        Column(name="ID", type=ID.type, nullable=False),
        Column(name="D", type=day.type, nullable=False),
        TEXT,
    )
    with leg.writer() as writer:
        for number, year in enumerate((2019, 2020, 1)):
            writer.run("INSERT INTO T VALUES (:1, :2, NULL)", number, datetime.datetime(year, 1, 1))
        writer.commit()
        assert leg.run("SELECT ID FROM T PARTITION (OLD) ORDER BY ID") == [(0,), (2,)]
        writer.run("UPDATE T SET D = TO_DATE('2024-05-06','YYYY-MM-DD') WHERE ID = 2")
        writer.commit()
    assert leg.run("SELECT ID FROM T PARTITION (REST) ORDER BY ID") == [(1,), (2,)]
    leg.run("ALTER TABLE T TRUNCATE PARTITION REST")
    assert leg.run("SELECT ID FROM T") == [(0,)]
