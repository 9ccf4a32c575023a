"""A database that knows which tables a session may change."""

from __future__ import annotations

from oracle_server.data.tables import Table
from oracle_server.database import Database
from oracle_server.model import OracleError, SessionState


class Changeable(Database):
    """What statements that change something need beside what queries need."""

    def writable(self, session: SessionState, owner: str | None, name: str) -> Table:
        """Return the table that a statement changes.

        Raises:
            OracleError: ORA-00942, or ORA-01031 if it is somebody else's.
        """
        found = self.catalog.find(owner, name, session.schema)
        if found is None:
            raise self.unknown(owner or session.schema, name)
        if not isinstance(found, Table):
            raise OracleError(1732, "data manipulation operation not legal on this view")
        if found.owner != session.user and not self.may_change(session.user):
            raise OracleError(1031, "insufficient privileges")
        return found

    def may_change(self, user: str) -> bool:
        """Return whether a user may change what belongs to others."""
        return user == "SYS" or self.privileges.has(user, "ALTER ANY TABLE")

    def make_room(self, table: Table, wanted: dict[int, int]) -> None:
        """Give segments, by `id`, extents for so many rows each."""
        self._make_room(table, wanted)
