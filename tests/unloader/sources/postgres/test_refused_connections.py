"""Connections that no further attempt can make: one attempt, and advice for that cause."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.postgres.session import Session

SETUP = """
CREATE ROLE named LOGIN; CREATE ROLE secret LOGIN PASSWORD 'x1y2z3'; CREATE ROLE rejected LOGIN;
CREATE ROLE asleep NOLOGIN;
CREATE DATABASE revoked; REVOKE CONNECT ON DATABASE revoked FROM public;
CREATE DATABASE closed ALLOW_CONNECTIONS false; CREATE DATABASE full_up CONNECTION LIMIT 0;
"""

RULES = "local all secret scram-sha-256\nlocal all rejected reject\n"


@pytest.fixture(scope="module")
def server(start_postgres: Callable[[], Any]) -> Any:
    """A server that asks one role for a password, and lets another never in."""
    found = start_postgres()
    found.run(SETUP)
    rules = Path(found.run("SHOW hba_file"))
    rules.write_text(RULES + rules.read_text())
    found.reload()
    return found


@pytest.fixture(autouse=True)
def without_passwords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no password of the person who runs the tests count."""
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGOPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def error_of(server: Any, user: str, database: str = "postgres", more: str = "") -> SourceError:
    """Return the error of a connection that is not made."""
    url = server.url.replace("postgres@", f"{user}@").replace("/postgres?", f"/{database}?")
    with (
        pytest.raises(SourceError) as caught,
        closing(Session(SourceSpec(kind="postgresql", location=url + more))),
    ):
        pass
    return caught.value


@pytest.mark.parametrize(
    ("who", "said", "advice"),
    [
        (("secret",), "no password supplied", "set UNLOADER_PASSWORD"),
        (("rejected",), "pg_hba.conf rejects connection", "pg_hba.conf"),
        (("nobody_here",), 'role "nobody_here" does not exist', "the user in the URL"),
        (("asleep",), "is not permitted to log in", "the user in the URL"),
        (("named", "nowhere"), 'database "nowhere" does not exist', "the name of the database"),
        (("named", "revoked"), "permission denied for database", "grant CONNECT"),
        (("named", "closed"), "not currently accepting connections", "another database"),
        (("named", "postgres", "&options=-cnosuch%3D1"), '"nosuch"', "the options"),
        (("named", "postgres", "&channel_binding=require"), "channel binding", "in the URL"),
        (("secret", "postgres", "&require_auth=md5"), "requirement", "in the URL"),
        (("named", "postgres", "&sslmode=bogus"), "invalid sslmode value", "in the URL"),
    ],
)
def test_what_no_further_attempt_can_mend(
    server: Any, who: tuple[str, ...], said: str, advice: str
) -> None:
    """It is not retried, and the advice is not to check host and port."""
    error = error_of(server, *who)
    assert said in error.message
    assert advice in error.hint
    assert not isinstance(error, TransientSourceError)


@pytest.mark.parametrize(
    ("who", "advice"),
    [
        (("named", "full_up"), "limit of sessions"),
        (("named", "postgres", "&target_session_attrs=standby"), "target_session_attrs"),
        (("named", "postgres", "&port=1"), "check host and port"),
    ],
)
def test_what_another_attempt_may_mend(server: Any, who: tuple[str, ...], advice: str) -> None:
    """A limit may have room later, a standby may come, a server may start."""
    error = error_of(server, *who)
    assert advice in error.hint
    assert isinstance(error, TransientSourceError)


def test_a_wrong_password_is_not_asked_for_again(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the advice to give one."""
    monkeypatch.setenv("PGPASSWORD", "wrong")
    error = error_of(server, "secret")
    assert "password authentication failed" in error.message
    assert "the password in UNLOADER_PASSWORD" in error.hint
    assert not isinstance(error, TransientSourceError)
