"""What a logged-in client can ask for: statements, binds, cursors, LOBs, attributes, transactions."""

from __future__ import annotations

import asyncio
import datetime
from decimal import Decimal

import oracledb
import pytest

MODES = pytest.mark.parametrize("mode", ["19c", "21c", "23ai"])


@MODES
def test_ping_commit_rollback(serve, connect, database, mode) -> None:
    """Calls without a statement are answered, and those that end a transaction reach the database."""
    connection = connect(serve(mode=mode))
    connection.ping()
    connection.cursor().execute("insert into t values (1)")
    assert connection.transaction_in_progress
    connection.commit()
    assert not connection.transaction_in_progress
    connection.cursor().execute("insert into t values (2)")
    connection.rollback()
    assert not connection.transaction_in_progress
    assert [sql for sql, _ in database.runs][-4:] == [
        "insert into t values (1)",
        "COMMIT",
        "insert into t values (2)",
        "ROLLBACK",
    ]


def test_autocommit(connect, database) -> None:
    """A client that commits with every statement has no open transaction, DDL has none either."""
    connection = connect()
    connection.autocommit = True
    connection.cursor().execute("insert into t values (1)")
    assert not connection.transaction_in_progress
    assert database.runs[-1][0] == "COMMIT"
    connection.cursor().execute("create table t (n number)")
    assert not connection.transaction_in_progress


@MODES
def test_attributes_of_the_session(serve, connect, mode) -> None:
    """Module, action, identifier and info come with the next call."""
    server = serve(mode=mode)
    connection = connect(server)
    connection.module = "unloader"
    connection.action = "unit 7 of 32"
    connection.client_identifier = "rün"
    connection.clientinfo = "x" * 60
    connection.dbop = "job"
    connection.ping()
    state = server.sessions[0]
    assert (state.module, state.action) == ("unloader", "unit 7 of 32")
    assert (state.client_identifier, state.client_info) == ("rün", "x" * 60)
    connection.action = None
    connection.cursor().execute("select 1 rows")
    assert (state.module, state.action) == ("unloader", "")


@MODES
def test_alter_session(serve, connect, mode) -> None:
    """Settings arrive, those of the login included; the driver understands the announcement."""
    server = serve(mode=mode)
    connection = connect(server)
    state = server.sessions[0]
    assert set(state.settings) == {"TIME_ZONE"}
    cursor = connection.cursor()
    cursor.execute("ALTER SESSION SET TIME_ZONE='-03:30'")
    cursor.execute("ALTER SESSION SET NLS_DATE_FORMAT='YYYY'")
    assert state.settings == {"TIME_ZONE": "-03:30", "NLS_DATE_FORMAT": "YYYY"}
    cursor.execute("ALTER SESSION SET CURRENT_SCHEMA=HR")
    assert connection.current_schema == "HR"
    connection.current_schema = "SH"
    connection.ping()
    assert state.schema == "SH"
    assert state.statements == [
        "ALTER SESSION SET TIME_ZONE='-03:30'",
        "ALTER SESSION SET NLS_DATE_FORMAT='YYYY'",
        "ALTER SESSION SET CURRENT_SCHEMA=HR",
    ]


@MODES
@pytest.mark.parametrize("sdu", [512, 65535])
def test_long_statement(serve, connect, mode, sdu) -> None:
    """A statement of 100 kB arrives word for word, in as many packets as it takes."""
    server = serve(mode=mode, sdu=sdu)
    statement = "select 2 rows /* " + "hällo ☃ " * 10_000 + "*/"
    cursor = connect(server).cursor()
    cursor.execute(statement)
    assert cursor.fetchall() == [(0, "name 0"), (1, "name 1")]
    assert server.sessions[0].statements == [statement]


@MODES
def test_parse_only(serve, connect, database, mode) -> None:
    """A parse describes a query without running it, and finds errors."""
    cursor = connect(serve(mode=mode)).cursor()
    database.runs.clear()
    cursor.parse("select 5 rows")
    assert [column[0] for column in cursor.description] == ["ID", "NAME"]
    assert database.runs == []
    with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        cursor.parse("select * from nothing")
    cursor.execute("select 5 rows")
    assert len(cursor.fetchall()) == 5


@MODES
def test_cursors_are_reused_and_closed(serve, connect, mode) -> None:
    """Cached statements run again without a parse; cursors over the cache's size are closed."""
    server = serve(mode=mode)
    connection = connect(server, stmtcachesize=2)
    for round in range(3):
        for count in (0, 1, 2, 3, 250):
            cursor = connection.cursor()
            cursor.execute(f"select {count} rows")
            assert len(cursor.fetchall()) == count, round
            cursor.close()
    cursor = connection.cursor()
    for _ in range(5):
        cursor.execute("select 30 rows")
        assert len(cursor.fetchmany(7)) == 7
    connection.ping()


