"""What each user may do.

A right is a word: a view or package (`DBA_EXTENTS`, `V$DATABASE`, `DBMS_FLASHBACK`), a system
privilege (`SELECT ANY TABLE`, `FLASHBACK ANY TABLE`, `ALTER SESSION`) or, with the object it is on,
an object privilege (`SELECT`, `READ`, `FLASHBACK`). A plain user begins with what everybody has; a
DBA has everything. Both can lose rights one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

ObjectName = tuple[str, str]

PUBLIC_PREFIXES = ("ALL_", "USER_", "NLS_SESSION_", "NLS_DATABASE_", "NLS_INSTANCE_", "SESSION_")
_PUBLIC = {
    "DUAL", "PRODUCT_COMPONENT_VERSION", "V$VERSION", "V$NLS_PARAMETERS", "V$TIMEZONE_NAMES",
    "DBMS_ROWID", "DBMS_LOB", "DBMS_SESSION", "DBMS_APPLICATION_INFO", "DBMS_UTILITY", "UTL_RAW",
    "ALTER SESSION", "CREATE SESSION", "TIMESTAMP_TO_SCN", "SCN_TO_TIMESTAMP", "PLAN_TABLE",
    "ROLE_TAB_PRIVS", "ROLE_SYS_PRIVS", "CREATE TABLE",
}  # fmt: skip


def view_name(name: str) -> str:
    """Return the name users know a dynamic view by: V$SESSION for V_$SESSION."""
    return name.replace("V_$", "V$", 1) if name.startswith(("V_$", "GV_$")) else name


@dataclass(slots=True)
class Rights:
    """The rights of one user."""

    dba: bool
    granted: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    objects: set[tuple[str, str, str]] = field(default_factory=set)
    """(privilege, owner, name)."""
    revoked_objects: set[tuple[str, str, str]] = field(default_factory=set)


class Privileges:
    """The rights of all users; `version` grows with every change."""

    def __init__(self) -> None:
        self._users: dict[str, Rights] = {}
        self.version = 0

    def add_user(self, user: str, *, dba: bool) -> None:
        self._users[user] = Rights(dba)
        self.version += 1

    def grant(self, user: str, right: str, on: ObjectName | None = None) -> None:
        self._change(user, right, on, given=True)

    def revoke(self, user: str, right: str, on: ObjectName | None = None) -> None:
        """Take a right away, also one that every user has."""
        self._change(user, right, on, given=False)

    def _change(self, user: str, right: str, on: ObjectName | None, *, given: bool) -> None:
        rights = self._rights(user)
        word = view_name(right.upper())
        if on is None:
            _move(word, rights.granted, rights.revoked, given)
        else:
            _move((word, *on), rights.objects, rights.revoked_objects, given)
        self.version += 1

    def _rights(self, user: str) -> Rights:
        return self._users.setdefault(user, Rights(False))

    def has(self, user: str, right: str) -> bool:
        rights, word = self._rights(user), view_name(right.upper())
        if user == "SYS":
            return True
        if word in rights.revoked:
            return False
        if rights.dba or word in rights.granted or word in _PUBLIC:
            return True
        if word.startswith(PUBLIC_PREFIXES):
            return True
        dictionary = word.startswith(("DBA_", "V$", "GV$"))
        catalog = {"SELECT ANY DICTIONARY", "SELECT_CATALOG_ROLE"} & rights.granted
        return dictionary and bool(catalog)

    def may_read(self, user: str, owner: str, name: str) -> bool:
        rights = self._rights(user)
        if ("SELECT", owner, name) in rights.revoked_objects:
            return False
        if user == owner or self.has(user, "SELECT ANY TABLE") or self.has(user, "READ ANY TABLE"):
            return True
        return bool({("SELECT", owner, name), ("READ", owner, name)} & rights.objects)

    def may_flash_back(self, user: str, owner: str, name: str) -> bool:
        rights = self._rights(user)
        if "FLASHBACK ANY TABLE" in rights.granted:
            return True
        if ("FLASHBACK", owner, name) in rights.revoked_objects:
            return False
        if user == owner or self.has(user, "FLASHBACK ANY TABLE"):
            return True
        return ("FLASHBACK", owner, name) in rights.objects

    def sees(self, user: str, owner: str, name: str) -> bool:
        if owner in (user, "PUBLIC") or self.may_read(user, owner, name):
            return True
        return any(found[1:] == (owner, name) for found in self._rights(user).objects)

    def system(self, user: str) -> Iterator[str]:
        words = ["CREATE SESSION", "ALTER SESSION", "SELECT ANY TABLE", "FLASHBACK ANY TABLE"]
        words += ["READ ANY TABLE", "SELECT ANY DICTIONARY", "CREATE TABLE"]
        yield from (word for word in words if self.has(user, word))

    def roles(self, user: str) -> Iterator[str]:
        rights = self._rights(user)
        if rights.dba:
            yield "DBA"
        if "SELECT_CATALOG_ROLE" in rights.granted or rights.dba:
            yield "SELECT_CATALOG_ROLE"

    def on_objects(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield (grantee, privilege, owner, name) of every object privilege."""
        for user, rights in self._users.items():
            for privilege, owner, name in sorted(rights.objects):
                yield user, privilege, owner, name


Right = TypeVar("Right")


def _move(right: Right, granted: set[Right], revoked: set[Right], given: bool) -> None:
    gains, losses = (granted, revoked) if given else (revoked, granted)
    gains.add(right)
    losses.discard(right)
