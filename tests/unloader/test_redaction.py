"""Secrets hidden in texts, and other words left as they are."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import unloader
import writers
from unloader import redaction
from unloader.redaction import HIDDEN, GuardedStream, guard_streams, learn, redact

SECRET = "Hunter2 Xyzzy/@ü"


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in redaction.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(redaction, "_learned", set())
    monkeypatch.setattr(redaction, "_open_words", set())


@pytest.mark.parametrize(
    "text",
    [
        "cannot connect as scott/hunter2@db01/X",
        "connect string: 'oracle:scott/hunter2@db01'",
        "jdbc:oracle:thin:scott/hunter2@//db01:1521/X",
        "oracle://scott/hunter2@db01:1521/X",
        "postgresql:etl:hunter2@db01/x",
        "postgresql:/etl:hunter2@db01/x",
        "(etl:hunter2@db01)",
        "postgresql://etl:12/hunter2@db01/x",
        "--password=hunter2",
        'password = "hunter2 hunter2"',
        "{'password': 'hunter2'}",
        json.dumps({"text": 'PASSWORD="hunter2 hunter2"'}),
        "SET ROLE r IDENTIFIED  BY hunter2",
        "ALTER USER u IDENTIFIED BY VALUES 'hunter2' REPLACE hunter2",
        "ALTER ROLE u PASSWORD 'hunter2'",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "aws_session_token = hunter2",
        "AZURE_STORAGE_KEY=hunter2==",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hunter2==",
        "STRIPE_API_KEY=hunter2",
        "DB_PASS=hunter2",
        "DBPASS='hunter2'",
        "DB_PASSWORD_PROD=hunter2",
        "https://x.blob.core.windows.net/c?sv=1&sig=hunter2&se=1",
        "sslpassword=hunter2",
        "> Authorization: Bearer hunter2",
        "Authorization=Basic hunter2",
        "X-Vault-Token: hunter2",
        json.dumps(json.dumps({"api_key": "hunter2"})),
    ],
)
def test_what_looks_like_a_password_is_hidden(text: str) -> None:
    """Forms of logins, settings and SQL lose their password though no one knows it."""
    assert HIDDEN in redact(text)
    assert "hunter2" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "oracle://scott@db01:1521/SALES",
        "oracle://scott@db01,db02:1522/SALES?ssl_server_cert_dn=CN=a@b",
        "postgresql://db01:5432,db02:5433/sales?user=a@b",
        "/extract/orders@2024/part-1.csv",
        "./out/orders@2024",
        "duckdb:///data/password=1/a:b@c.db",
        "the password file /home/etl/pw is open to other users",
        "replace an earlier run with --overwrite",
        "2026-11-22T07:08:13Z unit 0001, 10:30 left",
        "--password-file FILE",
        "password_file=/run/secrets/db token_id=7 bypass=1 compass=2 order_key=5",
        json.dumps({"password": 3, "api_key": {"nulls": 0}, "token": None}),
    ],
)
def test_other_texts_are_left_alone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users, ports, paths, times and our own sentences hold no password."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # It has the parameters of this test in it.
    assert redact(text) == text


def test_our_own_sentences_are_left_alone() -> None:
    """No text of the program looks like a secret: it would be unreadable."""
    changed = [
        (path.name, text)
        for package in (unloader, writers)
        for path in Path(package.__path__[0]).rglob("*.py")
        if path.name != "redaction.py"
        for text in texts_of(ast.parse(path.read_text("utf-8")))
        if redaction.redact_forms(text) != text
    ]
    assert changed == []


def texts_of(tree: ast.Module) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented):
            skipped |= {id(each.value) for each in node.body if isinstance(each, ast.Expr)}
        elif isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "x" for each in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            # A regular expression has no blank.
            yield node.value if isinstance(node.value, str) and " " in node.value else ""


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.lower(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        json.dumps(SECRET),
        repr(SECRET),
        SECRET.encode("ascii", "backslashreplace").decode(),
        f"x{SECRET}x",
    ],
)
def test_a_secret_of_the_process_is_hidden_however_it_is_written(written: str) -> None:
    """Also as a URL, JSON or a terminal writes it, and in the midst of a word."""
    learn(SECRET)
    assert redact(f"a {written} b").replace('"', "").replace("'", "") in (
        f"a {HIDDEN} b",
        f"a x{HIDDEN}x b",
    )


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("MYSQL_PWD", "tiger", "tiger"),
        ("AWS_SECRET_ACCESS_KEY", "hunter/2+x", "hunter/2+x"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=x;AccountKey=hunter2==", "hunter2=="),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2,x=hunter3", "hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2,x=hunter3", "hunter3"),
        ("PYICEBERG_CATALOG__LAKE__CREDENTIAL", "client:hunter2", "hunter2"),
        ("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", "hunter2", "hunter2"),
        ("DBPASS", "hunter2", "hunter2"),
        ("https_proxy", "http://joe:hunter2@proxy:3128", "hunter2"),
        ("DATABASE_URL", "postgresql://etl:hunter2@db01:5432/x", "hunter2"),
        ("JAVA_OPTS", "-Djavax.net.ssl.keyStorePassword=hunter2 -Xmx1g", "hunter2"),
        ("GOOGLE_CREDENTIALS", '{"type": "x", "private_key": "hunter2"}', "hunter2"),
    ],
)
def test_secrets_in_variables_are_hidden(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, hidden: str
) -> None:
    """The name of a variable, or the form of its value, shows its secret part."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # It has the parameters of this test in it.
    assert redact(f"a {hidden} b") == f"a {hidden} b"
    monkeypatch.setenv(name, value)
    assert redact(f"a {hidden} b") == f"a {HIDDEN} b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token-1"),
        ("AWS_ACCESS_KEY_ID", "AKIA0123456789"),
        ("PGSSLKEY", "/etc/hosts"),
        ("MAX_TOKENS", "4096"),
        ("USE_TOKEN", "true"),
        ("PWD", "/some/where"),
        ("SORT_KEY", "order_id_1"),
        ("UNLOADER_PASSWORD_KEYRING", "sales/etl-1"),
        ("UNLOADER_WHERE", "token = 'abc12345'"),
    ],
)
def test_variables_without_a_secret_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Paths, numbers, words and our own options would be missed in every text."""
    monkeypatch.setenv(name, value)
    assert redact(f"a {value[-8:]} b") == f"a {value[-8:]} b"


def test_json_stays_json() -> None:
    """A password may be a short number, or stand before a quote that JSON has escaped."""
    learn("1000")
    document = {"rows": 1000, "password": 7, "where": 'pwd=a"b', "secret": 'x"y', "key": ["1000"]}
    found = json.loads(redact(json.dumps(document)))
    assert found == {
        "rows": 1000,
        "password": 7,
        "where": f"pwd={HIDDEN}",
        "secret": HIDDEN,
        "key": ["1000"],
    }


def test_short_secrets_and_words_do_not_shred_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three characters are not looked for; a word is hidden where it is alone."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "ate")
    assert redact("the date is late, ate") == "the date is late, ate"
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    assert redact("tiger TIGER tigers u%3Atiger") == f"{HIDDEN} {HIDDEN} tigers u%3A{HIDDEN}"
    monkeypatch.setenv("UNLOADER_PASSWORD", "postgres")
    assert redact("postgres://h/x and PostgreSQL") == "postgres://h/x and PostgreSQL"


def test_a_word_that_stands_in_the_open_is_not_hidden() -> None:
    """Who has the user's name for a password can still read the messages."""
    learn("scott")
    redaction.known_openly(["Scott"])
    assert redact("SCOTT.ORDERS") == "SCOTT.ORDERS"


