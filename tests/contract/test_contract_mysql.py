"""The contract of a source, kept by MySQL and MariaDB."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from unloader.model import SourceSpec
from unloader.request.names import parse_table
from unloader.sources.mysql.source import MySQLSource
from unloader.sources.testing import check_many_tables, check_source

TYPES = {
    "k": "bigint unsigned PRIMARY KEY",
    "tiny": "tinyint",
    "flag": "bool",
    "utiny": "tinyint unsigned",
    "small": "smallint",
    "medium": "mediumint unsigned",
    "whole": "int",
    "filled": "int(6) unsigned zerofill",
    "big": "bigint",
    "single": "float",
    "twice": "double",
    "placed": "double(10,2)",
    "amount": "decimal(12,2)",
    "wide": "decimal(38,10)",
    "widest": "decimal(65,30)",
    "day": "date",
    "moment": "datetime(6)",
    "seconds": "datetime",
    "zoned": "timestamp(3) NULL",
    "clock": "time(6)",
    "year": "year",
    "bits": "bit(64)",
    "bit": "bit(1)",
    "colour": "enum('red', 'o,k')",
    "tags": "set('x', 'y')",
    "padded": "char(4)",
    "words": "varchar(200)",
    "latin": "varchar(9) CHARACTER SET latin1",
    "long": "longtext",
    "bytes": "longblob",
    "fixed": "binary(4)",
    "short": "varbinary(9)",
    "document": "json",
    "shape": "geometry",
}

TOP = 2**63 - 1
LITERALS = [
    (
        "18446744073709551615", "-128", "true", "255", "-32768", "16777215", "2147483647", "7",
        "9223372036854775807", "16777217", "5e-324", "1.23", "-9999999999.99",
        "9999999999999999999999999999.9999999999",
        "99999999999999999999999999999999999.999999999999999999999999999999", "'9999-12-31'",
        "'9999-12-31 23:59:59.999999'", "'1970-01-01 00:00:00'", "'2024-03-31 01:30:00.001'",
        "'-838:59:59'", "'2155'", "0xFFFFFFFFFFFFFFFF", "1", "'o,k'", "'x,y'", "'ab  '",
        r"'ü😀\n\",;\\'", "'ÿé'", "'NULL'", "x'00ff'", "x'0001'", "x''", "'{\"a\": 1.10}'",
        "ST_GeomFromText('POINT(1 2)', 4326)",
    ),
    ("0", *["NULL"] * 33),
    (
        "1", "127", "false", "0", "32767", "0", "-2147483648", "4294967295",
        "-9223372036854775808", "0.1", "1.7976931348623157e308", "-99999999.99", "0",
        "-0.0000000001", "-1e-30", "'1000-01-01'", "'1000-01-01'", "'2000-02-29 12:00:00'",
        "'1970-01-01 00:00:01'", "'838:59:59'", "'0000'", "0", "0", "'red'", "''", "''", "''", "''",
        "''", "''", "x'FFFFFFFF'", "x'5C0A'", "'null'", "NULL",
    ),
]  # fmt: skip
WKB = bytes.fromhex("0101000000" + "000000000000f03f" + "0000000000000040")
EXPECTED = [
    (
        2**64 - 1, -128, 1, 255, -32768, 2**24 - 1, 2**31 - 1, 7, TOP, 16777216.0, 5e-324, 1.23,
        Decimal("-9999999999.99"), Decimal("9999999999999999999999999999.9999999999"),
        "9" * 35 + "." + "9" * 30, date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1970, 1, 1), datetime(2024, 3, 31, 1, 30, 0, 1000, UTC), "-838:59:59.000000", 2155,
        2**64 - 1, 1, "o,k", "x,y", "ab", 'ü😀\n",;\\', "ÿé", "NULL", b"\x00\xff",
        b"\x00\x01\x00\x00", b"", '{"a": 1.10}', WKB,
    ),
    (0, *[None] * 33),
    (
        1, 127, 0, 0, 32767, 0, -(2**31), 2**32 - 1, -TOP - 1, 0.10000000149011612,
        1.7976931348623157e308, -99999999.99, Decimal(0), Decimal("-0.0000000001"),
        "-0." + "0" * 29 + "1", date(1000, 1, 1), datetime(1000, 1, 1), datetime(2000, 2, 29, 12),
        datetime(1970, 1, 1, 0, 0, 1, 0, UTC), "838:59:59.000000", 0, 0, 0, "red", "", "", "", "",
        "", b"", b"\xff\xff\xff\xff", b"\\\n", "null", None,
    ),
]  # fmt: skip

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
    columns = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
    rows = ", ".join(f"({', '.join(row)})" for row in LITERALS)
    mysql.run(
        f"SET sql_mode = ''; SET time_zone = '+00:00'; SET max_recursive_iterations = 10000;"
        f"CREATE TABLE types ({columns}); INSERT INTO types VALUES {rows};"
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
    "list with sub-partitions": "PARTITION BY RANGE (k) SUBPARTITION BY HASH (k) SUBPARTITIONS 2 "
    "(PARTITION a VALUES LESS THAN (3000), PARTITION b VALUES LESS THAN MAXVALUE)",
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
