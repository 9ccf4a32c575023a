"""Faults on order: each kind, at each place, through the real driver."""

from __future__ import annotations

import threading
import time

import oracledb
import pytest
from oracle_server import Fault

MODES = pytest.mark.parametrize("mode", ["19c", "23ai"])


def fetched_until_failure(
    connection: oracledb.Connection, statement: str, size: int = 100
) -> tuple[list[int], str]:
    """Return the ids that came, and the text of the error that ended them."""
    ids: list[int] = []
    cursor = connection.cursor()
    cursor.prefetchrows = cursor.arraysize = size
    try:
        cursor.execute(statement)
        while rows := cursor.fetchmany(size):
            ids += [row[0] for row in rows]
    except oracledb.DatabaseError as error:
        return ids, str(error)
    return ids, ""


@MODES
@pytest.mark.parametrize(("after", "delivered"), [(0, 0), (250, 200), (200, 200), (None, 900)])
def test_error_in_first_middle_and_last_reply(serve, connect, mode, after, delivered) -> None:
    """An error takes the whole reply with its row; what came before is there, work goes on after."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind="ora-01555", after_rows=after))
    connection = connect(server)
    ids, text = fetched_until_failure(connection, "select 990 rows")
    assert ids == list(range(delivered))
    assert text.startswith("ORA-01555: snapshot too old")
    assert connection.is_healthy()
    assert fetched_until_failure(connection, "select 990 rows") == (list(range(990)), "")


@MODES
@pytest.mark.parametrize("size", [100, 1000])
def test_error_within_data_frames(serve, connect, mode, size) -> None:
    """Arrow fetches meet the same errors."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind="ora-08103", after_rows=1500))
    connection = connect(server)
    frames = connection.fetch_df_batches("select 3000 rows", size=size)
    for batch in range(1500 // size):
        assert next(frames).num_rows() == size, batch
    with pytest.raises(oracledb.DatabaseError, match="ORA-08103: object no longer exists"):
        next(frames)


# After a reset the driver forgets its socket instead of closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@MODES
@pytest.mark.parametrize("kind", ["cut", "reset"])
@pytest.mark.parametrize("after", [0, 150, None])
def test_cut_within_a_row(serve, connect, mode, kind, after) -> None:
    """A connection cut within a packet is lost; the rows of earlier replies are there."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind=kind, after_rows=after))
    connection = connect(server)
    ids, text = fetched_until_failure(connection, "select 250 rows")
    assert ids == list(range({0: 0, 150: 100, None: 200}[after]))
    assert text.startswith("DPY-4011")
    assert not connection.is_healthy()
    assert fetched_until_failure(connect(server), "select 250 rows")[0] == list(range(250))


@MODES
@pytest.mark.parametrize("kind", ["ora-03113+cut", "ora-03113", "ora-00028", "ora-01555+cut"])
def test_error_that_ends_the_session(serve, connect, mode, kind) -> None:
    """The error arrives, then the server closes the connection."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind=kind, after_rows=150))
    connection = connect(server)
    ids, text = fetched_until_failure(connection, "select 990 rows")
    assert ids == list(range(100))
    assert kind[:9].upper() in text
    if kind == "ora-01555+cut":
        with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
            connection.ping()
    else:
        assert not connection.is_healthy()


def test_stall_that_ends(server, connect) -> None:
    """A reply that stops for a while is whole in the end."""
    server.faults.add(Fault(kind="stall", after_rows=50, seconds=0.2))
    connection = connect()
    begin = time.monotonic()
    assert fetched_until_failure(connection, "select 250 rows") == (list(range(250)), "")
    assert time.monotonic() - begin >= 0.2


def test_stall_that_is_ended(server, connect) -> None:
    """A reply that stops until a test lets it go on is whole in the end, too."""
    fault = server.faults.add(Fault(kind="stall", after_rows=50))
    threading.Thread(target=lambda: fault.happened.wait(60) and fault.over.set()).start()
    assert fetched_until_failure(connect(), "select 250 rows") == (list(range(250)), "")


def test_deaf_stall(server, connect) -> None:
    """A stall that notices no break leaves the client with a dead connection."""
    server.faults.add(Fault(kind="stall", deaf=True))
    connection = connect()
    connection.call_timeout = 100
    with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
        connection.cursor().execute("select 1 rows")


def test_trickle(serve, connect) -> None:
    """Every packet of a trickle takes its time, from the first one that is due on."""
    server = serve(sdu=512)
    server.faults.add(Fault(kind="trickle", after_rows=150, seconds=0.01))
    connection = connect(server)
    begin = time.monotonic()
    assert fetched_until_failure(connection, "select 250 rows") == (list(range(250)), "")
    assert time.monotonic() - begin >= 0.04


def test_statements_counts_and_skips(server, connect) -> None:
    """A fault happens to the statements it names, after those it skips, as often as ordered."""
    fault = server.faults.add(
        Fault(kind="ora-30036", statement=r"FROM\s+\w+ -- slow", skip=1, times=2)
    )
    connection = connect()
    slow, other = "select 3 rows from t -- slow", "select 3 rows from t -- quick"
    outcomes = [
        bool(fetched_until_failure(connection, statement)[1])
        for statement in (slow, other, slow, other, slow, slow)
    ]
    assert outcomes == [False, False, True, False, True, False]
    assert fault.count == 2


def test_always(server, connect) -> None:
    """A fault without a count happens until the orders are cleared."""
    server.faults.add(Fault(kind="ora-00060", times=None))
    connection = connect()
    for _ in range(3):
        assert "ORA-00060" in fetched_until_failure(connection, "select 3 rows")[1]
    server.faults.clear()
    assert fetched_until_failure(connection, "select 3 rows")[1] == ""


def test_fault_after_more_rows_than_there_are(server, connect) -> None:
    """A fault that never becomes due does not count."""
    fault = server.faults.add(Fault(kind="ora-01555", after_rows=100))
    assert fetched_until_failure(connect(), "select 100 rows") == (list(range(100)), "")
    assert fault.count == 0
    assert not fault.happened.is_set()


@pytest.mark.parametrize("kind", ["ora-01031", "cut", "ora-00028"])
def test_statement_that_is_no_query(server, connect, database, kind) -> None:
    """ALTER SESSION and the like can fail too, before they are done."""
    server.faults.add(Fault(kind=kind, statement="alter session"))
    with pytest.raises(
        oracledb.DatabaseError, match="DPY-4011" if kind != "ora-01031" else kind.upper()
    ):
        connect().cursor().execute("alter session set nls_sort='BINARY'")
    assert "NLS_SORT" not in server.sessions[0].settings


@pytest.mark.parametrize("kind", ["ora-22924", "cut", "ora-03113+cut"])
def test_lob_operations(server, connect, kind) -> None:
    """Reads of LOBs can fail, at the one that is ordered."""
    server.faults.add(Fault(kind=kind, call="lob", after_rows=2))
    cursor = connect().cursor()
    cursor.execute("select 3 rows with clob")
    lobs = [row[2] for row in cursor.fetchall()]
    assert len(lobs[0].read()) == len(lobs[1].read()) == 14_000
    with pytest.raises(oracledb.DatabaseError, match="DPY-4011" if "cut" in kind else "ORA-22924"):
        lobs[2].read()


@MODES
@pytest.mark.parametrize(("kind", "code"), [("ora-01033", "ORA-01033"), ("cut", "DPY-4011")])
def test_login(serve, connect, mode, kind, code) -> None:
    """Logins can be refused or cut off, of one user or of all; the next one succeeds."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind=kind, call="login", statement="^SCOTT$"))
    with pytest.raises(oracledb.DatabaseError, match=code):
        connect(server)
    connect(server).ping()


@MODES
@pytest.mark.parametrize(("kind", "code"), [("ora-12516", "ORA-12516"), ("cut", "DPY-")])
def test_listener(serve, connect, mode, kind, code) -> None:
    """A listener can refuse or cut off a CONNECT, as one without a free handler does."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind=kind, call="connect"))
    with pytest.raises(oracledb.DatabaseError, match=code):
        connect(server)
    connect(server).ping()


@pytest.mark.parametrize("order", [{"kind": "ora-x"}, {"kind": "cut", "call": "commit"}])
def test_impossible_orders(order) -> None:
    """An order that could never happen is refused."""
    with pytest.raises(ValueError, match=r"no (fault|call)"):
        Fault(**order)
