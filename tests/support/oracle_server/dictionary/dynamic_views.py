"""Dynamic views: the database, the instance, sessions and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oracle_server.data.catalog import CREATED
from oracle_server.data.definitions import Definitions
from oracle_server.model import SessionState
from oracle_server.session.answers import VERSIONS, nls_parameters

Rows = Iterable[tuple[Any, ...]]


def _database(database: Definitions, session: SessionState) -> Rows:
    yield (1_405_000_001, "FREE", "READ WRITE", "PRIMARY", database.scn, CREATED, "NOARCHIVELOG",
           "FREE", "NO", "YES")  # fmt: skip


def _sessions(database: Definitions, session: SessionState) -> Rows:
    for one in list(database.sessions.values()):
        is_active = one is session or one.is_active
        yield (one.sid, one.serial, 4_000_000 + one.sid, one.user, "ACTIVE" if is_active else
               "INACTIVE", one.schema, one.module or None, one.action or None, one.client_info or
               None, one.client_identifier or None, "unloader", "USER", 1, CREATED)  # fmt: skip


def _database_parameters(database: Definitions, session: SessionState) -> Rows:
    yield from nls_parameters(None).items()
    yield ("NLS_RDBMS_VERSION", VERSIONS[database.version][0])


def _privileges(database: Definitions, session: SessionState) -> Rows:
    yield from ((word,) for word in database.privileges.system(session.user))


def _roles(database: Definitions, session: SessionState) -> Rows:
    yield from ((word,) for word in database.privileges.roles(session.user))


View = tuple[str, Callable[[Definitions, SessionState], Rows]]

VIEWS: dict[str, View] = {
    "V$DATABASE": (
        "DBID:N NAME OPEN_MODE DATABASE_ROLE CURRENT_SCN:N CREATED:D LOG_MODE DB_UNIQUE_NAME "
        "FLASHBACK_ON CDB",
        _database,
    ),
    "V$SESSION": (
        "SID:N SERIAL#:N AUDSID:N USERNAME STATUS SCHEMANAME MODULE ACTION CLIENT_INFO "
        "CLIENT_IDENTIFIER PROGRAM TYPE INST_ID:N LOGON_TIME:D",
        _sessions,
    ),
    "NLS_DATABASE_PARAMETERS": ("PARAMETER VALUE", _database_parameters),
    "SESSION_PRIVS": ("PRIVILEGE", _privileges),
    "SESSION_ROLES": ("ROLE", _roles),
}
VIEWS["GV$SESSION"] = VIEWS["V$SESSION"]
VIEWS["GV$DATABASE"] = VIEWS["V$DATABASE"]
