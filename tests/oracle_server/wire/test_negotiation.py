"""Handshakes: golden bytes of real servers, and the real driver against every release."""

from __future__ import annotations

import pytest
from oracle_server.wire.negotiation import CHARSETS, MODES, accept, protocol_reply, refusal


def test_accept_of_23ai() -> None:
    """An ACCEPT of version 319 is what Free 23 sends, except for its 16 random bytes."""
    real = bytes.fromhex(
        "013f00010000000001000000003dc50000000000000000000000200000002000001a000000"
    )
    body = accept(MODES["23ai"], 319, 8192)
    assert body[:-16] == real
    assert len(body) == 53


def test_accept_of_19c() -> None:
    """An ACCEPT of version 318 ends after flags that announce nothing."""
    body = accept(MODES["19c"], 318, 65536)
    real = "013e00010000000001000000002dc5000000000000000000000100000001000000" + "00000000"
    assert body.hex() == real


def test_refusal() -> None:
    """A REFUSE has the listener's code where drivers look for it."""
    text = b"(DESCRIPTION=(TMP=)(VSNNUM=0)(ERR=12514)(ERROR_STACK=(ERROR=(CODE=12514)(EMFI=4))))"
    assert refusal(12514) == b"\x22\x00\x00" + bytes((len(text),)) + text


def test_protocol_reply_starts_as_a_real_one() -> None:
    """Banner, character set, its ten conversions and the first formats equal Free 23."""
    real = (
        "0106007838365f36342f4c696e757820322e342e7878006903230a00"
        "6603400301400366030166034803014803660301660352030152036603016603610301610366030166031f0308"
        "1f0366030100640000006001240f"
    )
    reply = protocol_reply(MODES["23ai"], charset=CHARSETS["AL32UTF8"])
    assert reply.hex().startswith(real)


@pytest.mark.parametrize("verifier", ["11g", "12c"])
@pytest.mark.parametrize(
    ("mode", "version"), [("19c", "19.22"), ("21c", "21.3"), ("23ai", "23.26")]
)
def test_every_release_with_every_verifier(serve, connect, mode, version, verifier) -> None:
    """The driver logs in and fetches with every release and verifier."""
    server = serve(mode=mode, verifier=verifier)
    connection = connect(server)
    assert connection.version.startswith(version)
    cursor = connection.cursor()
    cursor.execute("select 250 rows")
    assert cursor.fetchall() == [(n, f"name {n}") for n in range(250)]
    assert len(server.connect_data) == 1
    assert server.logins[0]["SESSION_CLIENT_CHARSET"] == "873"


@pytest.mark.parametrize("sdu", [512, 8192, 65535, 2 << 20])
@pytest.mark.parametrize("mode", ["19c", "23ai"])
def test_every_session_data_unit(serve, connect, sdu, mode) -> None:
    """Packets are as large as both sides agree on, and values may be split anywhere."""
    server = serve(mode=mode, sdu=sdu)
    connection = connect(server, dsn=f"{server.dsn}?sdu={sdu}")
    cursor = connection.cursor()
    cursor.execute("select 3000 rows")
    assert cursor.fetchall() == [(n, f"name {n}") for n in range(3000)]
