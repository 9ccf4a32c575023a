"""What a session may ask of the database itself: who it is, what the SCN is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle_server.data.definitions import Definitions
from oracle_server.data.moments import now
from oracle_server.model import OracleError, SessionState

_NLS = {
    "NLS_CALENDAR": "GREGORIAN",
    "NLS_CHARACTERSET": "AL32UTF8",
    "NLS_COMP": "BINARY",
    "NLS_CURRENCY": "$",
    "NLS_DATE_FORMAT": "DD-MON-RR",
    "NLS_DATE_LANGUAGE": "AMERICAN",
    "NLS_DUAL_CURRENCY": "$",
    "NLS_ISO_CURRENCY": "AMERICA",
    "NLS_LANGUAGE": "AMERICAN",
    "NLS_LENGTH_SEMANTICS": "BYTE",
    "NLS_NCHAR_CHARACTERSET": "AL16UTF16",
    "NLS_NCHAR_CONV_EXCP": "FALSE",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "NLS_SORT": "BINARY",
    "NLS_TERRITORY": "AMERICA",
    "NLS_TIMESTAMP_FORMAT": "DD-MON-RR HH.MI.SSXFF AM",
    "NLS_TIMESTAMP_TZ_FORMAT": "DD-MON-RR HH.MI.SSXFF AM TZR",
    "NLS_TIME_FORMAT": "HH.MI.SSXFF AM",
    "NLS_TIME_TZ_FORMAT": "HH.MI.SSXFF AM TZR",
}
VERSIONS = {
    "19c": ("19.0.0.0.0", "19.22.0.0.0", "Oracle Database 19c Enterprise Edition Release"),
    "21c": ("21.0.0.0.0", "21.3.0.0.0", "Oracle Database 21c Express Edition Release"),
    "23ai": ("23.0.0.0.0", "23.26.1.0.0", "Oracle AI Database 26ai Free Release"),
}
"""Version, full version and product by the mode of the server."""


def nls_parameters(session: SessionState | None) -> dict[str, str]:
    """Return the NLS parameters of a session, or the database's."""
    if session is None:
        return dict(_NLS)
    return {name: session.settings.get(name, value) for name, value in _NLS.items()}


def answer(
    database: Definitions, session: SessionState, name: str, arguments: Sequence[Any]
) -> Any:
    """Return the value of a function that depends on session or database.

    Raises:
        OracleError: ORA-00904 where the right to a package is missing.
    """
    check_function(database, session.user, name)
    if name in ("DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER", "TIMESTAMP_TO_SCN"):
        return database.scn
    if name == "USER":
        return session.user
    if name == "UID":
        return database.users[session.user].user_id if session.user in database.users else 0
    if name == "SCN_TO_TIMESTAMP":
        return now()._replace(zone=None)
    if name in ("SESSIONTIMEZONE", "DBTIMEZONE"):
        zone = session.settings.get("TIME_ZONE", "+00:00")
        return zone if name == "SESSIONTIMEZONE" else "+00:00"
    if name == "DBMS_UTILITY.PORT_STRING":
        return "x86_64/Linux 2.4.xx"
    return _context_value(database, session, str(arguments[-1]).upper())


def check_function(database: Definitions, user: str, name: str) -> None:
    """Refuse a function that a user may not call.

    Raises:
        OracleError: ORA-00904 for a package out of reach, ORA-08180 where there is no mapping of
            times to SCNs.
    """
    package, _, function = name.partition(".")
    if function and not database.privileges.has(user, package):
        raise OracleError(904, f'"{package}"."{function}": invalid identifier')
    if name == "TIMESTAMP_TO_SCN" and not database.privileges.has(user, name):
        raise OracleError(8180, "no snapshot found based on specified time")


def _context_value(database: Definitions, session: SessionState, name: str) -> str | None:
    values = {
        "SESSION_USER": session.user,
        "CURRENT_USER": session.user,
        "CURRENT_SCHEMA": session.schema,
        "SESSIONID": str(4_000_000 + session.sid),
        "SID": str(session.sid),
        "INSTANCE": "1",
        "INSTANCE_NAME": "FREE",
        "DB_NAME": "FREEPDB1",
        "DB_UNIQUE_NAME": "FREE",
        "CON_NAME": "FREEPDB1",
        "CON_ID": "3",
        "SERVICE_NAME": "freepdb1",
        "SERVER_HOST": "localhost",
        "DATABASE_ROLE": "PRIMARY",
        "MODULE": session.module or None,
        "ACTION": session.action or None,
        "CLIENT_IDENTIFIER": session.client_identifier or None,
        "CLIENT_INFO": session.client_info or None,
        "ISDBA": "TRUE" if session.user == "SYS" else "FALSE",
        "LANG": "US",
        "LANGUAGE": "AMERICAN_AMERICA.AL32UTF8",
        "AUTHENTICATION_METHOD": "PASSWORD",
        "PROXY_USER": session.settings.get("PROXY_USER"),
    }
    if name not in values and name in _NLS:
        return session.settings.get(name, _NLS[name])
    if name not in values:
        raise OracleError(2003, "invalid USERENV parameter")
    return values[name]
