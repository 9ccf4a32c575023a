"""How calls end: bytes of real servers, and errors as the real driver meets them."""

from __future__ import annotations

import contextlib
import threading
import time

import oracledb
import pytest
from long_tests import OTHER_ROUTES, also
from oracle_server import Fault
from oracle_server.wire.errors import (
    STATUS_ENDED,
    Outcome,
    login_parameters,
    login_return,
    parameters,
    status,
)

TIMEOUT_MILLISECONDS = 1000
"""Of a call that would never end; the server must answer the break within as much again."""


def test_outcome_of_ddl() -> None:
    """The OER after a CREATE TABLE is what Free 23 sends."""
    real = "0403010001014100000000010b000100000000000000000000000005000101000000000000010100"
    outcome = Outcome(call=5, sequence=0x41, status=0x10001, cursor=11, kind="ddl", iterations=1)
    assert outcome.encode(24).hex() == real


def test_outcome_of_a_login_by_18c() -> None:
    """Before field version 14 an OER has two fields less."""
    outcome = Outcome(call=1, sequence=0x110).encode(11)
    assert outcome.hex() == "040101020110" + 19 * "00" + "01" + 8 * "00"


def test_outcome_at_the_end_of_rows() -> None:
    """ORA-01403 comes with the rows so far and its text, and ends in a line feed."""
    outcome = Outcome(call=12, sequence=0x48, end_of_rows=True, cursor=11, rows=1, kind="select")
    real = (
        "040101014801010205" + "7b0000010b00" + "030000000000" + "0000000000" + "00000c"
        "000000000000" + "02057b0101010300" + "194f52412d30313430333a206e6f206461746120666f756e640a"
    )
    assert outcome.encode(24).hex() == real


def test_status_after_a_commit() -> None:
    """A STATUS has three bytes of status and the calls so far."""
    assert status(STATUS_ENDED, 0x44).hex() == "09030100050144"


def test_parameters_have_numbers_of_three_bytes() -> None:
    """SCN and cursor id of an execute are where real servers have them."""
    assert parameters(0x22B1F5, 7, False).hex() == "0801060322b1f5000107000000000000"


def test_announcement_after_a_login() -> None:
    """Message 23 after a login is what Free 23 sends."""
    real = (
        "17050101100103160001" + "0b0b800000003c3c3c8000000001a3"
        "0001080800000001000000890" + "1aa0106064e4f4e4500000001c700"
    )
    assert login_return(137).hex() == real


def test_lengths_of_a_database_with_another_character_set() -> None:
    """Outer lengths are three times the inner ones, as 19c in WE8ISO8859P15 sends them."""
    pairs = login_parameters([("AUTH_SESSKEY", "00" * 32, 0)], triple=True)
    assert pairs[:18] == bytes.fromhex("080101" + "01240c") + b"AUTH_SESSKEY"
    assert pairs[18:21].hex() == "01c040"


@pytest.mark.parametrize("mode", ["19c", "23ai"])
def test_error_leaves_the_connection_usable(serve, connect, mode) -> None:
    """An error comes after break and reset, with code and offset; then work continues."""
    connection = connect(serve(mode=mode))
    cursor = connection.cursor()
    for _ in range(3):
        with pytest.raises(
            oracledb.DatabaseError, match='ORA-00942: table or view "SCOTT"'
        ) as info:
            cursor.execute("select * from nothing")
        assert info.value.args[0].offset == 14
        cursor.execute("select 3 rows")
        assert len(cursor.fetchall()) == 3


@pytest.mark.parametrize("mode", ["23ai", *also(OTHER_ROUTES, "19c")])
def test_call_timeout(serve, connect, mode) -> None:
    """A call that takes too long is interrupted by the client, and the connection stays usable."""
    server = serve(mode=mode)
    server.faults.add(Fault(kind="stall", statement="slow"))
    connection = connect(server)
    connection.call_timeout = TIMEOUT_MILLISECONDS
    cursor = connection.cursor()
    with pytest.raises(oracledb.DatabaseError, match="DPY-4024"):
        cursor.execute("select 100 rows /* slow */")
    assert connection.is_healthy()
    connection.call_timeout = 0
    cursor.execute("select 7 rows")
    assert len(cursor.fetchall()) == 7


def test_call_timeout_within_a_reply(server, connect) -> None:
    """After a break within a reply both sides are in step again at the next call but one.

    The driver (26.1) does not read the answer to its break if a part of the reply had come before
    it: the next call gets ORA-01013 in its place.
    """
    server.faults.add(Fault(kind="stall", statement="slow", after_rows=1000))
    connection = connect()
    cursor = connection.cursor()
    cursor.arraysize = 1000
    cursor.execute("select 9999 rows /* slow */")
    connection.call_timeout = TIMEOUT_MILLISECONDS
    with pytest.raises(oracledb.DatabaseError, match="DPY-4024"):
        cursor.fetchall()
    connection.call_timeout = 0
    with contextlib.suppress(oracledb.DatabaseError):
        connection.ping()
    cursor = connection.cursor()
    cursor.execute("select 7 rows")
    assert len(cursor.fetchall()) == 7


@pytest.mark.parametrize("mode", ["19c", "23ai"])
@pytest.mark.parametrize("rows", [0, 5000])
def test_cancel(serve, connect, mode, rows) -> None:
    """A cancel ends a call with ORA-01013, in its first reply or a later one; work continues."""
    server = serve(mode=mode)
    fault = server.faults.add(Fault(kind="stall", statement="slow", after_rows=rows))
    connection = connect(server)

    def cancel() -> None:
        fault.happened.wait(60)
        time.sleep(0.05)
        connection.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    cursor = connection.cursor()
    with pytest.raises(oracledb.DatabaseError, match="ORA-01013"):
        cursor.execute("select 20000 rows /* slow */").fetchall()
    canceller.join()
    cursor.execute("select 7 rows")
    assert len(cursor.fetchall()) == 7