def test_only_a_secret_that_stands_nowhere_by_chance_counts_as_repeated() -> None:
    """A condition may have the word in it that happens to be the password, not a long odd one."""
    learn("orders")
    assert not redaction.holds_secret("select * from orders")
    learn("Hunter2Xyzzy")
    assert redaction.holds_secret("note = 'hunter2xyzzy'")


def test_each_line_of_a_secret_is_hidden() -> None:
    """A private key of several lines may be quoted in part."""
    learn("-----BEGIN KEY-----\nMIIEvQIBADANBg1\n")
    assert redact("at MIIEvQIBADANBg1") == f"at {HIDDEN}"


def test_guarded_streams_hide_what_anybody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging and print pass the filter; the bytes below it are unreachable."""
    output, errors = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", errors)
    guard_streams()
    guard_streams()
    learn(SECRET)
    print(SECRET)
    sys.stderr.writelines([SECRET, "\n"])
    logging.StreamHandler(sys.stderr).emit(
        logging.LogRecord("x", logging.INFO, "", 0, SECRET, None, None)
    )
    assert output.getvalue() == f"{HIDDEN}\n"
    assert SECRET not in errors.getvalue()
    assert errors.getvalue().count(HIDDEN) == 2
    assert isinstance(sys.stdout, GuardedStream)
    assert not hasattr(sys.stdout, "detach")
