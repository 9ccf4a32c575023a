"""Exported snapshots: one session takes one, others enter it while that one's transaction is open.

The server numbers exported snapshots from the start again when it restarts, so that after a restart
a number may be another session's snapshot of another state. Whoever enters one therefore compares
what it got: when the server started, and which transactions the snapshot sees.
"""

from __future__ import annotations

import hashlib
import re

from unloader.errors import SnapshotGone, UnloaderError
from unloader.sources.postgres.errors import AGAIN, NOT_EXPORTED, state_of
from unloader.sources.postgres.session import Session
from unloader.sources.statement import literal

EXPORTED = "exported-snapshot"
"""The kind of a snapshot here."""

_VALUE = re.compile(r"(?P<number>[0-9A-F]+(?:-[0-9A-F]+)+) state=(?P<state>[0-9a-f]{16})")

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_STATE = "SELECT concat_ws(' ', pg_postmaster_start_time(), txid_current_snapshot())"
"""A snapshot as PostgreSQL prints it tells which transactions it sees: those before the first
number, and those before the second that are not on the list behind it."""


def export(session: Session) -> str:
    """Begin a transaction, export its snapshot, and return what `enter` takes."""
    session.execute(_BEGIN)
    number = session.value("SELECT pg_export_snapshot()")
    return f"{number} state={_state(session)}"


def is_exported(value: str) -> bool:
    """Return whether a text is one that `export` returned."""
    return _VALUE.fullmatch(value) is not None


def enter(session: Session, value: str) -> None:
    """Begin a transaction in an exported snapshot.

    Raises:
        SnapshotGone: It does not exist any more.
        SourceError: The server refused; a lost connection says nothing of the snapshot.
    """
    found = _VALUE.fullmatch(value)
    number = found["number"] if found else value
    try:
        session.execute(f"{_BEGIN}; SET TRANSACTION SNAPSHOT {literal(number)}")
    except UnloaderError as error:
        if error.retryable or state_of(error.__cause__) not in NOT_EXPORTED:
            raise  # Of this session only; whether the snapshot is still held is the parent's.
        raise SnapshotGone(
            f"snapshot {number} cannot be imported, because the connection that holds the "
            f"snapshot is lost: {error.message}",
            AGAIN,
        ) from error
    if found is not None and _state(session) != found["state"]:
        raise SnapshotGone(
            f"snapshot {number} is now a different snapshot: the server was restarted after the "
            "run began",
            AGAIN,
        )


def check_unchanged(changed: str | None) -> None:
    """Raise `SnapshotGone` if there is a relation that is not as it was at the snapshot."""
    if changed is not None:
        raise SnapshotGone(
            f"{changed} was truncated, rewritten or replaced after the snapshot was taken",
            "run again: the snapshot is older than this change and cannot show those rows any more",
        )


def _state(session: Session) -> str:
    return hashlib.sha256(session.value(_STATE).encode()).hexdigest()[:16]
