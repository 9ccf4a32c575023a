"""What all connections of a server share: how it is set up, its database, who has logged in."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Mapping
from typing import Protocol

from oracle_server.data.catalog import User
from oracle_server.faults import Faults
from oracle_server.model import SessionState
from oracle_server.session.authentication import VERIFIER_FLAGS
from oracle_server.session.session import Database
from oracle_server.wire.negotiation import CHARSETS, MODES

_FIRST_SID = 101
_FIRST_SERIAL = 40_001


class Accounts(Database, Protocol):
    """The database that an OracleServer serves."""

    @property
    def users(self) -> Mapping[str, User]:
        """Users by name."""


class Host:
    """A server as its connections see it."""

    def __init__(
        self,
        database: Accounts,
        *,
        mode: str = "23ai",
        verifier: str = "12c",
        sdu: int = 8192,
        charset: str = "AL32UTF8",
        triple_lengths: bool = False,
        redirect: bool = False,
        service: str = "FREEPDB1",
        vectors: bool = True,
        port: int = 0,
    ) -> None:
        """Choose what kind of server it is.

        Args:
            database: What stands behind it.
            mode: `19c`, `21c` or `23ai`.
            verifier: `11g` or `12c`: how passwords are checked.
            sdu: Largest packet, in bytes; clients may ask for less.
            charset: Of the database. What clients get is UTF-8 all the same, as from a real server.
            triple_lengths: Lengths in logins are three times the real ones, as with a character set
                that has to be converted.
            redirect: The listener sends clients to another port.
            service: The only service there is.
            vectors: Leave out repeated values of rows for clients that know how.
            port: 0 is any that is free.
        """
        if verifier not in VERIFIER_FLAGS:
            raise ValueError(f"no verifier {verifier!r}")
        self.database = database
        self.mode = MODES[mode]
        self.verifier = verifier
        self.sdu = sdu
        self.charset = CHARSETS[charset]
        self.triple_lengths = triple_lengths
        self.redirects = redirect
        self.service = service
        self.vectors = vectors
        self.host = "127.0.0.1"
        self.port = port
        self.second_port = 0
        self.faults = Faults()
        self.sessions: list[SessionState] = []
        """Of every login so far, in order; those that have ended included."""
        self.logins: list[dict[str, str]] = []
        """Pairs of every successful login, passwords under their session keys."""
        self.connect_data: list[str] = []
        """Of every CONNECT, first ones and repeated ones."""
        self.problems: list[str] = []
        """What went wrong in the server itself."""
        self.is_closing = False
        self._lock = threading.Lock()
        self._sids = itertools.count(_FIRST_SID)

    def serves(self, name: str) -> bool:
        """Tell whether a service or SID of this name is here."""
        return name.upper() == self.service.upper()

    def new_state(self, user: str, pairs: Mapping[str, str]) -> SessionState:
        """Return the state of a new session and remember it."""
        with self._lock:
            sid = next(self._sids)
            serial = _FIRST_SERIAL + 7 * (sid - _FIRST_SID)
            state = SessionState(user=user, schema=user, sid=sid, serial=serial)
            self.sessions.append(state)
        return state

    def report(self, error: Exception) -> None:
        """Note an error that is the server's own."""
        self.problems.append("".join(traceback.format_exception(error)))
