"""Counts the active sessions of a PostgreSQL server."""

from __future__ import annotations

from contextlib import suppress

from unloader.errors import ConfigError, UnloaderError
from unloader.model import SourceSpec
from unloader.sources.postgres.session import Session, session_name
from unloader.sources.statement import literal

PROGRAM = "unloader-load"

_MAY_SEE = (
    "SELECT current_user, current_setting('is_superuser') = 'on' "
    "OR pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
)

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
    "AND backend_type IN ('client backend', 'parallel worker') AND pid <> pg_backend_pid() "
    "AND application_name NOT IN ({ours})"
)
"""Of the whole server, whichever database they are in. Not in a transaction of ours: there the view
would stay as it was at the first look."""


class PostgresLoad:
    """A session that looks at pg_stat_activity."""

    def __init__(self, spec: SourceSpec) -> None:
        """Connect.

        Raises:
            ConfigError: The user sees no other user's state.
            SourceError: The server refused.
        """
        self._session = Session(spec, program=PROGRAM)
        ours = ", ".join(literal(session_name(spec, each)) for each in ("unloader", PROGRAM))
        self._sql = _OTHERS.format(ours=ours)
        try:
            ((user, may_see),) = self._session.rows(_MAY_SEE)
        except BaseException:
            self.close()
            raise
        if not may_see:
            self.close()
            raise ConfigError(
                f"--max-db-load: user {user} may not see which other sessions are active",
                f"GRANT pg_read_all_stats TO {user}, or leave --max-db-load out",
            )

    def others(self) -> int:
        """Return how many backends work for others."""
        return int(self._session.value(self._sql))

    def close(self) -> None:
        """Close the session."""
        with suppress(UnloaderError):
            self._session.close()
