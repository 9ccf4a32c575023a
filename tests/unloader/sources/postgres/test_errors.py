"""Every way in which asyncpg tells of a lost connection is one error, which is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.postgres.errors import translated
from unloader.sources.postgres.session import CopyDialect, Session

LOST = [
    asyncpg.InternalClientError("cannot switch to state 18; another operation (2) is in progress"),
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.InterfaceError("connection is closed"),
    asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    ConnectionResetError(104, "Connection reset by peer"),
    EOFError(),
    asyncio.IncompleteReadError(b"", 5),
    asyncio.TimeoutError(),
    asyncio.CancelledError(),
]


@pytest.fixture
def sessions(postgres: Any) -> Iterator[tuple[Session, Session]]:
    """A session, and a second one that can end it."""
    spec = SourceSpec(kind="postgresql", location=postgres.url)
    with closing(Session(spec)) as first, closing(Session(spec)) as second:
        yield first, second


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_lost_connection_has_one_name(error: BaseException) -> None:
    """Whatever the driver says, the connection was lost and another attempt may help."""
    found = translated(error, phase="open")
    assert isinstance(found, TransientSourceError)
    assert "the connection was lost: " in found.message
    found = translated(error, phase="connecting")
    assert isinstance(found, TransientSourceError)
    assert "the connection failed: " in found.message


def test_fault_on_a_closed_connection_is_its_loss() -> None:
    """The driver's own mistakes count as the loss where the connection is closed, only there."""
    error = AttributeError("'NoneType' object has no attribute 'is_closing'")
    assert isinstance(translated(error, phase="closed"), TransientSourceError)
    assert not isinstance(translated(error, phase="open"), TransientSourceError)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ClientConfigurationError("`sslmode` parameter must be one of: disable"),
        asyncpg.UnsupportedServerFeatureError("no COPY"),
        asyncpg.InvalidPasswordError("password authentication failed"),
        asyncpg.UndefinedTableError('relation "t" does not exist'),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_stays_wrong_is_not_tried_again(error: Exception) -> None:
    """Wrong settings and the server's refusals are no lost connection."""
    for phase in ("connecting", "open"):
        assert not isinstance(translated(error, phase=phase), TransientSourceError)  # type: ignore[arg-type]


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
    """What came is no whole result: the copy ends with the loss."""
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
    """A call that we cancelled says so."""
    victim, _ = sessions
    victim._loop.call_later(0.05, victim.cancel)
    with pytest.raises(SourceError, match="cancelled") as raised:
        victim.value("SELECT pg_sleep(30)")
    assert not raised.value.retryable
