"""Oracle URLs, and the errors of Oracle with their next steps."""

from __future__ import annotations

import socket

import pytest
from oracledb import exceptions
from oracledb.errors import _create_err, _Error

from unloader.errors import (
    ConfigError,
    SnapshotGone,
    SnapshotTooOld,
    SourceError,
    TransientSourceError,
    UnloaderError,
    UsageError,
)
from unloader.request.locations import parse_source
from unloader.sources.oracle.errors import HINTS, is_dead, translated
from unloader.sources.oracle.session import parse_location
from unloader.sources.registry import url_form

DESCRIPTOR = (
    "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=h)(PORT=2484))(CONNECT_DATA=(SERVICE_NAME=s))"
    '(SECURITY=(SSL_SERVER_CERT_DN="CN=db,E=a@b.example")))'
)


@pytest.mark.parametrize(
    ("url", "user", "connect_string"),
    [
        ("oracle://scott@db01/SALES", "scott", "db01/SALES"),
        ("oracle://scott@db01:1522/SALES", "scott", "db01:1522/SALES"),
        ("oracle://scott@h1,h2:1522/S:pooled", "scott", "h1,h2:1522/S:pooled"),
        ("oracle://scott@[::1]:1521/S", "scott", "[::1]:1521/S"),
        ("oracle://scott@SALES.WORLD", "scott", "SALES.WORLD"),
        ("oracle://proxy[target]@SALES", "proxy[target]", "SALES"),
        ("oracle://proxy%5Btarget%5D@SALES", "proxy[target]", "SALES"),
        ("oracle://[target]@SALES", "[target]", "SALES"),
        ("oracle://%22Mixed%20Case%22@SALES", '"Mixed Case"', "SALES"),
        ("oracle://a%40b@SALES", "a@b", "SALES"),
        ("oracle:///@SALES", "", "SALES"),
        ("oracle://@SALES", "", "SALES"),
        ("oracle://SALES", "", "SALES"),
        (f"oracle://scott@{DESCRIPTOR}", "scott", DESCRIPTOR),
        ("oracle://scott@tcps://h:2484/S", "scott", "tcps://h:2484/S"),
    ],
)
def test_forms_of_the_url(url: str, user: str, connect_string: str) -> None:
    """User and connect string are found in every form, and decoded; none counts as a password."""
    address = parse_location(parse_source(url, {"oracle": "oracle"}, url_form).location)
    assert (address.user, address.connect_string) == (user, connect_string)


def test_settings_become_the_drivers() -> None:
    """Names of Easy Connect Plus become parameters of the driver, values are decoded."""
    address = parse_location(
        "oracle://u@h/s?wallet_location=%2Fa%20b&transport_connect_timeout=3&SERVER=pooled"
        "&protocol=TCPS&failover=off"
    )
    assert dict(address.settings) == {
        "wallet_location": "/a b",
        "tcp_connect_timeout": "3",
        "server_type": "pooled",
    }
    assert address.connect_string == "tcps://h/s?failover=off"
    assert address.pooled


@pytest.mark.parametrize(
    ("url", "pooled"),
    [("oracle://u@h/s:pooled", True), ("oracle://u@h/s", False), ("oracle://u@h/pooled", False)],
)
def test_a_pooled_server_is_noticed(url: str, pooled: bool) -> None:
    """A session of the resident pool is recognised by the server type, not by a name like it."""
    assert parse_location(url).pooled is pooled


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("oracle:SALES", "//user@database"),
        ("oracle://scott@", "does not name a database"),
        ("oracle://scott@db01:1521", "does not name a service"),
        ("oracle://scott@db01/S?walet=/w", "walet is unknown"),
        ("oracle://scott@db01/S?sdu=", "sdu has no value"),
        ("oracle://scott@db01/S?protocol=ipc", "protocol ipc"),
        ("oracle://scott@SALES?protocol=tcps", "cannot be used with an alias"),
        (f"oracle://scott@{DESCRIPTOR}?failover=on", "setting failover"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str, words: str) -> None:
    """A URL that says too little, or what no one knows, is refused by name."""
    with pytest.raises(ConfigError, match=words):
        parse_location(url)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://scott/tiger@db01/SALES",
        "oracle://scott%2Ftiger@db01/SALES",
        "oracle://scott%3Atiger@db01/SALES",
        "oracle://scott/ti@ger@SALES",
        "oracle://proxy[scott]/tiger@SALES",
        "oracle://scott@(DESCRIPTION=(ADDRESS=(HOST=h))(SECURITY=(WALLET_PASSWORD=tiger)))",
    ],
)
def test_a_password_in_other_forms_is_refused_and_not_repeated(url: str) -> None:
    """What SQL*Plus takes as user/password, encoded or not, is a password in the URL, too."""
    with pytest.raises(UsageError, match="contains a password") as caught:
        parse_location(url)
    assert "ger" not in str(caught.value)


