"""The contract of a source, kept by MySQL and MariaDB."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from contract.mysql_types import EXPECTED, create

from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.mysql.source import MySQLSource
from unloader.sources.testing import check_many_tables, check_source

COUNT = 4000
ROWS: list[tuple[object, ...]] = [
    (key, None if key % 7 == 0 else f"row {key}", date(2020 + key % 4, 1, 1))
    for key in range(COUNT)
]
FILL = (
    "SELECT seq, IF(seq % 7, concat('row ', seq), NULL), makedate(2020 + seq % 4, 1) FROM numbers"
)
NUMBERS = (
    "CREATE TABLE numbers (seq int PRIMARY KEY) WITH RECURSIVE n (seq) AS (SELECT 0 UNION ALL "
    f"SELECT seq + 1 FROM n WHERE seq + 1 < {COUNT}) SELECT seq FROM n;"
)


@pytest.fixture(scope="module")
def url(mysql: Any) -> str:
    """A database with the tables of this module."""
    found: str = mysql.database("contract")
    mysql.run(
        f"SET max_recursive_iterations = 10000; {create()}"
        f"CREATE TABLE vacant (a int, b text); {NUMBERS}",
        database="contract",
    )
    return found


def check(url: str, table: str, expected: list[tuple[object, ...]], **more: Any) -> None:
    """Check the contract on one table."""
    spec = SourceSpec(kind="mysql", location=url)
    check_source(MySQLSource(), spec, parse_table(table), expected, **more)


def test_contract_of_many_types(mysql: Any, url: str) -> None:
    """A table with a column of almost every type, NULLs and edges in each, keeps the contract."""
    before = mysql.sessions()

    def nobody_of_ours_is_connected() -> None:
        assert mysql.sessions() <= before

    more = {"empty": parse_table("vacant"), "after_close": nobody_of_ours_is_connected}
    check(url, "types", EXPECTED, **more)


KEYS = {
    "integers": ("int", "k"),
    "large integers with gaps": ("bigint unsigned", "CAST(k AS UNSIGNED) * 3000000000000000"),
    "texts": ("varchar(40)", "concat('Key ', k)"),
    "texts of another character set": (
        "varchar(40) CHARACTER SET latin1 COLLATE latin1_german1_ci",
        "concat(elt(1 + k % 4, 'Ä', 'ae', '\"', 'z '), k)",
    ),
    "bytes": ("binary(16)", "unhex(md5(k))"),
    "dates": ("datetime(3)", "timestampadd(minute, k * 77, '1999-12-31 12:00:00')"),
    "decimals": ("decimal(20,3)", "k * 1.125 - 3000"),
}


@pytest.mark.parametrize("how", KEYS)
def test_contract_of_a_table_cut_by_keys(mysql: Any, url: str, how: str) -> None:
    """Ranges of keys of each kind have every row once; names have quotes and mixed case."""
    kind, key = KEYS[how]
    mysql.run(
        'SET sql_mode = ANSI_QUOTES; DROP TABLE IF EXISTS "From, ""Table"; '
        f'CREATE TABLE "From, ""Table" ("k" int, "a ""b" text, "Where" date, "the `key" {kind}, '
        'PRIMARY KEY ("the `key", k));'
        f'INSERT INTO "From, ""Table" SELECT k, v, d, {key} FROM (SELECT seq AS k, '
        "IF(seq % 7, concat('row ', seq), NULL) AS v, makedate(2020 + seq % 4, 1) AS d "
        'FROM numbers) AS n; ANALYZE TABLE "From, ""Table"',
        database="contract",
    )
    shown = 'hex("the `key")' if how == "bytes" else '"the `key"'
    query = f'SET sql_mode = ANSI_QUOTES; SELECT k, {shown} FROM "From, ""Table"'
    found = [line.split("\t") for line in mysql.run(query, database="contract").split("\n")]
    values: dict[str, Any] = {
        "integers": int,
        "large integers with gaps": int,
        "texts": str,
        "texts of another character set": str,
        "bytes": bytes.fromhex,
        "dates": datetime.fromisoformat,
        "decimals": Decimal,
    }
    expected = [(*ROWS[int(row)], values[how](key)) for row, key in found]
    assert len(expected) == COUNT
    check(url, '"From, ""Table"', expected)


PARTITIONINGS = {
    "hash": "PARTITION BY HASH (k) PARTITIONS 3",
    "range": "PARTITION BY RANGE (k) (PARTITION low VALUES LESS THAN (2000), PARTITION `m/d` "
    "VALUES LESS THAN (2001), PARTITION none VALUES LESS THAN (2001 + 0 + 1), "
    "PARTITION rest VALUES LESS THAN MAXVALUE)",
    "range with sub-partitions": "PARTITION BY RANGE (k) SUBPARTITION BY HASH (k) "
    "(PARTITION `a/b` VALUES LESS THAN (3000) (SUBPARTITION `c/d`, SUBPARTITION `50%`), "
    "PARTITION b VALUES LESS THAN MAXVALUE (SUBPARTITION `%2F`, SUBPARTITION `/`))",
}


@pytest.mark.parametrize("how", PARTITIONINGS)
@pytest.mark.parametrize("key", ["PRIMARY KEY (k)", "KEY (k)"])
def test_contract_of_a_partitioned_table(mysql: Any, url: str, how: str, key: str) -> None:
    """Partitions and sub-partitions are read by name, and in ranges of an integer key."""
    mysql.run(
        f"DROP TABLE IF EXISTS parts; CREATE TABLE parts (k int NOT NULL, v text, d date, {key}) "
        f"{PARTITIONINGS[how]}; INSERT INTO parts {FILL}; ANALYZE TABLE parts",
        database="contract",
    )
    check(url, "parts", ROWS)


def test_a_nullable_unique_key_is_not_for_ranges(mysql: Any, url: str) -> None:
    """Rows without a key are read, too."""
    mysql.run(
        "DROP TABLE IF EXISTS nulls; CREATE TABLE nulls (k int UNIQUE, v text, d date); "
        "INSERT INTO nulls SELECT NULLIF(seq, 0), IF(seq % 7, concat('row ', seq), NULL), "
        "makedate(2020 + seq % 4, 1) FROM numbers; INSERT INTO nulls VALUES (NULL, 'x', NULL)",
        database="contract",
    )
    check(url, "nulls", [(None, *ROWS[0][1:]), *ROWS[1:], (None, "x", None)])


def test_many_tables(mysql: Any) -> None:
    """Tables and views are described together as each alone."""
    url = mysql.database("many")
    mysql.run(
        "CREATE TABLE a (i int PRIMARY KEY, t text); CREATE TABLE `B ``q` (x varchar(9) PRIMARY "
        "KEY) PARTITION BY KEY (x) PARTITIONS 2; CREATE VIEW v AS SELECT i, t, 1.5 AS n FROM a; "
        "CREATE TABLE m (i int) ENGINE=MyISAM; INSERT INTO a VALUES (1, 'x'), (2, NULL)",
        database="many",
    )
    check_many_tables(MySQLSource(), SourceSpec(kind="mysql", location=url), at_least=4)
