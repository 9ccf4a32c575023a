"""Statements: what they find, what they are described as, how they fail."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from oracle_server.database import Database
from oracle_server.model import Moment, OracleError, SessionState, Type
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


@pytest.mark.parametrize(
    "condition",
    [
        "REGEXP_LIKE(NAME, '^name 9[0-9]$')",
        "ID IN (SELECT MAX(ID) FROM NUMBERS)",
        "EXISTS (SELECT 1 FROM ORDERS O WHERE O.ID = NUMBERS.ID AND O.NOTE IS NULL)",
    ],
)
def test_rich_conditions_go_through_duckdb(query: Query, condition: str) -> None:
    """A condition beyond our evaluator filters the exact rows; mixed with addresses too."""
    found = query(
        f"SELECT ID, NAME FROM NUMBERS WHERE ({condition}) AND ROWID > 'AAAAAAAAAAAAAAAAAA'"
    )
    assert 0 < len(found) < 1000
    assert all(name == f"name {number}" for number, name in found)


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


def test_exact_values_survive_a_subquery(query: Query) -> None:
    """A query around a query changes no value and no type."""
    inner = query("SELECT ID, N_PLAIN, TS_9, TZ_6, IDS FROM TYPES_TABLE")
    assert (
        query("SELECT * FROM (SELECT ID, N_PLAIN, TS_9, TZ_6, IDS FROM TYPES_TABLE t\n)") == inner
    )


def test_expressions_around_a_join_are_exact(query: Query, db: Database) -> None:
    """What stands around a rich subquery is still evaluated as Oracle does, binds included."""
    found = query(
        "SELECT TO_CHAR(AMOUNT, 'TM9'), TO_CHAR(ORDERED, 'SYYYY-MM-DD') FROM (SELECT A.AMOUNT, "
        "A.ORDERED FROM ORDERS A JOIN NUMBERS B ON A.ID = B.ID WHERE A.ID = :1\n) "
        f"AS OF SCN {db.scn} WHERE ORDERED > DATE '2000-01-01' AND :2 = 'x'",
        50,
        "x",
    )
    exact = query(
        "SELECT TO_CHAR(AMOUNT, 'TM9'), TO_CHAR(ORDERED, 'SYYYY-MM-DD') FROM ORDERS WHERE ID = 50"
    )
    assert found == exact


def test_columns_of_a_query(db: Database) -> None:
    """Parsing alone tells names and types, binds or not, and reads no row."""
    columns = db.describe(
        session(),
        'SELECT ID, NAME AS "n", COUNT(*) OVER () C, 1 FROM (SELECT * FROM NUMBERS WHERE ID = :x)',
    )
    assert columns is not None
    assert [column.name for column in columns] == ["ID", "n", "C", "1"]
    plain = db.describe(session(), "select id, name n, to_char( id , 'TM9' ), rowid from numbers")
    assert plain is not None
    assert [column.name for column in plain] == ["ID", "N", "TO_CHAR(ID,'TM9')", "ROWID"]
    assert plain[0].type == Type(name="NUMBER", precision=10, scale=0)
    assert plain[3].type.name == "ROWID"
    join = db.describe(
        session(), "SELECT A.ORDERED, B.NAME FROM ORDERS A JOIN NUMBERS B ON A.ID = B.ID"
    )
    assert join is not None
    assert [column.type.name for column in join] == ["DATE", "VARCHAR2"]
    assert db.describe(session(), "BEGIN NULL; END;") is None


def test_results_of_expressions_keep_their_kind(query: Query, db: Database) -> None:
    """A condition is BOOLEAN, a colon in a text no bind, whole numbers are integers."""
    assert query("SELECT ID > 5, '10:11:12' FROM NUMBERS WHERE ID = 6") == [(True, "10:11:12")]
    columns = db.describe(session(), "SELECT ID > 5 B, SUM(ID) S FROM NUMBERS GROUP BY ID > 5")
    assert columns is not None
    assert [column.type.name for column in columns] == ["BOOLEAN", "NUMBER"]
    assert query("SELECT SUM(ID), MIN(NAME), COUNT(NAME) FROM NUMBERS") == [
        (500500, "name 1", 1000)
    ]
    assert query("SELECT AMOUNT FROM ORDERS WHERE ID = 1") == [(Decimal("79.19"),)]
    assert query("SELECT D FROM BC_TABLE WHERE ID = 2") == [(Moment(-44, 3, 15, 12, 30),)]


@pytest.mark.parametrize(
    ("sql", "binds"),
    [
        ("SELECT ID FROM NUMBERS WHERE ID = :1 AND NAME = :2", (7, "name 7")),
        ("SELECT ID FROM NUMBERS WHERE ID = :id AND ID + 0 = :id", (7,)),
        (
            "SELECT ID FROM NUMBERS WHERE ID = :id AND REGEXP_LIKE(NAME, :p) AND ID = :q",
            (7, "7$", 7),
        ),
        ("SELECT A.ID FROM NUMBERS A JOIN NUMBERS B ON A.ID = B.ID WHERE A.NAME = :n", ("name 7",)),
        ("WITH X AS (SELECT ID FROM NUMBERS WHERE ID < :a) SELECT MAX(ID) FROM X", (8,)),
    ],
)
def test_binds(query: Query, sql: str, binds: tuple[Any, ...]) -> None:
    """Binds work by position and by name, in either way through."""
    assert query(sql, *binds) == [(7,)]


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


def test_unknown_tables_are_named_from_23ai_on(db: Database) -> None:
    """ORA-00942 has the table's name in 23ai only."""
    with pytest.raises(OracleError, match=r'"SCOTT"\."NIX" does not exist'):
        db.query("SCOTT", "SELECT * FROM NIX")
    with pytest.raises(OracleError, match=r"ORA-00942: table or view does not exist"):
        furnished(version="19c").query("SCOTT", "SELECT * FROM NIX")


