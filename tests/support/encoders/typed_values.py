"""Numbers, times and bytes at the edges of their types, and how ISO 8601 and SQL spell them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa

UTC = UTC
COLUMNS: tuple[tuple[str, pa.DataType, tuple[object, ...], tuple[str | None, ...]], ...] = (
    (
        "whole",
        pa.int64(),
        (2**63 - 1, -(2**63), 0, None, -1),
        ("9223372036854775807", "-9223372036854775808", "0", None, "-1"),
    ),
    (
        "wide",
        pa.decimal128(38, 0),
        (Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0), Decimal(10)),
        ("9" * 38, "-" + "9" * 38, None, "0", "10"),
    ),
    (
        "money",
        pa.decimal128(12, 2),
        (Decimal("-0.01"), Decimal("9999999999.99"), Decimal("0.10"), Decimal("100.00"), None),
        ("-0.01", "9999999999.99", "0.10", "100.00", None),
    ),
    (
        "ratio",
        pa.float64(),
        (0.1, -1.7976931348623157e308, 5e-324, 123456789.125, None),
        ("0.1", "-1.7976931348623157e+308", "5e-324", "123456789.125", None),
    ),
    (
        "day",
        pa.date32(),
        (date(1, 1, 1), date(9999, 12, 31), None, date(1582, 10, 10), date(2000, 2, 29)),
        ("0001-01-01", "9999-12-31", None, "1582-10-10", "2000-02-29"),
    ),
    (
        "moment",
        pa.timestamp("us"),
        (
            datetime(1, 1, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
            datetime(1969, 12, 31, 23, 59, 59, 500000),
            None,
            datetime(3844, 11, 27, 2, 57, 31),
        ),
        (
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "1969-12-31 23:59:59.5",
            None,
            "3844-11-27 02:57:31",
        ),
    ),
    (
        "instant",
        pa.timestamp("us", "UTC"),
        (
            datetime(1, 1, 2, tzinfo=UTC),
            None,
            datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
            datetime(2024, 3, 31, 1, tzinfo=UTC),
            datetime(1900, 1, 1, tzinfo=UTC),
        ),
        (
            "0001-01-02 00:00:00+00:00",
            None,
            "9999-12-31 23:59:59.000001+00:00",
            "2024-03-31 01:00:00+00:00",
            "1900-01-01 00:00:00+00:00",
        ),
    ),
    (
        "clock",
        pa.time64("us"),
        (time(0), time(23, 59, 59, 999999), time(12, 0, 0, 100), None, time(1, 2, 3)),
        ("00:00:00", "23:59:59.999999", "12:00:00.0001", None, "01:02:03"),
    ),
    (
        "raw",
        pa.binary(),
        (b"", b"\x00\xff", None, b"\\x,\"\r\n", bytes(range(256))),
        ("\\x", "\\x00ff", None, "\\x5c782c220d0a", "\\x" + bytes(range(256)).hex()),
    ),
)  # fmt: skip


def batch() -> pa.RecordBatch:
    """Return all columns."""
    arrays = [pa.array(values, kind) for _, kind, values, _ in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, [name for name, *_ in COLUMNS])


def texts() -> list[tuple[str | None, ...]]:
    """Return the rows of `batch`, each value as its text."""
    return list(zip(*(texts for *_, texts in COLUMNS), strict=True))
