"""Ends sessions of a running command at random moments, a given number of times."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from oracle_server import OracleServer

LONGEST_PAUSE_SECONDS = 0.15
"""Between two ends. Guess: a few of the units in the trials fit in between."""

End = Callable[[], bool]
"""Ends one session; False if no session is open."""


@dataclass(slots=True)
class Killer:
    """Ends sessions with pauses of random length for as long as the context is open."""

    end: End
    most: int
    seed: int
    count: int = 0
    """How many it has ended."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Killer:
        """Begin."""
        self._thread = threading.Thread(target=self._work, name="killer")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _work(self) -> None:
        chance = random.Random(self.seed)
        while self.count < self.most:
            if self._over.wait(chance.uniform(0, LONGEST_PAUSE_SECONDS)):
                return
            while not self.end():
                if self._over.wait(0.002):
                    return
            self.count += 1


@dataclass(slots=True)
class PostgresSessions:
    """The sessions of a run in a database that no one else uses; one that connects included."""

    url: str
    chance: random.Random
    _parent: int | None = None
    _ended: set[int] = field(default_factory=set)

    async def _ask(self, sql: str, *arguments: object) -> list[Any]:
        connection = await asyncpg.connect(self.url, server_settings={"application_name": "killer"})
        try:
            return list(await connection.fetch(sql, *arguments))
        finally:
            await connection.close()

    def _run(self, sql: str, *arguments: object) -> list[Any]:
        return asyncio.run(self._ask(sql, *arguments))

    def _all(self) -> list[int]:
        found = self._run(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend' AND application_name <> 'killer' "
            "ORDER BY backend_start"
        )
        return [row["pid"] for row in found]

    def end_worker(self) -> bool:
        """End the session of one worker; the parent's is the one that came first."""
        pids = self._all()
        if self._parent is None:
            self._parent = pids[0] if pids else None
        workers = [pid for pid in pids if pid != self._parent and pid not in self._ended]
        return bool(workers) and self._end(self.chance.choice(workers))

    def end_parent(self) -> bool:
        """End the parent's session."""
        pids = self._all()
        return bool(pids) and self._end(pids[0])

    def _end(self, pid: int) -> bool:
        self._ended.add(pid)
        return bool(self._run("SELECT pg_terminate_backend($1) AS done", pid)[0]["done"])


@dataclass(slots=True)
class OracleSessions:
    """The connections of a run to a test server: killed with a word, or cut without one."""

    server: OracleServer
    chance: random.Random
    _ended: set[int] = field(default_factory=set)

    def end_worker(self) -> bool:
        """End the session of one worker, or cut a connection that is about to log in."""
        parent = self._parent()
        if parent is None:
            return False
        if self.chance.random() < 0.3 and self.server.drop_login():
            return True
        ended = {parent, *self._ended}
        workers = [sid for sid in self.server.connected if sid not in ended]
        return bool(workers) and self._end(self.chance.choice(workers))

    def end_parent(self) -> bool:
        """End the parent's session."""
        parent = self._parent()
        return parent is not None and self._end(parent)

    def _parent(self) -> int | None:
        # Before its first call the parent has no name, and its connection may be one of a login.
        first = next(iter(self.server.sessions), None)
        return first.sid if first is not None and first.action == "parent" else None

    def _end(self, sid: int) -> bool:
        self._ended.add(sid)
        try:
            (self.server.kill if self.chance.random() < 0.5 else self.server.drop)(sid)
        except KeyError:
            return False
        return True
