"""Whole runs of the command against the Oracle test server, and what they leave behind."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle_server.data.tables import PartitionSpec, Table
from oracle_server.database import Database
from oracle_server.model import Column, Type
from oracle_server.server import OracleServer
from processes import command

from oracle.accounts import PASSWORD

ENVIRONMENT = {"UNLOADER_PASSWORD": PASSWORD}
PARTITIONS = ("P1", "P2", "P3", "P4")
SMALL_FETCH = "1MiB"
"""With this fetch memory a partition of `padded_table` comes in five batches."""
PARTITION_ROWS = 4000
_SCN = re.compile(r"AS OF SCN (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run."""

    status: int
    stdout: str
    log: str
    destination: Path

    @property
    def error(self) -> str:
        """The one line that a failed run gives as its reason; it says what to do."""
        errors = [line for line in self.log.splitlines() if line.startswith("unloader: error:")]
        assert len(errors) == 1, self.log
        assert "Traceback" not in self.log
        assert "Next: " in errors[0], errors[0]
        return errors[0]

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of a finished run."""
        return command.manifest_of(self.destination)

    @property
    def files(self) -> dict[str, str]:
        """Names and SHA-256 of the data files under final names."""
        names = command.final_names(self.destination)
        return {name: sha256(self.destination / name) for name in names if name[0] != "_"}

    @property
    def attempts(self) -> dict[str, int]:
        """How often each partition was read, by its name."""
        return {unit["partition"]: unit["attempts"] for unit in self.manifest["units"]}

    @property
    def staged(self) -> list[str]:
        """Names of what a broken run has kept, without the lock."""
        run = self.destination / "_run"
        found = (str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
        return sorted(name for name in found if name != "lock")


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()


def arguments(
    server: OracleServer, table: str, to: Path, *options: str, url: str = ""
) -> list[str]:
    """Return the command line of a run as SCOTT, with retries that come at once."""
    return [
        "run", url or server.url("scott"), "--table", table, "--to", str(to),
        "--progress", "log", "--retry-delay", "0.1", *options,
    ]  # fmt: skip


def unload(
    server: OracleServer,
    table: str,
    to: Path,
    *options: str,
    url: str = "",
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run to the end, whatever it is."""
    done = command.ended(
        *arguments(server, table, to, *options, url=url),
        env={**os.environ, **ENVIRONMENT, **(env or {})},
    )
    return Outcome(status=done.returncode, stdout=done.stdout, log=done.stderr, destination=to)


def ended(running: command.Running, to: Path) -> Outcome:
    """Wait for the end of a run."""
    try:
        status, stdout, log = running.finish()
    except subprocess.TimeoutExpired:
        running.process.kill()
        _, log = running.process.communicate()
        raise AssertionError(f"the run does not end: {log}") from None
    return Outcome(status=status, stdout=stdout, log=log, destination=to)


def assert_no_connection_left(server: OracleServer) -> None:
    """Check that the server has nobody to serve any more."""
    command.wait_for(lambda: server.open_connections == 0, "the end of every connection")


@contextmanager
def undisturbed(server: OracleServer) -> Iterator[OracleServer]:
    """Yield a server that has forgotten every earlier test; at the end nobody may be connected."""
    server.faults.clear()
    server.sessions.clear()
    server.connect_data.clear()
    yield server
    assert_no_connection_left(server)


def scns(server: OracleServer) -> set[str]:
    """Return every SCN that a statement of the server's sessions has read at."""
    return {
        scn
        for session in server.sessions
        for statement in session.statements
        for scn in _SCN.findall(statement)
    }


def padded_table(db: Database, *, owner: str = "SCOTT", name: str = "PADDED") -> Table:
    """Create a table of four partitions with rows that make many small batches."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="PAD", type=Type(name="VARCHAR2", length=1000)),
    )
    count = len(PARTITIONS) * PARTITION_ROWS
    return db.create_table(
        owner,
        name,
        columns=columns,
        rows=((n, None if n % 97 == 0 else f"{n:0>200}") for n in range(count)),
        partitions=tuple(PartitionSpec(name=partition) for partition in PARTITIONS),
        partition_of=lambda row: PARTITIONS[row[0] % len(PARTITIONS)],
    )
