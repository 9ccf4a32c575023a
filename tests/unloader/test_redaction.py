"""What is hidden in texts, and what is left alone."""

from __future__ import annotations

import io
import json
import logging
import sys
from urllib.parse import quote

import pytest

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
    ],
)
def test_what_looks_like_a_password_is_hidden(text: str) -> None:
    """Forms of logins, settings and SQL lose their password though nobody knows it."""
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
    ],
)
def test_other_texts_are_left_alone(text: str) -> None:
    """Users, ports, paths, times and our own sentences hold no password."""
    assert redact(text) == text


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


def test_short_secrets_and_words_do_not_shred_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three characters are not looked for; a word is hidden where it stands by itself."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "ate")
    assert redact("the date is late, ate") == "the date is late, ate"
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    assert redact("tiger TIGER tigers u%3Atiger") == f"{HIDDEN} {HIDDEN} tigers u%3A{HIDDEN}"
    monkeypatch.setenv("UNLOADER_PASSWORD", "postgres")
    assert redact("postgres://h/x and PostgreSQL") == "postgres://h/x and PostgreSQL"


def test_a_word_that_stands_in_the_open_is_not_hidden() -> None:
    """Who has the user's name for a password can still read what the program says."""
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
    """Logging and print pass the filter; there is no way to the bytes below it."""
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
