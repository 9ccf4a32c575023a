"""A table with a column of almost every type of PostgreSQL, and what a source must read of it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

TYPES = {
    "k": "bigint",
    "flag": "boolean",
    "small": "smallint",
    "whole": "integer",
    "object": "oid",
    "single": "real",
    "twice": "double precision",
    "amount": "numeric(12,2)",
    "wide": "numeric(38,10)",
    "widest": "numeric(60,2)",
    "negative": "numeric(5,-2)",
    "small_scale": "numeric(3,5)",
    "free": "numeric",
    "cash": "money",
    "words": "text",
    "short": "varchar(9)",
    "padded": "char(4)",
    "bytes": "bytea",
    "day": "date",
    "clock": "time(3)",
    "zoned_clock": "timetz",
    "moment": "timestamp",
    "seconds": "timestamp(0)",
    "zoned": "timestamptz",
    "zoned_ms": "timestamptz(3)",
    "span": "interval",
    "id": "uuid",
    "colour": "colour",
    "price": "price",
    "seen": "seen",
    "list": "integer[]",
    "record": "pair",
    "document": "jsonb",
    "bits": "varbit",
    "address": "inet",
}

LITERALS = [
    (
        "9223372036854775807", "true", "-32768", "2147483647", "4294967295", "1.5", "5e-324",
        "-9999999999.99", "9999999999999999999999999999.9999999999", "1e57", "12300", "0.00123",
        "1e-20", "-1.5", "E'ü😀\\n\",;\\\\'", "'\\.'", "'ab'", "'\\x00ff'", "'0001-01-01'",
        "'23:59:59.999'", "'12:00:00+05:30'", "'9999-12-31 23:59:59.999999'",
        "'1969-12-31 23:59:59'", "'2024-03-31 02:30:00 Europe/Berlin'",
        "'1900-01-01 00:00:00.5+00'", "'1 year -2 days 03:00'",
        "'00000000-0000-0000-0000-000000000001'", "'o,k'", "1.10",
        "'2024-01-01 00:00:00+14'", "'{1,NULL}'", "'(1,\"x,y\")'", "'{\"a\": 1.10}'", "B'0101'",
        "'::1'",
    ),
    ("2", *["NULL"] * 34),
    (
        "-9223372036854775808", "false", "32767", "-2147483648", "0", "'-inf'", "'inf'", "0",
        "-0.0000000001", "-0.01", "-99900", "-0.00999", "1234567890123456789012345678901234567890",
        "0", "''", "''", "''", "''", "'9999-12-31'", "'24:00'", "'00:00:00-12'",
        "'0001-01-01 00:00:00'", "'2000-02-29 12:00:00'", "'1969-12-31 23:59:59.5+00'",
        "'3844-11-27 03:57:31.001+00'", "'-00:00:00.000001'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'red'", "-0.10", "'0001-01-01 00:00:00+00'",
        "'{}'", "'(,)'", "'null'", "B''", "'10.0.0.1/8'",
    ),
]  # fmt: skip

EXPECTED = [
    (
        2**63 - 1, True, -32768, 2**31 - 1, 2**32 - 1, 1.5, 5e-324, Decimal("-9999999999.99"),
        Decimal("9999999999999999999999999999.9999999999"), "1" + "0" * 57 + ".00", "12300",
        "0.00123", "0.00000000000000000001", "-1.50", 'ü😀\n",;\\', "\\.", "ab  ", b"\x00\xff",
        date(1, 1, 1), "23:59:59.999", "12:00:00+05:30", datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
        datetime(1900, 1, 1, 0, 0, 0, 500000, UTC), "1 year -2 days +03:00:00",
        "00000000-0000-0000-0000-000000000001", "o,k", Decimal("1.10"),
        datetime(2023, 12, 31, 10, tzinfo=UTC), "{1,NULL}", '(1,"x,y")', '{"a": 1.10}', "0101",
        "::1",
    ),
    (2, *[None] * 34),
    (
        -(2**63), False, 32767, -(2**31), 0, -math.inf, math.inf, Decimal(0),
        Decimal("-0.0000000001"), "-0.01", "-99900", "-0.00999",
        "1234567890123456789012345678901234567890", "0.00", "", "", "    ", b"", date(9999, 12, 31),
        "24:00:00", "00:00:00-12", datetime(1, 1, 1), datetime(2000, 2, 29, 12),
        datetime(1969, 12, 31, 23, 59, 59, 500000, UTC),
        datetime(3844, 11, 27, 3, 57, 31, 1000, UTC), "-00:00:00.000001",
        "ffffffff-ffff-ffff-ffff-ffffffffffff", "red", Decimal("-0.10"),
        datetime(1, 1, 1, tzinfo=UTC), "{}", "(,)", "null", "", "10.0.0.1/8",
    ),
]  # fmt: skip

MAKE_TYPES = """
CREATE TYPE colour AS ENUM ('red', 'o,k');
CREATE TYPE pair AS (a integer, b text);
CREATE DOMAIN price_base AS numeric(10, 2);
CREATE DOMAIN price AS price_base CHECK (value < 1000);
CREATE DOMAIN seen AS timestamptz;
"""


def create() -> str:
    """Return SQL that makes and fills the table `types`."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
    rows = ", ".join(f"({', '.join(row)})" for row in LITERALS)
    return f"{MAKE_TYPES} CREATE TABLE types ({columns}); INSERT INTO types VALUES {rows};"
