"""Sessions that are ended at random moments: every row once, or the right error.

`UNLOADER_TEST_TERMINATIONS` is how many sessions of workers are ended for each database, and
`UNLOADER_TEST_SEED` which random moments they are.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amounts import amount
from long_tests import OTHER_ROUTES
from oracle import runs
from oracle.leg import database
from oracle.session_killer import End, Killer, OracleSessions, PostgresSessions
from oracle_server import OracleServer
from processes import command

TERMINATIONS = amount("UNLOADER_TEST_TERMINATIONS", 4, 12)
PARENTS = max(2, TERMINATIONS // 6)
SEED = int(os.environ.get("UNLOADER_TEST_SEED", "1"))
MOST_IN_A_RUN = 12
ROWS = 240_000
PARTITIONS = 8

SETUP = f"""
CREATE TABLE t (id bigint NOT NULL, value text) PARTITION BY HASH (id);
DO $$ BEGIN FOR i IN 0..{PARTITIONS - 1} LOOP EXECUTE format(
  'CREATE TABLE t_%s PARTITION OF t FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER %s)',
  i, i); END LOOP; END $$;
INSERT INTO t SELECT g, 'row ' || g || repeat('.', 100) FROM generate_series(1, {ROWS}) g;
VACUUM ANALYZE t;
CREATE TABLE got (id bigint, value text);
"""

COMPARE = """
TRUNCATE got;
{copies}
SELECT count(*) FROM got;
SELECT count(*) FROM (TABLE got EXCEPT ALL TABLE t) AS more;
SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE got) AS less;
"""

LOST_POSTGRES = re.compile(r"the connection (was lost|failed|that holds the snapshot is lost)")
LOST_ORACLE = re.compile(r"ORA-00028|DPY-4011|DPY-6005|the connection was lost|Connection reset")


class Postgres:
    """A database of PostgreSQL with a table of partitions."""

    lost = LOST_POSTGRES
    retried = True

    def __init__(self, postgres: Any) -> None:
        """Fill it."""
        self._server = postgres
        self.url = postgres.database("lost_sessions")
        postgres.run(SETUP, url=self.url)

    def arguments(self, to: Path) -> list[str]:
        """Return the run's source and destination."""
        return ["run", self.url, "--table", "t", "--to", str(to), "--no-header"]

    def sessions(self, chance: random.Random) -> PostgresSessions:
        """Return the sessions of the run that begins."""
        return PostgresSessions(self.url, chance)

    def assert_exact(self, to: Path) -> None:
        """Let psql read the files and compare them with the table."""
        copies = "\n".join(f"\\copy got from '{file}' csv" for file in sorted(to.glob("*.csv")))
        found = self._server.run(COMPARE.format(copies=copies), url=self.url).split()
        assert found == [str(ROWS), "0", "0"]


class Oracle:
    """The Oracle test server with a table of partitions."""

    lost = LOST_ORACLE

    def __init__(self, server: OracleServer) -> None:
        """Take over a server."""
        self._server = server

    def arguments(self, to: Path) -> list[str]:
        """Return the run's source and destination."""
        self._server.sessions.clear()
        url = self._server.url("scott")
        return ["run", url, "--table", "PADDED", "--to", str(to), "--no-header",
                "--fetch-memory", runs.SMALL_FETCH]  # fmt: skip

    def sessions(self, chance: random.Random) -> OracleSessions:
        """Return the sessions of the run that begins."""
        return OracleSessions(self._server, chance)

    def assert_exact(self, to: Path) -> None:
        files = sorted(str(path) for path in to.glob("*.csv"))
        found = subprocess.run(
            ["sort", "-n", *files], env={"LC_ALL": "C"}, capture_output=True, check=True
        ).stdout
        count = len(runs.PARTITIONS) * runs.PARTITION_ROWS
        lines = (f"{n}," + ("" if n % 97 == 0 else f"{n:0>200}") for n in range(count))
        assert found.decode() == "".join(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def on_postgres(postgres: Any) -> Postgres:
    """The PostgreSQL of this module."""
    return Postgres(postgres)


@pytest.fixture(scope="module")
def on_oracle() -> Iterator[Oracle]:
    """The Oracle of this module; at the end without clients."""
    made = database()
    runs.padded_table(made)
    with OracleServer(made) as server:
        yield Oracle(server)
        runs.assert_no_connection_left(server)


@pytest.fixture(params=["postgres", "oracle"])
def source(request: pytest.FixtureRequest) -> Any:
    """Each source that has a server."""
    return request.getfixturevalue(f"on_{request.param}")


def ended(source: Any, to: Path, end: End, most: int, seed: int) -> tuple[runs.Outcome, int]:
    """Run while sessions are ended; return what became of it and how many there were."""
    running = command.Forked(
        *source.arguments(to), "--split", "partition", "--parallelism", "2", "--numa", "off",
        "--progress", "log", "--retries", "1000", "--retry-delay", "0.001",
        env=runs.ENVIRONMENT,
    )  # fmt: skip
    with Killer(end, most, seed) as killer:
        outcome = runs.ended(running, to)
    return outcome, killer.count


@pytest.mark.long(OTHER_ROUTES)
def test_workers_sessions_end_at_random_moments(source: Any, tmp_path: Path) -> None:
    """Each is a lost connection and costs one attempt; in the end every row is there once."""
    total = 0
    retried = 0
    while total < TERMINATIONS:
        seed = SEED * 1000 + total
        to = tmp_path / str(total)
        sessions = source.sessions(random.Random(seed))
        done, count = ended(source, to, sessions.end_worker, MOST_IN_A_RUN, seed)
        print(f"{count} ended: exit {done.status}")
        assert done.status == 0, done.log
        source.assert_exact(to)
        failures = [line for line in done.log.splitlines() if "attempt" in line]
        for line in failures:
            assert source.lost.search(line), line
            print(line)
        retried += len(failures)
        total += count
    assert retried


@pytest.mark.long(OTHER_ROUTES)
def test_parents_session_ends_at_a_random_moment(source: Any, tmp_path: Path) -> None:
    """The run ends with the lost connection by name and nothing under a final name, or whole."""
    for number in range(PARENTS):
        seed = SEED * 1000 + number
        to = tmp_path / str(number)
        sessions = source.sessions(random.Random(seed))
        done, count = ended(source, to, sessions.end_parent, 1, seed)
        if done.status == 0:
            print(f"{count} ended: exit 0")
            source.assert_exact(to)
            continue
        print(f"{count} ended: {done.error}")
        assert done.status == 4, done.log
        assert source.lost.search(done.error), done.log
        assert command.final_names(to) == []
