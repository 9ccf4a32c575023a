"""Oracle sessions: their settings and names, and what an error does to them."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import oracledb
import pytest
from oracle.leg import ID_AND_NAME, database, rows, source
from oracle_server import Fault, OracleServer

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SessionOptions
from unloader.sources.oracle.session import Session


@pytest.fixture
def server() -> Iterator[OracleServer]:
    """A server with a table of 300 rows."""
    made = database()
    made.create_table("SCOTT", "T", columns=ID_AND_NAME, rows=rows(300))
    with OracleServer(made) as running:
        yield running


def test_settings_of_a_session(server: OracleServer, tmp_path: Path) -> None:
    """In any environment values and keys have one form, and only our workers are parallel."""
    session = Session(source(server, tmp_path), action="T 0001")
    settings = server.sessions[-1].settings
    assert settings["NLS_CALENDAR"] == "GREGORIAN"
    assert settings["NLS_DATE_LANGUAGE"] == "AMERICAN"
    assert settings["NLS_NUMERIC_CHARACTERS"] == ".,"
    assert (settings["NLS_COMP"], settings["NLS_SORT"]) == ("BINARY", "BINARY")
    assert settings["TIME_ZONE"] == "+00:00"
    assert settings["PARALLEL QUERY"] == "DISABLE"
    assert settings["_SERIAL_DIRECT_READ"] == "ALWAYS"
    session.close()


def test_a_run_is_found_in_the_list_of_sessions(server: OracleServer, tmp_path: Path) -> None:
    """Module, action and client identifier name the run and its work."""
    spec = source(server, tmp_path, session=SessionOptions(run_id="20261121T021500Z-a1b2c3"))
    session = Session(spec, action="first")
    session.act("ÄÖ" * 20)
    session.value("SELECT USER FROM DUAL")
    state = server.sessions[-1]
    assert (state.module, state.client_identifier) == (
        "unloader",
        "unloader:20261121T021500Z-a1b2c3",
    )
    assert state.action == "ÄÖ" * 8
    session.close()


def test_own_statements_overrule_hints_only(server: OracleServer, tmp_path: Path) -> None:
    """--session-sql wins, except for settings that texts and keys depend on; errors name it."""
    options = SessionOptions(
        session_sql=("ALTER SESSION ENABLE PARALLEL QUERY", "ALTER SESSION SET NLS_SORT = 'GERMAN'")
    )
    Session(source(server, tmp_path, session=options), action="x").close()
    settings = server.sessions[-1].settings
    assert (settings["PARALLEL QUERY"], settings["NLS_SORT"]) == ("ENABLE", "BINARY")
    wrong = SessionOptions(session_sql=("ALTER SESSION SET NO_SUCH_THING = 1",))
    with pytest.raises(SourceError, match=r"NO_SUCH_THING = 1 failed: .*ORA-02248"):
        Session(source(server, tmp_path, session=wrong), action="x")


def test_a_hint_that_is_refused_does_not_matter(
    server: OracleServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Direct reads may be forbidden: the session reads without them and logs it."""
    server.faults.add(Fault(kind="ora-02097", statement="_serial_direct_read"))
    with caplog.at_level(logging.INFO, logger="unloader"):
        session = Session(source(server, tmp_path), action="x")
    assert session.value("SELECT COUNT(*) FROM T") == 300
    assert "_serial_direct_read" in caplog.text
    assert "ORA-02097" in caplog.text
    session.close()


# The driver drops the socket that was reset without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["ora-00028", "ora-03113", "ora-02396", "cut", "reset"])
def test_a_lost_connection_is_never_touched_again(
    server: OracleServer, tmp_path: Path, kind: str
) -> None:
    """An error that ends the session is transient, and later calls fail with it immediately."""
    session = Session(source(server, tmp_path), action="x")
    server.faults.add(Fault(kind=kind, statement="FROM T"))
    with pytest.raises(TransientSourceError) as caught:
        session.run("SELECT * FROM T")
    assert kind.upper() in caught.value.message or not kind.startswith("ora")
    assert not session.alive
    with pytest.raises(TransientSourceError, match="lost before"):
        session.run("SELECT * FROM T")
    session.cancel()
    session.close()


