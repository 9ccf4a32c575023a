"""The contract of a source, kept by SQLite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from contract.sqlite_rows import COLUMNS, EDGES, MIXED, MIXED_EXPECTED
from long_tests import OTHER_ROUTES, also

from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.sqlite.source import SQLiteSource
from unloader.sources.testing import check_source

MANY = [(key * 3, key, key / 7, f"row {key}", b"%d" % key) for key in range(100, 3000)]

EXCLUSIVE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
connection.execute("DROP TABLE t")
connection.execute("COMMIT")
connection.close()
"""


@pytest.mark.parametrize(
    ("options", "journal"),
    [
        *(("", "delete"), ("WITHOUT ROWID", "wal")),
        *also(OTHER_ROUTES, ("", "wal"), ("STRICT", "delete")),
    ],
)
def test_contract(tmp_path: Path, options: str, journal: str) -> None:
    """Tables with and without rowid, strict or not, in both journals keep the contract."""
    path = tmp_path / "data.db"
    rows = [*EDGES, *MANY]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute(f"CREATE TABLE t ({COLUMNS}) {options}")
        connection.execute("CREATE TABLE vacant (a INT, b TEXT, c)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)

    def writable() -> None:
        subprocess.run([sys.executable, "-c", EXCLUSIVE, str(path)], check=True)

    check_source(
        SQLiteSource(),
        SourceSpec(kind="sqlite", location=f"sqlite://{path}"),
        parse_table("t"),
        rows,
        empty=parse_table("vacant"),
        after_close=writable,
    )


def test_contract_of_a_view(tmp_path: Path) -> None:
    """A view over columns without types keeps the contract with exact text."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a, n NUMERIC)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", MIXED)
        connection.execute("CREATE VIEW v AS SELECT a, n, a || '!' AS c FROM t")
    check_source(
        SQLiteSource(),
        SourceSpec(kind="sqlite", location=f"sqlite://{path}"),
        parse_table("v"),
        MIXED_EXPECTED,
    )