def test_settings_and_identity_of_a_session(db: Database, query: Query) -> None:
    """ALTER SESSION and the few known packages change the session, and it can be asked."""
    mine = session()
    db.execute(
        mine,
        "ALTER SESSION SET NLS_DATE_FORMAT = 'SYYYY-MM-DD' TIME_ZONE='+00:00' "
        '"_serial_direct_read"=ALWAYS CURRENT_SCHEMA = HR',
    )
    db.execute(mine, "ALTER SESSION DISABLE PARALLEL QUERY")
    assert mine.schema == "HR"
    assert mine.settings["_SERIAL_DIRECT_READ"] == "ALWAYS"
    assert mine.settings["PARALLEL QUERY"] == "DISABLE"
    db.execute(
        mine, "BEGIN DBMS_APPLICATION_INFO.SET_MODULE('unloader', :a); NULL; END;", ["unit 1"]
    )
    db.execute(mine, "BEGIN DBMS_SESSION.SET_IDENTIFIER('run 7'); END;")
    assert (mine.module, mine.action, mine.client_identifier) == ("unloader", "unit 1", "run 7")
    sql = "SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'), USER, SESSIONTIMEZONE FROM DUAL"
    context = db._context(mine, [], ())
    assert list(db.select(sql, context).rows) == [("HR", "SCOTT", "+00:00")]
    assert list(db.select("SELECT COUNT(*) FROM EMPLOYEES", context).rows) == [(100,)]


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


def test_limits(query: Query) -> None:
    """ROWNUM and FETCH FIRST cut a result, with and without an order."""
    assert len(query("SELECT * FROM NUMBERS WHERE ROWNUM <= 3")) == 3
    assert query("SELECT ID FROM NUMBERS ORDER BY ID DESC FETCH FIRST 2 ROWS ONLY") == [
        (1000,),
        (999,),
    ]
    assert query("SELECT * FROM (SELECT ID FROM NUMBERS ORDER BY ID) WHERE ROWNUM = 1") == [(1,)]
    assert (
        len(query("SELECT A.ID FROM NUMBERS A JOIN NUMBERS B ON A.ID = B.ID WHERE ROWNUM < 3")) == 2
    )
