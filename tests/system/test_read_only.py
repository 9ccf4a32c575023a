"""A run only reads: what would write is refused by the session, and nothing has changed after."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from oracle import runs
from oracle.leg import database
from oracle_server.server import OracleServer
from processes import command

COUNTED = "SELECT count(*) FROM orders"
WRITES = "orders_written"
"""A function of PostgreSQL that inserts a row and returns true."""


@pytest.fixture
def sales(postgres: Any) -> str:
    """A database whose owner we are: a table of three rows, and a function that writes into it."""
    url: str = postgres.database("sales_read_only")
    postgres.run(
        "CREATE TABLE orders AS SELECT generate_series(1, 3) AS id;"
        f"CREATE FUNCTION {WRITES}() RETURNS boolean VOLATILE LANGUAGE sql AS "
        "$$INSERT INTO orders VALUES (0); SELECT true$$",
        url=url,
    )
    return url


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("consistency", ["snapshot", "none"])
@pytest.mark.parametrize(
    "what",
    [
        ("--table", "orders", "--where", f"{WRITES}()"),
        ("--query", f"SELECT id, {WRITES}() FROM orders"),
        ("--query", "WITH n AS (INSERT INTO orders VALUES (0) RETURNING id) SELECT id FROM n"),
    ],
    ids=["condition", "query", "statement"],
)
def test_postgres_is_not_written_to(
    postgres: Any, sales: str, tmp_path: Path, consistency: str, what: tuple[str, ...]
) -> None:
    """A function in a condition or a query, and a statement in one, with a snapshot or without."""
    options = ("--to", str(tmp_path / "out"), "--consistency", consistency, "--retries", "0")
    done = command.ended("run", sales, *what, *options)
    assert done.returncode in (4, 7), done.stderr
    assert "read-only transaction" in done.stderr or "data-modifying" in done.stderr
    assert postgres.run(COUNTED, url=sales) == "3"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO orders VALUES (0) RETURNING id",
        "DELETE FROM orders RETURNING id",
        "SELECT id FROM orders; DELETE FROM orders",
    ],
)
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_files_are_not_written_to(tmp_path: Path, kind: str, query: str) -> None:
    """A database in a file is opened for reading: what writes is refused, the file untouched."""
    path = tmp_path / "sales.db"
    connect: Any = duckdb.connect if kind == "duckdb" else sqlite3.connect
    connection = connect(str(path))
    connection.execute("CREATE TABLE orders AS SELECT 1 AS id")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    done = command.ended("run", f"{kind}://{path}", "--query", query, "--to", str(tmp_path / "o"))
    assert done.returncode in (2, 4), done.stderr
    assert path.read_bytes() == before
    assert not (tmp_path / "o").exists()


def test_oracle_gets_statements_that_read_and_set(tmp_path: Path) -> None:
    """All that our sessions send are queries and settings of the session; nothing takes a lock."""
    found = database()
    runs.padded_table(found)
    with OracleServer(found) as server:
        done = runs.unload(server, "PADDED", tmp_path / "out", "--split", "partition")
        assert done.status == 0, done.log
        sent = [statement for session in server.sessions for statement in session.statements]
    assert any('"PAD"' in statement for statement in sent)
    begin = {statement.lstrip().split(None, 1)[0].upper() for statement in sent}
    assert begin <= {"SELECT", "WITH", "ALTER", "BEGIN", "DECLARE"}
    assert not [s for s in sent if s.upper().startswith("ALTER") and "SESSION" not in s.upper()]
    assert not [statement for statement in sent if "FOR UPDATE" in statement.upper()]
