"""Every way in which a connection is lost is one error, which is tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.postgres.errors import (
    Broken,
    LibpqError,
    ServerError,
    translated,
)
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
    """Whatever libpq or the server says, the connection was lost and another attempt may help."""
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
        list(victim.copy("SELECT 1", CopyDialect(), 1000))
    assert not victim.alive
    with pytest.raises(TransientSourceError, match="the connection was lost"):
        victim.value("SELECT 1")


def test_session_that_ends_amid_a_copy(sessions: tuple[Session, Session]) -> None:
    """The result is not whole: the copy ends with the loss."""
    victim, other = sessions
    sql = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)"
    pid = victim.value("SELECT pg_backend_pid()")
    pieces = victim.copy(sql, CopyDialect(), 1000)
    next(pieces)
    other.value("SELECT pg_terminate_backend($1, 10000)", pid)
    with pytest.raises(TransientSourceError, match="the connection was lost"):
        list(pieces)
    assert not victim.alive


def test_cancelling_is_no_loss(sessions: tuple[Session, Session]) -> None:
    """A call that we cancelled says so, the server ends it too, and the session can continue."""
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
