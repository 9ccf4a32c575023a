"""Oracle's and the driver's errors in the words of this program, translated at one place.

A driver error carries an object with the code and a text of several lines: the database's own
stack, places in PL/SQL and a link to a help page. This module reduces it to one line with the code.
Source of the codes: Oracle Database Error Messages; the driver's own are DPY and DPI.
docs/retries.md has the table of them for users.
"""

from __future__ import annotations

import re

from unloader import errors

_CODE = re.compile(r"\b(ORA|TNS|DPY|DPI)-(\d{4,5})\b")
_NOISE = re.compile(r"^(Help: |https?://|ORA-06512: )")
_CONNECTION_ID = re.compile(r" ?\(CONNECTION_ID=[^)]*\)")
_WRAPPERS = frozenset((604, 6512, 12801, 2063))
"""Codes that only introduce the one that matters, on the next line."""

_DRIVER_WRAPPERS = ("DPY-6005", "DPY-4011")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""What Python's TLS says in place of a code."""

DEAD = frozenset(
    ("DPY-1001", "DPY-4011", "DPY-4033", "DPY-6005", "ORA-02399", "ORA-01033", "ORA-01034")
)
"""The connection is lost after these codes, and after errors that the driver reports as dead."""

_INTERNAL = "DPY-5"
"""Start of the codes of a driver that lost track of the protocol: its connection is useless."""

_HOST = "check host and port in the URL, and check that the listener is running"
_CALL_TIMEOUT = "raise --call-timeout"
_TIMED_OUT = "socket timed out while recovering from previous socket timeout"
"""The driver's message when the database did not confirm that it stopped the call."""
HINTS = {
    code: hint
    for codes, hint in {
        "ORA-00942 ORA-01031 ORA-41900": "check the name, or ask its owner to grant access: GRANT"
        " SELECT ON schema.table TO user",
        "ORA-01555": "raise UNDO_RETENTION and the undo tablespace, run when less is written, or "
        "use smaller work units with --unit-bytes, which need less time",
        "ORA-22924": "raise the LOB's PCTVERSION or RETENTION, or use smaller work units with "
        "--unit-bytes",
        "ORA-08180": "give --scn a number that UNDO_RETENTION still covers",
        "ORA-08181": "give --scn a number of this database that UNDO_RETENTION still covers",
        "ORA-08187": "read without a snapshot: --consistency none",
        "ORA-01466 ORA-08103 ORA-01410": "run again: the table was truncated, moved or altered, "
        "so its earlier rows cannot be read; after a table is created or altered, wait a few "
        "seconds",
        "ORA-12514 ORA-12521": "check the service name in the URL: lsnrctl status lists the "
        "services of the listener",
        "ORA-12505": "check the name in the URL: it must be a service name, not a SID",
        "ORA-12541 ORA-12545 ORA-12170 DPY-6005": _HOST,
        "ORA-12154 DPY-4000 DPY-4026": "check that tnsnames.ora in TNS_ADMIN, or in config_dir= "
        "of the URL, has the alias",
        "DPY-4027": "set TNS_ADMIN to the directory of tnsnames.ora, or write host:port/service",
        "DPY-4018 DPY-4017 DPY-2049": "correct the part of the URL after the user",
        "ORA-01017 ORA-01005": "check the user in the URL and the password in UNLOADER_PASSWORD "
        "or --password-file",
        "DPY-4001": "set UNLOADER_PASSWORD or give --password-file, --password-prompt or a wallet",
        "ORA-28000": "ask a DBA to unlock it: ALTER USER user ACCOUNT UNLOCK",
        "ORA-28001 ORA-28002": "change the user's password, with SQL*Plus for instance",
        "ORA-28150": "ask a DBA to allow it: ALTER USER target GRANT CONNECT THROUGH proxy",
        "ORA-01045": "grant the user CREATE SESSION",
        "ORA-01013": "if --call-timeout was reached, raise it",
        "DPY-4024": _CALL_TIMEOUT,
        "ORA-00018 ORA-00020 ORA-12516 ORA-12518 ORA-12519 ORA-12520": "lower --parallelism, or "
        "raise the database's limits PROCESSES and SESSIONS",
        "ORA-02391": "lower --parallelism, or raise SESSIONS_PER_USER of the user's profile",
        "ORA-00054 ORA-04020 ORA-04021": "run again after other sessions have released their "
        "exclusive locks on the table or its definition",
        "ORA-00257": "free space for the archived logs: until then the database refuses sessions",
        "ORA-01035 ORA-12526 ORA-12527": "run again when the database is open to all users",
        "ORA-04030 ORA-04031 ORA-04036": "lower --parallelism, or give the database more memory",
        "ORA-02396": "raise IDLE_TIME of the user's profile",
        "ORA-02393 ORA-02395": "use smaller work units with --unit-bytes, or raise the limits of "
        "calls in the user's profile",
        "ORA-00040": "use smaller work units with --unit-bytes, or ask a DBA to lift the limit of"
        " the Resource Manager",
        "ORA-01578": "ask a DBA to repair the block with RMAN, or leave its rows out with --where",
        "ORA-01652": "enlarge the temporary tablespace",
        "ORA-30926": "run again",
        "DPY-2018": "check wallet_location= in the URL, or WALLET_LOCATION in sqlnet.ora",
        _UNTRUSTED: "give the directory of an ewallet.pem that has the server's CA as "
        "wallet_location=",
        "DPY-2031": "check the token in UNLOADER_ORACLE_TOKEN or UNLOADER_ORACLE_TOKEN_FILE",
        "DPY-2033": "renew the token",
        "DPY-2034": "connect with TLS, because a token requires it: add ?protocol=tcps to the URL",
        "DPY-3001 DPY-3010 DPY-3012 DPY-3015 DPY-3040": "connect through Oracle's client library "
        "with --client-library",
        "DPY-6002": "give the certificate's name as ssl_server_cert_dn= in the URL",
        "DPY-6006": "connect with the name in the certificate, or give ssl_server_cert_dn= in the"
        " URL",
    }.items()
    for code in codes.split()
}
"""Next steps, each after the codes that it belongs to."""

