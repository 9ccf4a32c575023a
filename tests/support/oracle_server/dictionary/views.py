"""The views of the data dictionary and the dynamic ones, as a user sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from oracle_server.data.definitions import CREATED, Definitions
from oracle_server.data.privileges import view_name
from oracle_server.data.tables import Row
from oracle_server.dictionary import objects
from oracle_server.dictionary.objects import Shape
from oracle_server.model import Column, SessionState, Type
from oracle_server.session.session import NLS_PARAMETERS, VERSIONS
from oracle_server.sql.conversions import varchar

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
    yield from NLS_PARAMETERS.items()
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


_KINDS = {"V": varchar(128), "T": varchar(4000), "N": Type(name="NUMBER"), "D": Type(name="DATE")}


class Dictionary:
    """Makes dictionary views from the catalogue."""

    def __init__(self, database: Definitions) -> None:
        self._database = database
        self._moments = count()

    def has(self, owner: str | None, name: str, user: str) -> bool:
        allowed = owner in (None, "SYS", "PUBLIC") and self.knows(name)
        return allowed and self._database.privileges.has(user, view_name(name))

    @staticmethod
    def knows(name: str) -> bool:
        plain = view_name(name)
        return _shape(plain) is not None or plain in VIEWS

    def view(
        self, name: str, user: str, session: SessionState
    ) -> tuple[tuple[Any, ...], tuple[Column, ...], Callable[[], Iterable[Row]]]:
        """Return what a view's rows depend on, its columns, and what makes its rows."""
        database, plain = self._database, view_name(name)
        catalog = database.catalog
        found = _shape(plain)
        if found is None:
            described, make = VIEWS[plain]
            key: tuple[Any, ...] = (plain, next(self._moments))
            return key, _columns(described), lambda: list(make(database, session))
        prefix, shape = found
        key = (plain, user, catalog.version, database.privileges.version, database.version)
        hidden = shape.owner if prefix == "USER_" else None
        skipped = shape.dba_only if prefix == "USER_" else ()
        columns = tuple(
            column
            for column in _columns(shape.columns)
            if column.name != hidden and column.name not in skipped
        )
        return key, columns, lambda: self._rows(prefix, shape, user, columns)

    def _rows(
        self, prefix: str, shape: Shape, user: str, columns: tuple[Column, ...]
    ) -> Iterator[Row]:
        with self._database.lock:
            everything = list(shape.rows(self._database))
        names = [column.name for column in columns]
        for row in everything:
            if self._visible(prefix, shape, row, user):
                yield tuple(row.get(name) for name in names)

    def _visible(self, prefix: str, shape: Shape, row: dict[str, Any], user: str) -> bool:
        if prefix == "DBA_" or shape.owner is None:
            return True
        owner = row[shape.owner]
        if prefix == "USER_":
            return bool(owner == user or row.get("GRANTEE") == user)
        if row.get("GRANTEE") == user:
            return True
        if row.get("OBJECT_TYPE") in ("TABLE SUBPARTITION", "INDEX SUBPARTITION"):
            # ALL_OBJECTS does without the grants on the table there.
            return owner == user or self._database.privileges.has(user, "SELECT ANY TABLE")
        return self._database.privileges.sees(user, owner, str(row.get(shape.name)))


def _shape(name: str) -> tuple[str, Shape] | None:
    for prefix in ("ALL_", "USER_", "DBA_"):
        shape = objects.SHAPES.get(name.removeprefix(prefix))
        if name.startswith(prefix) and shape is not None and prefix in shape.prefixes:
            return prefix, shape
    return None


def _columns(described: str) -> tuple[Column, ...]:
    """Return columns from words such as `OWNER:V`; N is a NUMBER, D a DATE, T a long text."""
    found = []
    for word in described.split():
        name, _, kind = word.partition(":")
        found.append(Column(name=name, type=_KINDS[kind or "V"]))
    return tuple(found)
