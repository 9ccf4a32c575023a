"""Lost and refused connections: retries, single attempts, and advice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.postgres.errors import Broken, LibpqError, ServerError, translated
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import CopyDialect

LOST = [
    Broken("server closed the connection unexpectedly"),
    Broken("SSL error: unexpected eof while reading"),
    Broken("terminating connection due to administrator command", "57P01"),
    ServerError("terminating connection due to idle-in-transaction timeout", "25P03"),
    ServerError("the pooler is gone", "08006"),
]


@pytest.fixture
def sessions(postgres: Any) -> Iterator[tuple[Session, Session]]:
    """A session, and a second one that can end it."""
    spec = SourceSpec(kind="postgresql", location=postgres.url)
    with closing(Session(spec)) as first, closing(Session(spec)) as second:
        yield first, second


@pytest.mark.parametrize("error", LOST, ids=str)
def test_lost_connection_has_one_name(error: LibpqError) -> None:
    """For each message of libpq or the server, the connection was lost, and a retry may help."""
    found = translated(error, phase="open")
    assert isinstance(found, TransientSourceError)
    assert "the connection was lost: " in found.message
    found = translated(error, phase="connecting")
    assert isinstance(found, TransientSourceError)
    assert "the connection failed: " in found.message


def test_an_error_within_a_session_does_not_end_it(sessions: tuple[Session, Session]) -> None:
    """Not even under a state of lost connections, as of a foreign table or of missing values."""
    session, _ = sessions
    for sql in (
        "DO $$ BEGIN RAISE 'the other server is gone' USING ERRCODE = '08006'; END $$",
        "SELECT $1::int",
    ):
        with pytest.raises(SourceError) as caught:
            session.rows(sql)
        assert "connection was lost" not in caught.value.message
        assert session.alive
    with pytest.raises(SourceError, match=r"there is no parameter \$1"):
        session.column_names("SELECT $1::int")
    assert session.value("SELECT 1") == 1


def terminate(victim: Session, by: Session) -> None:
    """End a session and wait until the server has."""
    pid = victim.value("SELECT pg_backend_pid()")
    by.value("SELECT pg_terminate_backend($1, 10000)", pid)


def test_session_that_ended_while_idle(sessions: tuple[Session, Session]) -> None:
    """The next call, be it a query or a COPY, finds the loss, and the session is not alive."""
    victim, other = sessions
    terminate(victim, other)
    with pytest.raises(TransientSourceError, match="the connection was lost"):
        list(victim.copied("SELECT 1", CopyDialect(), 1000))
    assert not victim.alive
    with pytest.raises(TransientSourceError, match="the connection was lost"):
        victim.value("SELECT 1")


def test_session_that_ends_amid_a_copy(sessions: tuple[Session, Session]) -> None:
    """The result is not whole: the copy ends with the loss."""
    victim, other = sessions
    sql = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)"
    pid = victim.value("SELECT pg_backend_pid()")
    pieces = victim.copied(sql, CopyDialect(), 1000)
    next(pieces)
    other.value("SELECT pg_terminate_backend($1, 10000)", pid)
    with pytest.raises(TransientSourceError, match="the connection was lost"):
        list(pieces)
    assert not victim.alive


def test_cancelling_is_no_loss(sessions: tuple[Session, Session]) -> None:
    """A cancelled call reports it, the server ends it too, and the session can continue."""
    victim, other = sessions
    pid = victim.value("SELECT pg_backend_pid()")

    def cancel() -> None:
        while not other.rows(
            "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND query ~ 'pg_sleep' "
            "AND state = 'active'",
            pid,
        ):
            pass
        victim.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(SourceError, match="cancelled") as raised:
        victim.value("SELECT pg_sleep(3000)")
    canceller.join()
    assert not raised.value.retryable
    assert victim.value("SELECT 1") == 1


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
