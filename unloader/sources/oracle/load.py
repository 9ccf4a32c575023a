"""Counts the active sessions of an Oracle instance."""

from __future__ import annotations

from contextlib import suppress

from unloader.errors import ConfigError, SourceError, TransientSourceError, UnloaderError
from unloader.model import SourceSpec
from unloader.sources.oracle.connection.connect import PROGRAM
from unloader.sources.oracle.connection.session import Session, client_identifier
from unloader.sources.statement import literal

_ACTIVE = "SELECT COUNT(*) FROM V$SESSION WHERE TYPE = 'USER' AND STATUS = 'ACTIVE'"


class OracleLoad:
    """A session that looks at V$SESSION: of the instance that it is connected to, not of others."""

    def __init__(self, spec: SourceSpec) -> None:
        """Connect.

        Raises:
            ConfigError: The user may not read V$SESSION.
            SourceError: The database refused.
        """
        self._session = Session(spec, action="load", scans=False)
        name = literal(client_identifier(spec))
        self._ours = f"{_ACTIVE} AND MODULE = '{PROGRAM}' AND CLIENT_IDENTIFIER = {name}"
        try:
            self.others()
        except TransientSourceError:
            self.close()
            raise
        except SourceError as error:
            self.close()
            raise ConfigError(
                f"--max-db-load: the user may not read V$SESSION: {error.message}",
                "GRANT SELECT ON V_$SESSION TO the user, or leave --max-db-load out",
            ) from error

    def others(self) -> int:
        """Return how many sessions work for others; ours are taken off, this one among them."""
        everyone, ours = self._session.value(_ACTIVE), self._session.value(self._ours)
        return max(0, int(everyone) - int(ours))

    def close(self) -> None:
        """Close the session."""
        with suppress(UnloaderError):
            self._session.close()
