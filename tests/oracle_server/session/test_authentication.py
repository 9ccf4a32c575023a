"""Logins: passwords that are right and wrong, proxies, tokens."""

from __future__ import annotations

import base64
import json
import ssl
import time

import oracledb
import pytest
from oracle_server.wire import certificates


def token(subject: str) -> str:
    """Return something a driver takes for an access token that is valid for an hour."""
    claims = json.dumps({"sub": subject, "exp": int(time.time()) + 3600}).encode()
    parts = (b'{"alg":"none"}', claims, b"signature")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


DENIED = "ORA-01017: invalid username/password; logon denied"
VERIFIERS = pytest.mark.parametrize("verifier", ["11g", "12c"])


@VERIFIERS
@pytest.mark.parametrize("mode", ["19c", "23ai"])
@pytest.mark.parametrize("login", [{"password": "Tiger"}, {"user": "nobody"}, {"password": " "}])
def test_wrong_login(serve, connect, mode, verifier, login) -> None:
    """A wrong password and an unknown user are refused in the same words."""
    server = serve(mode=mode, verifier=verifier)
    with pytest.raises(oracledb.DatabaseError, match=DENIED):
        connect(server, **login)
    assert server.sessions == []
    connect(server).ping()


def test_proxy_user(server, connect) -> None:
    """A proxy that may connect through a user gets that user's session, and no other's."""
    connect(user="gate[scott]", password="keeper").ping()
    assert (server.sessions[0].user, server.sessions[0].schema) == ("SCOTT", "SCOTT")
    with pytest.raises(oracledb.DatabaseError, match="ORA-28150"):
        connect(user='gate["lower"]', password="keeper")
    with pytest.raises(oracledb.DatabaseError, match=DENIED):
        connect(user="gate[scott]", password="tiger")


@pytest.mark.parametrize("mode", ["19c", "23ai"])
def test_token(serve, connect, database, mode, tmp_path) -> None:
    """An access token opens its user's account without a password; another one opens nothing."""
    good = database.users["GATE"].token = token("GATE")
    made = certificates.create(tmp_path)
    server = serve(mode=mode, tls=made.tls)
    trust = ssl.create_default_context(cafile=made.authority)
    options = {"user": None, "password": None, "ssl_context": trust}
    connect(server, access_token=good, **options).ping()
    assert server.sessions[0].user == "GATE"
    with pytest.raises(oracledb.DatabaseError, match=DENIED):
        connect(server, access_token=token("OTHER"), **options)