REFUSED = frozenset(
    ["ORA-00018", "ORA-00020", "ORA-02391", "ORA-12516", "ORA-12518", "ORA-12519", "ORA-12520"]
)
"""Codes of a database or listener that takes no more sessions. A listener learns late, after
minutes, that others have ended."""

TRANSIENT = frozenset(
    (
        *REFUSED,
        *("ORA-00028", "ORA-00051", "ORA-00054", "ORA-00060", "ORA-00257", "ORA-00600"),
        *("ORA-00602", "ORA-00603", "ORA-00609", "ORA-01012", "ORA-01013", "ORA-01033"),
        *("ORA-01034", "ORA-01035", "ORA-01041", "ORA-01089", "ORA-01090", "ORA-01092"),
        *("ORA-01109", "ORA-01115", "ORA-01219", "ORA-01555", "ORA-02049"),
        *("ORA-02396", "ORA-02399", "ORA-03111", "ORA-03113", "ORA-03114", "ORA-03122"),
        *("ORA-03135", "ORA-03136", "ORA-04020", "ORA-04021", "ORA-04030", "ORA-04031"),
        *("ORA-04036", "ORA-04068", "ORA-07445", "ORA-12152", "ORA-12153", "ORA-12170"),
        *("ORA-12514", "ORA-12525", "ORA-12526", "ORA-12527", "ORA-12528", "ORA-12535"),
        *("ORA-12537", "ORA-12541", "ORA-12543", "ORA-12547", "ORA-12549", "ORA-12560"),
        *("ORA-12564", "ORA-12570", "ORA-12571", "ORA-12583", "ORA-12592", "ORA-12606"),
        *("ORA-12608", "ORA-12609", "ORA-12637", "ORA-12805", "ORA-16456", "ORA-22924"),
        *("ORA-24964", "ORA-25401", "ORA-25402", "ORA-25403", "ORA-25405", "ORA-25408"),
        *("ORA-27146", "ORA-30006"),
        *("DPY-1001", "DPY-4011", "DPY-4024", "DPY-4033", "DPY-6005"),
    )
)
"""Codes after which another attempt, with a new connection, may succeed."""

