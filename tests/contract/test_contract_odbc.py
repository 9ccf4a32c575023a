"""The contract of a source, kept by databases behind Debian's ODBC drivers."""

from __future__ import annotations

import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from contract import mysql_types, postgres_types
from contract.odbc import of_mysql, of_postgres, of_sqlite
from contract.sqlite_rows import COLUMNS, EDGES, MIXED, MIXED_EXPECTED
from long_tests import OTHER_ROUTES, also

from unloader.model import SessionOptions, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.odbc.source import OdbcSource
from unloader.sources.testing import check_source


def check(
    url: str, table: str, rows: list[tuple[object, ...]], split_by: str | None = None, **more: Any
) -> None:
    """Check the contract on one table."""
    spec = SourceSpec(kind="odbc", location=url, session=SessionOptions(split_by=split_by))
    check_source(OdbcSource(), spec, parse_table(table), rows, **more)


@pytest.mark.parametrize("split_by", ["k", *also(OTHER_ROUTES, None, "zoned", "words")])
def test_contract_of_many_types_of_postgresql(postgres: Any, split_by: str) -> None:
    """Each type is exact, in one piece and in ranges of a key."""
    url = postgres.database("odbc")
    postgres.run(f"{postgres_types.create()} CREATE TABLE vacant (a int, b text)", url=url)
    empty = None if split_by else parse_table("vacant")
    check(of_postgres(url), "types", postgres_types.EXPECTED, split_by, empty=empty)


@pytest.mark.parametrize("split_by", ["day", *also(OTHER_ROUTES, None, "k", "words")])
def test_contract_of_many_types_of_mariadb(mysql: Any, split_by: str) -> None:
    """Each type is exact, in one piece and in ranges of a key that is NULL in one row."""
    url = mysql.database("odbc")
    mysql.run(f"{mysql_types.create()} CREATE TABLE vacant (a int, b text)", database="odbc")
    empty = None if split_by else parse_table("vacant")
    check(of_mysql(url), "types", mysql_types.EXPECTED, split_by, empty=empty)


@pytest.mark.parametrize("split_by", ["s", *also(OTHER_ROUTES, None, "i", "id")])
def test_contract_of_sqlite(tmp_path: Path, split_by: str) -> None:
    """Values of each class are exact; a text that is longer than a buffer is read again."""
    path = tmp_path / "data.db"
    rows: list[tuple[object, ...]] = [*EDGES, (77, 5, -0.5, "wide ü " * 3000, b"\0" * 9000)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t ({COLUMNS})")
        connection.execute("CREATE TABLE vacant (a INT, b TEXT, c)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    empty = None if split_by else parse_table("vacant")
    check(of_sqlite(path), "t", rows, split_by, empty=empty)


def test_contract_of_mixed_classes_of_sqlite(tmp_path: Path) -> None:
    """A view over columns without types keeps the contract with exact text."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a, n NUMERIC)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", MIXED)
        connection.execute("CREATE VIEW v AS SELECT a, n, a || '!' AS c FROM t")
    check(of_sqlite(path), "v", MIXED_EXPECTED)


def test_reals_of_sqlite_are_exact_to_the_bit(tmp_path: Path) -> None:
    """Reals of all sizes, subnormal ones too, are read as SQLite has them."""
    path, source = tmp_path / "data.db", random.Random(11)
    bits = (struct.pack("<Q", source.getrandbits(64)) for _ in range(1_500))
    values = [each for each in (struct.unpack("<d", raw)[0] for raw in bits) if each == each]
    values += [each * 5e-324 for each in range(1, 300)]
    rows: list[tuple[object, ...]] = [(at, each) for at, each in enumerate(values)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, r REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    check(of_sqlite(path), "t", rows)
