"""Source URLs: their parts, and the removal of secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from unloader.errors import ConfigError, UsageError
from unloader.redaction import redact
from unloader.request.locations import UrlForm, holds_password, looks_like_source, parse_source
from unloader.sources import registry
from unloader.sources.registry import url_form

SECRET = "s3cr3t"
KINDS = {"duckdb": "duckdb", "odbc": "odbc", "postgres": "postgresql", "postgresql": "postgresql"}


def form_of(kind: str) -> UrlForm:
    """Return the form of a kind's URLs, also for a kind without a source."""
    return url_form(kind) if kind != "odbc" else UrlForm(written="odbc:DSN=NAME", what="other")


@pytest.fixture(autouse=True)
def _no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNLOADER_PASSWORD", raising=False)


def test_a_url_names_kind_and_location() -> None:
    """The scheme decides the kind, aliases included, and the location stays as it was written."""
    spec = parse_source("postgres://etl@db01:5432/sales", KINDS, form_of)
    assert (spec.kind, spec.location) == ("postgresql", "postgres://etl@db01:5432/sales")
    assert spec.secret.kind == "none"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://etl:{SECRET}@db01/sales",
        f"postgresql://etl:{SECRET}/x@db01/sales",
        f"postgresql://etl:{SECRET}@more@db01/sales",
        f"postgresql://db01/sales?password={SECRET}",
        f"postgresql://db01/sales?user=etl&pass%77ord={SECRET}",
        f"postgresql://db01/sales?sslpassword={SECRET}&user=etl",
        f"odbc:DSN=x;PWD={SECRET}",
        f"odbc:DSN=x;Password={{{SECRET};}}",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    """In any place of the URL, a password is a usage error that does not show it."""
    with pytest.raises(UsageError, match="UNLOADER_PASSWORD") as caught:
        parse_source(url, KINDS, form_of)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://etl@db01:5432/sales",
        "postgresql://db01:5432,db02:5433/sales?user=a@b",
        "postgresql://[::1]:5432/sales",
        "postgresql://etl@db01/sales?passfile=/home/etl/.pgpass",
        "duckdb:///data/password=1/a:b@c.db",
        "odbc:DSN=warehouse",
    ],
)
def test_a_url_without_a_password_is_not_mistaken(url: str) -> None:
    """Ports, users with an @, and paths are not passwords, and redacting leaves them alone."""
    assert not holds_password(url)
    assert redact(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "oracle:scott@db01/X",
        "oracle://scott@db01@db02/X",
        "oracle://scott@db01:tiger/X",
        "postgresql:/db01/x",
        "postgresql:db01/x",
        "postgresql://etl@db01:port/x",
        "postgresql://etl@db01/x#y",
        "postgresql://etl@db01/x?y z=1",
        "postgresql://db01/x?dbname=a@b",
    ],
)
def test_a_server_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    """What a driver might take apart in another way than we do is refused before it sees it."""
    kinds = {**KINDS, "oracle": "oracle"}
    with pytest.raises(UsageError, match="cannot be read") as caught:
        parse_source(url, kinds, form_of)
    assert "db01" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://scott@db01:1521/SALES",
        "oracle://scott@db01,db02:1522;db03/SALES:pooled?retry_count=3&wallet_location=/w",
        "oracle://scott@ALIAS?config_dir=/tns",
        "oracle://scott@(DESCRIPTION=(ADDRESS=(HOST=h))(SECURITY=(SSL_SERVER_CERT_DN=CN=a@b)))",
        "oracle://app%5Bhr%5D@db01/X",
        "oracle://@tcps://db01:2484/X",
        "postgresql://postgres@/postgres?host=/tmp/x",
        "postgresql://etl%40tenant@[fe80::1]:5432,db02/sales?sslmode=require",
        "postgresql://",
    ],
)
def test_every_form_that_the_drivers_know_is_accepted(url: str) -> None:
    """Hosts, aliases, descriptors, sockets and settings pass as they were written."""
    kinds = {**KINDS, "oracle": "oracle"}
    assert parse_source(url, kinds, form_of).location == url
    assert redact(url) == url


def test_an_empty_password_is_none() -> None:
    """`user:@host` holds no password; the colon goes, so that the driver sees none either."""
    spec = parse_source("postgresql://postgres:@/db?host=/tmp", KINDS, form_of)
    assert spec.location == "postgresql://postgres@/db?host=/tmp"


