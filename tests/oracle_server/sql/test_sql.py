"""Statements: what they find, what they are described as, how they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from oracle_server.database import Database
from oracle_server.model import OracleError, SessionState
from oracle_server.samples.tables import bc_table, furnished, types_table

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def db() -> Database:
    """The furnished database, which these tests only read."""
    made = furnished()
    types_table(made)
    bc_table(made)
    return made


@pytest.fixture
def query(db: Database) -> Query:
    """Run a query as SCOTT."""
    return lambda sql, *binds: db.query("SCOTT", sql, binds)


def session(user: str = "SCOTT", sid: int = 5) -> SessionState:
    """Return a new session."""
    return SessionState(user=user, schema=user, sid=sid, serial=1)


def test_conditions_of_units(query: Query, db: Database) -> None:
    """Partition, sample, SCN, addresses, keys and a user's condition stand together."""
    sql = (
        'SELECT "ID" FROM "SCOTT"."ORDERS" PARTITION ("P_2024") SAMPLE BLOCK (99) '
        f"AS OF SCN {db.scn} WHERE ROWID >= CHARTOROWID('AAAAAAAAAAAAAAAAAA') AND \"ID\" >= 100 "
        "AND \"ORDERED\" < TO_DATE(' 2024-07-01 00:00:00','SYYYY-MM-DD HH24:MI:SS') "
        "AND (amount > 10 OR note LIKE 'note%')"
    )
    expected = query(
        "SELECT ID FROM ORDERS WHERE ID >= 100 AND ORDERED >= DATE '2024-01-01' AND ORDERED < "
        "DATE '2024-07-01' AND (AMOUNT > 10 OR NOTE IS NOT NULL)"
    )
    found = query(sql)
    assert 0 < len(found) <= len(expected)
    assert set(found) <= set(expected)


def test_queries_as_of_an_scn(db: Database, query: Query) -> None:
    """A subquery as of an SCN reads all its tables as they were, simple or not."""
    scn = db.scn
    db.insert("SCOTT", "NUMBERS", [(5000, "later")])
    simple = "SELECT N.ID FROM NUMBERS N"
    joined = "SELECT A.ID FROM NUMBERS A JOIN NUMBERS B ON A.ID = B.ID"
    for inner in (simple, joined):
        assert query(f"SELECT COUNT(*) FROM ({inner}\n) AS OF SCN {scn}") == [(1000,)]
        assert query(f"SELECT COUNT(*) FROM ({inner}\n)") == [(1001,)]
    assert query(f"{joined} WHERE A.ID = 5000") == [(5000,)]
    pair = f"SELECT COUNT(*) FROM NUMBERS AS OF SCN {scn} A, NUMBERS B WHERE A.ID(+) = B.ID"
    with pytest.raises(OracleError):
        query(pair)
    crossed = f"SELECT COUNT(*) FROM NUMBERS AS OF SCN {scn} A LEFT JOIN NUMBERS B ON A.ID = B.ID"
    assert query(crossed) == [(1000,)]
    db.delete("SCOTT", "NUMBERS", lambda row: row[0] == 5000)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT X FROM NUMBERS", 904),
        ("SELECT ID FROM NUMBERS WHERE X = 1", 904),
        ("SELECT A.X FROM NUMBERS A JOIN NUMBERS B ON A.ID = B.ID", 904),
        ("SELECT NO_FUNCTION(ID) FROM NUMBERS", 904),
        ("SELECT ID FROM NIX", 942),
        ("SELECT ID FROM NUMBERS PARTITION (P)", 2149),
        ("SELECT ID FROM ORDERS SUBPARTITION (P)", 14251),
        ("SELECT ID NUMBERS", 923),
        ("SELECT FROM NUMBERS", 936),
        ("SELECT ID FROM NUMBERS WHERE", 936),
        ("SELECT ID FROM NUMBERS WHERE ID", 920),
        ("SELECT ID FROM NUMBERS AS OF SCN 5 SAMPLE BLOCK (1)", 933),
        ("SELECT ID FROM NUMBERS SAMPLE BLOCK (100)", 30562),
        ("SELECT ID FROM NUMBERS WHERE ID = 1 ) x", 933),
        ("SELECT ID FROM NUMBERS WHERE ROWID = CHARTOROWID('x')", 1410),
        ("SELECT ID FROM NUMBERS WHERE ID = :1", 1008),
        ("FETCH ID FROM NUMBERS", 900),
        ("DELETE FROM NUMBERS", 1031),
        ("ALTER SESSION SET NO_SUCH = 1", 2248),
        ("ALTER SESSION SOMETHING", 922),
        ("BEGIN DO_HARM; END;", 6550),
    ],
)
def test_errors(db: Database, sql: str, code: int) -> None:
    """Wrong statements fail with the code Oracle gives."""
    with pytest.raises(OracleError) as caught:
        list(getattr(db.execute(session(), sql).rows, "columns", ()))
    assert caught.value.code == code


def test_read_only_transactions_stay_at_their_scn(db: Database) -> None:
    """SET TRANSACTION READ ONLY fixes what queries see until COMMIT."""
    mine = session(sid=77)

    def count() -> int:
        result = db.select("SELECT COUNT(*) FROM NUMBERS", db._context(mine, [], ()))
        return int(next(iter(result.rows))[0])

    db.execute(mine, "SET TRANSACTION READ ONLY")
    db.insert("SCOTT", "NUMBERS", [(6000, "later")])
    assert count() == 1000
    db.execute(mine, "COMMIT")
    assert count() == 1001
    db.delete("SCOTT", "NUMBERS", lambda row: row[0] == 6000)
