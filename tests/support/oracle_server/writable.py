"""A database that clients may change by SQL, in transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from oracle_server.model import Answer, SessionState
from oracle_server.sql.definitions import DataDefinition
from oracle_server.sql.manipulation import Changeable, DataManipulation

_FIRST = re.compile(r"[\s(]*([A-Za-z]+)(?:\s+([A-Za-z]+))?")
_CHANGES = {"INSERT", "UPDATE", "DELETE"}
_DEFINES = {"CREATE", "DROP", "TRUNCATE", "GRANT", "REVOKE", "COMMENT"}
_STATISTICS = re.compile(r"(?is)\s*BEGIN\s+DBMS_STATS\.\w+\s*\(.*\)\s*;\s*END\s*;?\s*")
"""Statistics always exist; gathering them does nothing."""


class WritableDatabase(Changeable):
    """A Database whose users change their own tables; a DBA changes all tables."""

    def __init__(self, *, version: str = "23ai") -> None:
        super().__init__(version=version)
        self._definition = DataDefinition(self)
        self._manipulation = DataManipulation(self)

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run one statement.

        Raises:
            OracleError: As an Oracle server would refuse it.
        """
        match = _FIRST.match(sql)
        first, second = (word.upper() for word in match.groups("")) if match else ("", "")
        if first in _CHANGES:
            return self._manipulation.run(session, sql, list(binds))
        if first in _DEFINES or (first == "ALTER" and second == "TABLE"):
            self._manipulation.commit(session.sid)
            self._definition.run(session, sql)
            return Answer(kind="ddl")
        if first == "COMMIT":
            self._manipulation.commit(session.sid)
        elif first == "ROLLBACK":
            self._manipulation.roll_back(session.sid)
        elif first == "BEGIN" and _STATISTICS.fullmatch(sql):
            return Answer(kind="plsql")
        return super().execute(session, sql, binds)
