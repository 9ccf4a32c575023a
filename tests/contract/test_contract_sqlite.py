"""The contract of a source, kept by SQLite."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES, also

from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.sqlite.source import SQLiteSource
from unloader.sources.testing import check_source

TOP = 2**63 - 1
EDGES = [
    (1, TOP, 1.5, "x", b"y"),
    (2, None, None, None, None),
    (3, -TOP - 1, math.inf, "", b""),
    (4, 0, 5e-324, "a\0b", b"\0"),
    (5, -1, 1.7976931348623157e308, "ü\U0001f600\n\"',;\r\n", bytes(range(256))),
    (TOP, 2**53 + 1, 0.1 + 0.2, "NULL", b"\xff"),
]
MANY = [(key * 3, key, key / 7, f"row {key}", b"%d" % key) for key in range(100, 3000)]
COLUMNS = "id INTEGER PRIMARY KEY, i INTEGER, r REAL, s TEXT, b BLOB"

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
        connection.executemany("INSERT INTO t VALUES (?, ?)", [("", None), (1, "1.50"), (0.5, "z")])
        connection.execute("CREATE VIEW v AS SELECT a, n, a || '!' AS c FROM t")
    check_source(
        SQLiteSource(),
        SourceSpec(kind="sqlite", location=f"sqlite://{path}"),
        parse_table("v"),
        [("", None, "!"), ("1", "1.5", "1!"), ("0.5", "z", "0.5!")],
    )
