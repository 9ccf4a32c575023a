"""The contract of a source, kept by databases behind ADBC drivers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from contract.postgres_types import EXPECTED, create
from contract.sqlite_rows import COLUMNS, EDGES, MIXED, MIXED_EXPECTED
from long_tests import OTHER_ROUTES, also

from unloader.model import SessionOptions, SourceSpec
from unloader.request.names import parse_table
from unloader.sources.adbc.source import AdbcSource
from unloader.sources.testing import check_source

COUNT = 1500
KEYS = {
    "integers with NULL": ("integer", "CASE WHEN g % 5 > 0 THEN g - 700 END"),
    "integers with gaps": ("bigint", "CASE WHEN g % 5 > 0 THEN g * 6000000000000000 END"),
    "one value": ("integer", "7"),
    "texts": ("text", "CASE WHEN g % 9 > 0 THEN chr(65 + g % 50) || '''\\?ü' || g % 97 END"),
    "dates": ("date", "date '0001-01-01' + g * 2000"),
    "decimals": ("numeric(20,3)", "g * 1.125 - 700"),
}


def spec_of(url: str, split_by: str | None = None) -> SourceSpec:
    """Return the spec of a database behind ADBC."""
    return SourceSpec(kind="adbc", location=url, session=SessionOptions(split_by=split_by))


def check(spec: SourceSpec, table: str, rows: list[tuple[object, ...]], **more: Any) -> None:
    """Check the contract on one table."""
    check_source(AdbcSource(), spec, parse_table(table), rows, **more)


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A PostgreSQL database with the tables of this module."""
    pytest.importorskip("adbc_driver_postgresql")
    found = postgres.database("adbc")
    postgres.run(f"{create()} CREATE TABLE vacant (a int, b text)", url=found)
    return f"adbc://postgresql?uri={quote(found, safe='')}"


@pytest.mark.parametrize("split_by", ["k", *also(OTHER_ROUTES, None, "zoned", "words")])
def test_contract_of_many_types_of_postgresql(postgres: Any, url: str, split_by: str) -> None:
    """Each type is exact, in one piece and in ranges of a key that is NULL in one row."""

    def connected() -> set[str]:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'unloader%'"
        return set(postgres.run(query).split())

    before = connected()

    def nobody_of_ours_is_connected() -> None:
        assert connected() <= before

    empty = None if split_by else parse_table("vacant")
    more = {"empty": empty, "after_close": nobody_of_ours_is_connected}
    check(spec_of(url, split_by), "types", EXPECTED, **more)


@pytest.mark.parametrize(
    "how", ["texts", *also(OTHER_ROUTES, *(each for each in KEYS if each != "texts"))]
)
def test_contract_of_ranges_of_keys(postgres: Any, url: str, how: str) -> None:
    """Ranges of keys of each kind have every row once; names have quotes and mixed case."""
    pytest.importorskip("adbc_driver_postgresql")
    kind, key = KEYS[how]
    name = '"From, ""Tab?le"'
    found = postgres.database("adbc")
    postgres.run(
        f'CREATE TABLE {name} (k int, "a ""{{?b}}" text, d date, "the ?key" {kind}); '
        f"INSERT INTO {name} SELECT g, CASE WHEN g % 7 > 0 THEN 'row ' || g END, "
        f"make_date(2020 + g % 4, 1, 1), ({key})::{kind} FROM generate_series(0, {COUNT - 1}) g",
        url=found,
    )
    with psycopg.connect(found) as connection:
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
    assert len(rows) == COUNT
    spec = spec_of(f"adbc://postgresql?uri={quote(found, safe='')}", '"the ?key"')
    check(spec, name, rows)


@pytest.mark.parametrize("split_by", [None, "s", *also(OTHER_ROUTES, "i", "id")])
def test_contract_of_sqlite(tmp_path: Path, split_by: str) -> None:
    """Values of each class are exact, also at both ends of their range."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t ({COLUMNS})")
        connection.execute("CREATE TABLE vacant (a INT, b TEXT, c)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", EDGES)
    empty = None if split_by else parse_table("vacant")
    check(spec_of(f"adbc://sqlite?uri={path}", split_by), "t", EDGES, empty=empty)


def test_contract_of_mixed_classes_of_sqlite(tmp_path: Path) -> None:
    """A view over columns without types keeps the contract with exact text."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a, n NUMERIC)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", MIXED)
        connection.execute("CREATE VIEW v AS SELECT a, n, a || '!' AS c FROM t")
    check(spec_of(f"adbc://sqlite?uri={path}"), "v", MIXED_EXPECTED)
