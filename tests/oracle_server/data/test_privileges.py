"""What users may do, and what happens where they may not."""

from __future__ import annotations

import pytest
from oracle_server.database import Database
from oracle_server.model import OracleError, SessionState
from oracle_server.samples.tables import furnished


@pytest.fixture
def db() -> Database:
    """A furnished database of the test's own."""
    return furnished()


def code_of(db: Database, user: str, sql: str) -> int:
    """Return the code a statement fails with, 0 if it does not."""
    try:
        db.execute(SessionState(user=user, schema=user, sid=1, serial=1), sql)
    except OracleError as error:
        return error.code
    return 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CURRENT_SCN FROM V$DATABASE",
        "SELECT * FROM SYS.V_$DATABASE",
        "SELECT * FROM DBA_EXTENTS",
        "SELECT * FROM DBA_SEGMENTS",
        "SELECT * FROM V$SESSION",
        "SELECT * FROM HR.SECRETS",
    ],
)
def test_plain_users_do_not_see_what_is_not_theirs(db: Database, sql: str) -> None:
    """DBA_ and V$ views and other people's tables do not exist for a plain user."""
    assert code_of(db, "SCOTT", sql) == 942
    assert code_of(db, "DBADMIN", sql) == 0


@pytest.mark.parametrize(
    ("right", "sql", "code"),
    [
        ("ALL_TABLES", "SELECT * FROM ALL_TABLES", 942),
        ("USER_TAB_COLS", "SELECT COUNT(*) FROM USER_TAB_COLS", 942),
        ("ALTER SESSION", "ALTER SESSION SET TIME_ZONE = 'UTC'", 1031),
        ("TIMESTAMP_TO_SCN", "SELECT TIMESTAMP_TO_SCN(SYSTIMESTAMP) FROM DUAL", 8180),
        ("DBMS_LOB", "SELECT DBMS_LOB.GETLENGTH(TO_CLOB('x')) FROM DUAL", 904),
        ("DBMS_ROWID", "SELECT DBMS_ROWID.ROWID_OBJECT(ROWID) FROM NUMBERS", 904),
    ],
)
def test_rights_of_everybody_can_be_taken_away(
    db: Database, right: str, sql: str, code: int
) -> None:
    """What every user may is lost one by one."""
    assert code_of(db, "SCOTT", sql) == 0
    db.privileges.revoke("SCOTT", right)
    assert code_of(db, "SCOTT", sql) == code
    db.privileges.grant("SCOTT", right)
    assert code_of(db, "SCOTT", sql) == 0


@pytest.mark.parametrize(
    ("right", "sql"),
    [
        ("V_$DATABASE", "SELECT CURRENT_SCN FROM V$DATABASE"),
        ("DBA_EXTENTS", "SELECT * FROM DBA_EXTENTS"),
        ("SELECT ANY DICTIONARY", "SELECT * FROM DBA_SEGMENTS"),
        ("SELECT_CATALOG_ROLE", "SELECT * FROM V$SESSION"),
        ("DBMS_FLASHBACK", "SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER FROM DUAL"),
        ("SELECT ANY TABLE", "SELECT * FROM HR.SECRETS"),
    ],
)
def test_rights_can_be_given(db: Database, right: str, sql: str) -> None:
    """A right, once given, opens what it is for, until it is taken away again."""
    assert code_of(db, "SCOTT", sql) in (904, 942)
    db.privileges.grant("SCOTT", right)
    assert code_of(db, "SCOTT", sql) == 0
    db.privileges.revoke("SCOTT", right)
    assert code_of(db, "SCOTT", sql) in (904, 942)


def test_even_a_dba_can_lose_a_right(db: Database) -> None:
    """A DBA without one view is refused only that one."""
    db.privileges.revoke("DBADMIN", "DBA_EXTENTS")
    assert code_of(db, "DBADMIN", "SELECT * FROM DBA_EXTENTS") == 942
    assert code_of(db, "DBADMIN", "SELECT * FROM DBA_SEGMENTS") == 0


def test_reading_the_past_of_other_peoples_tables_takes_a_right(db: Database) -> None:
    """Without FLASHBACK on it, AS OF SCN on another schema's table is ORA-01031."""
    past = f"SELECT * FROM HR.EMPLOYEES AS OF SCN {db.scn}"
    assert code_of(db, "SCOTT", past) == 0
    db.privileges.revoke("SCOTT", "FLASHBACK", on=("HR", "EMPLOYEES"))
    assert code_of(db, "SCOTT", past) == 1031
    assert code_of(db, "SCOTT", "SELECT * FROM HR.EMPLOYEES") == 0
    db.privileges.grant("SCOTT", "FLASHBACK ANY TABLE")
    assert code_of(db, "SCOTT", past) == 0
    assert code_of(db, "SCOTT", f"SELECT * FROM NUMBERS AS OF SCN {db.scn}") == 0


def test_a_right_on_an_object_that_is_not_for_reading(db: Database) -> None:
    """Who sees a table but may not select from it is told so."""
    db.privileges.grant("SCOTT", "FLASHBACK", on=("HR", "SECRETS"))
    assert code_of(db, "SCOTT", "SELECT * FROM HR.SECRETS") == 1031


def test_views_run_with_their_owners_rights(db: Database) -> None:
    """A view shows rows of a table that its reader may not read."""
    db.create_view("HR", "WINDOW", "SELECT ID FROM SECRETS")
    assert code_of(db, "SCOTT", "SELECT * FROM HR.WINDOW") == 942
    db.privileges.grant("SCOTT", "SELECT", on=("HR", "WINDOW"))
    assert len(db.query("SCOTT", "SELECT * FROM HR.WINDOW")) == 10
    assert code_of(db, "SCOTT", "SELECT * FROM HR.SECRETS") == 942


def test_privileges_can_be_looked_up(db: Database) -> None:
    """SESSION_PRIVS, SESSION_ROLES and USER_TAB_PRIVS say what a user may."""
    db.privileges.grant("SCOTT", "FLASHBACK ANY TABLE")
    assert ("FLASHBACK ANY TABLE",) in db.query("SCOTT", "SELECT PRIVILEGE FROM SESSION_PRIVS")
    assert db.query("SCOTT", "SELECT ROLE FROM SESSION_ROLES") == []
    assert ("DBA",) in db.query("DBADMIN", "SELECT ROLE FROM SESSION_ROLES")
    found = db.query("SCOTT", "SELECT OWNER, TABLE_NAME, PRIVILEGE FROM USER_TAB_PRIVS ORDER BY 3")
    assert found == [("HR", "EMPLOYEES", "FLASHBACK"), ("HR", "EMPLOYEES", "SELECT")]
