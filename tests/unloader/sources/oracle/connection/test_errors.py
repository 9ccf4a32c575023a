"""What becomes of Oracle's errors: one line, the right class, something to do next."""

from __future__ import annotations

import socket

import pytest
from oracledb import exceptions
from oracledb.errors import _create_err, _Error

from unloader.errors import (
    SnapshotGone,
    SnapshotTooOld,
    SourceError,
    TransientSourceError,
    UnloaderError,
)
from unloader.sources.oracle.connection.errors import (
    HINTS,
    is_dead,
    translated,
)


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
    """Errors that another attempt may get past are transient; those that cost the session say so."""
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
