"""A table with a column of almost every type of MariaDB, and what a source must read of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

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


def create() -> str:
    """Return SQL that makes and fills the table `types`."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
    rows = ", ".join(f"({', '.join(row)})" for row in LITERALS)
    return (
        f"SET sql_mode = ''; SET time_zone = '+00:00'; CREATE TABLE types ({columns}); "
        f"INSERT INTO types VALUES {rows};"
    )