@pytest.mark.parametrize(
    ("kind", "retryable", "words"),
    [
        ("ora-01555", True, "UNDO_RETENTION"),
        ("ora-00942", False, "GRANT SELECT"),
        ("ora-08103", False, "run again"),
    ],
)
def test_an_error_of_one_statement(
    server: OracleServer, tmp_path: Path, kind: str, retryable: bool, words: str
) -> None:
    """Other errors leave the session usable; each names the next step."""
    session = Session(source(server, tmp_path), action="x")
    server.faults.add(Fault(kind=kind, statement="FROM T", after_rows=0))
    with pytest.raises(SourceError, match=kind.upper()) as caught:
        session.run("SELECT * FROM T")
    assert caught.value.retryable is retryable
    assert words in caught.value.hint
    assert len(session.run("SELECT * FROM T")) == 300
    session.close()


def test_a_database_that_does_not_answer(server: OracleServer, tmp_path: Path) -> None:
    """--call-timeout bounds each wait, and the session can still be used if the break arrives."""
    options = SessionOptions(call_timeout_seconds=1.0)
    session = Session(source(server, tmp_path, session=options), action="x")
    server.faults.add(Fault(kind="stall", statement="FROM T"))
    with pytest.raises(TransientSourceError, match="DPY-4024") as caught:
        session.run("SELECT * FROM T")
    assert "--call-timeout" in caught.value.hint
    session.close()


def test_parsing_runs_nothing(server: OracleServer, tmp_path: Path) -> None:
    """A statement is described without being run; wrong ones and binds are refused."""
    session = Session(source(server, tmp_path), action="x")
    columns = session.parse("SELECT ID, NAME AS N FROM T")
    assert [column.name for column in columns] == ["ID", "N"]
    with pytest.raises(SourceError, match="ORA-00942"):
        session.parse("SELECT 1 FROM NO_SUCH_TABLE")
    with pytest.raises(SourceError, match=":WANTED"):
        session.parse("SELECT ID FROM T WHERE ID = :wanted")
    session.close()
    session.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE r IDENTIFIED BY hunter2, s",
        'SET ROLE r IDENTIFIED  BY "hunter2 hunter2"',
        "ALTER USER scott identified by 'hunter2 hunter2' replace hunter2",
        "ALTER USER scott IDENTIFIED BY VALUES 'hunter2'",
    ],
)
def test_a_password_in_a_statement_is_not_repeated(
    server: OracleServer, tmp_path: Path, statement: str
) -> None:
    """The error of a --session-sql that has a password shows the statement without it."""
    server.faults.add(Fault(kind="ora-01979", statement="hunter2"))
    options = SessionOptions(session_sql=(statement,))
    with pytest.raises(SourceError, match=r"\*\*\*.* failed") as caught:
        Session(source(server, tmp_path, session=options), action="x")
    assert "hunter2" not in str(caught.value)


def test_a_statement_that_is_refused_leaves_no_cursor_to_the_garbage_collector(
    server: OracleServer, tmp_path: Path
) -> None:
    """Closed at any later time, it would wait for a lock that the next statement may hold."""
    # Cursors of other tests, held by their tracebacks.
    before = _cursors()
    session = Session(source(server, tmp_path), action="x")
    for ask in (session.run, session.parse):
        with pytest.raises(SourceError) as refused:
            ask("SELECT NO_SUCH_COLUMN FROM T")
        # The traceback still has the frames, and the objects in them.
        assert refused.traceback
        ours = [each for each in _cursors() if not any(each is other for other in before)]
        assert not [each for each in ours if each._impl is not None]
    session.close()


def test_units_that_were_read_leave_no_memory(server: OracleServer, tmp_path: Path) -> None:
    """Each has its own statement, and the driver keeps the memory of a statement's rows."""
    session = Session(source(server, tmp_path), action="x")

    def read(unit: int) -> int:
        with session.connection.cursor() as cursor:
            cursor.arraysize = 5_000
            cursor.execute(f"SELECT /* {unit} */ ID, NAME FROM T")
            assert len(cursor.fetchall()) == 300
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first, *_, warm = (read(unit) for unit in range(4))
        grown = max(read(unit) for unit in range(4, 8)) - warm
    finally:
        tracemalloc.stop()
    session.close()
    assert grown < first / 2, "what four statements took, beside what one took"


def _cursors() -> list[oracledb.Cursor]:
    return [each for each in gc.get_objects() if type(each) is oracledb.Cursor]
