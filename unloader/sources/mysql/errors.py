"""Errors of MySQL, MariaDB and their driver in the words of this program, translated at one place.

Source of the codes: "Server Error Message Reference" and "Client Error Message Reference" in the
manual of MySQL, and "MariaDB Error Code Reference". docs/retries.md has their table for users.
"""

from __future__ import annotations

import ssl

from unloader.errors import (
    ConnectFailed,
    SessionsRefused,
    SnapshotGone,
    SourceError,
    TransientSourceError,
)

FULL = (1040, 1203, 1226)
"""Too many connections: of the server, of the user, or of a limit of the user's resources."""

LOST = (1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2055, 3169, 4031)
"""The session has ended: the server stops, the network failed, or an administrator killed it."""

TRANSIENT = (1180, 1205, 1213, 1317, 1637, 1969, 3024)
"""A statement was ended: a lock, a deadlock, KILL QUERY, or a limit of time of the server."""

CHANGED = 1412
"""The table was altered, truncated or replaced after the snapshot."""

DENIED = (1044, 1045, 1142, 1143, 1227)
"""The user has no right to a database, a table, a column or a statement."""

_UNREACHED, _NO_TLS = 2003, 2026
_BUSY = 1205

AGAIN = "run again when the server accepts connections: a lost snapshot cannot be opened again"
"""For a snapshot that ended with the connections that held it."""

_HINTS = {
    1044: "grant SELECT on the database to the user",
    1045: "check the user in the URL and the password in UNLOADER_PASSWORD or --password-file",
    1049: "check the name of the database at the end of the URL",
    1064: "correct the SQL; strings have single quotes, and double quotes enclose names",
    1129: "let an administrator run FLUSH HOSTS, then run again",
    1130: "create the user for this host, or connect from another host",
    1142: "grant SELECT on the table to the user",
    1143: "grant SELECT on the column to the user, or leave it out with --exclude",
    1146: "check the name; to see the tables: unloader describe SOURCE",
    1227: "grant the right to the user",
    1317: "find out who ended the statement with KILL QUERY, then run again",
    1356: "check the view, and the rights of the user who defined it",
    1792: "unloader only reads: leave out the function that writes",
    1969: "raise max_statement_time of the user, then run again",
    3024: "raise max_execution_time of the server, then run again",
    _BUSY: "run again after other sessions have released their locks, or wait longer with "
    "--lock-timeout; SHOW PROCESSLIST shows the sessions",
    CHANGED: "run again: the snapshot is older than this change and cannot show those rows any "
    "more",
}


def translated(error: BaseException, *, connecting: bool = False) -> SourceError:
    """Return the user's error for one of the driver's."""
    code, text = _parts(error)
    words = f"MySQL: {text} (code {code})" if code else f"MySQL: {text}"
    if code in FULL:
        return SessionsRefused(words)
    if connecting and (refused := _refused_tls(error, code)):
        return refused
    if connecting and (code in (*LOST, *TRANSIENT, _UNREACHED) or not code):
        hint = "check host and port in the URL, and check that the server is running"
        return ConnectFailed(f"MySQL: the connection failed: {text}", hint)
    if code in LOST or not code:
        hint = "run again when the server accepts connections; its log shows why the session ended"
        return TransientSourceError(f"MySQL: the connection was lost: {words[7:]}", hint)
    kind: type[SourceError] = SnapshotGone if code == CHANGED else SourceError
    if code in TRANSIENT:
        kind = TransientSourceError
    return kind(words, _HINTS.get(code, ""))


def code_of(error: BaseException | None) -> int:
    """Return the code of the driver's error that caused a user's error; 0 without one."""
    return 0 if error is None else _parts(error)[0]


def _parts(error: BaseException) -> tuple[int, str]:
    """Return the code and the text of an error of the driver; 0 for an error of the system."""
    values = error.args
    if len(values) > 1 and isinstance(values[0], int) and not isinstance(error, OSError):
        return values[0], str(values[1]) or type(error).__name__
    return 0, str(error) or type(error).__name__


def _refused_tls(error: BaseException, code: int) -> SourceError | None:
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SourceError(
            f"the certificate of the server is not trusted: {cause.verify_message}",
            "give the file of its CA as ssl-ca=FILE in the URL, and the host name that is in the "
            "certificate; ssl-mode=REQUIRED encrypts without checking the server",
        )
    if code == _NO_TLS:
        return SourceError(
            "the server does not offer TLS, which is required by default on a network",
            "switch TLS on in the server; if the network is trusted, write ssl-mode=DISABLED into "
            "the URL",
        )
    return None