def test_what_is_no_url_is_not_repeated() -> None:
    """`oracle:scott/tiger@db` holds a password that an error must not show."""
    with pytest.raises(ConfigError) as caught:
        parse_location("oracle:scott/tiger@db01")
    assert "tiger" not in str(caught.value)


def test_a_quoted_user_may_have_any_character() -> None:
    """In double quotes a slash or colon is a part of the user's name."""
    assert parse_location("oracle://%22a%2Fb:c%22@SALES").user == '"a/b:c"'


def raised(code: int, text: str) -> Exception:
    error = _Error(f"ORA-{code:05d}: {text}", code=code)
    return error.exc_type(error)


@pytest.mark.parametrize(
    ("code", "kind", "dead"),
    [
        (942, SourceError, False),
        (1031, SourceError, False),
        (1555, SnapshotTooOld, False),
        (22924, SnapshotTooOld, False),
        (28, TransientSourceError, True),
        (2396, TransientSourceError, True),
        (3113, TransientSourceError, True),
        (12537, TransientSourceError, True),
        (600, TransientSourceError, True),
        (2399, TransientSourceError, True),
        (12609, TransientSourceError, False),
        (2395, SourceError, False),
        (1013, TransientSourceError, False),
        (8103, SnapshotGone, False),
        (8180, SnapshotGone, False),
        (1466, SnapshotGone, False),
        (28000, SourceError, False),
        (1722, SourceError, False),
    ],
)
def test_class_and_death(code: int, kind: type[UnloaderError], dead: bool) -> None:
    """Errors that another attempt may survive are transient; errors that end a session are marked."""
    error = raised(code, "some words")
    known = translated(error)
    assert type(known) is kind
    assert is_dead(error) is dead
    assert f"ORA-{code:05d}: some words" in known.message
    assert "\n" not in known.message
    assert "http" not in known.message


def test_the_code_that_matters_decides() -> None:
    """Lines that only introduce an error do not hide it, and places in PL/SQL are left out."""
    text = (
        "error signaled in parallel query server P001\n"
        'ORA-01555: snapshot too old: rollback segment number 9 with name "_SYSSMU9$" too small\n'
        'ORA-06512: at "SYS.X", line 1'
    )
    known = translated(raised(12801, text))
    assert isinstance(known, TransientSourceError)
    assert known.hint == HINTS["ORA-01555"]
    assert "_SYSSMU9$" in known.message
    assert "ORA-06512" not in known.message


def test_the_drivers_own_errors() -> None:
    """The driver's codes are mapped to the database's; its other words are removed."""
    lost = _create_err(4011)
    assert is_dead(exceptions.DatabaseError(lost))
    assert type(translated(exceptions.DatabaseError(lost))) is TransientSourceError
    failed = _create_err(6005, "[Errno 111] Connection refused", connection_id="abc==")
    known = translated(exceptions.OperationalError(failed))
    assert known.message == (
        "Oracle: DPY-6005: cannot connect to database; [Errno 111] Connection refused"
    )
    service = _create_err(6001, service_name="X", host="h", port=1521)
    assert translated(exceptions.OperationalError(service)).hint == HINTS["ORA-12514"]
    assert is_dead(exceptions.InternalError(_create_err(5000, message_type=9, position=1)))


def test_the_systems_errors_end_the_session() -> None:
    """A broken connection without any code is transient, and the session dead; our own stay."""
    error = ConnectionResetError(104, "Connection reset by peer")
    assert is_dead(error)
    assert isinstance(translated(error), TransientSourceError)
    own = SourceError("as it is")
    assert translated(own) is own


def test_a_host_that_is_not_known_is_told_in_words() -> None:
    """An error of the system has its text, not its number, and the place to look at."""
    with pytest.raises(socket.gaierror) as caught:
        socket.getaddrinfo("no-such-host.invalid", 1521)
    known = translated(caught.value)
    assert known.message == f"Oracle: {caught.value.strerror}"
    assert "host" in known.hint


def test_a_call_that_could_not_be_cut_short_names_its_option() -> None:
    """Where the database does not answer a break in time either, --call-timeout is the way out."""
    reason = "socket timed out while recovering from previous socket timeout"
    error = _Error(f"DPY-4011: the database or network closed the connection\n{reason}")
    known = translated(error.exc_type(error))
    assert reason in known.message
    assert "--call-timeout" in known.hint