@MODES
@pytest.mark.parametrize("prefetch", [0, 1, 2, 1000])
@pytest.mark.parametrize("arraysize", [1, 100])
def test_every_size_of_fetch(serve, connect, mode, prefetch, arraysize) -> None:
    """All rows come, whether the last reply is full, short or empty."""
    connection = connect(serve(mode=mode))
    for count in (0, 1, 2, 99, 100, 101, 200):
        cursor = connection.cursor()
        cursor.prefetchrows, cursor.arraysize = prefetch, arraysize
        for _ in range(2):
            cursor.execute(f"select {count} rows")
            assert cursor.fetchall() == [(n, f"name {n}") for n in range(count)]
            assert cursor.rowcount == count


@MODES
def test_binds(serve, connect, database, mode) -> None:
    """Values of binds arrive, in every execution of a cached statement."""
    cursor = connect(serve(mode=mode)).cursor()
    moment = datetime.datetime(1999, 12, 31, 23, 59, 58)
    values = ["text ☃", 42, -1.5, None, b"\x00\xff", moment, Decimal("1e-20"), "x" * 40_000]
    statement = "select 1 rows /* binds */ :1 :2 :3 :4 :5 :6 :7 :8"
    for text in ("one", "two"):
        database.runs.clear()
        cursor.execute(statement, [text, *values[1:]])
        got = database.runs[-1][1]
        assert got[:5] == (text, 42, Decimal("-1.5"), None, b"\x00\xff")
        assert (got[5].year, got[5].second, got[6]) == (1999, 58, Decimal("1e-20"))
        assert got[7] == "x" * 40_000
        cursor.fetchall()


@MODES
def test_many_executions(serve, connect, database, mode) -> None:
    """An executemany runs once for each row, the first time and again."""
    cursor = connect(serve(mode=mode)).cursor()
    for rows in (3, 5):
        database.runs.clear()
        cursor.executemany("insert into t values (:1, :2)", [(n, f"n{n}") for n in range(rows)])
        assert [binds for _, binds in database.runs] == [(n, f"n{n}") for n in range(rows)]
        assert cursor.rowcount == rows


def test_block_with_binds(connect, database) -> None:
    """A PL/SQL block gets its binds, and the driver its directions."""
    cursor = connect().cursor()
    for _ in range(2):
        cursor.execute("begin something(:1, :2); end;", ["a", 1])
        assert database.runs[-1][1] == ("a", 1)


@MODES
@pytest.mark.parametrize("as_locators", [True, False])
def test_lobs(serve, connect, mode, as_locators) -> None:
    """CLOBs come as locators that can be read in pieces, or as texts where the client says so."""
    server = serve(mode=mode)
    connection = connect(server)
    for _ in range(2):
        cursor = connection.cursor()
        statement = f"select 5 rows with clob {as_locators}"
        cursor.execute(statement, fetch_lobs=as_locators)
        rows = cursor.fetchall()
        assert [row[0] for row in rows] == list(range(5))
        for number, _, value in rows:
            text = f"text {number} " * 2000
            if as_locators:
                assert value.size() == len(text)
                assert value.read(8, 100) == text[7:107]
                assert value.read() == text
            else:
                assert value == text


def test_temporary_lob(connect, database) -> None:
    """A client's own LOB can be made, written, bound and freed again."""
    connection = connect()
    lob = connection.createlob(oracledb.DB_TYPE_CLOB)
    lob.write("héllo" * 10_000)
    assert lob.size() == 50_000
    connection.cursor().execute("insert into t values (:1)", [lob])
    assert database.runs[-1][1] == ("héllo" * 10_000,)
    del lob
    connection.ping()


@MODES
def test_asyncio(serve, mode) -> None:
    """The driver's asynchronous twin is served as well: rows, errors, time-outs."""
    server = serve(mode=mode)

    async def work() -> list[object]:
        options = {"user": "scott", "password": "tiger", "dsn": server.dsn}
        async with oracledb.connect_async(**options) as connection:
            rows = await connection.fetchall("select 1500 rows", arraysize=100)
            with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
                await connection.fetchall("select nothing")
            return [*rows, await connection.fetchone("select 1 rows")]

    assert asyncio.run(work()) == [(n, f"name {n}") for n in (*range(1500), 0)]


def test_pipeline(server, database) -> None:
    """A pipeline of calls is answered one by one, errors in their place."""

    async def work() -> list[oracledb.PipelineOpResult]:
        options = {"user": "scott", "password": "tiger", "dsn": server.dsn}
        async with oracledb.connect_async(**options) as connection:
            pipeline = oracledb.create_pipeline()
            pipeline.add_execute("insert into t values (1)")
            pipeline.add_fetchall("select nothing")
            pipeline.add_fetchall("select 3 rows")
            pipeline.add_commit()
            return await connection.run_pipeline(pipeline, continue_on_error=True)

    results = asyncio.run(work())
    assert results[1].error.full_code == "ORA-00942"
    assert results[2].rows == [(n, f"name {n}") for n in range(3)]
    assert database.runs[-1][0] == "COMMIT"
