"""PostgreSQL's and libpq's errors in the words of this program, translated at one place.

A session can end at any time: an administrator, a timeout or a crash ends it, or the network
does. The server may report it first, or not. Three kinds of errors are not a lost connection: the
server's answer to a statement, a wrong setting, and our own cancelling. Every other error counts as
a lost connection. Another attempt makes a new one, and the number of attempts is bounded. Source
of the states: appendix A of PostgreSQL's manual. docs/retries.md has their table for users.
"""

from __future__ import annotations

from typing import Literal

from unloader.errors import (
    ConnectFailed,
    SessionsRefused,
    SnapshotGone,
    SourceError,
    TransientSourceError,
)

TRANSIENT_STATES = (
    *("08", "25P03", "25P04", "40001", "40P01", "53300", "55006", "55P03"),
    *("57014", "57P01", "57P02", "57P03", "57P05", "58030"),
)
"""SQLSTATEs, or their first digits, after which another attempt may succeed."""

FULL = "53300"
"""Too many connections: of the server, the database or the role."""

LOCK_NOT_AVAILABLE = "55P03"
"""A lock was waited for as long as lock_timeout says."""

POOLER_FULL = "no more connections allowed"
"""PgBouncer's message beyond its max_client_conn; its SQLSTATE has several other meanings."""

LOST_STATES = ("08", "57P01", "57P02", "57P05", "25P03", "25P04")
"""States that end a session. The last three are limits of time that the server sets."""

NOT_UTF8 = ("22021", "22P05")
"""States for a text that the server cannot convert to UTF-8. Its bytes are not valid in the
encoding, or UTF-8 has no equivalent for a character of the database's encoding."""

NOT_EXPORTED = ("22023", "42704", "55000")
"""What SET TRANSACTION SNAPSHOT fails with where the snapshot is not exported any more: there is no
such number, or its transaction has just ended."""

_TOO_OLD = "72000"
"""Up to PostgreSQL 16, where old_snapshot_threshold is set."""

AGAIN = "run again when the server accepts connections: a lost snapshot cannot be opened again"
"""For a snapshot that ended with the connection that held it."""

SERVER_GONE = "run again when the server accepts connections; its log shows why the session ended"

UNREACHED = "check host and port in the URL, and check that the server is running"

CHANGED = (
    "connect to PostgreSQL directly: a program between unloader and the server may change the data"
)
"""For text that no server sends."""

HINTS = {
    "22": "an expression of --where, of --query or of a view fails for the value of a row: "
    "correct it, or leave such rows out",
    "25006": "unloader only reads: leave out the function that writes, or call it elsewhere",
    FULL: SessionsRefused.usual_hint,
    "28P01": "check the user in the URL and the password in UNLOADER_PASSWORD or --password-file",
    "28000": "check the user in the URL and the server's pg_hba.conf",
    "3D000": "check the name of the database at the end of the URL",
    "55000": "fill a materialized view that was never filled: REFRESH MATERIALIZED VIEW, then run "
    "again",
    "55P03": "run again after other sessions have released their exclusive locks on the table, "
    "or wait longer with --lock-timeout; pg_blocking_pids shows the sessions",
    _TOO_OLD: "raise old_snapshot_threshold on the server, and unload again",
    "53200": "raise max_locks_per_transaction on the server: a run locks all tables that it reads",
    "42P01": "check the name; to see the tables: unloader describe SOURCE",
    "53100": "free space on the disk of the database server",
    "57014": "find out from the server's log who cancelled the statement, then run again",
    "58P01": "check the server's log: a file of the database is missing",
    "XX001": "check the server's log, and the table with amcheck: its data is corrupted",
    "42501": "grant SELECT on the table and its partitions; if row-level security applies, grant "
    "BYPASSRLS, or unload only the visible rows with --enable-row-security",
}

CONNECTING_HINTS = {
    "42501": "grant CONNECT on the database to the user",
    "42704": "correct the options in the URL, in the service file or in PGOPTIONS",
    "55000": "give another database at the end of the URL, or let this one accept connections: "
    "ALTER DATABASE ... ALLOW_CONNECTIONS true",
}
"""Of states that mean something else while a session is opened."""

Phase = Literal["connecting", "open", "closed"]


class LibpqError(Exception):
    """An error of a session, in the words of libpq or of the server, which adds its SQLSTATE."""

    def __init__(self, text: str, sqlstate: str = "") -> None:
        super().__init__(text.strip())
        self.sqlstate = sqlstate


class ServerError(LibpqError):
    """The server refused a statement; unless its severity is ERROR, the session may have ended."""

    def __init__(self, text: str, sqlstate: str = "", *, ends_session: bool = True) -> None:
        super().__init__(text, sqlstate)
        self.ends_session = ends_session


class Broken(LibpqError):
    """The connection is lost, or could not be made; with a SQLSTATE where the server said why."""


class Malformed(LibpqError):
    """What came through COPY is not of the form that was asked for."""


class BadSetting(LibpqError):
    """The settings cannot lead to a connection in any state of the server."""


class Cancelled(LibpqError):
    """The call was stopped by `Connection.cancel`."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


def translated(error: LibpqError, *, phase: Phase) -> SourceError:
    """Return the user's error for one of libpq's."""
    if isinstance(error, Cancelled):
        return SourceError(str(error), "run again")
    if isinstance(error, Malformed):
        return SourceError(f"COPY sent text that is not {error}", CHANGED)
    state, connecting = error.sqlstate, phase == "connecting"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = f"{lines[0]} (SQLSTATE {state})" if state else lines[0]
    if isinstance(error, BadSetting):
        hint = "correct it in the URL, in the service file or in the PG... variable that sets it"
        if "no password supplied" in text:
            hint = (
                "set UNLOADER_PASSWORD, give --password-file or --password-prompt, or put the "
                "password into ~/.pgpass"
            )
        return SourceError(f"PostgreSQL: {text}", hint)
    if state == FULL or (state.startswith("08") and POOLER_FULL in str(error)):
        return SessionsRefused(f"PostgreSQL: {text}", HINTS[FULL])
    if is_loss(error, phase) or (connecting and state in TRANSIENT_STATES):
        hint = UNREACHED if connecting and not state else SERVER_GONE
        if "hot standby mode" in text or "session is " in text:
            hint = "check which hosts of the URL meet its target_session_attrs"
        if connecting:
            return ConnectFailed(f"PostgreSQL: the connection failed: {text}", hint)
        return TransientSourceError(f"PostgreSQL: the connection was lost: {text}", hint)
    kind: type[SourceError] = SnapshotGone if state == _TOO_OLD else SourceError
    if state.startswith(TRANSIENT_STATES):
        kind = TransientSourceError
    hints = {**HINTS, **CONNECTING_HINTS} if connecting else HINTS
    return kind(f"PostgreSQL: {text}", hints.get(state) or hints.get(state[:2], ""))


def is_loss(error: LibpqError, phase: Phase) -> bool:
    if error.sqlstate:
        # A foreign table may lose its own connection, under the same states.
        ends = not isinstance(error, ServerError) or error.ends_session
        return ends and error.sqlstate.startswith(LOST_STATES)
    return isinstance(error, Broken) or (phase == "closed" and not isinstance(error, BadSetting))


def state_of(error: BaseException | None) -> str:
    return error.sqlstate if isinstance(error, LibpqError) else ""
