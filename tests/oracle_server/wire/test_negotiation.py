"""Handshakes: golden bytes of real servers, and the real driver against every release."""

from __future__ import annotations

import socket
from pathlib import Path

import oracledb
import pytest
from oracle_server.wire import certificates
from oracle_server.wire.negotiation import (
    CHARSETS,
    MODES,
    Connect,
    accept,
    protocol_reply,
    refusal,
    service_of,
)


def test_accept_of_23ai() -> None:
    """An ACCEPT of version 319 is what Free 23 sends, but for its 16 random bytes."""
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


def test_accept_below_23ai_by_a_server_of_23ai() -> None:
    """A client of an older version gets neither fast authentication nor end of response."""
    assert len(accept(MODES["23ai"], 318, 8192)) == 37


def test_refusal() -> None:
    """A REFUSE has the listener's code where drivers look for it."""
    text = b"(DESCRIPTION=(TMP=)(VSNNUM=0)(ERR=12514)(ERROR_STACK=(ERROR=(CODE=12514)(EMFI=4))))"
    assert refusal(12514) == b"\x22\x00\x00" + bytes((len(text),)) + text


def test_protocol_reply_starts_as_a_real_one() -> None:
    """Banner, character set, its ten conversions and the first formats are those of Free 23."""
    real = (
        "0106007838365f36342f4c696e757820322e342e7878006903230a00"
        "6603400301400366030166034803014803660301660352030152036603016603610301610366030166031f0308"
        "1f0366030100640000006001240f"
    )
    reply = protocol_reply(MODES["23ai"], charset=CHARSETS["AL32UTF8"])
    assert reply.hex().startswith(real)


@pytest.mark.parametrize(("mode", "length", "version"), [("19c", 42, 12), ("23ai", 54, 27)])
def test_compile_capabilities(mode: str, length: int, version: int) -> None:
    """There are as many capabilities as the release has, and its own field version."""
    reply = protocol_reply(MODES[mode], charset=CHARSETS["WE8ISO8859P15"])
    caps = reply[-length - 8 : -8]
    assert reply[-length - 9] == length
    assert caps[7] == version


def test_connect_is_taken_apart() -> None:
    """Version, SDU and the length of connect data come from a real driver's CONNECT."""
    head = bytes.fromhex("013f012c0401200020004f980000000100ff004a000000008484")
    body = head + bytes(24) + bytes.fromhex("00002000000020000000000000000001")
    found = Connect.parse(body)
    assert (found.version, found.sdu, found.length, found.data) == (319, 8192, 255, "")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "(DESCRIPTION=(CONNECT_DATA=(SERVICE_NAME=FREE)(SERVER=POOLED)))",
            ("SERVICE_NAME", "FREE"),
        ),
        ("(CONNECT_DATA=(sid=ORCL))", ("SID", "ORCL")),
        ("(CONNECT_DATA=)", ("SERVICE_NAME", "")),
    ],
)
def test_service_of(data: str, expected: tuple[str, str]) -> None:
    """What a client asks for is found in its connect data."""
    assert service_of(data) == expected


@pytest.mark.parametrize("verifier", ["11g", "12c"])
@pytest.mark.parametrize(
    ("mode", "version"), [("19c", "19.22"), ("21c", "21.3"), ("23ai", "23.26")]
)
def test_every_release_with_every_verifier(serve, connect, mode, version, verifier) -> None:
    """The driver logs in and fetches, whatever release and verifier it meets."""
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


def test_unknown_service(server, connect) -> None:
    """A service that is not here is refused with the listener's ORA-12514."""
    with pytest.raises(oracledb.DatabaseError, match=r"DPY-6001.*ORA-12514"):
        connect(dsn=f"{server.host}:{server.port}/NOWHERE")


def test_unknown_sid(server, connect) -> None:
    """A SID that is not here is refused with the listener's ORA-12505."""
    address = f"(ADDRESS=(PROTOCOL=tcp)(HOST={server.host})(PORT={server.port}))"
    with pytest.raises(oracledb.DatabaseError, match="ORA-12505"):
        connect(dsn=f"(DESCRIPTION={address}(CONNECT_DATA=(SID=NOWHERE)))")


def test_pooled_server(server, connect) -> None:
    """A client that asks for a pooled server is served, and its session released."""
    connection = connect(dsn=f"{server.dsn}:pooled", cclass="UNLOAD")
    connection.ping()
    assert "(SERVER=pooled)" in server.connect_data[0]
    assert server.logins[0]["AUTH_KPPL_CONN_CLASS"] == "UNLOAD"


@pytest.mark.parametrize("mode", ["19c", "23ai"])
# The driver forgets its first socket instead of closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_redirect(serve, connect, mode) -> None:
    """A listener's REDIRECT leads to a session on another port."""
    server = serve(mode=mode, redirect=True)
    connection = connect(server)
    connection.ping()
    assert server.second_port not in (0, server.port)
    assert len(server.connect_data) == 2


@pytest.mark.parametrize("mode", ["19c", "23ai"])
def test_database_of_another_character_set(serve, connect, mode) -> None:
    """Lengths three times too large, as such databases send them, change nothing for a client."""
    server = serve(mode=mode, charset="WE8ISO8859P15", triple_lengths=True)
    assert connect(server).cursor().execute("select 1 rows").fetchall() == [(0, "name 0")]


def test_tls(serve, connect, tmp_path: Path) -> None:
    """With TLS a client that trusts the authority is served, one that does not is not."""
    made = certificates.create(tmp_path)
    server = serve(tls=made.tls)
    connection = connect(server, wallet_location=str(made.wallet))
    cursor = connection.cursor()
    cursor.execute("select 2000 rows")
    assert len(cursor.fetchall()) == 2000
    with pytest.raises(oracledb.DatabaseError, match="DPY-6005"):
        connect(server)


def test_plain_client_of_a_tls_server(serve, connect, tmp_path: Path) -> None:
    """A client without TLS gets no session, and the server lives on."""
    made = certificates.create(tmp_path)
    server = serve(tls=made.tls)
    with pytest.raises(oracledb.DatabaseError, match="DPY-"):
        connect(server, dsn=f"{server.host}:{server.port}/{server.service}")
    connect(server, wallet_location=str(made.wallet)).ping()


def test_client_that_says_nothing(server, connect) -> None:
    """A socket that is opened and closed again disturbs nobody."""
    socket.create_connection((server.host, server.port)).close()
    connect().ping()
