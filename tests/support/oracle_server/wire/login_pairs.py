"""What a server tells a client of itself once it has logged in, in the order of real servers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from oracle_server.model import SessionState
from oracle_server.wire.negotiation import Mode

_HOST = "oracle-test"
_DATABASE_ID = "1385559638"
_NLS = (
    ("LXLAN", "AMERICAN", "NLS_LANGUAGE", 16),
    ("LXCTERRITORY", "AMERICA", "NLS_TERRITORY", 9),
    ("LXCCURRENCY", "$", "NLS_CURRENCY", 0),
    ("LXCISOCURR", "AMERICA", "NLS_ISO_CURRENCY", 1),
    ("LXCNUMERICS", ".,", "NLS_NUMERIC_CHARACTERS", 2),
    ("LXCDATEFM", "DD-MON-RR", "NLS_DATE_FORMAT", 7),
    ("LXCDATELANG", "AMERICAN", "NLS_DATE_LANGUAGE", 8),
    ("LXCSORT", "BINARY", "NLS_SORT", 11),
    ("LXCCALENDAR", "GREGORIAN", "NLS_CALENDAR", 12),
    ("LXCUNIONCUR", "$", "NLS_DUAL_CURRENCY", 52),
    ("LXCTIMEFM", "HH.MI.SSXFF AM", "NLS_TIME_FORMAT", 57),
    ("LXCSTMPFM", "DD-MON-RR HH.MI.SSXFF AM", "NLS_TIMESTAMP_FORMAT", 58),
    ("LXCTTZNFM", "HH.MI.SSXFF AM TZR", "NLS_TIME_TZ_FORMAT", 59),
    ("LXCSTZNFM", "DD-MON-RR HH.MI.SSXFF AM TZR", "NLS_TIMESTAMP_TZ_FORMAT", 60),
    ("LXLENSEMANTICS", "BYTE", "NLS_LENGTH_SEMANTICS", 61),
    ("LXNCHARCONVEXCP", "FALSE", "NLS_NCHAR_CONV_EXCP", 62),
    ("LXCOMP", "BINARY", "NLS_COMP", 50),
)
"""Key of the login, default, name of the setting, number of the keyword in message 23."""
_PROCESS = "4711"


def login_pairs(
    mode: Mode, state: SessionState, *, service: str, user_id: int, server_response: str
) -> tuple[tuple[str, str, int], ...]:
    """Return the pairs of phase two: name, value and flags.

    Args:
        mode: Release of the server.
        state: The new session.
        service: As the server calls it.
        user_id: Of the user in the dictionary.
        server_response: Proof that the server knows the password; empty after a token.
    """
    name = service.upper()
    instance = name.removesuffix("PDB1") or name
    newest = mode.field_version >= 17
    pairs = {
        "AUTH_VERSION_STRING": mode.banner,
        "AUTH_VERSION_SQL": "26" if newest else "25",
        "AUTH_XACTION_TRAITS": "3",
        "AUTH_VERSION_NO": str(mode.version),
        "AUTH_VERSION_STATUS": "0",
        "AUTH_CAPABILITY_TABLE": "",
        "AUTH_LAST_LOGIN": "787E060B130C39000000000000",
        "AUTH_DBNAME": name,
        "AUTH_DB_MOUNT_ID\0": "1507733648",
        "AUTH_DB_ID\0": _DATABASE_ID,
        "AUTH_USER_ID": str(user_id),
        "AUTH_SESSION_ID": str(state.sid),
        "AUTH_SERIAL_NUM": str(state.serial),
        "AUTH_INSTANCE_NO": "1",
        "AUTH_FAILOVER_ID": "1",
        "AUTH_SERVER_PID": _PROCESS,
        "AUTH_SC_SERVER_HOST": _HOST,
        "AUTH_SC_DBUNIQUE_NAME": instance,
        "AUTH_SC_INSTANCE_NAME": instance,
        "AUTH_SC_INSTANCE_ID": "1",
        "AUTH_SC_INSTANCE_START_TIME": _start_time(),
        "AUTH_SC_DB_DOMAIN": "",
        "AUTH_SC_SERVICE_NAME": service.lower(),
        "AUTH_ONS_RLB_SUBSCR_PATTERN": _load_pattern(service),
        "AUTH_ONS_HA_SUBSCR_PATTERN": _HA_PATTERN,
        "AUTH_SC_REAL_DBUNIQUE_NAME": instance,
        "AUTH_INSTANCENAME": instance,
        **_nls(state.settings),
    }
    if server_response:
        pairs["AUTH_SVR_RESPONSE"] = server_response
    pairs |= {
        "AUTH_MAX_OPEN_CURSORS": "300",
        "AUTH_PDB_UID\0": _DATABASE_ID,
        "AUTH_MAX_IDEN_LENGTH": "128",
    }
    if newest:
        pairs |= {"AUTH_FLAGS": "1", "AUTH_SERVER_TYPE": "1"}
    return tuple((key, value, 0) for key, value in pairs.items())


_HA_PATTERN = '("eventType=database/event/service") | ("eventType=database/event/host")\0'


def _load_pattern(service: str) -> str:
    return f'%"eventType=database/event/servicemetrics/{service.lower()}"\0'


def _nls(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"AUTH_NLS_{key}\0": settings.get(name, value) for key, value, name, _ in _NLS}


def nls_keywords(settings: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return values of the session's language settings and the numbers of their keywords."""
    return tuple((settings.get(name, value), number) for _, value, name, number in _NLS)


def _start_time() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.000000000 +00:00", time.gmtime())