@pytest.mark.parametrize(
    ("place", "is_source"),
    [
        ("/extract/scott/tiger@h", False),
        ("./scott/tiger@h", False),
        ("out/2024", False),
        ("pipe:/run/a@b.csv", False),
        ("scott/tiger@h", True),
        ("scott:tiger@h", True),
        ("postgresql:x", True),
        ("s3://bucket/x", False),
        ("s4://bucket/x", True),
        ("x password=y", True),
    ],
)
def test_a_source_where_a_path_belongs_is_known(place: str, is_source: bool) -> None:
    """Text that begins with a slash or a dot is a path; a login or a URL is not."""
    assert looks_like_source(place, registry.KINDS) is is_source


def test_redact_hides_passwords_within_a_text() -> None:
    """A driver's message that repeats a URL or a connection string comes out clean."""
    text = f"cannot connect to oracle://scott:{SECRET}@db01/X (DSN=a;PWD={SECRET};APP=b)"
    assert redact(text) == "cannot connect to oracle://scott:***@db01/X (DSN=a;PWD=***;APP=b)"


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    """A database that nothing reads is a configuration error."""
    with pytest.raises(ConfigError, match=r"mongodb.*duckdb"):
        parse_source("mongodb://db01/x", KINDS, form_of)


def test_a_plain_file_name_is_answered_with_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives the path of a file learns the URL to write."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.db").write_bytes(bytes(8) + b"DUCK")
    with pytest.raises(UsageError, match=f"duckdb://{tmp_path}/sales.db"):
        parse_source("sales.db", KINDS, form_of)


@pytest.mark.parametrize("url", ["duckdb:sales.db", "duckdb://sales.db", "duckdb:///sales.db"])
def test_a_relative_path_is_answered_with_the_absolute_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL of a file is absolute; the message has the one that was probably meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.db").touch()
    with pytest.raises(UsageError, match=f"write duckdb://{tmp_path}/sales.db"):
        parse_source(url, KINDS, form_of)


def test_a_password_file_comes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is a reference: an absolute path, else the variable's name."""
    monkeypatch.setenv("UNLOADER_PASSWORD", SECRET)
    monkeypatch.chdir(tmp_path)
    Path("pw").write_text(SECRET)
    by_file = parse_source("postgresql://db01/x", KINDS, form_of, Path("pw")).secret
    by_variable = parse_source("postgresql://db01/x", KINDS, form_of).secret
    assert (by_file.kind, by_file.name) == ("file", str(tmp_path / "pw"))
    assert (by_variable.kind, by_variable.name) == ("environment", "UNLOADER_PASSWORD")


def test_a_password_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A wrong path is a configuration error before anything connects.

    It may be the password, and is not shown.
    """
    with pytest.raises(ConfigError, match="--password-file names no file") as caught:
        parse_source("postgresql://db01/x", KINDS, form_of, tmp_path / SECRET)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("keyring", "name"),
    [
        ("sales", "sales/etl"),
        ("sales/night", "sales/night"),
        ("https://vault/sales/night", "https://vault/sales/night"),
    ],
)
def test_a_keyring_is_asked_for_the_user_of_the_url(
    keyring: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text after the last slash is the user; without a slash it is the URL's user."""
    monkeypatch.setenv("UNLOADER_PASSWORD", SECRET)
    secret = parse_source("postgresql://etl@db01/x", KINDS, form_of, keyring=keyring).secret
    assert (secret.kind, secret.name) == ("keyring", name)


@pytest.mark.parametrize("keyring", ["sales", "/etl", "sales/"])
def test_a_keyring_without_service_or_user_is_refused(keyring: str) -> None:
    """Where neither the option nor the URL says whose password it is, nothing is guessed."""
    with pytest.raises(UsageError, match="SERVICE/USER"):
        parse_source("postgresql://db01/x", KINDS, form_of, keyring=keyring)


def test_a_credential_of_systemd_comes_after_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credential with the usual name is used where nothing else says where the password is."""
    (tmp_path / "unloader-password").write_text(SECRET)
    monkeypatch.delenv("UNLOADER_PASSWORD", raising=False)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    found = parse_source("postgresql://db01/x", KINDS, form_of).secret
    assert (found.kind, found.name) == ("file", str(tmp_path / "unloader-password"))
    monkeypatch.setenv("UNLOADER_PASSWORD", SECRET)
    assert parse_source("postgresql://db01/x", KINDS, form_of).secret.kind == "environment"