TOO_OLD = frozenset(("ORA-01555", "ORA-22924"))
"""Old versions of rows are missing. A retry may succeed: the first reader of a block, long after
its change, may need undo that the next reader does not need."""

GONE = frozenset(
    ("ORA-01410", "ORA-01466", "ORA-08103", "ORA-08180", "ORA-08181", "ORA-08186", "ORA-30052")
)
"""The state that a statement asks for cannot be read, by any statement."""

CONFIGURATION = frozenset(
    ("DPI-1047", "DPI-1072", "DPY-2019", "DPY-2017", "DPY-4017", "DPY-4018", "DPY-2049")
)
"""Codes that no database has a part in."""


def code_of(error: BaseException) -> str:
    """Return the code that matters, such as ORA-01555: the database's first that is not a wrapper.

    Without one it is the driver's; empty if the error has no code.
    """
    found = _CODE.findall(_text(error))
    database = [number for kind, number in found if kind in ("ORA", "TNS")]
    for number in (*(each for each in database if int(each) not in _WRAPPERS), *database):
        return f"ORA-{int(number):05d}"
    if _UNTRUSTED in _text(error):
        return _UNTRUSTED
    codes = [f"{kind}-{number}" for kind, number in found]
    for code in (*(each for each in codes if each not in _DRIVER_WRAPPERS), *codes):
        return code
    return ""


def is_dead(error: BaseException) -> bool:
    """Return whether the connection must never be touched again after this error."""
    detail = error.args[0] if error.args else None
    driver_code = str(getattr(detail, "full_code", ""))
    return (
        _is_lost(error)
        or bool(getattr(detail, "is_session_dead", False))
        or driver_code in DEAD
        or code_of(error) in DEAD
        or driver_code.startswith(_INTERNAL)
    )


def one_line(error: BaseException) -> str:
    """Return the error's text as one line, without help links and places in PL/SQL."""
    lines = [line.strip() for line in _text(error).splitlines()]
    kept = [line for line in lines if line and not _NOISE.match(line)]
    if len(kept) > 1 and kept[0].startswith("DPY-4011:"):
        kept = [*kept[1:], "DPY-4011"]
    text = "; ".join(line.rstrip(".; ") for line in dict.fromkeys(kept))
    return _CONNECTION_ID.sub("", text) or type(error).__name__


def translated(error: BaseException, *, connecting: bool = False) -> errors.UnloaderError:
    """Return the user's error for a driver error; `connecting`: no session was open yet."""
    if isinstance(error, errors.UnloaderError):
        return error
    code = code_of(error)
    message = f"Oracle: {one_line(error)}"
    if code in CONFIGURATION:
        return errors.ConfigError(message, HINTS.get(code, ""))
    hint = HINTS.get(code, _HOST if _is_lost(error) else "")
    if _TIMED_OUT in message:
        hint = _CALL_TIMEOUT
    return _kind(error, code, connecting)(message, hint)


def _kind(error: BaseException, code: str, connecting: bool) -> type[errors.SourceError]:
    if code in REFUSED:
        return errors.SessionsRefused
    if code in TOO_OLD:
        return errors.SnapshotTooOld
    # A connection may also be lost for a reason that stays, such as a wallet that is not there.
    if code in TRANSIENT or (is_dead(error) and code not in HINTS):
        return errors.ConnectFailed if connecting else errors.TransientSourceError
    return errors.SnapshotGone if code in GONE else errors.SourceError


def _is_lost(error: BaseException) -> bool:
    local = isinstance(error, (FileNotFoundError, PermissionError))
    return isinstance(error, (OSError, EOFError)) and not local


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    detail = error.args[0] if error.args else error
    return str(getattr(detail, "message", None) or detail)
