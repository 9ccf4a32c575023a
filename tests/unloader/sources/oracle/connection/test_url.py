"""Oracle URLs, taken apart without a driver."""

from __future__ import annotations

import pytest

from unloader.errors import ConfigError, UsageError
from unloader.request.locations import parse_source
from unloader.sources.oracle.connection.url import parse_location
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
