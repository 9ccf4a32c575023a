"""A gate in a PostgreSQL database: who reads rows through it waits until a test opens it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from processes import command
from processes.program import Program

NUMBER = 4712
PASSING = f"pg_advisory_xact_lock_shared({NUMBER})::text"
"""An expression that is empty text, as soon as the gate is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate, closed until `open`."""

    postgres: Any
    url: str
    session: subprocess.Popen[str]

    def waiting(self) -> int:
        """Return how many sessions wait for it."""
        return int(
            self.postgres.run(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                f"AND objid = {NUMBER}",
                url=self.url,
            )
        )

    def open(self) -> None:
        """Let everybody pass, from now on."""
        self.session.communicate()


@contextmanager
def closed(postgres: Any, url: str) -> Iterator[Gate]:
    """Close the gate of a database; at the end it is open."""
    with Program(
        [postgres.psql, "-X", "-q", "-A", "-t", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        gate = Gate(postgres=postgres, url=url, session=session)
        # An earlier one may be closing still.
        session.stdin.write(f"SELECT 'closed' FROM pg_advisory_lock({NUMBER});\n")
        session.stdin.flush()
        assert session.stdout.readline() == "closed\n"
        try:
            yield gate
        finally:
            if session.poll() is None:
                gate.open()


def wait_at(gate: Gate, running: command.Running, sessions: int = 1) -> None:
    """Wait until that many sessions of a run wait at the gate."""
    running.wait_until(lambda: gate.waiting() == sessions, f"{sessions} sessions at the gate")
