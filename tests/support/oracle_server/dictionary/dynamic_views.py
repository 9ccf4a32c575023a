"""Dynamic views: the database, the instance, sessions and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oracle_server.data.catalog import CREATED
from oracle_server.data.definitions import Definitions
from oracle_server.data.storage import BLOCK_BYTES
from oracle_server.model import SessionState
from oracle_server.session.answers import VERSIONS, nls_parameters

Rows = Iterable[tuple[Any, ...]]


def _database(database: Definitions, session: SessionState) -> Rows:
    yield (1_405_000_001, "FREE", "READ WRITE", "PRIMARY", database.scn, CREATED, "NOARCHIVELOG",
           "FREE", "NO", "YES")  # fmt: skip


def _instance(database: Definitions, session: SessionState) -> Rows:
    full = VERSIONS[database.version][1]
    yield (1, "FREE", "localhost", full, full, "OPEN", CREATED, "NO", 1, "ACTIVE")


def _version(database: Definitions, session: SessionState) -> Rows:
    short, full, product = VERSIONS[database.version]
    banner = f"{product} {short} - Production"
    yield (banner, f"{banner}\nVersion {full}", banner, 0)


def _component(database: Definitions, session: SessionState) -> Rows:
    short, full, product = VERSIONS[database.version]
    yield (product, short, full, "Production")


def _sessions(database: Definitions, session: SessionState) -> Rows:
    for one in list(database.sessions.values()):
        is_active = one is session or one.is_active
        yield (one.sid, one.serial, 4_000_000 + one.sid, one.user, "ACTIVE" if is_active else
               "INACTIVE", one.schema, one.module or None, one.action or None, one.client_info or
               None, one.client_identifier or None, "unloader", "USER", 1, CREATED)  # fmt: skip


def _session_parameters(database: Definitions, session: SessionState) -> Rows:
    yield from nls_parameters(session).items()


def _database_parameters(database: Definitions, session: SessionState) -> Rows:
    yield from nls_parameters(None).items()
    yield ("NLS_RDBMS_VERSION", VERSIONS[database.version][0])


def _privileges(database: Definitions, session: SessionState) -> Rows:
    yield from ((word,) for word in database.privileges.system(session.user))


def _roles(database: Definitions, session: SessionState) -> Rows:
    yield from ((word,) for word in database.privileges.roles(session.user))


def _granted(database: Definitions, session: SessionState) -> Rows:
    for word in database.privileges.system(session.user):
        yield (session.user, word, "NO")


def _granted_roles(database: Definitions, session: SessionState) -> Rows:
    for word in database.privileges.roles(session.user):
        yield (session.user, word, "NO", "YES")


def _parameters(database: Definitions, session: SessionState) -> Rows:
    values = {
        "undo_retention": "900",
        "db_block_size": str(BLOCK_BYTES),
        "compatible": VERSIONS[database.version][0][:6],
        "processes": "400",
        "sessions": "624",
        "cpu_count": "2",
        "max_string_size": "STANDARD",
        "parallel_degree_policy": "MANUAL",
    }
    for number, (name, value) in enumerate(values.items()):
        yield (number, name, value, value, "TRUE")


def _no_rows(database: Definitions, session: SessionState) -> Rows:
    return ()


View = tuple[str, Callable[[Definitions, SessionState], Rows]]

VIEWS: dict[str, View] = {
    "V$DATABASE": (
        "DBID:N NAME OPEN_MODE DATABASE_ROLE CURRENT_SCN:N CREATED:D LOG_MODE DB_UNIQUE_NAME "
        "FLASHBACK_ON CDB",
        _database,
    ),
    "V$INSTANCE": (
        "INSTANCE_NUMBER:N INSTANCE_NAME HOST_NAME VERSION VERSION_FULL STATUS STARTUP_TIME:D "
        "PARALLEL THREAD#:N DATABASE_STATUS",
        _instance,
    ),
    "V$VERSION": ("BANNER:T BANNER_FULL:T BANNER_LEGACY:T CON_ID:N", _version),
    "PRODUCT_COMPONENT_VERSION": ("PRODUCT VERSION VERSION_FULL STATUS", _component),
    "V$SESSION": (
        "SID:N SERIAL#:N AUDSID:N USERNAME STATUS SCHEMANAME MODULE ACTION CLIENT_INFO "
        "CLIENT_IDENTIFIER PROGRAM TYPE INST_ID:N LOGON_TIME:D",
        _sessions,
    ),
    "V$PARAMETER": ("NUM:N NAME VALUE:T DISPLAY_VALUE:T ISDEFAULT", _parameters),
    "V$NLS_PARAMETERS": ("PARAMETER VALUE", _session_parameters),
    "NLS_SESSION_PARAMETERS": ("PARAMETER VALUE", _session_parameters),
    "NLS_DATABASE_PARAMETERS": ("PARAMETER VALUE", _database_parameters),
    "NLS_INSTANCE_PARAMETERS": ("PARAMETER VALUE", _database_parameters),
    "SESSION_PRIVS": ("PRIVILEGE", _privileges),
    "SESSION_ROLES": ("ROLE", _roles),
    "USER_SYS_PRIVS": ("USERNAME PRIVILEGE ADMIN_OPTION", _granted),
    "USER_ROLE_PRIVS": ("USERNAME GRANTED_ROLE ADMIN_OPTION DEFAULT_ROLE", _granted_roles),
    "V$TRANSACTION": ("ADDR XIDUSN:N STATUS START_SCN:N", _no_rows),
}
VIEWS["GV$SESSION"] = VIEWS["V$SESSION"]
VIEWS["GV$INSTANCE"] = VIEWS["V$INSTANCE"]
VIEWS["GV$DATABASE"] = VIEWS["V$DATABASE"]
